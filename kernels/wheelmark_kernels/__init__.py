"""Table-batched embedding operators, compiled ahead of time; importing this package registers ``torch.ops.wheelmark``.

    tbe_forward     pooled lookup in several tables at once (`wheelmark_kernels.tbe`)
    cpu_dispatch    which CPU code path runs here: "scalar", "avx2" or "avx512"

The CPU operators are in every wheel; a wheel for a GPU holds precompiled kernels besides, which are found and checked when
they are first used, so that importing it on a machine without a card works.
"""

from __future__ import annotations

import torch

from wheelmark_kernels import native

native.load()

from wheelmark_kernels.tbe import tbe_forward  # noqa: E402 (its registrations need the loaded library)

__all__ = ["cpu_dispatch", "tbe_forward"]


def cpu_dispatch() -> str:
    """Name the CPU code path that runs: the widest of this CPU, or the one in WHEELMARK_KERNELS_CPU when the package was imported.

    Returns:
        ``"scalar"``, ``"avx2"`` or ``"avx512"``.

    Raises:
        ValueError: The variable holds no path's name.
        RuntimeError: It names a path that this CPU cannot run.
    """
    path: str = torch.ops.wheelmark.cpu_dispatch()
    return path
