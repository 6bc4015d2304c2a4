"""Where a file can be damaged: offsets of every region of a zip or ELF file, and every field of a JSON document."""

from __future__ import annotations

import copy
import json
import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from wheelmark import digests
from wheelmark.binaries.elf import is_elf, read_elf

_LOCAL = {
    "signature": 0,
    "version": 4,
    "flags": 6,
    "method": 8,
    "time": 10,
    "date": 12,
    "crc": 14,
    "packed": 18,
    "size": 22,
    "name length": 26,
    "extra length": 28,
    "name": 30,
}
_CENTRAL = {
    "signature": 0,
    "made by": 4,
    "version": 6,
    "flags": 8,
    "method": 10,
    "time": 12,
    "date": 14,
    "crc": 16,
    "packed": 20,
    "size": 24,
    "name length": 28,
    "extra length": 30,
    "comment length": 32,
    "disk": 34,
    "internal attributes": 36,
    "external attributes": 38,
    "offset": 42,
    "name": 46,
}
_END = {
    "signature": 0,
    "disk": 4,
    "directory disk": 6,
    "entries here": 8,
    "entries": 10,
    "directory size": 12,
    "directory offset": 16,
    "comment length": 20,
}
_END_SIZE = 22


def flipped(data: bytes, at: int, mask: int = 1) -> bytes:
    """``data`` with bits of one byte turned over."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def elf_regions(data: bytes) -> Iterator[tuple[str, int]]:
    """One offset in the header, the section table, and the middle of every section that has bytes."""
    yield "ELF identity", 7
    yield "ELF machine", 18
    yield "ELF flags", 48
    (table,) = struct.unpack_from("<Q", data, 40)
    yield "ELF section table", table + 4
    yield "ELF end", len(data) - 1
    for number, section in enumerate(read_elf(data).sections):
        if section.size and section.type != 8:  # SHT_NOBITS has no bytes
            yield f"ELF section {number} {section.name}", section.offset + section.size // 2


def zip_regions(data: bytes) -> Iterator[tuple[str, int]]:
    """Every field of the end record and of some members' headers, and a byte of every member (section, where ELF)."""
    end = len(data) - _END_SIZE
    yield from ((f"end record, {field}", end + at) for field, at in _END.items())
    count, directory = (
        struct.unpack_from("<H", data, end + 10)[0],
        struct.unpack_from("<I", data, end + 16)[0],
    )
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        assert len(members) == count
        contents = {member.filename: archive.read(member) for member in members}
    chosen = {members[0].filename, members[len(members) // 2].filename, members[-1].filename}
    at = directory
    for member in members:
        name = member.filename
        if name in chosen:
            yield from ((f"central directory of {name}, {field}", at + o) for field, o in _CENTRAL.items())
            yield from (
                (f"local header of {name}, {field}", member.header_offset + o) for field, o in _LOCAL.items()
            )
        at += 46 + len(name.encode())
        start = member.header_offset + 30 + len(name.encode())
        assert data[start : start + member.file_size] == contents[name], "members are stored"
        if is_elf(contents[name]) and (name in chosen or name.endswith(".so")):
            yield from ((f"{name}, {region}", start + o) for region, o in elf_regions(contents[name]))
        elif member.file_size:
            yield f"data of {name}", start + member.file_size // 2


def json_edits(data: bytes, *, thorough: bool) -> Iterator[tuple[str, bytes]]:
    """The document with one value changed, once for each kind of place in it; canonical, so only what is said differs.

    Args:
        data: A canonical document.
        thorough: Remove each member too, and add one to each object.
    """
    document = json.loads(data)
    assert digests.canonical_json(document) == data
    for pattern, path in _places(document).items():
        value = _at(document, path)
        if not isinstance(value, dict | list):
            yield f"changed {pattern}", _written(document, path, _changed(value))
        if thorough:
            yield f"removed {pattern}", _written(document, path, _GONE)
        if thorough and isinstance(value, dict):
            yield f"added to {pattern}", _written(document, path, {**value, "wheelmark-extra": 1})


_GONE = object()


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def _written(document: Any, path: tuple[Any, ...], value: Any) -> bytes:
    edited = copy.deepcopy(document)
    holder = _at(edited, path[:-1])
    if value is _GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return digests.canonical_json(edited)


def _places(value: Any, path: tuple[Any, ...] = (), pattern: str = "") -> dict[str, tuple[Any, ...]]:
    """Pattern (list positions left out) -> the first path that has it."""
    found: dict[str, tuple[Any, ...]] = {pattern: path} if path else {}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        step = "[]" if isinstance(value, list) else f".{key}"
        for inner, where in _places(item, (*path, key), pattern + step).items():
            found.setdefault(inner, where)
    return found


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        last = value[-1:] or "x"
        return value[:-1] + ("1" if last == "0" else "0")
    return "0"
