"""ELF objects: sections, segments, notes, and what the dynamic loader will see.

Only little-endian ELF64 is read (System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; GNU
symbol versions as the Linux Standard Base describes them). What a shared object asks of its host is taken from
the program headers and ``PT_DYNAMIC``, because the loader reads those and never the section table; where the
section table says the same thing again, the two must agree.

Refusals are ``InputError``: ``elf-magic``, ``elf-class``, ``elf-header``, ``elf-section``, ``elf-segment``,
``elf-string``, ``elf-symbol``, ``elf-dynamic``, ``elf-version``, ``elf-note``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping

from wheelmark.binaries import fields
from wheelmark.binaries.dynamic import Dynamic, read_dynamic
from wheelmark.errors import InputError

EM_X86_64, EM_AARCH64, EM_CUDA, EM_AMDGPU = 62, 183, 190, 224
MACHINES: Mapping[int, str] = {
    EM_X86_64: "x86_64",
    EM_AARCH64: "aarch64",
    EM_CUDA: "cuda",
    EM_AMDGPU: "amdgpu",
}
SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 3, 7, 8, 11
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_STACK = 1, 2, 4, 0x6474E551
PF_X, PF_W = 1, 2
STT_FUNC = 2

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_NOTE_BUILD_ID = 3
_CLASS64_LITTLE = b"\x7fELF\x02\x01\x01"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One entry of the section table."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    """Bytes; for ``SHT_NOBITS`` none of them are in the file."""
    link: int
    info: int
    entry_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """One program header."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Symbol:
    """One entry of ``.symtab``."""

    name: str
    section: int
    """Index of its section; 0 where it is undefined."""
    type: int
    binding: int
    other: int
    value: int
    size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note:
    """One ELF note."""

    owner: str
    type: int
    description: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elf:
    """One ELF object; built by ``read_elf``."""

    data: bytes = dataclasses.field(repr=False)
    osabi: int
    abi_version: int
    type: int
    """2 executable, 3 shared object, 1 relocatable."""
    machine: int
    version: int
    """``e_version``: 1, except in cubins of CUDA 12."""
    flags: int
    sections: tuple[Section, ...] = dataclasses.field(repr=False)
    segments: tuple[Segment, ...] = dataclasses.field(repr=False)
    dynamic: Dynamic | None = dataclasses.field(repr=False)
    """What the loader will see; ``None`` for a statically linked or relocatable object."""

    @property
    def machine_name(self) -> str:
        """``x86_64``, ``aarch64``, ``cuda``, ``amdgpu``, or ``machine-<number>``."""
        return MACHINES.get(self.machine, f"machine-{self.machine}")

    def section(self, name: str) -> Section | None:
        """The only section of that name, or ``None``.

        Raises:
            InputError: There are two.
        """
        found = [section for section in self.sections if section.name == name]
        if len(found) > 1:
            raise InputError(f"ELF: section {name} stands twice", reason="elf-section")
        return found[0] if found else None

    def contents(self, section: Section) -> bytes:
        """The bytes of a section that the file holds; none for ``SHT_NOBITS``."""
        if section.type == SHT_NOBITS:
            return b""
        return self.data[section.offset : section.offset + section.size]

    def symbols(self) -> tuple[Symbol, ...]:
        """The entries of ``.symtab``, the null symbol left in place; empty where it was stripped.

        Raises:
            InputError: The table or a name in it is malformed.
        """
        tables = [section for section in self.sections if section.type == SHT_SYMTAB]
        if len(tables) > 1:
            raise InputError("ELF: two symbol tables", reason="elf-section")
        if not tables:
            return ()
        table = tables[0]
        if table.link >= len(self.sections) or self.sections[table.link].type != SHT_STRTAB:
            raise InputError("ELF: .symtab is not linked to a string table", reason="elf-section")
        strings = self.contents(self.sections[table.link])
        names = fields.Names(strings, what="ELF symbol name", reason="elf-string")
        return tuple(
            Symbol(
                name=names.at(name),
                section=index,
                type=info & 15,
                binding=info >> 4,
                other=other,
                value=value,
                size=size,
            )
            for name, info, other, index, value, size in fields.records(
                _SYMBOL, self.contents(table), what="ELF .symtab", reason="elf-symbol"
            )
        )

    def notes(self, prefix: str = "") -> tuple[Note, ...]:
        """All notes in ``SHT_NOTE`` sections whose name begins with ``prefix``.

        Raises:
            InputError: A note ends outside its section.
        """
        return tuple(
            note
            for section in self.sections
            if section.type == SHT_NOTE and section.name.startswith(prefix)
            for note in read_notes(self.contents(section))
        )

    @property
    def build_id(self) -> str:
        """The GNU build id in hexadecimal, or empty."""
        ids = [
            note.description
            for note in self.notes(".note.gnu.build-id")
            if (note.owner, note.type) == ("GNU", _NOTE_BUILD_ID)
        ]
        return ids[0].hex() if ids else ""

    @property
    def executable_stack(self) -> bool:
        """Whether the loader makes the stack executable: so asked, or not said at all."""
        stacks = [segment for segment in self.segments if segment.type == PT_GNU_STACK]
        return not stacks or any(segment.flags & PF_X for segment in stacks)

    @property
    def writable_code(self) -> bool:
        """Whether a loaded segment is both writable and executable."""
        return any(
            segment.type == PT_LOAD and segment.flags & PF_X and segment.flags & PF_W
            for segment in self.segments
        )


def is_elf(data: bytes) -> bool:
    """Whether the bytes begin as any ELF object does."""
    return data[:4] == b"\x7fELF"


