"""The dynamic section of an ELF object: needed libraries, symbols, and the versions they ask for.

Addresses in ``PT_DYNAMIC`` are mapped to file offsets through the ``PT_LOAD`` segments, as the loader does.
The number of dynamic symbols stands only in the section table (or in a SysV hash table); it is held against
the highest symbol that a relocation names, because that is what the loader will look up.
Formats: System V ABI, "Dynamic Section"; Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence

from wheelmark.binaries import fields
from wheelmark.errors import InputError

DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 1, 4, 5, 6, 7, 8
DT_STRSZ, DT_SONAME, DT_RPATH, DT_JMPREL, DT_PLTRELSZ, DT_TEXTREL = 10, 14, 15, 23, 2, 22
DT_RUNPATH, DT_FLAGS, DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 29, 30, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
DT_VERDEF, DT_VERDEFNUM, DT_AUDIT, DT_DEPAUDIT = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFEFC, 0x6FFFFEFB
DT_AUXILIARY, DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_DF_TEXTREL = 4
_REPEATED = {DT_NEEDED, DT_AUXILIARY, DT_FILTER}

_ENTRY = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_HASH = struct.Struct("<II")
_HALF = struct.Struct("<H")
_WORD_PAIR = struct.Struct("<II")
_HIDDEN = 0x8000
_WEAK = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicSymbol:
    """A symbol that the loader looks up (undefined) or offers (defined)."""

    name: str
    version: str
    """``GLIBC_2.14``; empty where it has none."""
    library: str
    """For an undefined versioned symbol, the library that must have that version."""
    weak: bool
    type: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic:
    """What the loader will see of a shared object."""

    needed: tuple[str, ...]
    soname: str
    rpath: str
    runpath: str
    loaders: tuple[str, ...]
    """Names of further objects that the loader would load: filters, auxiliaries, auditors."""
    text_relocations: bool
    required: Mapping[str, tuple[str, ...]]
    """Library -> the versions that it must offer, whether or not a symbol uses them."""
    undefined: tuple[DynamicSymbol, ...] = dataclasses.field(repr=False)
    defined: tuple[DynamicSymbol, ...] = dataclasses.field(repr=False)


class _Reader:
    """The entries of ``PT_DYNAMIC``, and the bytes that its addresses name."""

    def __init__(self, data: bytes, offset: int, size: int, loads: Sequence[tuple[int, int, int]]) -> None:
        self.data = data
        self.loads = loads
        self.values: dict[int, list[int]] = {}
        table = fields.part(data, offset, size, what="ELF dynamic table", reason="elf-dynamic")
        for tag, value in fields.records(_ENTRY, table, what="ELF dynamic table", reason="elf-dynamic"):
            if tag == 0:
                break
            self.values.setdefault(tag, []).append(value)
        for tag, values in self.values.items():
            if len(values) > 1 and tag not in _REPEATED:
                raise InputError(f"ELF: dynamic tag {tag:#x} stands twice", reason="elf-dynamic")
        self.strings = self.at(self.one(DT_STRTAB), self.one(DT_STRSZ), "string table")

    def one(self, tag: int, default: int = 0) -> int:
        return self.values.get(tag, [default])[0]

    def offset(self, address: int, size: int, what: str) -> int:
        for start, offset, held in self.loads:
            if start <= address and address + size <= start + held:
                return offset + address - start
        raise InputError(f"ELF: {what} at {address:#x} is in no loaded segment", reason="elf-dynamic")

    def at(self, address: int, size: int, what: str) -> bytes:
        if not size:
            return b""
        return fields.part(
            self.data, self.offset(address, size, what), size, what=f"ELF {what}", reason="elf-dynamic"
        )

    def text(self, offset: int) -> str:
        return fields.text(self.strings, offset, what="ELF dynamic string", reason="elf-string")

    def texts(self, tag: int) -> tuple[str, ...]:
        return tuple(self.text(value) for value in self.values.get(tag, []))

    def single(self, tag: int) -> str:
        return self.text(self.one(tag)) if tag in self.values else ""


def read_dynamic(
    data: bytes,
    *,
    offset: int,
    size: int,
    loads: Sequence[tuple[int, int, int]],
    symbol_table: tuple[int, int] | None,
    symbols: bool = True,
) -> Dynamic:
    """Read what ``PT_DYNAMIC`` names.

    Args:
        data: The whole object.
        offset: File offset of the table.
        size: Bytes of it in the file.
        loads: Address, file offset and file size of each ``PT_LOAD``.
        symbol_table: Address and size of the ``SHT_DYNSYM`` section, where there is one.
        symbols: Whether symbols are read.

    Raises:
        InputError: ``elf-dynamic``, ``elf-string``, ``elf-symbol`` or ``elf-version``.
    """
    reader = _Reader(data, offset, size, loads)
    versions = _needed_versions(reader)
    names = {index: (version, library) for library, items in versions.items() for index, version in items}
    defined_versions = _defined_versions(reader)
    undefined: list[DynamicSymbol] = []
    defined: list[DynamicSymbol] = []
    rows = _symbols(reader, symbol_table) if symbols else []
    numbers = _version_numbers(reader, len(rows))
    for (name, info, section), number in zip(rows[1:], numbers[1:], strict=True):
        version, library = _version(name, number, section, names, defined_versions)
        symbol = DynamicSymbol(
            name=name, version=version, library=library, weak=info >> 4 == _WEAK, type=info & 15
        )
        (defined if section else undefined).append(symbol)
    return Dynamic(
        needed=reader.texts(DT_NEEDED),
        soname=reader.single(DT_SONAME),
        rpath=reader.single(DT_RPATH),
        runpath=reader.single(DT_RUNPATH),
        loaders=tuple(
            name for tag in (DT_AUXILIARY, DT_FILTER, DT_AUDIT, DT_DEPAUDIT) for name in reader.texts(tag)
        ),
        text_relocations=DT_TEXTREL in reader.values or bool(reader.one(DT_FLAGS) & _DF_TEXTREL),
        required={library: tuple(version for _, version in items) for library, items in versions.items()},
        undefined=tuple(undefined),
        defined=tuple(defined),
    )


def _version(
    name: str,
    number: int,
    section: int,
    needed: Mapping[int, tuple[str, str]],
    offered: Mapping[int, str],
) -> tuple[str, str]:
    """The version's name and, where it is needed, the library that must have it."""
    if number <= 1:  # local and global: no version
        return "", ""
    if section and number in offered:
        return offered[number], ""
    if number not in needed:
        raise InputError(f"ELF: symbol {name[:80]} has unknown version {number}", reason="elf-version")
    return needed[number]


