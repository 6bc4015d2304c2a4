"""cubins: CUDA machine code for one arch, as ptxas writes it.

The format is not published. What is read here was compared with ``ptxas -v`` and ``nvdisasm`` over 783 kernels
of ptxas 12.8 to 13.4 (sm_75 to sm_121):

====================  ====================================  =========================================
field                 ABI 7 (OSABI 0x33), CUDA 12, to sm_90  ABI 8 (OSABI 0x41), sm_100 on, or CUDA 13
====================  ====================================  =========================================
SM number             ``flags & 0xff``                      ``flags >> 8 & 0xff``
virtual SM            ``flags >> 16 & 0xff``                note ``cuinfo``/``cuver`` (type 1000)
suffix ``a``          ``flags & 0x800``                     ``flags & 8``, or ``.nv.compat`` 9 == 1
suffix ``f``          none                                  only in the tkinfo note's arguments
toolkit               ``e_version`` (0x80 = 12.8)           notes tkinfo (type 2000) and cuinfo
====================  ====================================  =========================================

Facts that stand twice must agree: toolkit (header or note, and each kernel's CUDA_API_VERSION), registers (up
to sm_89 also in the section header; from sm_100 also in the second copy, ``.nv.merc``), parameter bytes
(three places) and the constant bank that holds them. Sections of unknown names are refused; so is debug
information, which embeds the build directory.

Refusals: ``cubin-abi``, ``cubin-section``, ``cubin-note``, ``cubin-attribute``, ``cubin-kernel``,
``cubin-disagrees``.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping

from wheelmark.binaries import fields
from wheelmark.binaries.elf import SHT_NOBITS, STT_FUNC, Elf, Section, Symbol
from wheelmark.binaries.facts import CodeObject, KernelFacts, ObjectKind, ParameterSlot, refuse

_ABI_7, _ABI_8 = (0x33, 7), (0x41, 8)
_FIRST_RESERVED_SHARED, _RESERVED_SHARED = 90, 1024
_FIRST_MERCURY = 100
_WARP = 32
_ENTRY = 0x10
"""Bit of ``st_other`` that marks a kernel."""

_MAX_THREADS, _REQUIRED_THREADS, _PARAMETER_BANK, _FRAME, _MIN_STACK = 0x05, 0x10, 0x0A, 0x11, 0x12
_PARAMETER, _PARAMETER_BYTES, _MAX_STACK, _REGISTERS, _API_VERSION, _PARAMETER_2 = (
    0x17,
    0x19,
    0x23,
    0x2F,
    0x37,
    0x45,
)
_COMPAT_ACCELERATOR = 9
_TOOL_NOTE, _INFO_NOTE = 2000, 1000

_PAIR = struct.Struct("<II")
_WORD = struct.Struct("<I")
_HALVES = struct.Struct("<HH")
_THREE = struct.Struct("<III")
_RECORD = struct.Struct("<BBH")
_BANK = struct.Struct("<IHH")
_SLOT = struct.Struct("<IHHI")
_SLOT_2 = struct.Struct("<IHHHH")
_TOOL = struct.Struct("<IIIIII")
_INFO = struct.Struct("<HHH")
_SASS = struct.Struct("<HHIII")
_SASS_WORD = 16
_STORE_LOCAL, _LOAD_LOCAL = 0x387, 0x983

_SECTIONS = re.compile(
    r"|\.shstrtab|\.strtab|\.symtab|\.symtab_shndx|\.debug_frame|\.note\.nv\.(tkinfo|cuinfo|cuver)"
    r"|\.nv\.info(\..+)?|\.nv\.compat|\.nv\.callgraph|\.nv\.prototype|\.nv\.rel\.action|\.relr?a?\..+"
    r"|\.text\..+|\.nv\.shared\..+|\.nv\.local\..+|\.nv\.constant[0-9]+(\..+)?|\.nv\.global(\.init)?"
    r"|\.nv\.capmerc\..+|\.nv\.merc\..+|\.nv\.(uft|udt|ufd)(\..+)?"
)
_RELEASE = re.compile(r"release (\d+)\.(\d+), V(\d+\.\d+\.\d+)")
_ARGUMENT_ARCH = re.compile(r"\bsm_(\d+)([af]?)\b")

_Attribute = tuple[int, int | bytes]


def read_cubin(elf: Elf) -> CodeObject:
    """Read a cubin.

    Raises:
        InputError: Unknown ABI, section or attribute layout, or facts that disagree.
    """
    for section in elf.sections:
        if _SECTIONS.fullmatch(section.name) is None:
            refuse(f"section {section.name[:80]} is not expected in a release cubin", "cubin-section")
    counted = Counter(section.name for section in elf.sections)
    if max(counted.values(), default=0) > 1:
        refuse(f"section {counted.most_common(1)[0][0]} stands twice", "cubin-section")
    named = {section.name: section for section in elf.sections}
    number, suffix, toolkit, tool = _identity(elf, named)
    symbols = elf.symbols()
    by_symbol = _module_attributes(elf, named, symbols)
    entries = [
        symbol for symbol in symbols if symbol.type == STT_FUNC and symbol.section and symbol.other & _ENTRY
    ]
    if not entries or len({symbol.name for symbol in entries}) != len(entries):
        refuse("no kernel, or two of one name", "cubin-kernel")
    kernels = [
        _kernel(elf, named, symbol, module=by_symbol.get(symbol.name, {}), number=number, toolkit=toolkit)
        for symbol in entries
    ]
    if number >= _FIRST_MERCURY:
        _check_second_copy(elf, named, kernels)
    return CodeObject(
        kind=ObjectKind.CUBIN,
        arch=f"sm{number}",
        suffix=suffix,
        kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name)),
        abi=elf.abi_version,
        toolkit=_dotted(toolkit),
        tool=tool,
    )


def _identity(elf: Elf, named: Mapping[str, Section]) -> tuple[int, str, int, str]:
    """SM number, suffix, toolkit (128 for 12.8) and the tool's own words."""
    said_toolkit, said_arch, said_suffix, tool, virtual = _notes(elf)
    generation = (elf.osabi, elf.abi_version)
    if generation == _ABI_7:
        number, accelerated = elf.flags & 0xFF, bool(elf.flags & 0x800)
        toolkit = elf.version
        virtual = virtual or elf.flags >> 16 & 0xFF
    elif generation == _ABI_8:
        compat = dict(_records(elf.contents(named[".nv.compat"]))) if ".nv.compat" in named else {}
        number = elf.flags >> 8 & 0xFF
        accelerated = bool(elf.flags & 8) or compat.get(_COMPAT_ACCELERATOR) == 1
        toolkit = said_toolkit
        if not said_toolkit or elf.version != 1:
            refuse("no tkinfo note, or another ELF version, in an ABI 8 cubin", "cubin-note")
    else:
        refuse(f"unknown cubin ABI {generation[0]:#x}/{generation[1]}", "cubin-abi")
    if said_toolkit and said_toolkit != toolkit:
        refuse(f"header says toolkit {_dotted(toolkit)}, note {_dotted(said_toolkit)}", "cubin-disagrees")
    family = said_suffix == "f"
    if said_arch and (
        said_arch != number or (said_suffix == "a") is not accelerated or (family and accelerated)
    ):
        refuse(
            f"the arch is sm_{number}, the tool was asked for sm_{said_arch}{said_suffix}", "cubin-disagrees"
        )
    if not 0 < virtual <= number:
        refuse(f"compiled for virtual arch {virtual} on sm_{number}", "cubin-disagrees")
    return number, "a" if accelerated else "f" if family else "", toolkit, tool


