"""GPU code objects: what their bytes say, whatever vendor wrote them.

This is the entrance to ``cubin`` and ``hsaco``; the facts are words of ``facts``.
"""

from __future__ import annotations

from wheelmark.binaries.cubin import read_cubin
from wheelmark.binaries.elf import EM_AMDGPU, EM_CUDA, read_elf
from wheelmark.binaries.facts import CodeObject, KernelFacts, ObjectKind, ParameterSlot
from wheelmark.binaries.hsaco import read_hsaco
from wheelmark.errors import InputError

__all__ = ["CodeObject", "KernelFacts", "ObjectKind", "ParameterSlot", "read_code_object"]


def read_code_object(data: bytes) -> CodeObject:
    """Read a cubin or an hsaco.

    Args:
        data: The object's bytes.

    Returns:
        Its arch, kernels and their needs.

    Raises:
        InputError: ``object-empty``, ``object-kind`` (an ELF for something else), or a reason code of ``elf``,
            ``cubin`` or ``hsaco``.
    """
    if not data:
        raise InputError("code object: zero bytes", reason="object-empty")
    elf = read_elf(data)
    if elf.machine == EM_CUDA:
        return read_cubin(elf)
    if elf.machine == EM_AMDGPU:
        return read_hsaco(elf)
    raise InputError(f"code object: an ELF for {elf.machine_name}", reason="object-kind")
