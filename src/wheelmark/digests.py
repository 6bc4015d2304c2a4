"""Streaming sha256 of bytes, files and trees, and canonical JSON.

Canonical JSON is RFC 8785 (JCS): keys sorted by UTF-16 code unit, no white space, shortest numbers. What
Wheelmark signs or hashes as JSON is written this way, so that equal values have equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import IO, Any

import rfc8785

from wheelmark.errors import InputError

CHUNK = 1 << 20
_SHOWN = 200
"""Characters of a path in a message."""
_HEX = re.compile(r"[0-9a-f]{64}")


def sha256(data: bytes) -> str:
    """The lowercase hexadecimal sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_stream(stream: IO[bytes]) -> str:
    """The sha256 of what ``stream`` still holds, read 1 MiB at a time."""
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return sha256_stream(stream)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error


def is_sha256(text: str) -> bool:
    """Whether ``text`` is 64 lowercase hexadecimal digits."""
    return _HEX.fullmatch(text) is not None


def tree_files(root: Path) -> list[str]:
    """Relative POSIX paths of all files under ``root``, sorted; links are listed, never followed.

    Where there is no ``root``, there are none.

    Raises:
        InputError: A folder cannot be read, or lies too deep for its path to be opened (reason ``unreadable``):
            what is in it would otherwise be overlooked.
    """
    found: list[str] = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    (waiting if entry.is_dir(follow_symlinks=False) else found).append(name)
        except OSError as error:
            if not folder and isinstance(error, FileNotFoundError):
                return []
            shown = folder if len(folder) <= _SHOWN else f"{folder[:_SHOWN]}…"
            raise InputError(
                f"cannot read the folder {root / shown}: {error.strerror}", reason="unreadable"
            ) from error
    return sorted(found)


def sha256_tree(root: Path) -> str:
    """One digest for a tree: over the sorted ``<sha256>  <relative path>`` lines of its files."""
    lines = [f"{sha256_file(root / name)}  {name}\n" for name in tree_files(root)]
    return sha256("".join(lines).encode())


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value (str keys; int within 2**53; no NaN).

    Raises:
        InputError: ``value`` holds what JSON cannot say.
    """
    try:
        return rfc8785.dumps(value)
    # A key with half a surrogate pair leaves rfc8785 as UnicodeEncodeError.
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InputError(
            f"value cannot be written as canonical JSON: {error}", reason="json-value"
        ) from error
