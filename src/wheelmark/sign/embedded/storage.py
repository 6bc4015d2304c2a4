"""Files of the embedded trust domain: locks, atomic writes, and append-only records that survive a crash.

A record file is a magic line and then records: length of the data, CRC-32 of those four bytes, CRC-32 of the data
(each 4 bytes, big-endian), and the data. A record counts once all of it is on the disk: what a crash left of the last one is cut off when the
file is next opened; damage before the last record is never repaired, it is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from wheelmark.errors import BusyError, StateError

_MAGIC = b"wheelmark records 1\n"
_HEADER = struct.Struct("!III")
PATIENCE = 30.0
"""Seconds that a lock is waited for: creating a domain takes a fraction of one."""


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error that says so.

    Raises:
        StateError: Full, read-only or broken (reason ``trust-disk``).
    """
    try:
        yield
    except OSError as error:
        raise StateError(
            f"cannot use the embedded trust domain in {folder}: {error.strerror}",
            cause="the disk is full, or mounted read-only",
            fix="make room, or name another folder in WHEELMARK_STATE; what was signed before is not touched",
            reason="trust-disk",
        ) from error


@contextlib.contextmanager
def lock(path: Path, *, exclusive: bool, patience: float = PATIENCE) -> Iterator[None]:
    """Hold an advisory lock (``flock``) on ``path``; the kernel releases it when the process dies.

    Args:
        path: The lock file; made where absent.
        exclusive: Keep everybody out, not only those who change things.
        patience: Seconds to wait.

    Raises:
        BusyError: Somebody else held it all that time (reason ``trust-busy``).
        StateError: The file cannot be opened (reason ``trust-disk``).
    """
    with usable(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, exclusive=exclusive, patience=patience)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, *, exclusive: bool, patience: float) -> None:
    kind = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise BusyError(
                    f"another process uses the embedded trust domain in {path.parent}",
                    cause="a release is being signed, or the domain is being rotated",
                    fix="wait until it ends, then run this again",
                    reason="trust-busy",
                ) from None
            time.sleep(0.01)
        else:
            return


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` in place of ``path`` with mode 0600: readers see the old bytes or the new, never a part."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        write_new(partial, data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600 down to the disk; never over one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Records:
    """An append-only file of records that several processes may append to.

    Args:
        path: The file; made where absent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._stream = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        self._end = 0
        # flock keeps processes apart, and two open files; threads share this one.
        self._threads = threading.Lock()

    def close(self) -> None:
        """Release the file."""
        self._stream.close()

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[list[bytes]]:
        """Keep other processes out, and hand over the records that were added since the last time.

        Raises:
            BusyError: Another process held the file for too long.
            StateError: The file is damaged before its last record (reason ``trust-log``).
        """
        with self._threads:
            _acquire(self._stream.fileno(), self.path, exclusive=True, patience=PATIENCE)
            try:
                yield self._read_new()
            finally:
                fcntl.flock(self._stream.fileno(), fcntl.LOCK_UN)

    def append(self, data: bytes) -> None:
        """Add one record and wait until it is on the disk; only inside ``exclusively``."""
        length = len(data).to_bytes(4, "big")
        record = _HEADER.pack(len(data), zlib.crc32(length), zlib.crc32(data)) + data
        self._stream.seek(self._end)
        written = self._stream.write(record)
        if written != len(record):
            raise StateError(f"{self.path}: the disk took only part of a record", reason="trust-log")
        os.fsync(self._stream.fileno())
        self._end += len(record)

    def _read_new(self) -> list[bytes]:
        size = os.fstat(self._stream.fileno()).st_size
        if self._end == 0:
            self._end = self._begin(size)
            size = max(size, self._end)
        if size < self._end:
            raise self._damage("is shorter than it was")
        self._stream.seek(self._end)
        data = self._stream.read(size - self._end) or b""
        records, used = self._split(data)
        if used < len(data):
            # Under the lock nobody is writing: this is what a process left that died while it wrote.
            self._stream.truncate(self._end + used)
            os.fsync(self._stream.fileno())
        self._end += used
        return records

    def _begin(self, size: int) -> int:
        start = self._stream.read(len(_MAGIC)) or b""
        if start == _MAGIC:
            return len(_MAGIC)
        if size >= len(_MAGIC) or not _MAGIC.startswith(start):
            raise self._damage("is no record file")
        self._stream.truncate(0)
        self._stream.seek(0)
        self._stream.write(_MAGIC)
        os.fsync(self._stream.fileno())
        sync_directory(self.path.parent)
        return len(_MAGIC)

    def _split(self, data: bytes) -> tuple[list[bytes], int]:
        """The whole records in ``data``, and how many bytes they take.

        What follows them is taken for the rest of a write that a crash cut short only where it can be nothing
        else: a length that is right and data that is not all there, or blocks that the disk never filled.
        """
        records: list[bytes] = []
        used = 0
        while len(data) - used >= _HEADER.size:
            length, length_sum, data_sum = _HEADER.unpack_from(data, used)
            if zlib.crc32(data[used : used + 4]) != length_sum:
                if any(data[used:]):
                    raise self._damage(f"has a damaged record at byte {self._end + used:,}")
                break
            start, end = used + _HEADER.size, used + _HEADER.size + length
            if end > len(data):
                break
            if zlib.crc32(data[start:end]) != data_sum:
                if end < len(data):
                    raise self._damage(f"has a damaged record at byte {self._end + used:,}")
                break
            records.append(data[start:end])
            used = end
        return records, used

    def _damage(self, how: str) -> StateError:
        return StateError(
            f"{self.path} {how}",
            cause="the disk lost bytes, or something other than wheelmark wrote to it",
            fix="wheelmark trust rotate begins a new log (old bundles stay verifiable), or restore a backup",
            reason="trust-log",
        )
