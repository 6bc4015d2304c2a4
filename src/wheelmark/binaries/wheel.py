"""Wheels: what their bytes say, read so strictly that every installer would see the same files.

Sources: the binary distribution format (PEP 427), tags (PEP 425), versions (PEP 440), the core metadata
specification. pip and uv install a wheel whose RECORD is wrong, that holds files which RECORD does not list, or that
has one name twice; this reader refuses them. RECORD must list every file and nothing else, with sha256
and size; the signature files ``RECORD.jws`` and ``RECORD.p7s`` are refused, since nothing vouches for their bytes.

========================  =======================================================================
reason                    what was found
========================  =======================================================================
``wheel-zip``             the archive's structure is not exactly as ``archive`` wants it
``wheel-limit``           too many files, too many bytes, or a decompression bomb
``wheel-path``            absolute, ``..``, backslash, drive, device name, or a file that is also a folder
``wheel-link``            a symbolic link, device or other special file
``wheel-duplicate``       one name twice, also after Unicode normalisation and case folding
``wheel-record``          RECORD malformed, or a digest or size in it is wrong
``wheel-unlisted``        a file that RECORD does not list
``wheel-missing``         a file that RECORD lists, or that every wheel has, is absent
``wheel-metadata``        METADATA or WHEEL malformed
``wheel-name``            file name, METADATA and dist-info folder disagree on name or version
``wheel-tags``            file name and WHEEL disagree on tags or build
========================  =======================================================================
"""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import io
import itertools
import math
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.tags import Tag, parse_tag
from packaging.utils import (
    BuildTag,
    InvalidName,
    InvalidWheelFilename,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from wheelmark.binaries.archive import (
    ArchiveLimits,
    BytesSource,
    FileSource,
    Member,
    decompress,
    read_directory,
)
from wheelmark.binaries.hashing import HashedSource, Lane, Lanes, Source
from wheelmark.errors import InputError

DEFAULT_LIMITS = ArchiveLimits()
_METADATA_LIMIT = 16 << 20
"""Bytes of METADATA, WHEEL or RECORD: the only members held in memory here."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*(.*)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_SHA256 = re.compile(r"sha256=([A-Za-z0-9_-]{43})")
_LONGEST_PATH = 1024
_WORTH_THREADS = 2 << 20
"""Bytes of a wheel below which threads cost more than they save."""
_TAGS = 1000
"""Tags of one wheel, with compressed sets written out."""
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WheelFile:
    """One file of a wheel."""

    sha256: str
    size: int
    """Bytes, decompressed."""
    compressed: int
    """Bytes in the wheel."""
    mode: int
    """Permission bits, ``0o644``; 0 where the archive records none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel whose structure, RECORD and names agree; built by ``read_wheel``."""

    file_name: str
    sha256: str
    """Of the whole file."""
    size: int
    """Bytes of the whole file."""
    name: str
    """Normalised distribution name (PEP 503)."""
    version: Version
    build: BuildTag
    """Empty tuple where there is none."""
    tags: frozenset[Tag]
    files: Mapping[str, WheelFile] = dataclasses.field(repr=False)
    """By path, in the order of their bytes."""
    dist_info: str
    """``<name>-<version>.dist-info``."""
    metadata: Mapping[str, tuple[str, ...]] = dataclasses.field(repr=False)
    """Headers of METADATA; names in lower case."""
    generator: str
    """What WHEEL says made it."""
    pure: bool
    """Root-Is-Purelib."""
    _source: Source = dataclasses.field(repr=False, compare=False)
    _members: Mapping[str, Member] = dataclasses.field(repr=False, compare=False)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of its tags, sorted: ``manylinux_2_28_x86_64``, ``any``."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    @property
    def startup_files(self) -> tuple[str, ...]:
        """Files that the interpreter runs at every start once they are installed (``.pth``)."""
        data = self.dist_info.removesuffix(".dist-info") + ".data"
        roots = ("", f"{data}/purelib/", f"{data}/platlib/")
        return tuple(
            path
            for path in self.files
            if path.endswith(".pth") and any(path == root + path.rpartition("/")[2] for root in roots)
        )

    def read(self, path: str) -> bytes:
        """The bytes of one file, checked again against the digest that was found when the wheel was read.

        Raises:
            InputError: No such file (``wheel-missing``), or the wheel changed meanwhile (``wheel-record``).
        """
        member = self._members.get(path)
        if member is None or path not in self.files:
            raise InputError(f"{self.file_name} holds no {path}", reason="wheel-missing")
        data = b"".join(decompress(self._source, member))
        if hashlib.sha256(data).hexdigest() != self.files[path].sha256:
            raise InputError(f"{self.file_name}: {path} changed while it was read", reason="wheel-record")
        return data

    def chunks(self, path: str) -> Iterator[bytes]:
        """The bytes of one file piece by piece, checked at the end against the digest found when the wheel was read.

        Raises:
            InputError: As ``read``.
        """
        member = self._members.get(path)
        if member is None or path not in self.files:
            raise InputError(f"{self.file_name} holds no {path}", reason="wheel-missing")
        digest = hashlib.sha256()
        for piece in decompress(self._source, member, crc=False):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.files[path].sha256:
            raise InputError(f"{self.file_name}: {path} changed while it was read", reason="wheel-record")


def read_wheel(
    wheel: bytes | Path | Source,
    *,
    name: str = "",
    limits: ArchiveLimits = DEFAULT_LIMITS,
    threads: bool = False,
    checksums: bool = True,
) -> Wheel:
    """Read a wheel.

    Memory is bounded: only METADATA, WHEEL and RECORD are held; the rest is hashed as it is decompressed. Every byte is
    read once for all of its sums, so that the digest of the whole is that of the bytes that were looked into.

    Args:
        wheel: The bytes, the file, or the file opened already.
        name: The wheel's file name; a path's own name where absent.
        limits: Bounds on the archive.
        threads: Whether a large wheel is summed in several threads.
        checksums: Whether each member's CRC is checked too. RECORD's sha256 is compared in any case and says more, so a
            verifier need not take the time; who makes wheels wants both, since installers refuse a wrong CRC.

    Raises:
        InputError: It is not a wheel in which everything agrees; reasons in the module's table.
    """
    source = _source(wheel)
    file_name = name or (wheel.name if isinstance(wheel, Path) else "")
    distribution, version, build, tags = _parse_name(file_name)
    members = {member.name: member for member in _checked(read_directory(source, limits))}
    dist_info = _dist_info(file_name, members, distribution, version)
    with Lanes(threads=threads and source.size >= _WORTH_THREADS) as lanes:
        hashed = HashedSource(source, lanes.executor("whole"))
        files = {path: _hash(hashed, member, lanes, crc=checksums) for path, member in members.items()}
        whole = hashed.finish()
    record = _held(source, members, f"{dist_info}/RECORD")
    _check_record(record, files, dist_info)
    metadata = _headers(_held(source, members, f"{dist_info}/METADATA"), "METADATA")
    marks = _headers(_held(source, members, f"{dist_info}/WHEEL"), "WHEEL")
    _check_metadata(file_name, metadata, distribution, version)
    _check_marks(file_name, marks, build, tags)
    return Wheel(
        file_name=file_name,
        sha256=whole,
        size=source.size,
        name=distribution,
        version=version,
        build=build,
        tags=tags,
        files=files,
        dist_info=dist_info,
        metadata=metadata,
        generator=", ".join(marks.get("generator", ())),
        pure=marks["root-is-purelib"][0].lower() == "true",
        _source=source,
        _members=members,
    )


def _parse_name(file_name: str) -> tuple[str, Version, BuildTag, frozenset[Tag]]:
    if len(file_name) > _LONGEST_PATH or _count_tags(file_name.removesuffix(".whl")) > _TAGS:
        raise InputError("the wheel's file name is too long, or has too many tags", reason="wheel-limit")
    try:
        name, version, build, tags = parse_wheel_filename(file_name)
    except (InvalidWheelFilename, InvalidVersion, InvalidName, ValueError) as error:
        raise InputError(
            f"{file_name[:200]!r} is not a wheel's file name: {error}", reason="wheel-name"
        ) from error
    return str(name), version, build, tags


def _count_tags(text: str) -> int:
    """How many tags a compressed set such as ``py2.py3-none-any`` stands for."""
    return math.prod(part.count(".") + 1 for part in text.split("-")[-3:])


def _checked(members: tuple[Member, ...]) -> list[Member]:
    """The members that are files, after every name and kind was found to be safe."""
    seen: set[str] = set()
    files: list[Member] = []
    for member in members:
        path = member.name.removesuffix("/")
        _check_path(path)
        kind = stat.S_IFMT(member.mode)
        if kind not in ({0, stat.S_IFDIR} if member.is_folder else {0, stat.S_IFREG}):
            raise InputError(f"{path} is a link or a special file", reason="wheel-link")
        key = _fold(path)
        if key in seen:
            raise InputError(f"{path} stands twice", reason="wheel-duplicate")
        seen.add(key)
        if not member.is_folder:
            files.append(member)
        elif member.size or member.compressed > 2:  # noqa: PLR2004 - deflate writes nothing as two bytes
            raise InputError(f"folder {path} has contents", reason="wheel-zip")
    # With the least character as separator, what lies in a folder of a file's name sorts right behind the file.
    keys = sorted(_fold(member.name).replace("/", "\0") for member in files)
    for first, second in itertools.pairwise(keys):
        if second.startswith(first + "\0"):
            raise InputError(f"{first.replace(chr(0), '/')} is a file and a folder", reason="wheel-path")
    return files


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _check_path(path: str) -> None:
    parts = path.split("/")
    unsafe = (
        len(path) > _LONGEST_PATH
        or "\\" in path
        or _DRIVE.match(path) is not None
        or any(not part or part in {".", ".."} or part[-1] in ". " for part in parts)
        or not path.isprintable()
        or any(_DEVICES.fullmatch(part) for part in parts)
    )
    if unsafe:
        raise InputError(f"unsafe path {path[:200]!r}", reason="wheel-path")


def _dist_info(file_name: str, members: Mapping[str, Member], distribution: str, version: Version) -> str:
    tops = {path.partition("/")[0] for path in members if "/" in path}
    found = [top for top in tops if top.lower().endswith(".dist-info")]
    if len(found) != 1:
        raise InputError(f"{file_name}: {len(found)} dist-info folders", reason="wheel-missing")
    for top in [*found, *(top for top in tops if top.endswith(".data"))]:
        name, _, said = top.removesuffix(".data").removesuffix(".dist-info").partition("-")
        if canonicalize_name(name) != distribution or _version(said, top) != version:
            raise InputError(f"{file_name} holds the folder {top}", reason="wheel-name")
    return found[0]


def _version(text: str, where: str) -> Version:
    try:
        return Version(text)
    except ValueError as error:  # InvalidVersion, or a number of more digits than Python converts
        raise InputError(f"{where}: {text[:80]!r} is not a version", reason="wheel-name") from error


def _source(wheel: bytes | Path | Source) -> Source:
    if isinstance(wheel, bytes):
        return BytesSource(wheel)
    return FileSource(wheel) if isinstance(wheel, Path) else wheel


def _hash(source: Source, member: Member, lanes: Lanes, *, crc: bool) -> WheelFile:
    digest = hashlib.sha256()
    # A deflated member keeps this thread busy; a stored one has nothing else to do here.
    lane = Lane(digest.update, lanes.executor("member") if member.compressed < member.size else None)
    for piece in decompress(source, member, lanes, crc=crc):
        lane.feed(piece)
    lane.settle()
    return WheelFile(
        sha256=digest.hexdigest(),
        size=member.size,
        compressed=member.compressed,
        mode=stat.S_IMODE(member.mode),
    )


def _held(source: Source, members: Mapping[str, Member], path: str) -> str:
    """A small member, as text."""
    if path not in members:
        raise InputError(f"the wheel has no {path}", reason="wheel-missing")
    if members[path].size > _METADATA_LIMIT:
        raise InputError(f"{path} holds {members[path].size:,} bytes", reason="wheel-limit")
    try:
        return b"".join(decompress(source, members[path])).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8", reason="wheel-metadata") from error


def _check_record(text: str, files: Mapping[str, WheelFile], dist_info: str) -> None:
    itself = f"{dist_info}/RECORD"
    listed: set[str] = set()
    for path, said, size in _record_rows(text):
        if path in listed:
            raise InputError(f"RECORD lists {path[:200]} twice", reason="wheel-record")
        listed.add(path)
        if path not in files:
            raise InputError(f"RECORD lists {path[:200]}, which is absent", reason="wheel-missing")
        if path == itself:
            if said or size:
                raise InputError("RECORD gives itself a digest", reason="wheel-record")
        elif _digest(said) != files[path].sha256 or size != str(files[path].size):
            raise InputError(f"RECORD is wrong about {path}", reason="wheel-record")
    for path in files:
        if path not in listed or path in {f"{dist_info}/{name}" for name in _SIGNATURES}:
            raise InputError(f"RECORD does not vouch for {path}", reason="wheel-unlisted")


def _record_rows(text: str) -> list[tuple[str, str, str]]:
    """Path, digest and size of each line."""
    if "\0" in text:
        raise InputError("RECORD holds a NUL", reason="wheel-record")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise InputError(f"RECORD is malformed: {error}", reason="wheel-record") from error
    for row in rows:
        if len(row) != 3:  # noqa: PLR2004 - path, hash, size
            raise InputError(f"RECORD has a line of {len(row)} fields", reason="wheel-record")
    return [(row[0], row[1], row[2]) for row in rows]


def _digest(said: str) -> str:
    """Hexadecimal sha256 of a RECORD field, or empty where it is no sha256 in its one spelling."""
    match = _SHA256.fullmatch(said)
    if match is None:
        return ""
    raw = base64.urlsafe_b64decode(match[1] + "=")
    return raw.hex() if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == match[1] else ""


def _headers(text: str, what: str) -> dict[str, tuple[str, ...]]:
    """The headers of an RFC 822 style file; names in lower case, continuation lines joined."""
    found: dict[str, list[list[str]]] = {}
    last = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line:
            break
        if _CONTROL.search(line):
            # Installers' parsers end lines at a bare CR too: what stands behind it would be a header for them.
            raise InputError(f"{what} has a control character in {line[:80]!r}", reason="wheel-metadata")
        if line[0] in " \t":
            if not last:
                raise InputError(f"{what} begins with a continuation line", reason="wheel-metadata")
            found[last][-1].append(line.strip())
            continue
        match = _HEADER.fullmatch(line)
        if match is None:
            raise InputError(f"{what} has a malformed line {line[:80]!r}", reason="wheel-metadata")
        last = match[1].lower()
        found.setdefault(last, []).append([match[2].strip()])
    return {key: tuple("\n".join(lines) for lines in values) for key, values in found.items()}


def _single(headers: Mapping[str, tuple[str, ...]], key: str, what: str) -> str:
    values = headers.get(key, ())
    if len(values) != 1 or not values[0]:
        raise InputError(f"{what} has {len(values)} {key} headers", reason="wheel-metadata")
    return values[0]


def _check_metadata(
    file_name: str, metadata: Mapping[str, tuple[str, ...]], distribution: str, version: Version
) -> None:
    _single(metadata, "metadata-version", "METADATA")
    said_name, said_version = _single(metadata, "name", "METADATA"), _single(metadata, "version", "METADATA")
    if canonicalize_name(said_name) != distribution:
        raise InputError(f"{file_name}: METADATA says name {said_name[:80]}", reason="wheel-name")
    if _version(said_version, "METADATA") != version:
        raise InputError(f"{file_name}: METADATA says version {said_version[:80]}", reason="wheel-name")


def _parsed(tag: str) -> frozenset[Tag]:
    try:
        return frozenset(parse_tag(tag))
    except ValueError as error:  # packaging's InvalidTag is one
        raise InputError(f"WHEEL: {tag[:80]!r} is not a tag", reason="wheel-metadata") from error


def _check_marks(
    file_name: str, marks: Mapping[str, tuple[str, ...]], build: BuildTag, tags: frozenset[Tag]
) -> None:
    if not _single(marks, "wheel-version", "WHEEL").startswith("1."):
        raise InputError("WHEEL is of another major version of the format", reason="wheel-metadata")
    if _single(marks, "root-is-purelib", "WHEEL").lower() not in {"true", "false"}:
        raise InputError("WHEEL: Root-Is-Purelib is neither true nor false", reason="wheel-metadata")
    said: set[Tag] = set()
    for text in marks.get("tag", ()):
        if text.count("-") != 2 or "" in re.split(r"[-.]", text):  # noqa: PLR2004 - interpreter, ABI, platform
            raise InputError(f"WHEEL: {text[:80]!r} is not a tag", reason="wheel-metadata")
        if len(said) + _count_tags(text) > _TAGS:
            raise InputError(f"WHEEL names more than {_TAGS} tags", reason="wheel-limit")
        said |= _parsed(text)
    if said != tags:
        raise InputError(
            f"{file_name}: WHEEL says {', '.join(sorted(map(str, said)))[:300]}", reason="wheel-tags"
        )
    said_build = "".join(str(part) for part in build)
    if marks.get("build", ()) != ((said_build,) if build else ()):
        raise InputError(f"{file_name}: WHEEL says build {marks.get('build')}", reason="wheel-tags")
