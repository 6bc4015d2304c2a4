"""Fixed fields out of untrusted bytes: every read is bounded, and a read past the end is a refusal.

The readers of this room (ELF, notes, cubin attributes) use what stands here and never index or unpack
by themselves, so that ``struct.error``, ``IndexError`` and ``UnicodeDecodeError`` cannot leave it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from wheelmark.errors import InputError

_LONGEST_NAME = 16_384
"""Bytes; mangled C++ names of real libraries stay below 8,000."""
_ALL_NAMES = 128 << 20
"""Characters of all names of one symbol table: overlapping strings could otherwise fill the memory."""


def unpack(layout: struct.Struct, data: bytes, offset: int, *, what: str, reason: str) -> tuple[int, ...]:
    """The integers that ``layout`` finds at ``offset``.

    Args:
        layout: A compiled layout of integers only.
        data: The bytes.
        offset: Where the fields begin.
        what: How the refusal names them.
        reason: The refusal's reason code.

    Raises:
        InputError: They do not lie inside ``data``.
    """
    if offset < 0 or offset + layout.size > len(data):
        raise InputError(f"{what} at {offset:#x} ends outside {len(data):,} bytes", reason=reason)
    return layout.unpack_from(data, offset)


def part(data: bytes, offset: int, size: int, *, what: str, reason: str) -> bytes:
    """``size`` bytes at ``offset``.

    Raises:
        InputError: They do not lie inside ``data``.
    """
    inside(data, offset, size, what=what, reason=reason)
    return data[offset : offset + size]


def inside(data: bytes, offset: int, size: int, *, what: str, reason: str) -> None:
    """Make sure that ``size`` bytes at ``offset`` are there; they are not copied.

    Raises:
        InputError: They do not lie inside ``data``.
    """
    if offset < 0 or size < 0 or offset + size > len(data):
        raise InputError(
            f"{what}: {size:,} bytes at {offset:#x} end outside {len(data):,} bytes", reason=reason
        )


def records(layout: struct.Struct, data: bytes, *, what: str, reason: str) -> Iterator[tuple[int, ...]]:
    """All of ``data`` as a table of equal records.

    Raises:
        InputError: ``data`` is no whole number of records.
    """
    if len(data) % layout.size:
        raise InputError(f"{what}: {len(data):,} bytes are no table of {layout.size}", reason=reason)
    return layout.iter_unpack(data)


def text(table: bytes, offset: int, *, what: str, reason: str) -> str:
    """The NUL-terminated UTF-8 string at ``offset`` of a string table.

    Raises:
        InputError: It begins outside, does not end, is longer than 16 KiB, or is not UTF-8.
    """
    if not 0 <= offset < len(table):
        raise InputError(f"{what} at {offset:#x} begins outside its table", reason=reason)
    end = table.find(b"\0", offset, offset + _LONGEST_NAME)
    if end < 0:
        raise InputError(f"{what} at {offset:#x} does not end", reason=reason)
    try:
        return table[offset:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} at {offset:#x} is not UTF-8", reason=reason) from error


class Names:
    """The names of one symbol table, with a bound on their sum.

    Args:
        table: The string table.
        what: How refusals name a string.
        reason: Their reason code.
    """

    def __init__(self, table: bytes, *, what: str, reason: str) -> None:
        self._table = table
        self._what = what
        self._reason = reason
        self._sum = 0

    def at(self, offset: int) -> str:
        """The string at ``offset``.

        Raises:
            InputError: As ``text``; also when all names together are longer than 128 MiB.
        """
        name = text(self._table, offset, what=self._what, reason=self._reason)
        self._sum += len(name)
        if self._sum > _ALL_NAMES:
            raise InputError(f"{self._what}s hold more than {_ALL_NAMES:,} characters", reason=self._reason)
        return name