def _notes(elf: Elf) -> tuple[int, int, str, str, int]:
    """Toolkit, arch and suffix of the arguments, tool, virtual SM: zero and empty where no note says so."""
    toolkit = arch = virtual = 0
    suffix = tool = ""
    for note in elf.notes(".note.nv."):
        body = note.description
        if note.type == _TOOL_NOTE:
            head = fields.unpack(_TOOL, body, 0, what="tkinfo note", reason="cubin-note")
            name, version, _, arguments = (
                fields.text(body, _TOOL.size + offset, what="tkinfo string", reason="cubin-note")
                for offset in head[2:]
            )
            release = _RELEASE.search(version)
            target = _ARGUMENT_ARCH.search(arguments)
            if release is None or target is None or len(release[1]) > 3 or len(target[1]) > 3:  # noqa: PLR2004 - digits
                refuse("the tkinfo note names no release or no arch", "cubin-note")
            toolkit = int(release[1]) * 10 + int(release[2][:2])
            arch, suffix, tool = int(target[1]), target[2], f"{name} {release[3]}"
        elif note.type == _INFO_NOTE:
            _, virtual, *_ = fields.unpack(_HALVES, body, 0, what="cuinfo note", reason="cubin-note")
            if len(body) >= _INFO.size and toolkit:
                said = fields.unpack(_INFO, body, 0, what="cuinfo note", reason="cubin-note")[2]
                if said and said != toolkit:
                    refuse(f"notes say toolkit {said} and {toolkit}", "cubin-disagrees")
    return toolkit, arch, suffix, tool, virtual


