"""Triton sources of the kernels: compiled ahead of time for each card, never compiled where they run.

Importing a module of this package needs Triton. Nothing that runs at deploy time imports one: the launcher
loads the code objects made from these sources.
"""
