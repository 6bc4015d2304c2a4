"""The words for what a GPU code object's bytes say, one vocabulary for CUDA and ROCm."""

from __future__ import annotations

import dataclasses
import enum
from typing import NoReturn

from wheelmark.errors import InputError


class ObjectKind(enum.Enum):
    """The format of a code object; the value is its file suffix."""

    CUBIN = "cubin"
    HSACO = "hsaco"


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class ParameterSlot:
    """Where one argument lies in a kernel's parameter block."""

    offset: int
    """Bytes from the first parameter."""
    size: int
    """Bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """What the bytes say of one kernel (an entry that can be launched)."""

    name: str
    """The symbol that the driver is asked for."""
    registers: int
    """Registers a thread; on gfx90a and later vector and accumulation registers together."""
    scalar_registers: int
    """SGPRs a wavefront; 0 for CUDA."""
    spill_stores: int
    """CUDA: STL instructions (local arrays look the same). ROCm: spilled vector and scalar registers."""
    spill_loads: int
    """CUDA: LDL instructions. ROCm: 0."""
    static_shared: int
    """Bytes of shared memory or LDS that the object reserves for a block; what a launch adds is not known here."""
    stack: int
    """Bytes of stack (CUDA) or private memory (ROCm) a thread."""
    max_threads: int
    """Most threads that a block may have; 0 where the object does not say."""
    required_threads: int
    """Exactly this many threads a block; 0 where any number up to ``max_threads`` will do."""
    warp_size: int
    """Threads."""
    code_size: int
    """Bytes of machine code, with functions that only this kernel calls."""
    parameter_bytes: int
    parameters: tuple[ParameterSlot, ...]
    """In order; for ROCm without the hidden ones that the runtime fills."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeObject:
    """What the bytes say of one code object."""

    kind: ObjectKind
    arch: str
    """``sm90``, ``gfx942``."""
    suffix: str
    """``a``: this chip exactly; ``f``: its family; empty otherwise."""
    kernels: tuple[KernelFacts, ...]
    """By name."""
    abi: int
    """CUDA: ELF ABI version (7 or 8). ROCm: code object version."""
    toolkit: str
    """CUDA toolkit whose assembler wrote it, ``12.8``; empty for ROCm."""
    tool: str
    """What the object says of the tool that wrote it; empty where it says nothing."""
    features: tuple[str, ...] = ()
    """ROCm target features that were fixed: ``sramecc+``, ``xnack-``."""

    def kernel(self, name: str) -> KernelFacts | None:
        """The kernel of that symbol, or ``None``."""
        return next((kernel for kernel in self.kernels if kernel.name == name), None)


def refuse(text: str, reason: str) -> NoReturn:
    """Refuse a code object.

    Raises:
        InputError: Always.
    """
    raise InputError(f"code object: {text}", reason=reason)
