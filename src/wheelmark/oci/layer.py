"""Layers: tar archives, read as a stream and so strictly that unpacking one cannot leave the image's tree.

Sources: POSIX.1-2017 ``pax`` (ustar and extended headers), GNU tar's long names and base-256 numbers, OCI image
specification ``layer.md``. Accepted are regular files, folders, hard and symbolic links with relative paths below the
root. Refused: devices, pipes, sparse files, global headers, a path twice, an entry below what the same layer made a
link or a file, a hard link or a relative symbolic link that leads out of the tree, anything behind the end.
Absolute symbolic links are common in operating systems, and start at the image's own root.

=================  ==========================================================================
reason             what was found
=================  ==========================================================================
``image-layer``    the archive or its compression is malformed, or holds what is not accepted
``image-path``     a path or a link that leaves the tree, a device, a pipe
``image-limit``    too many entries, too many bytes, or a decompression bomb
``image-compression``  a compression that cannot be read here
=================  ==========================================================================
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import NoReturn, Protocol

from wheelmark.errors import InputError
from wheelmark.oci import types

BLOCK = 512
_CHUNK = 1 << 18
_WINDOW = 1 << 15
"""Bytes given to the decompressor at once: what is left at the end of a gzip member is copied."""
_TEXT_LIMIT = 64 << 10
"""Bytes of an extended header or a long name."""
_TEXTS_LIMIT = 3 * _TEXT_LIMIT
"""Bytes of all of them before one entry: an extended header, a long name and a long link."""
_ALL_TEXTS_LIMIT = 128 << 20
"""Bytes of all of them in a layer: each may be a path, which is held until the end."""
_LONGEST_PATH = 4096
_GZIP = 31
"""zlib: a gzip header with the largest window."""
_BASE_256 = 0x80
_RATIO_FREE = 16 << 20
_ATTRIBUTES = ("SCHILY.xattr.", "LIBARCHIVE.")
_INERT_RECORDS = ("atime", "ctime", "mtime", "comment", "charset", "hdrcharset")


class Kind(enum.Enum):
    """What an entry is."""

    FILE = "file"
    FOLDER = "folder"
    HARD_LINK = "hard link"
    SYMBOLIC_LINK = "symbolic link"


_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.SYMBOLIC_LINK,
    b"5": Kind.FOLDER,
}
_SPECIAL = {b"3": "character device", b"4": "block device", b"6": "pipe"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerLimits:
    """Bounds on one layer."""

    entries: int = 200_000
    members: int = 400_000
    """Of gzip, end to end; some tools write one for each file."""
    total: int = 64 << 30
    """Bytes, uncompressed."""
    ratio: int = 300
    """Uncompressed bytes a compressed byte, beyond the first 16 MiB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerEntry:
    """One entry of a layer."""

    path: str
    """Relative to the root, without ``./``; empty for the root itself."""
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    """Bytes of a file; zero of anything else."""
    link: str
    """Where a link leads, as it stands there."""
    attributes: frozenset[str] = frozenset()
    """Names of its extended attributes (``security.capability``)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """What a layer's bytes say."""

    size: int
    """Bytes, as it is stored; whoever gave the stream knows their digest."""
    diff_id: str
    """sha256 of it, uncompressed."""
    entries: int
    uncompressed: int
    """Bytes."""


DEFAULT_LIMITS = LayerLimits()


class Readable(Protocol):
    """Bytes, from the first to the last."""

    def read(self, size: int, /) -> bytes | None:
        """At most ``size`` bytes; none at the end."""
        ...


def read_layer(stream: Readable, media_type: str, *, limits: LayerLimits = DEFAULT_LIMITS) -> LayerFacts:
    """Read a layer to its end; memory is bounded whatever its size.

    Args:
        stream: The blob's bytes.
        media_type: As its descriptor says.
        limits: Bounds.

    Raises:
        InputError: See the module's table.
    """
    plain = _opened(stream, media_type, limits)
    count = sum(1 for _ in _checked(plain, limits))
    return LayerFacts(
        size=plain.stored.size,
        diff_id=plain.digest.hexdigest(),
        entries=count,
        uncompressed=plain.size,
    )


