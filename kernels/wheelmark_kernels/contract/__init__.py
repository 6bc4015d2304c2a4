"""The contract that this package keeps, and that anyone can check where it is installed: ``python -m wheelmark_kernels.contract``.

    correctness  the installed operators against a float64 reference; errors; threads; gradients
    performance  paired timings against nn.EmbeddingBag's own function
    interpret    the kernels' Triton source, run by Triton's interpreter on the CPU
    launch       what the launcher asks of a driver, with a driver that records it
    hardware     the precompiled kernels on the card of this machine

Each writes a JSON report (`report`). Exit codes: 0 all cases passed, 1 a case failed, 2 wrong usage, 3 this machine cannot run
what was asked for.
"""
