"""Start of a kernel worker: `python -P -s <this folder>`, with the build environment's interpreter.

This folder is no part of the package `wheelmark` at run time: the interpreter that runs it has Triton and has no
wheelmark. It speaks JSON lines, see `protocol`.
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import sys
import types
from pathlib import Path

_ADDR_NO_RANDOMIZE = 0x0040000
"""linux/personality.h."""
_QUERY = 0xFFFFFFFF
_PACKAGE = "wheelmark_kernel_worker"


def _without_address_randomization() -> bool:
    """Run this again without address space randomization, which `ptxas` lets into its output.

    It holds for the processes that are started from here as well, `ptxas` among them. Measured: sm_100 kernels
    with tcgen05 instructions gave two cubins from one PTX with it, one without.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.personality.argtypes = [ctypes.c_ulong]
    persona: int = libc.personality(_QUERY)
    if persona >= 0 and not persona & _ADDR_NO_RANDOMIZE:
        if libc.personality(persona | _ADDR_NO_RANDOMIZE) >= 0:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
        return False  # a sandbox forbids it
    return persona >= 0


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a compiler that aborts leaves no core file
    fixed = _without_address_randomization()
    # The package gets a name of its own and no place on sys.path, where it could hide a project's modules.
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [str(Path(__file__).resolve().parent)]
    sys.modules[_PACKAGE] = package
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    importlib.import_module(f"{_PACKAGE}.protocol").serve(address_randomization=not fixed)


_main()