def walk_layer(
    stream: Readable, media_type: str, *, limits: LayerLimits = DEFAULT_LIMITS
) -> Iterator[tuple[LayerEntry, Contents]]:
    """The entries of a layer with the contents of its files, checked as ``read_layer`` does.

    What lies below a link or a file is found out at the end, and so refused only there: whoever acts on an entry
    before that must not follow links.

    Args:
        stream: The blob's bytes.
        media_type: As its descriptor says; of a plain tar archive ``types.LAYER``.
        limits: Bounds.

    Yields:
        Each entry; its contents can be read until the next one is asked for.

    Raises:
        InputError: See the module's table.
    """
    yield from _checked(_opened(stream, media_type, limits), limits)


class Contents:
    """The bytes of one entry; what is not read is passed over."""

    def __init__(self, plain: _Plain, size: int) -> None:
        self._plain = plain
        self.left = size

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end.

        Raises:
            InputError: The archive ends before.
        """
        data = self._plain.take(min(size, self.left))
        if len(data) < min(size, self.left):
            _refuse("it ends early")
        self.left -= len(data)
        return data

    def chunks(self) -> Iterator[bytes]:
        """What was not read yet, piece by piece."""
        while piece := self.read(_CHUNK):
            yield piece


def _opened(stream: Readable, media_type: str, limits: LayerLimits) -> _Plain:
    if media_type not in {types.LAYER, types.LAYER_GZIP}:
        known = "zstd is not read here" if media_type == types.LAYER_ZSTD else "no layer of OCI 1.1"
        raise InputError(f"a layer of media type {media_type[:100]!r}: {known}", reason="image-compression")
    stored = _Stored(stream)
    pieces = _gunzip(stored, limits) if media_type == types.LAYER_GZIP else _blocks(stored)
    return _Plain(pieces, stored, limits)


class _Stored:
    """The stored bytes, counted as they are read."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.size = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self.size += len(data)
        return data


def _blocks(stored: _Stored) -> Iterator[bytes]:
    while data := stored.read(_CHUNK):
        yield data


def _gunzip(stored: _Stored, limits: LayerLimits) -> Iterator[bytes]:
    """The bytes of one or several gzip members, end to end."""
    waiting = stored.read(_WINDOW)
    if not waiting:
        _refuse("an empty file is no gzip file")
    members = 0
    while waiting:
        members += 1
        if members > limits.members:
            raise InputError(f"layer: more than {limits.members:,} gzip members", reason="image-limit")
        inflater = zlib.decompressobj(_GZIP)
        while not inflater.eof:
            try:
                piece = inflater.decompress(waiting, _CHUNK)
            except zlib.error as error:
                raise InputError(f"layer: {error}", reason="image-layer") from error
            waiting = inflater.unconsumed_tail
            if piece:
                yield piece
            if not waiting and not inflater.eof:
                waiting = stored.read(_WINDOW)
                if not waiting:
                    _refuse("its gzip stream ends early")
        waiting = inflater.unused_data or stored.read(_WINDOW)


class _Plain:
    """The uncompressed bytes, hashed and counted as they are read."""

    def __init__(self, pieces: Iterator[bytes], stored: _Stored, limits: LayerLimits) -> None:
        self._pieces = pieces
        self.stored = stored
        self._limits = limits
        self._held = memoryview(b"")
        self.digest = hashlib.sha256()
        self.size = 0

    def _more(self) -> bool:
        piece = next(self._pieces, b"")
        self.digest.update(piece)
        self.size += len(piece)
        if self.size > self._limits.total or self.size > _RATIO_FREE + self._limits.ratio * self.stored.size:
            raise InputError(f"layer: {self.size:,} bytes out of {self.stored.size:,}", reason="image-limit")
        self._held = memoryview(piece)
        return bool(piece)

    def skip(self, size: int) -> None:
        """Pass over bytes.

        Raises:
            InputError: They are not there.
        """
        while size:
            if not self._held and not self._more():
                _refuse("it ends early")
            step = min(size, len(self._held))
            self._held = self._held[step:]
            size -= step

    def take(self, size: int) -> bytes:
        """Bytes, fewer at the end."""
        parts = []
        while size and (self._held or self._more()):
            parts.append(bytes(self._held[:size]))
            self._held = self._held[size:]
            size -= len(parts[-1])
        return b"".join(parts)


