"""Debian's order of versions (deb-version(7), as dpkg's ``verrevcmp`` has it).

Forty lines of our own: what exists as a library for Python is part of larger packages under the GPL. Held to
``dpkg --compare-versions`` by tests.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from wheelmark.lock.debian.document import VERSION

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_LONGEST = 1000

_Number: TypeAlias = tuple[int, str]
_Part: TypeAlias = tuple[tuple[tuple[int, ...], _Number], ...]
VersionKey: TypeAlias = tuple[_Number, _Part, _Part]


def version_key(text: str) -> VersionKey:
    """What versions sort by.

    Raises:
        ValueError: This is no version.
    """
    if len(text) > _LONGEST or not VERSION.fullmatch(text):
        message = f"{text[:80]!r} is no Debian version"
        raise ValueError(message)
    epoch, colon, rest = text.partition(":")
    if not colon:
        epoch, rest = "0", text
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, "0"
    return _number(epoch), _part(upstream), _part(revision)


def _part(text: str) -> _Part:
    """Non-digits and digits in turn; the end of the text is a pair too, so that ``~`` sorts before it."""
    return tuple(
        ((*(_order(character) for character in letters), 0), _number(digits))
        for letters, digits in _PARTS.findall(text)
    )


def _number(digits: str) -> _Number:
    """A number of any length: its digits without leading zeros, the longer one being the larger."""
    digits = digits.lstrip("0")
    return len(digits), digits


def _order(character: str) -> int:
    """``~`` before the end of a part (0), letters before everything else."""
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)
