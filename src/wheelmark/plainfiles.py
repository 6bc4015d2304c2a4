"""Reading files without waiting and without end: what is no plain file is refused, and no more is read than a bound.

What is found in a release, an image or an environment is opened without following a link. What an operator names on a
command line or in a policy may be a link to a plain file (mounted configuration is), and no pipe or device.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

from wheelmark.errors import ConfigError, InputError


def open_plain(path: Path, *, follow: bool = False) -> io.BufferedReader:
    """Open a plain file for reading; a pipe or a device is refused without touching it.

    Args:
        path: The file.
        follow: Whether it may be a link to a plain file; else a link is refused too.

    Raises:
        InputError: Reason ``unreadable``.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is no plain file", reason="unreadable")
    return os.fdopen(descriptor, "rb")


def read_start(stream: io.BufferedReader, path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of an open file.

    Raises:
        InputError: The read fails (``unreadable``): a broken disk, or a file system of another machine.
    """
    try:
        return stream.read(limit)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most ``limit`` bytes.

    Raises:
        InputError: Larger (``json-too-large``), or not readable.
    """
    with open_plain(path) as stream:
        data = read_start(stream, path, limit + 1)
    if len(data) > limit:
        raise InputError(f"{path} is over {limit:,} bytes", reason="json-too-large")
    return data


def read_named(path: Path, limit: int, *, what: str = "", fix: str = "", reason: str) -> bytes:
    """At most ``limit`` bytes of a file that an operator named; whoever calls says whether that is too much.

    Args:
        path: The file, or a link to it.
        limit: Bytes.
        what: What the message begins with.
        fix: What mends it.
        reason: Reason code of the error.

    Raises:
        ConfigError: It cannot be read, or is no plain file.
    """
    try:
        with open_plain(path, follow=True) as stream:
            return read_start(stream, path, limit)
    except InputError as error:
        raise ConfigError(f"{what}{error.what}", fix=fix, reason=reason) from error


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    why = error.strerror if isinstance(error, OSError) else error
    return InputError(f"cannot read {path}: {why}", reason="unreadable")