def _checked(plain: _Plain, limits: LayerLimits) -> Iterator[tuple[LayerEntry, Contents]]:
    """Every entry; what an unpacker would do with each stays below the root."""
    seen: dict[str, Kind] = {}
    for entry, contents in _entries(plain):
        if len(seen) >= limits.entries:
            raise InputError(f"layer: more than {limits.entries:,} entries", reason="image-limit")
        if entry.path in seen:
            _refuse(f"{entry.path[:200]!r} stands twice")
        seen[entry.path] = entry.kind
        yield entry, contents
    # In either order: a link that is there before, and one that takes the place of a folder afterwards. With the least
    # character as separator, what lies below an entry sorts right behind it, however deep it lies.
    for first, second in itertools.pairwise(sorted(path.replace("/", "\0") for path in seen)):
        folder = first.replace("\0", "/")
        if seen[folder] is not Kind.FOLDER and second.startswith(f"{first}\0"):
            path = second.replace("\0", "/")
            _unsafe(f"{path[:200]!r} lies below the {seen[folder].value} {folder[:200]!r}")


def _entries(plain: _Plain) -> Iterator[tuple[LayerEntry, Contents]]:
    """The entries of an archive, each checked by itself, to the end of the stream.

    Raises:
        InputError: See the module's table.
    """
    records: dict[str, str] = {}
    extended = False
    held = total = 0
    while (block := plain.take(BLOCK)) != bytes(BLOCK):
        if len(block) != BLOCK:
            _refuse("it ends without an end mark")
        header = _Header(block)
        if header.kind in {b"x", b"L", b"K"}:
            held, total = held + header.size, total + header.size
            if held > _TEXTS_LIMIT or total > _ALL_TEXTS_LIMIT:
                raise InputError(f"layer: extended headers of {total:,} bytes", reason="image-limit")
            _extend(records, header, plain)
            extended = True
            continue
        entry = _entry(header, records)
        contents = Contents(plain, entry.size)
        yield entry, contents
        plain.skip(contents.left + -entry.size % BLOCK)
        records, extended, held = {}, False, 0
    if extended:
        _refuse("it ends behind an extended header")
    if plain.take(BLOCK) != bytes(BLOCK):
        _refuse("it ends with half an end mark")
    while rest := plain.take(_CHUNK):
        if rest.strip(b"\0"):
            _refuse("bytes stand behind its end mark")


class _Header:
    """The 512 bytes before an entry, once their checksum was right."""

    def __init__(self, block: bytes) -> None:
        said = _number(block[148:156], "checksum")
        if said != sum(block) - sum(block[148:156]) + 8 * 0x20:
            _refuse("a header has a wrong checksum")
        self.magic = block[257:265]
        if self.magic not in {b"ustar\x0000", b"ustar  \0"}:
            _refuse("a header is neither ustar nor GNU")
        self.kind = block[156:157]
        self.name = _string(block[:100])
        self.mode, self.uid, self.gid = (
            _number(block[at : at + 8], what) for at, what in ((100, "mode"), (108, "uid"), (116, "gid"))
        )
        self.size = _number(block[124:136], "size")
        self.link = _string(block[157:257])
        if self.magic.startswith(b"ustar\0"):
            if prefix := _string(block[345:500]):
                self.name = f"{prefix}/{self.name}"
        elif block[345:500].strip(b"\0"):
            # GNU's place for further times: Python's tarfile takes it for the beginning of the path, Go's archive/tar does not.
            _refuse("a GNU header has what some readers take for the beginning of the path")


def _extend(records: dict[str, str], header: _Header, plain: _Plain) -> None:
    """Read an extended header or a long name into ``records``."""
    if header.size > _TEXT_LIMIT:
        raise InputError(f"layer: an extended header of {header.size:,} bytes", reason="image-limit")
    data = plain.take(header.size)
    plain.skip(-header.size % BLOCK)
    found = (
        _pax(data)
        if header.kind == b"x"
        else {"path" if header.kind == b"L" else "linkpath": _decoded(data.removesuffix(b"\0"))}
    )
    for key, value in found.items():
        if key in records:
            _refuse(f"{key[:80]!r} is said twice of one entry")
        records[key] = value


