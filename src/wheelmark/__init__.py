"""Wheelmark: reproducible builds and a supply-chain release pipeline for accelerator software."""

__version__ = "0.1.0"