def _records(data: bytes) -> list[_Attribute]:
    """The (code, value) records of an attribute section; a value is a number or bytes."""
    found: list[_Attribute] = []
    at = 0
    while at < len(data):
        form, code, half = fields.unpack(_RECORD, data, at, what="attribute", reason="cubin-attribute")
        at += _RECORD.size
        if form == 4:  # noqa: PLR2004 - the format with a body
            body = fields.part(data, at, half, what="attribute", reason="cubin-attribute")
            found.append((code, body))
            at += half
        elif form in (1, 2, 3):
            found.append((code, {1: 1, 2: half & 0xFF, 3: half}[form]))
        else:
            refuse(f"attribute {code:#x} has unknown format {form}", "cubin-attribute")
    return found


def _body(value: int | bytes, layout: struct.Struct, code: int) -> tuple[int, ...]:
    if isinstance(value, int):
        refuse(f"attribute {code:#x} has no body", "cubin-attribute")
    return fields.unpack(layout, value, 0, what=f"attribute {code:#x}", reason="cubin-attribute")


def _module_attributes(
    elf: Elf, named: Mapping[str, Section], symbols: tuple[Symbol, ...]
) -> dict[str, dict[int, int]]:
    """Symbol name -> attribute code -> value, from ``.nv.info``."""
    if ".nv.info" not in named:
        refuse("no .nv.info section", "cubin-section")
    found: dict[str, dict[int, int]] = {}
    for code, value in _records(elf.contents(named[".nv.info"])):
        if code not in {_REGISTERS, _FRAME, _MIN_STACK, _MAX_STACK}:
            continue
        index, number = _body(value, _PAIR, code)
        if index >= len(symbols):
            refuse(f"attribute {code:#x} is about symbol {index}, of {len(symbols)}", "cubin-attribute")
        of_symbol = found.setdefault(symbols[index].name, {})
        if code in of_symbol:
            refuse(f"attribute {code:#x} of {symbols[index].name} stands twice", "cubin-attribute")
        of_symbol[code] = number
    return found


def _kernel(
    elf: Elf,
    named: Mapping[str, Section],
    symbol: Symbol,
    *,
    module: Mapping[int, int],
    number: int,
    toolkit: int,
) -> KernelFacts:
    name = symbol.name
    text = named.get(f".text.{name}")
    info = named.get(f".nv.info.{name}")
    if text is None or info is None or elf.sections[symbol.section : symbol.section + 1] != (text,):
        refuse(f"kernel {name} has no code or attributes of its own", "cubin-kernel")
    if not 0 < symbol.size <= text.size or text.type == SHT_NOBITS or text.size % _SASS_WORD:
        refuse(f"kernel {name} has {symbol.size} bytes of code in {text.size}", "cubin-kernel")
    if _REGISTERS not in module:
        refuse(f"nothing says how many registers kernel {name} has", "cubin-kernel")
    registers = module[_REGISTERS]
    if elf.abi_version == _ABI_7[1] and number < _FIRST_RESERVED_SHARED and text.info >> 24 != registers:
        refuse(f"kernel {name}: {registers} registers, {text.info >> 24} in its header", "cubin-disagrees")
    single, slots = _kernel_attributes(elf.contents(info))
    api = _number(single, _API_VERSION)
    if api and api != toolkit:
        refuse(
            f"kernel {name} is of toolkit {_dotted(api)}, the object of {_dotted(toolkit)}", "cubin-disagrees"
        )
    parameter_bytes = _parameter_bytes(named, name, single, slots)
    code = elf.contents(text)
    operations = Counter(word[0] & 0xFFF for word in _SASS.iter_unpack(code))
    required, most = _threads(single, _REQUIRED_THREADS), _threads(single, _MAX_THREADS)
    return KernelFacts(
        name=name,
        registers=registers,
        scalar_registers=0,
        spill_stores=operations[_STORE_LOCAL],
        spill_loads=operations[_LOAD_LOCAL],
        static_shared=_static_shared(named, name, number),
        stack=max(module.get(code, 0) for code in (_FRAME, _MIN_STACK, _MAX_STACK)),
        max_threads=required or most,
        required_threads=required,
        warp_size=_WARP,
        code_size=text.size,
        parameter_bytes=parameter_bytes,
        parameters=slots,
    )


