"""hsaco: AMD machine code for one arch, as LLVM writes it.

Source: LLVM, "User Guide for AMDGPU Backend" (ELF header, code object metadata V3 and later, kernel
descriptor). What a kernel needs stands in the note of type 32 (MessagePack) and again, for the hardware, in its
64-byte descriptor; the two must agree, and the descriptor must point to the kernel's own code.

Refusals: ``hsaco-abi``, ``hsaco-arch``, ``hsaco-section``, ``hsaco-metadata``, ``hsaco-kernel``,
``hsaco-disagrees``.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Mapping
from typing import Any

from wheelmark.binaries import fields
from wheelmark.binaries.elf import SHT_NOBITS, STT_FUNC, Elf, Symbol
from wheelmark.binaries.facts import CodeObject, KernelFacts, ObjectKind, ParameterSlot, refuse
from wheelmark.binaries.messagepack import read_messagepack

_OSABI_HSA = 64
_VERSIONS = (4, 5, 6)
_METADATA_NOTE = 32
_MACHINES: Mapping[int, str] = {
    0x30: "gfx908",
    0x36: "gfx1030",
    0x3F: "gfx90a",
    0x41: "gfx1100",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
}
_UNIFIED_REGISTERS = {"gfx90a", "gfx942", "gfx950"}
"""Vector and accumulation registers are one file there, given out by eights."""
_GRANULE = 8
_SIGN = {2: "-", 3: "+"}
_ANY = (0, 1)
_SECTIONS = re.compile(
    r"|\.note|\.dynsym|\.gnu\.hash|\.hash|\.dynstr|\.rodata|\.text|\.dynamic|\.relro_padding|\.comment|\.symtab"
    r"|\.shstrtab|\.strtab|\.AMDGPU\.(csdata|gpr_maximums|kdinfo|info)|\.rela\.dyn|\.data|\.bss|\.data\.rel\.ro"
    r"|\.amdgpu\.metadata"
)
_DESCRIPTOR = struct.Struct("<IIIIq")
_DESCRIPTOR_SETTINGS = struct.Struct("<IIIH")
_DESCRIPTOR_SIZE = 64
_SETTINGS_AT = 44
_WAVE_32 = 1 << 10


def read_hsaco(elf: Elf) -> CodeObject:
    """Read an hsaco.

    Raises:
        InputError: Unknown ABI or arch, malformed metadata, or facts that disagree.
    """
    version = elf.abi_version + 2
    if elf.osabi != _OSABI_HSA or version not in _VERSIONS:
        refuse(f"unknown hsaco ABI {elf.osabi}/{elf.abi_version}", "hsaco-abi")
    for section in elf.sections:
        if _SECTIONS.fullmatch(section.name) is None:
            refuse(f"section {section.name[:80]} is not expected in a release hsaco", "hsaco-section")
    arch = _MACHINES.get(elf.flags & 0xFF, "")
    if not arch:
        refuse(f"unknown machine {elf.flags & 0xFF:#x}", "hsaco-arch")
    features = tuple(
        name + _SIGN[value]
        for name, value in (("sramecc", elf.flags >> 10 & 3), ("xnack", elf.flags >> 8 & 3))
        if value not in _ANY
    )
    metadata = _metadata(elf)
    target = _text(metadata, "amdhsa.target")
    processor, *fixed = target.split(":")
    if not processor.endswith("-" + arch) or tuple(sorted(fixed)) != features:
        refuse(
            f"metadata is of {target[:80]}, the header of {':'.join((arch, *features))}", "hsaco-disagrees"
        )
    symbols = {symbol.name: symbol for symbol in elf.symbols()}
    rows = metadata.get("amdhsa.kernels")
    if not isinstance(rows, list) or not rows:
        refuse("metadata lists no kernel", "hsaco-metadata")
    kernels = [_kernel(elf, symbols, row, arch) for row in rows]
    described = {symbol.name for symbol in symbols.values() if symbol.name.endswith(".kd") and symbol.section}
    if len({kernel.name for kernel in kernels}) != len(kernels) or len(described) != len(kernels):
        refuse("metadata and descriptors do not name the same kernels", "hsaco-disagrees")
    return CodeObject(
        kind=ObjectKind.HSACO,
        arch=arch,
        suffix="",
        kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name)),
        abi=version,
        toolkit="",
        tool=_comment(elf),
        features=features,
    )


def _metadata(elf: Elf) -> dict[str, Any]:
    found = [note for note in elf.notes() if (note.owner, note.type) == ("AMDGPU", _METADATA_NOTE)]
    if len(found) != 1:
        refuse(f"{len(found)} metadata notes", "hsaco-metadata")
    value = read_messagepack(found[0].description)
    if not isinstance(value, dict) or value.get("amdhsa.version") not in ([1, 1], [1, 2]):
        refuse("metadata of an unknown version", "hsaco-metadata")
    return value


def _kernel(elf: Elf, symbols: Mapping[str, Symbol], row: Any, arch: str) -> KernelFacts:
    if not isinstance(row, dict):
        refuse("a kernel's metadata is no map", "hsaco-metadata")
    name, symbol_name = _text(row, ".name"), _text(row, ".symbol")
    descriptor, code = symbols.get(symbol_name), symbols.get(name)
    if symbol_name != f"{name}.kd" or descriptor is None or code is None or code.type != STT_FUNC:
        refuse(f"kernel {name[:80]} has no descriptor or no code", "hsaco-kernel")
    if not code.size or not descriptor.section < len(elf.sections) or not code.section < len(elf.sections):
        refuse(f"kernel {name} has no code", "hsaco-kernel")
    text = elf.sections[code.section]
    inside = text.address <= code.value and code.value + code.size <= text.address + text.size
    if text.name != ".text" or text.type == SHT_NOBITS or not inside:
        refuse(f"the code of kernel {name} lies outside .text", "hsaco-kernel")
    memory = _number(row, ".group_segment_fixed_size"), _number(row, ".private_segment_fixed_size")
    kernarg, wave = _number(row, ".kernarg_segment_size"), _number(row, ".wavefront_size")
    registers = _number(row, ".vgpr_count")
    _check_descriptor(
        elf, descriptor, code, said=(*memory, kernarg), wave=wave, registers=registers, arch=arch
    )
    parameters = _parameters(row, name)
    if any(slot.offset + slot.size > kernarg for slot in parameters):
        refuse(f"kernel {name}: an argument lies outside its {kernarg} bytes", "hsaco-disagrees")
    return KernelFacts(
        name=name,
        registers=registers,
        scalar_registers=_number(row, ".sgpr_count"),
        spill_stores=_number(row, ".vgpr_spill_count") + _number(row, ".sgpr_spill_count"),
        spill_loads=0,
        static_shared=memory[0],
        stack=memory[1],
        max_threads=_number(row, ".max_flat_workgroup_size"),
        required_threads=0,
        warp_size=wave,
        code_size=code.size,
        parameter_bytes=kernarg,
        parameters=parameters,
    )


def _check_descriptor(
    elf: Elf,
    symbol: Symbol,
    code: Symbol,
    *,
    said: tuple[int, int, int],
    wave: int,
    registers: int,
    arch: str,
) -> None:
    section = elf.sections[symbol.section]
    at = symbol.value - section.address
    inside = at >= 0 and at + _DESCRIPTOR_SIZE <= section.size
    if (
        section.name != ".rodata"
        or section.type == SHT_NOBITS
        or symbol.size != _DESCRIPTOR_SIZE
        or not inside
    ):
        refuse(f"descriptor {symbol.name} is not 64 bytes of .rodata", "hsaco-kernel")
    body = fields.part(
        elf.data, section.offset + at, _DESCRIPTOR_SIZE, what="kernel descriptor", reason="hsaco-kernel"
    )
    shared, private, kernarg, _, entry = fields.unpack(
        _DESCRIPTOR, body, 0, what="kernel descriptor", reason="hsaco-kernel"
    )
    _, settings, _, properties = fields.unpack(
        _DESCRIPTOR_SETTINGS, body, _SETTINGS_AT, what="kernel descriptor", reason="hsaco-kernel"
    )
    if (shared, private, kernarg) != said:
        refuse(f"{symbol.name} says {(shared, private, kernarg)} bytes, metadata {said}", "hsaco-disagrees")
    if symbol.value + entry != code.value:
        refuse(f"{symbol.name} does not point to the kernel's code", "hsaco-disagrees")
    if wave != (32 if properties & _WAVE_32 else 64):
        refuse(f"{symbol.name} and metadata disagree on the wavefront", "hsaco-disagrees")
    if arch in _UNIFIED_REGISTERS and registers > ((settings & 63) + 1) * _GRANULE:
        refuse(f"{symbol.name} gives fewer registers than metadata's {registers}", "hsaco-disagrees")


def _parameters(row: Mapping[str, Any], name: str) -> tuple[ParameterSlot, ...]:
    given = row.get(".args", [])
    if not isinstance(given, list):
        refuse(f"kernel {name}: its arguments are no list", "hsaco-metadata")
    slots = []
    for item in given:
        if not isinstance(item, dict):
            refuse(f"kernel {name}: an argument is no map", "hsaco-metadata")
        if not _text(item, ".value_kind").startswith("hidden_"):
            slots.append(ParameterSlot(offset=_number(item, ".offset"), size=_number(item, ".size")))
    if slots != sorted(slots) or any(
        first.offset + first.size > second.offset for first, second in itertools.pairwise(slots)
    ):
        refuse(f"kernel {name}: its arguments overlap", "hsaco-disagrees")
    return tuple(slots)


def _comment(elf: Elf) -> str:
    section = elf.section(".comment")
    words = elf.contents(section).split(b"\0") if section is not None else []
    try:
        return "; ".join(word.decode("utf-8") for word in words if word)[:500]
    except UnicodeDecodeError:
        refuse(".comment is not UTF-8", "hsaco-section")


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        refuse(f"metadata has no string {key}", "hsaco-metadata")
    return value


def _number(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    if type(value) is not int or value < 0:
        refuse(f"metadata has no number {key}", "hsaco-metadata")
    return value
