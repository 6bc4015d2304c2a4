"""What a native library asks of its host, symbol by symbol: LibTorch's stable ABI, and nothing of CPython.

A library may refer to four kinds of symbols: those with a version that its platform grants, the C shim of
LibTorch's stable ABI (``torch/csrc/stable/c/shim.h`` and ``torch/csrc/inductor/aoti_torch/c/shim.h``), what
another library of the same wheel defines, and the few weak names that every toolchain writes. Everything else is a
problem. This is an allow list: torch-abi-audit refuses what it knows to be unstable; here what is not known is
refused (docs/decisions/0003-own-readers.md).

``TORCH_TARGET_VERSION`` itself is not in the bytes. What it decides is: which shim functions the headers call. Each
was introduced in some release (``torch_shim.json``, generated), and the newest of those used is the oldest torch
that the library loads into. The version of the *headers* is in the bytes, since registration passes it
(``TORCH_ABI_VERSION``) as a constant: it is read from the instructions that load it, and reported.

==================  ==========================================================================
reason              what was found
==================  ==========================================================================
symbol-above-floor  a symbol version that the platform does not grant
symbol-cpython      a symbol of CPython
symbol-torch        a C++ symbol of torch, outside the stable ABI
symbol-unknown      a symbol that nothing accounts for
shim-unknown        a name of the shim's kind that no known torch has
==================  ==========================================================================
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from wheelmark import strictjson
from wheelmark.binaries.elf import EM_AARCH64, EM_X86_64, Elf
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.binaries.platforms import Floor, Version, parse_version

_CPYTHON = re.compile(r"_?Py[A-Z_][A-Za-z0-9_]*|_?PyPy[A-Za-z0-9_]*")
_SHIM = re.compile(r"(aoti_torch|torch)_[A-Za-z0-9_]+")
_TORCH = re.compile(r"_Z\w*?(2at|3c10|5torch|5caffe2)\w*")
_TOOLCHAIN = frozenset(
    {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "_Jv_RegisterClasses"}
)
"""Weak names in the start-up code of every shared object of GCC."""
_EXECUTABLE = 4
"""``SHF_EXECINSTR``."""
_MOVABS = re.compile(rb"[\x48\x49][\xb8-\xbf]\x00{5}(.)(.)\x02", re.DOTALL)
"""x86-64 ``movabs $0x02<minor><patch>0000000000, %reg``: REX.W, B8+register, eight bytes."""
_MOVZ_TOP = 0xD2E00000
"""AArch64 ``movz x<register>, #imm16, lsl #48``; the immediate is major and minor."""
_MOVZ_MASK = 0xFFE00000
_TORCH_MAJOR = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchUse:
    """What a library asks of torch."""

    floor: str
    """Oldest torch that has all shim functions used, ``2.10.0``; empty where none is used."""
    because: tuple[str, ...]
    """The shim functions that came with that version."""
    headers: tuple[str, ...]
    """Versions of torch's headers that its code passes on, ``2.13.0``."""


def check_symbols(elf: Elf, floor: Floor, *, provided: AbstractSet[str] = frozenset()) -> Iterator[Problem]:
    """Hold every symbol version and undefined symbol of a shared object against what it may ask for.

    Args:
        elf: The object.
        floor: What its platform grants.
        provided: Symbols that other libraries of the same wheel define.
    """
    if elf.dynamic is None:
        return
    for library, versions in elf.dynamic.required.items():
        for version in versions:
            if not floor.grants(version):
                users = [
                    s.name for s in elf.dynamic.undefined if s.version == version and s.library == library
                ]
                shown = ", ".join(sorted(users)[:3]) or "no symbol"
                yield Problem(
                    reason="symbol-above-floor",
                    text=f"{version} of {library} ({shown}); {floor.policy} grants no such version",
                )
    for symbol in elf.dynamic.undefined:
        if not symbol.version and symbol.name not in provided:
            reason = _reason(symbol.name, weak=symbol.weak)
            if reason:
                yield Problem(reason=reason, text=f"undefined symbol {symbol.name[:200]}")


def torch_use(elf: Elf) -> TorchUse:
    """The oldest torch that a shared object loads into, and the headers that it was compiled with."""
    table = shim_versions()
    undefined = elf.dynamic.undefined if elf.dynamic is not None else ()
    used = {symbol.name: table[symbol.name] for symbol in undefined if symbol.name in table}
    floor = max((parse_version(version) for version in used.values()), default=())
    return TorchUse(
        floor=".".join(map(str, floor)),
        because=tuple(sorted(name for name, version in used.items() if parse_version(version) == floor)),
        headers=tuple(".".join(map(str, version)) for version in sorted(_header_versions(elf))),
    )


@functools.cache
def shim_versions() -> Mapping[str, str]:
    """Every function of LibTorch's C shim -> the torch release that first had it (2.9.0: or an older one)."""
    data = importlib.resources.files("wheelmark.binaries").joinpath("torch_shim.json").read_bytes()
    value = strictjson.load_object(data, what="torch_shim.json")
    return {name: version for version, names in value["functions"].items() for name in names}


def is_cpython(name: str) -> bool:
    """Whether a symbol belongs to CPython."""
    return _CPYTHON.fullmatch(name) is not None


def _reason(name: str, *, weak: bool) -> str:
    if is_cpython(name):
        return "symbol-cpython"
    if name in shim_versions() or (weak and name in _TOOLCHAIN):
        return ""
    if _SHIM.fullmatch(name):
        return "shim-unknown"
    return "symbol-torch" if _TORCH.fullmatch(name) else "symbol-unknown"


def _header_versions(elf: Elf) -> Iterable[Version]:
    found: set[Version] = set()
    for section in elf.sections:
        if not section.flags & _EXECUTABLE:
            continue
        code = elf.contents(section)
        if elf.machine == EM_X86_64:
            found |= {(_TORCH_MAJOR, match[2][0], match[1][0]) for match in _MOVABS.finditer(code)}
        elif elf.machine == EM_AARCH64:
            words = memoryview(code[: len(code) // 4 * 4]).cast("I")
            for word in words:
                top = word >> 5 & 0xFFFF
                if word & _MOVZ_MASK == _MOVZ_TOP and top >> 8 == _TORCH_MAJOR:
                    found.add((_TORCH_MAJOR, top & 0xFF, 0))
    return found
