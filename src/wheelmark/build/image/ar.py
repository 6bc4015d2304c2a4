"""The outside of a ``.deb``: an ``ar`` archive with three members, each checked, the two tar archives decompressed.

Format: deb(5). Narrowed: ``debian-binary`` (``2.x``), ``control.tar``, ``data.tar``, in this order and nothing
besides; compression by xz, zstd, gzip or none. Memory is bounded by the decompressors' windows.

===================  ==================================================================
reason               what was found
===================  ==================================================================
``deb-ar``           no such archive, another member, or it ends early
``deb-compression``  a compression that is not read, a broken or an endless stream
===================  ==================================================================
"""

from __future__ import annotations

import lzma
import zlib
from typing import BinaryIO, NoReturn, Protocol

import zstandard

from wheelmark.errors import BuildError
from wheelmark.oci.layer import Readable

_MAGIC = b"!<arch>\n"
_HEADER = 60
_END = b"`\n"
_CHUNK = 1 << 18
_XZ_MEMORY = 128 << 20
"""Bytes: `xz -9` needs 65 MiB."""
_ZSTD_WINDOW = 128 << 20
_GZIP = 31


class Deb:
    """A package file that is read from front to back.

    Args:
        stream: Its bytes, at their beginning.
        name: How messages call it.

    Raises:
        BuildError: See the module's table.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        if stream.read(len(_MAGIC)) != _MAGIC:
            self._refuse("it is no ar archive")
        member, size = self._next()
        if member != "debian-binary" or not 4 <= size <= 8:  # noqa: PLR2004 - "2.0\n", with room for two more digits
            self._refuse(f"its first member is {member!r} of {size} bytes")
        version = stream.read(size)
        if not version.startswith(b"2.") or not version.endswith(b"\n"):
            self._refuse(f"it is of format {version!r}")
        stream.read(size & 1)

    def member(self, prefix: str) -> Readable:
        """The next member, decompressed; it has to be read to its end before the one after it.

        Args:
            prefix: ``control.tar`` or ``data.tar``.
        """
        member, size = self._next()
        if not member.startswith(prefix):
            self._refuse(f"{prefix} does not come next, but {member!r}")
        stored = _Member(self, self._stream, size)
        match member.removeprefix(prefix):
            case "":
                return stored
            case ".xz":
                made: _Decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            case ".gz":
                made = _Gzip()
            case ".zst":
                made = _Zstd()
            case other:
                raise self.error(f"{prefix} is compressed as {other!r}", "deb-compression")
        return _Decompressed(self, stored, made)

    def finish(self) -> None:
        """Make sure that nothing stands behind what was read."""
        if self._stream.read(1):
            self._refuse("something stands behind data.tar")

    def error(self, text: str, reason: str) -> BuildError:
        """What is raised about this package."""
        return BuildError(
            f"{self._name}: {text}", cause="the package is damaged, or no Debian package", reason=reason
        )

    def _next(self) -> tuple[str, int]:
        header = self._stream.read(_HEADER)
        if len(header) != _HEADER or not header.endswith(_END):
            self._refuse("a member's header is missing or malformed")
        digits = header[48:58].rstrip(b" ")
        if not digits.isdigit() or not header[:16].isascii():
            self._refuse("a member's header is malformed")
        return header[:16].decode().rstrip(" ").removesuffix("/"), int(digits)

    def _refuse(self, text: str) -> NoReturn:
        raise self.error(text, "deb-ar")


class _Member:
    """The stored bytes of one member."""

    def __init__(self, deb: Deb, stream: BinaryIO, size: int) -> None:
        self._deb, self._stream, self._left, self._odd = deb, stream, size, size & 1

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left))
        if len(data) < min(size, self._left):
            raise self._deb.error("it ends early", "deb-ar")
        self._left -= len(data)
        if not self._left and self._odd:
            self._odd = 0
            if self._stream.read(1) not in {b"\n", b""}:
                raise self._deb.error("a member is not filled up with a line feed", "deb-ar")
        return data


class _Decompressor(Protocol):
    """What xz, gzip and zstd have in common here."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


class _Gzip:
    """zlib in the manner of ``lzma.LZMADecompressor``."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP)

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflater.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        return self._inflater.decompress(self._inflater.unconsumed_tail + data, max_length)


class _Zstd:
    """zstandard in the manner of ``lzma.LZMADecompressor``: a small piece of input gives a bounded piece of output."""

    def __init__(self) -> None:
        # The window is checked against the frame's header before memory for it is taken.
        self._made = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return self._made.eof

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return self._made.unused_data + (self._waiting if self.eof else b"")

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:  # noqa: ARG002 - bounded by the step
        self._waiting += data
        step, self._waiting = self._waiting[:_STEP], self._waiting[_STEP:]
        return self._made.decompress(step)


_STEP = 4096
"""Bytes of zstd input at once: a block gives at most 128 KiB, and takes at least 3 bytes (RFC 8878, 3.1.1.2)."""


class _Decompressed:
    """A member's bytes, decompressed to exactly its end."""

    def __init__(self, deb: Deb, stored: _Member, made: _Decompressor) -> None:
        self._deb, self._stored, self._made = deb, stored, made
        self._held = b""

    def read(self, size: int, /) -> bytes:
        while not self._held and not self._made.eof:
            try:
                data = self._stored.read(_CHUNK) if self._made.needs_input else b""
                if self._made.needs_input and not data:
                    raise self._deb.error("its compressed stream ends early", "deb-compression")
                self._held = self._made.decompress(data, _CHUNK)
            except (lzma.LZMAError, zlib.error, zstandard.ZstdError, MemoryError) as error:
                raise self._deb.error(
                    f"its compressed stream is broken: {error}", "deb-compression"
                ) from error
        if not self._held and (self._made.unused_data or self._stored.read(1)):
            raise self._deb.error("something stands behind its compressed stream", "deb-compression")
        data, self._held = self._held[:size], self._held[size:]
        return data