def _pax(data: bytes) -> dict[str, str]:
    """The records of an extended header: length, space, key, equals sign, value, line feed."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        # A length has few digits, so no more is looked at: what is left is not copied for each record.
        digits, space, _ = data[at : at + 8].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record, at = data[at : at + length], at + max(length, 1)
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if len(record) != length or not equals or not value.endswith(b"\n"):
            _refuse("an extended header is malformed")
        name = _decoded(key)
        if name in found:
            _refuse(f"{name[:80]!r} stands twice in an extended header")
        # Attributes are bytes (capabilities of a file, for instance), and nothing here depends on them.
        found[name] = "" if name.startswith(_ATTRIBUTES) else _decoded(value[:-1])
    return found


def _entry(header: _Header, records: Mapping[str, str]) -> LayerEntry:
    for key in records:
        known = key in {"path", "linkpath", "size", "uid", "gid", "uname", "gname", *_INERT_RECORDS}
        if not known and not key.startswith(_ATTRIBUTES):
            _refuse(f"an extended header says {key[:80]!r}")
    name = records.get("path", header.name)
    if header.kind in _SPECIAL:
        _unsafe(f"{name[:200]!r} is a {_SPECIAL[header.kind]}")
    kind = _KINDS.get(header.kind)
    if kind is None:
        _refuse(f"{name[:200]!r} is of type {header.kind!r}")
    if kind is Kind.FILE and header.kind == b"\0" and name.endswith("/"):
        kind = Kind.FOLDER  # as before POSIX
    path = _path(name)
    if not path and kind is not Kind.FOLDER:
        _unsafe(f"the root is a {kind.value}")
    size = _decimal(records["size"]) if "size" in records else header.size
    if kind is not Kind.FILE and size:
        _refuse(f"{kind.value} {path[:200]!r} has contents")
    link = records.get("linkpath", header.link) if kind in {Kind.HARD_LINK, Kind.SYMBOLIC_LINK} else ""
    if kind is Kind.HARD_LINK and not _path(link):
        _unsafe(f"{path[:200]!r} is a hard link to the root")
    if kind is Kind.SYMBOLIC_LINK:
        _check_symbolic(path, link)
    return LayerEntry(
        path=path,
        kind=kind,
        mode=header.mode,
        uid=_decimal(records["uid"]) if "uid" in records else header.uid,
        gid=_decimal(records["gid"]) if "gid" in records else header.gid,
        size=size,
        link=link,
        attributes=frozenset(key.partition(".xattr.")[2] for key in records if ".xattr." in key),
    )


def _path(name: str) -> str:
    """A path below the root, in its one spelling."""
    path = name.removesuffix("/")
    while path.startswith("./"):
        path = path[2:]
    if path == ".":
        return ""
    if (
        not path
        or len(path) > _LONGEST_PATH
        or "\0" in path
        or any(part in {"", ".", ".."} for part in path.split("/"))
    ):
        _unsafe(f"unsafe path {name[:200]!r}")
    return path


def _check_symbolic(path: str, link: str) -> None:
    if not link or len(link) > _LONGEST_PATH or "\0" in link:
        _unsafe(f"{path[:200]!r} is a link to {link[:200]!r}")
    depth = 0 if link.startswith("/") else path.count("/")
    for part in link.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            _unsafe(f"{path[:200]!r} is a link out of the tree: {link[:200]!r}")


def _number(field: bytes, what: str) -> int:
    """An octal number of a header, or GNU's base-256 one."""
    if field[0] == _BASE_256:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b"\0 ")
    if any(char not in b"01234567" for char in text):
        _refuse(f"a header has the {what} {field!r}")
    return int(text, 8) if text else 0


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:  # noqa: PLR2004 - below 2**63
        _refuse(f"an extended header has the number {text[:80]!r}")
    return int(text)


def _string(field: bytes) -> str:
    return _decoded(field.partition(b"\0")[0])


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"layer: {data[:80]!r} is not UTF-8", reason="image-layer") from error


def _unsafe(text: str) -> NoReturn:
    raise InputError(f"layer: {text}", reason="image-path")


def _refuse(text: str) -> NoReturn:
    raise InputError(f"layer: {text}", reason="image-layer")
