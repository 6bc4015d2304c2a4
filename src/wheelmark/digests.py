"""Streaming sha256 of bytes, files and trees, and canonical JSON.

Canonical JSON is RFC 8785 (JCS): keys sorted by UTF-16 code unit, no white space, shortest numbers. What
Wheelmark signs or hashes as JSON is written this way, so that equal values have equal bytes.
"""

from __future__ import annotations

import hashlib
import json
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


# What json.dumps may write otherwise than RFC 8785: a fraction, an exponent, an integer beyond 15 digits, a word
# for what is no number; and characters beyond the BMP, where sorting by UTF-16 differs from sorting by code point.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_UNSURE = re.compile(rb"[0-9][.eE]|[0-9]{16}|[NI]")
_ASTRAL = re.compile(rb"[\xf0-\xf4]")


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value (str keys; int within 2**53; no NaN).

    Raises:
        InputError: ``value`` holds what JSON cannot say.
    """
    try:
        return _plain(value) or rfc8785.dumps(value)
    # A key with half a surrogate pair leaves rfc8785 as UnicodeEncodeError.
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InputError(
            f"value cannot be written as canonical JSON: {error}", reason="json-value"
        ) from error


def _plain(value: Any) -> bytes:
    """The same bytes ten times as fast, for values where the standard library's encoder cannot differ; else nothing."""
    if not _is_plain(value):
        return b""
    data = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")
    if _UNSURE.search(_STRING.sub(b"", data)) or _ASTRAL.search(data):
        return b""
    return data


def _is_plain(value: Any) -> bool:
    """Whether every key is a string and every value of one of JSON's own types, and no subclass of them."""
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is dict:
            if not all(type(key) is str for key in item):
                return False
            stack.extend(item.values())
        elif kind is list or kind is tuple:
            stack.extend(item)
        elif kind not in _SCALARS:
            return False
    return True


_SCALARS = {str, int, bool, type(None)}