def read_elf(data: bytes, *, symbols: bool = True) -> Elf:
    """Read an ELF object.

    Args:
        data: Its bytes.
        symbols: Whether dynamic symbols and their versions are read: of a library of some hundred megabytes they
            are a million objects, and who only asks what it needs can do without.

    Raises:
        InputError: Not a little-endian ELF64, or malformed; the reason says where.
    """
    if not is_elf(data):
        raise InputError("not an ELF object", reason="elf-magic")
    if data[:7] != _CLASS64_LITTLE:
        raise InputError("ELF: only little-endian ELF64, version 1, is read", reason="elf-class")
    header = fields.unpack(_HEADER, data, 16, what="ELF header", reason="elf-header")
    kind, machine, version, _, segment_at, section_at, flags, size = header[:8]
    segment_size, segment_count, section_size, section_count, names = header[8:]
    if size != _HEADER.size + 16:
        raise InputError(f"ELF: header of {size} bytes", reason="elf-header")
    if segment_count and segment_size != _SEGMENT.size:
        raise InputError(f"ELF: program headers of {segment_size} bytes", reason="elf-segment")
    if section_count and section_size != _SECTION.size:
        raise InputError(f"ELF: section headers of {section_size} bytes", reason="elf-section")
    segments = _segments(data, segment_at, segment_count)
    sections = _sections(data, section_at, section_count, names)
    return Elf(
        data=data,
        osabi=data[7],
        abi_version=data[8],
        type=kind,
        machine=machine,
        version=version,
        flags=flags,
        sections=sections,
        segments=segments,
        dynamic=_dynamic(data, segments, sections, symbols=symbols),
    )


def read_notes(data: bytes) -> tuple[Note, ...]:
    """The notes of one section, 4-byte aligned.

    Raises:
        InputError: A note ends outside ``data``.
    """
    found: list[Note] = []
    at = 0
    while at < len(data):
        name_size, size, kind = fields.unpack(_NOTE, data, at, what="ELF note", reason="elf-note")
        name = fields.part(data, at + 12, name_size, what="ELF note name", reason="elf-note")
        start = at + 12 + (name_size + 3) // 4 * 4
        description = fields.part(data, start, size, what="ELF note", reason="elf-note")
        try:
            owner = name.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError("ELF: a note's owner is not UTF-8", reason="elf-note") from error
        found.append(Note(owner=owner, type=kind, description=description))
        at = start + (size + 3) // 4 * 4
    return tuple(found)


def _segments(data: bytes, at: int, count: int) -> tuple[Segment, ...]:
    table = fields.part(data, at, count * _SEGMENT.size, what="ELF program headers", reason="elf-segment")
    found = tuple(
        Segment(
            type=kind,
            flags=flags,
            offset=offset,
            address=address,
            file_size=file_size,
            memory_size=memory_size,
        )
        for kind, flags, offset, address, _, file_size, memory_size, _ in _SEGMENT.iter_unpack(table)
    )
    for segment in found:
        fields.inside(data, segment.offset, segment.file_size, what="ELF segment", reason="elf-segment")
    return found


def _sections(data: bytes, at: int, count: int, names: int) -> tuple[Section, ...]:
    if not count:
        if at or names:
            raise InputError("ELF: extended section numbering is not read", reason="elf-section")
        return ()
    table = fields.part(data, at, count * _SECTION.size, what="ELF section headers", reason="elf-section")
    rows = list(_SECTION.iter_unpack(table))
    for row in rows:
        if row[1] != SHT_NOBITS:
            fields.inside(data, row[4], row[5], what="ELF section", reason="elf-section")
    # Sections never share bytes; if they did, a small file could make a reader work without end.
    if sum(row[5] for row in rows if row[1] != SHT_NOBITS) > len(data):
        raise InputError("ELF: the sections hold more bytes than the file", reason="elf-section")
    if names >= count or rows[names][1] != SHT_STRTAB:
        raise InputError("ELF: no table of section names", reason="elf-section")
    strings = data[rows[names][4] : rows[names][4] + rows[names][5]]
    return tuple(
        Section(
            name=fields.text(strings, row[0], what="ELF section name", reason="elf-string"),
            type=row[1],
            flags=row[2],
            address=row[3],
            offset=row[4],
            size=row[5],
            link=row[6],
            info=row[7],
            entry_size=row[9],
        )
        for row in rows
    )


def _dynamic(
    data: bytes, segments: tuple[Segment, ...], sections: tuple[Section, ...], *, symbols: bool
) -> Dynamic | None:
    found = [segment for segment in segments if segment.type == PT_DYNAMIC]
    tables = [section for section in sections if section.name == ".dynamic"]
    if len(found) > 1 or len(tables) > 1:
        raise InputError("ELF: two dynamic tables", reason="elf-dynamic")
    if not found:
        if tables:
            raise InputError("ELF: .dynamic without PT_DYNAMIC", reason="elf-dynamic")
        return None
    if tables and (tables[0].offset, tables[0].address) != (found[0].offset, found[0].address):
        raise InputError("ELF: .dynamic is not what PT_DYNAMIC names", reason="elf-dynamic")
    loads = tuple(
        (segment.address, segment.offset, segment.file_size)
        for segment in segments
        if segment.type == PT_LOAD
    )
    listed = [section for section in sections if section.type == SHT_DYNSYM]
    if len(listed) > 1:
        raise InputError("ELF: two dynamic symbol tables", reason="elf-section")
    return read_dynamic(
        data,
        offset=found[0].offset,
        size=found[0].file_size,
        loads=loads,
        symbol_table=(listed[0].address, listed[0].size) if listed else None,
        symbols=symbols,
    )