def _symbols(reader: _Reader, symbol_table: tuple[int, int] | None) -> list[tuple[str, int, int]]:
    if DT_SYMTAB not in reader.values:
        return []
    address = reader.one(DT_SYMTAB)
    if symbol_table is not None:
        at, size = symbol_table
        if at != address or size % _SYMBOL.size:
            raise InputError("ELF: the section table has another dynamic symbol table", reason="elf-symbol")
        count = size // _SYMBOL.size
    elif DT_HASH in reader.values:
        head = reader.at(reader.one(DT_HASH), _HASH.size, "hash table")
        count = fields.unpack(_HASH, head, 0, what="ELF hash table", reason="elf-dynamic")[1]
    else:
        raise InputError("ELF: nothing says how many dynamic symbols there are", reason="elf-symbol")
    highest = _highest_relocated(reader)
    if highest >= max(count, 1):
        raise InputError(
            f"ELF: a relocation names symbol {highest} of {count}, outside the table", reason="elf-symbol"
        )
    table = reader.at(address, count * _SYMBOL.size, "symbol table")
    names = fields.Names(reader.strings, what="ELF dynamic symbol", reason="elf-string")
    return [(names.at(name), info, section) for name, info, _, section, _, _ in _SYMBOL.iter_unpack(table)]


def _highest_relocated(reader: _Reader) -> int:
    highest = 0
    for address, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        table = reader.at(reader.one(address), reader.one(size), "relocations")
        rows = fields.records(_RELOCATION, table, what="ELF relocations", reason="elf-dynamic")
        highest = max(highest, max((info >> 32 for _, info, _ in rows), default=0))
    return highest


def _version_numbers(reader: _Reader, count: int) -> list[int]:
    if DT_VERSYM not in reader.values:
        return [0] * count
    table = reader.at(reader.one(DT_VERSYM), 2 * count, "symbol versions")
    return [number & ~_HIDDEN for (number,) in _HALF.iter_unpack(table)]


def _needed_versions(reader: _Reader) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    seen: set[int] = set()
    address = reader.one(DT_VERNEED)
    count = reader.one(DT_VERNEEDNUM)
    for position in range(count):
        head = reader.at(address, _VERNEED.size, "needed versions")
        version, names, file, first, following = _VERNEED.unpack(head)
        if version != 1:
            raise InputError(f"ELF: needed versions of revision {version}", reason="elf-version")
        items = found.setdefault(reader.text(file), [])
        at = address + first
        for item in range(names):
            raw = reader.at(at, _VERNAUX.size, "needed versions")
            _, _, other, name, step = _VERNAUX.unpack(raw)
            index = other & ~_HIDDEN
            if index in seen:
                raise InputError(f"ELF: version index {index} stands twice", reason="elf-version")
            seen.add(index)
            items.append((index, reader.text(name)))
            if not step and item + 1 < names:
                raise InputError("ELF: needed versions end early", reason="elf-version")
            at += step
        if not following and position + 1 < count:
            raise InputError("ELF: needed versions end early", reason="elf-version")
        address += following
    return found


def _defined_versions(reader: _Reader) -> dict[int, str]:
    found: dict[int, str] = {}
    address = reader.one(DT_VERDEF)
    count = reader.one(DT_VERDEFNUM)
    for position in range(count):
        head = reader.at(address, _VERDEF.size, "defined versions")
        version, _, index, names, _, first, following = _VERDEF.unpack(head)
        if version != 1 or not names or index & ~_HIDDEN in found:
            raise InputError("ELF: defined versions are malformed", reason="elf-version")
        name, _ = fields.unpack(
            _WORD_PAIR,
            reader.at(address + first, _WORD_PAIR.size, "defined versions"),
            0,
            what="ELF version name",
            reason="elf-version",
        )
        found[index & ~_HIDDEN] = reader.text(name)
        if not following and position + 1 < count:
            raise InputError("ELF: defined versions end early", reason="elf-version")
        address += following
    return found
