"""A handle on bytes: a private copy, hashed while it is made, that nobody else can replace.

A file that is verified at its path and read again at its path may be another file by then (row 25 of the verifier's
cases). Whoever goes on to use an artifact takes it first: everything that is said of it afterwards, and everything
that is done with it, is about the copy. The copy lies under the artifact's own name in a folder of mode 0700, is not
writable, and is gone when the handle is closed; copies of a process that was killed are removed by the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wheelmark.binaries.archive import ArchiveLimits
from wheelmark.errors import ConfigError, InputError, RejectedError
from wheelmark.plainfiles import open_plain
from wheelmark.trust.state import private_directory, state_directory

LIMIT = ArchiveLimits().total
"""Bytes of the largest file that is taken."""
_FOLDER = "taken"
_PREFIX = "copy-"
_BLOCK = 1 << 18
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taken:
    """A private copy of one file."""

    path: Path
    """Of the copy; its name is the original's."""
    sha256: str
    size: int
    """Bytes."""

    def open(self) -> io.BufferedReader:
        """The copy's bytes, from the first on."""
        return open_plain(self.path)


@contextlib.contextmanager
def take(path: Path, *, sha256: str = "", place: Path | None = None, limit: int = LIMIT) -> Iterator[Taken]:
    """Copy a plain file into a private place while hashing it; the copy is removed at the end.

    Args:
        path: The file. A link, a pipe or a device is refused without touching it.
        sha256: The digest that the bytes have to have; empty for any.
        place: A folder of this user alone, made where absent; ``taken`` in the state directory if not given.
        limit: Bytes of the largest file.

    Raises:
        InputError: The file cannot be read (``unreadable``) or is over the limit (``input-limit``).
        RejectedError: It has another digest (``file-digest``).
        ConfigError: The place cannot be used, others can enter it, or it is full (``state-full``).
    """
    with open_plain(path) as source:
        size = os.fstat(source.fileno()).st_size
        if size > limit:
            raise InputError(f"{path} holds {size:,} bytes; the limit is {limit:,}", reason="input-limit")
        with private_copies(place or state_directory(create=True) / _FOLDER) as folder:
            copy = folder / path.name
            with _place_errors(folder):
                digest, copied = _copy(source, copy, limit)
            if sha256 and digest != sha256:
                raise RejectedError(
                    f"{path} has sha256 {digest}, and not {sha256}",
                    cause="another file was put in its place, or it was damaged on the way",
                    reason="file-digest",
                )
            yield Taken(path=copy, sha256=digest, size=copied)


def _copy(source: io.BufferedReader, copy: Path, limit: int) -> tuple[str, int]:
    digest = hashlib.sha256()
    copied = 0
    buffer = memoryview(bytearray(_BLOCK))
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
    with os.fdopen(descriptor, "wb", buffering=0) as target:
        while got := _read(source, buffer):
            copied += got
            if copied > limit:
                raise InputError(f"{copy.name} grew beyond {limit:,} bytes", reason="input-limit")
            block = buffer[:got]
            digest.update(block)
            while block:
                block = block[target.write(block) :]
    return digest.hexdigest(), copied


def _read(source: io.BufferedReader, buffer: memoryview) -> int:
    try:
        return source.readinto(buffer)
    except OSError as error:
        raise InputError(f"cannot read {source.name}: {error.strerror}", reason="unreadable") from error


@contextlib.contextmanager
def private_copies(place: Path) -> Iterator[Path]:
    """A new folder in ``place``, locked as long as it is used: an unlocked one is left over and is removed.

    Args:
        place: A folder of this user alone; made where absent.

    Raises:
        ConfigError: It cannot be used, others can enter it, or it is full (``state-full``).
    """
    private_directory(place)
    with _place_errors(place), contextlib.ExitStack() as held:
        with _locked(place):
            _sweep(place)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            held.enter_context(_locked(folder))
        kept = held.pop_all()
    with kept:
        yield folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # in use: BlockingIOError
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _place_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise ConfigError(
            f"cannot keep a private copy in {place}: {error.strerror}",
            cause="the file system is full, or a quota is reached" if full else "",
            fix="free some space, or name a folder elsewhere in WHEELMARK_STATE",
            reason="state-full" if full else "state-directory",
        ) from error