def _kernel_attributes(data: bytes) -> tuple[dict[int, int | bytes], tuple[ParameterSlot, ...]]:
    single: dict[int, int | bytes] = {}
    ordered: dict[int, ParameterSlot] = {}
    once = {_MAX_THREADS, _REQUIRED_THREADS, _PARAMETER_BANK, _PARAMETER_BYTES, _API_VERSION}
    for code, value in _records(data):
        if code in {_PARAMETER, _PARAMETER_2}:
            if code == _PARAMETER:
                _, ordinal, offset, packed = _body(value, _SLOT, code)
                size = packed >> 18
            else:
                _, ordinal, offset, size, _ = _body(value, _SLOT_2, code)
            if ordinal in ordered:
                refuse(f"parameter {ordinal} stands twice", "cubin-attribute")
            ordered[ordinal] = ParameterSlot(offset=offset, size=size)
        elif code in once:
            if code in single:
                refuse(f"attribute {code:#x} stands twice", "cubin-attribute")
            single[code] = value
    if sorted(ordered) != list(range(len(ordered))):
        refuse("parameters are not numbered in a row", "cubin-attribute")
    return single, tuple(ordered[ordinal] for ordinal in range(len(ordered)))


def _parameter_bytes(
    named: Mapping[str, Section],
    name: str,
    single: Mapping[int, int | bytes],
    slots: tuple[ParameterSlot, ...],
) -> int:
    """The size of the parameter block, after its four witnesses agree."""
    if _PARAMETER_BANK not in single:
        if slots:
            refuse(f"kernel {name} has parameters and no parameter bank", "cubin-kernel")
        return 0
    _, base, size = _body(single[_PARAMETER_BANK], _BANK, _PARAMETER_BANK)
    bank = named.get(f".nv.constant0.{name}")
    extent = max((slot.offset + slot.size for slot in slots), default=0)
    if _number(single, _PARAMETER_BYTES) != size or bank is None or bank.size < base + size or extent > size:
        refuse(f"kernel {name}: its parameter sizes disagree", "cubin-disagrees")
    return size


def _number(single: Mapping[int, int | bytes], code: int) -> int:
    value = single.get(code, 0)
    return value if isinstance(value, int) else _body(value, _WORD, code)[0]


def _threads(single: Mapping[int, int | bytes], code: int) -> int:
    return math.prod(_body(single[code], _THREE, code)) if code in single else 0


def _static_shared(named: Mapping[str, Section], name: str, number: int) -> int:
    """Bytes of shared memory that the source declares; from sm_90 the section holds 1 KiB more, reserved."""
    section = named.get(f".nv.shared.{name}")
    if section is None:
        return 0
    reserved = _RESERVED_SHARED if number >= _FIRST_RESERVED_SHARED else 0
    if section.size < reserved:
        refuse(f"kernel {name}: {section.size} bytes of shared memory", "cubin-disagrees")
    return section.size - reserved


def _check_second_copy(elf: Elf, named: Mapping[str, Section], kernels: list[KernelFacts]) -> None:
    """From sm_100 the code stands a second time, for later chips: its registers must be the same."""
    module = named.get(".nv.merc.nv.info")
    if module is None:
        refuse("no second copy of the attributes", "cubin-section")
    registers = sorted(
        _body(value, _PAIR, code)[1] for code, value in _records(elf.contents(module)) if code == _REGISTERS
    )
    if registers != sorted(kernel.registers for kernel in kernels):
        refuse(f"its second copy has other registers: {registers}", "cubin-disagrees")
    for kernel in kernels:
        info = named.get(f".nv.merc.nv.info.{kernel.name}")
        if info is None or f".nv.capmerc.text.{kernel.name}" not in named:
            refuse(f"kernel {kernel.name} has no second copy", "cubin-section")
        single, slots = _kernel_attributes(elf.contents(info))
        if slots != kernel.parameters or _threads(single, _REQUIRED_THREADS) != kernel.required_threads:
            refuse(f"kernel {kernel.name}: its second copy has other parameters", "cubin-disagrees")


def _dotted(toolkit: int) -> str:
    return f"{toolkit // 10}.{toolkit % 10}"
