"""Zip archives, read so that no two readers can see different files in one.

Source: PKWARE APPNOTE 6.3.10. Of that only what wheels need is accepted: stored and deflated members, one disk,
no encryption, no Zip64, no archive comment. Members have to lie end to end from the first byte to the central
directory, which ends at the end record, which ends the file; each local header has to say what its central
header says. So nothing can hide between, before or after members, and a reader that walks local headers sees
what a reader of the central directory sees.

Refusals: ``wheel-zip`` (structure), ``wheel-limit`` (too many, too large, compressed beyond belief).
"""

from __future__ import annotations

import dataclasses
import os
import stat
import struct
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from wheelmark.binaries import fields
from wheelmark.binaries.hashing import Lane, Lanes, Source
from wheelmark.errors import InputError

_END = struct.Struct("<IHHHHIIH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_EXTRA = struct.Struct("<HH")
_DESCRIPTOR = struct.Struct("<III")
_VERSION, _NEWEST = 0xFF, 63
"""Of "version needed to extract" the byte that says it, and the newest that Python's ``zipfile`` opens."""
_END_MARK, _CENTRAL_MARK, _LOCAL_MARK, _DESCRIPTOR_MARK = 0x06054B50, 0x02014B50, 0x04034B50, 0x08074B50
_LOCATOR_MARK, _LOCATOR_SIZE = b"PK\x06\x07", 20
_DIRECTORY_LIMIT = 64 << 20
"""Bytes: 100,000 members with long names."""
_STORED, _DEFLATED = 0, 8
_HAS_DESCRIPTOR, _IS_UTF8 = 1 << 3, 1 << 11
_KNOWN_FLAGS = _HAS_DESCRIPTOR | _IS_UTF8 | 0b110
"""Bits 1 and 2 only say how hard the compressor tried."""
_INERT_EXTRAS = {0x5455, 0x5855, 0x7855, 0x7875, 0x000A, 0xA220}
"""Times, owners and padding. Not among them: 0x0001 (Zip64), 0x7075 (another name), 0x9901 (encryption)."""
_ALL_ONES = 0xFFFFFFFF
_CHUNK = 1 << 20
_RATIO_FREE = 16 << 20
"""Members of fewer bytes may be compressed however well they like."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveLimits:
    """Bounds on one archive."""

    files: int = 100_000
    total: int = 16 << 30
    """Bytes of all members together, decompressed."""
    ratio: int = 300
    """Decompressed bytes a compressed byte, of a member of more than 16 MiB; deflate's own bound is 1,032."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One entry of the central directory, after its local header agreed."""

    name: str
    method: int
    crc: int
    compressed: int
    """Bytes in the archive."""
    size: int
    """Bytes when decompressed."""
    start: int
    """Offset of its compressed bytes."""
    mode: int
    """Unix mode from the external attributes; 0 where none was recorded."""

    @property
    def is_folder(self) -> bool:
        """Whether the entry only names a folder."""
        return self.name.endswith("/")


class BytesSource:
    """A source over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``."""
        return self._data[offset : offset + size]


class FileSource:
    """A source over a file that is never wholly in memory.

    The file stays open as long as the source lives, so that a file put in its place is not read by mistake.

    Args:
        path: The file.
        opened: A descriptor of it that is open already; it is duplicated.

    Raises:
        InputError: The file cannot be read (reason ``unreadable``).
    """

    def __init__(self, path: Path, opened: int | None = None) -> None:
        self._path = path
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for ever.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(path, flags) if opened is None else os.dup(opened)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error
        weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is no plain file", reason="unreadable")
        self.size = found.st_size

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``."""
        pieces: list[bytes] = []
        try:
            while size and (piece := os.pread(self._descriptor, size, offset)):
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
        except OSError as error:
            raise InputError(f"cannot read {self._path}: {error.strerror}", reason="unreadable") from error
        return b"".join(pieces)


def read_directory(source: Source, limits: ArchiveLimits) -> tuple[Member, ...]:
    """The members of an archive, in the order of their bytes.

    Raises:
        InputError: ``wheel-zip`` or ``wheel-limit``.
    """
    if source.size < _END.size:
        _refuse("it is too short for a zip archive")
    tail = source.read(source.size - _END.size, _END.size)
    mark, disk, first_disk, here, count, size, start, comment = _unpack(_END, tail, 0, "end record")
    if mark != _END_MARK or comment:
        _refuse("it does not end with an end record without comment")
    if disk or first_disk or here != count or _ALL_ONES in (size, start) or count == 0xFFFF:  # noqa: PLR2004
        _refuse("it is Zip64, or stands on several disks")
    # Readers that know Zip64 look for its locator here whatever the end record says, and would find it in the
    # extra field of the last header, with another central directory behind it.
    if source.read(source.size - _END.size - _LOCATOR_SIZE, 4) == _LOCATOR_MARK:
        _refuse("a Zip64 locator stands before the end record")
    if size > _DIRECTORY_LIMIT:
        raise InputError(f"archive: a central directory of {size:,} bytes", reason="wheel-limit")
    if start + size + _END.size != source.size:
        _refuse("bytes stand between the central directory and the end record")
    if count > limits.files:
        raise InputError(f"archive: {count:,} members; the limit is {limits.files:,}", reason="wheel-limit")
    directory = source.read(start, size)
    rows = list(_central(directory, count))
    members = []
    at = 0
    for row in sorted(rows, key=lambda row: row.offset):
        member, at = _member(source, row, at, start)
        members.append(member)
    if at != start:
        _refuse("bytes stand between the last member and the central directory")
    _check_limits(members, limits)
    return tuple(members)


def decompress(
    source: Source, member: Member, lanes: Lanes | None = None, *, crc: bool = True
) -> Iterator[bytes]:
    """The member's bytes, at most 1 MiB at a time; its size and CRC have been checked when this ends.

    Args:
        source: The archive.
        member: One of its members.
        lanes: Where a thread for the CRC may be taken from.
        crc: Whether the CRC is checked; not where a sha256 is compared, which says more and takes as long.

    Raises:
        InputError: The stream is broken, does not end where it should, or has another size or CRC.
    """
    found = _Crc()
    lane = Lane(found.update, lanes.executor("crc") if lanes else None)
    total = 0
    for piece in _inflate(source, member) if member.method == _DEFLATED else _chunks(source, member):
        if crc:
            lane.feed(piece)
        total += len(piece)
        if total > member.size:
            _refuse(f"{member.name} holds more than the {member.size:,} bytes that it says")
        yield piece
    lane.settle()
    if total != member.size or (crc and found.value != member.crc):
        _refuse(f"{member.name} has another size or CRC than it says")


class _Crc:
    """CRC-32 in hashlib's manner."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: bytes) -> None:
        self.value = zlib.crc32(data, self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Row:
    """One central header."""

    name: bytes
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    offset: int
    mode: int


def _central(directory: bytes, count: int) -> Iterator[_Row]:
    at = 0
    for _ in range(count):
        row = _unpack(_CENTRAL, directory, at, "central header")
        mark, _, version, flags, method, _, _, crc, compressed, size, name_size, extra_size, comment_size = (
            row[:13]
        )
        disk, _, attributes, offset = row[13:]
        if mark != _CENTRAL_MARK or disk or comment_size:
            _refuse("a central header is malformed, or has a comment")
        at += _CENTRAL.size
        name = _part(directory, at, name_size, "member name")
        _check_extra(_part(directory, at + name_size, extra_size, "extra field"))
        at += name_size + extra_size
        if version & _VERSION > _NEWEST:
            _refuse(f"{name[:80]!r} needs version {version & _VERSION} of the format")
        if flags & ~_KNOWN_FLAGS or method not in {_STORED, _DEFLATED}:
            _refuse(f"{name[:80]!r} is encrypted, or compressed by method {method}")
        if _ALL_ONES in {compressed, size, offset}:
            _refuse(f"{name[:80]!r} is Zip64")
        if method == _STORED and compressed != size:
            _refuse(f"{name[:80]!r} is stored with two sizes")
        yield _Row(
            name=name,
            flags=flags,
            method=method,
            crc=crc,
            compressed=compressed,
            size=size,
            offset=offset,
            mode=attributes >> 16,
        )
    if at != len(directory):
        _refuse("bytes stand after the last central header")


def _member(source: Source, row: _Row, at: int, limit: int) -> tuple[Member, int]:
    """The member at ``at``, and the offset where the next one has to begin."""
    name = _name(row)
    if row.offset != at:
        _refuse(f"bytes stand before {name}, or it overlaps another member")
    local = _unpack(_LOCAL, source.read(at, _LOCAL.size), 0, "local header")
    mark, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = local
    if mark != _LOCAL_MARK or (flags, method) != (row.flags, row.method):
        _refuse(f"{name} has another local header")
    head = source.read(at + _LOCAL.size, name_size + extra_size)
    if _part(head, 0, name_size, "member name") != row.name:
        _refuse(f"{name} has another name in its local header")
    _check_extra(_part(head, name_size, extra_size, "extra field"))
    said = (row.crc, row.compressed, row.size)
    later = bool(flags & _HAS_DESCRIPTOR)
    if (crc, compressed, size) != said and not (later and (crc, compressed, size) == (0, 0, 0)):
        _refuse(f"{name} has another size or CRC in its local header")
    if later and row.method == _STORED and not (crc or compressed or size) and row.compressed:
        # Who reads from the front has to guess where such a member ends, and guesses by what stands in it.
        _refuse(f"{name} is stored, and its size stands behind it")
    start = at + _LOCAL.size + name_size + extra_size
    end = start + row.compressed
    if later:
        end += _descriptor_size(source.read(end, _DESCRIPTOR.size + 4), said, name)
    if end > limit:
        _refuse(f"{name} runs into the central directory")
    member = Member(
        name=name,
        method=method,
        crc=row.crc,
        compressed=row.compressed,
        size=row.size,
        start=start,
        mode=row.mode,
    )
    return member, end


def _descriptor_size(data: bytes, said: tuple[int, int, int], name: str) -> int:
    """The size of a data descriptor (with or without its mark), once it agreed."""
    if data == struct.pack("<I", _DESCRIPTOR_MARK) + _DESCRIPTOR.pack(*said):
        return _DESCRIPTOR.size + 4
    if data[: _DESCRIPTOR.size] == _DESCRIPTOR.pack(*said):
        return _DESCRIPTOR.size
    return _refuse(f"{name} has another size or CRC in its data descriptor")


def _name(row: _Row) -> str:
    try:
        name = row.name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"archive: the name {row.name[:80]!r} is not UTF-8", reason="wheel-zip") from error
    if not name or (not name.isascii() and not row.flags & _IS_UTF8):
        _refuse(f"the name {row.name[:80]!r} is empty, or not marked as UTF-8")
    return name


def _check_extra(data: bytes) -> None:
    at = 0
    while at < len(data):
        kind, size = _unpack(_EXTRA, data, at, "extra field")
        _part(data, at + _EXTRA.size, size, "extra field")
        if kind not in _INERT_EXTRAS:
            _refuse(f"extra field {kind:#06x} is not accepted")
        at += _EXTRA.size + size


def _check_limits(members: list[Member], limits: ArchiveLimits) -> None:
    total = sum(member.size for member in members)
    if total > limits.total:
        raise InputError(
            f"archive: {total:,} bytes inside; the limit is {limits.total:,}", reason="wheel-limit"
        )
    for member in members:
        if member.size > max(_RATIO_FREE, limits.ratio * member.compressed):
            raise InputError(
                f"archive: {member.name} grows from {member.compressed:,} to {member.size:,} bytes",
                cause=f"compressed more than {limits.ratio} times: a bomb",
                reason="wheel-limit",
            )


def _chunks(source: Source, member: Member) -> Iterator[bytes]:
    at, left = member.start, member.compressed
    while left:
        piece = source.read(at, min(_CHUNK, left))
        if not piece:
            _refuse(f"{member.name} ends early")
        yield piece
        at += len(piece)
        left -= len(piece)


def _inflate(source: Source, member: Member) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for chunk in _chunks(source, member):
            # After its end the inflater gives nothing; what it was fed then shows as unused data.
            waiting = chunk
            while piece := inflater.decompress(waiting, _CHUNK):
                yield piece
                waiting = inflater.unconsumed_tail
    except zlib.error as error:
        raise InputError(f"archive: {member.name}: {error}", reason="wheel-zip") from error
    if not inflater.eof or inflater.unused_data:
        _refuse(f"{member.name}: its stream does not end where its bytes do")


def _unpack(layout: struct.Struct, data: bytes, at: int, what: str) -> tuple[int, ...]:
    return fields.unpack(layout, data, at, what=f"archive: {what}", reason="wheel-zip")


def _part(data: bytes, at: int, size: int, what: str) -> bytes:
    return fields.part(data, at, size, what=f"archive: {what}", reason="wheel-zip")


def _refuse(text: str) -> NoReturn:
    raise InputError(f"archive: {text}", reason="wheel-zip")
