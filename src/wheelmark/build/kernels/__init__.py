"""Ahead-of-time compilation of declared Triton kernels, with no GPU.

- ``declaration``: the TOML of a kernel project; ``variants``: what it makes for a target. Pure.
- ``compile``: what the pipeline calls; ``scheduler`` and ``worker_process``: who does the work.
- ``capture``: a declaration written by watching a project launch its kernels.
- ``toolchain`` and ``cache``: the compiler as a fact, and what need not be compiled again.
- ``objects``: what the bytes say, held against the limits of the arch.
- ``worker/``: scripts that the build environment's interpreter runs. They have Triton and no wheelmark.
"""

from __future__ import annotations

from wheelmark.build.kernels.capture import capture_declaration
from wheelmark.build.kernels.compile import CompiledKernels, compile_kernels, source_digests
from wheelmark.build.kernels.declaration import KernelDeclaration, KernelDeclarations, load_kernel_declaration
from wheelmark.build.kernels.objects import Refusal
from wheelmark.build.kernels.variants import declared_variants

__all__ = [
    "CompiledKernels",
    "KernelDeclaration",
    "KernelDeclarations",
    "Refusal",
    "capture_declaration",
    "compile_kernels",
    "declared_variants",
    "load_kernel_declaration",
    "source_digests",
]
