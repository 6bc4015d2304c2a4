"""TOML from outside, read within bounds that hold before the parser sees it.

``tomllib`` takes time that grows with the square of the number of parts of one dotted key.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from wheelmark.errors import InputError

PARTS = 16
"""Parts of one dotted key; nothing that Wheelmark reads has more than four."""
# Each part begins where no other one is under way, and is read once: the search takes time in proportion to the bytes.
_PART = rb"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rb"(?<![A-Za-z0-9_-])" + _PART + rb"(?:\.[ \t]*+" + _PART + rb"){%d}" % PARTS)


def loads(data: bytes, *, limit: int) -> dict[str, Any]:
    """The document that TOML ``data`` is.

    Args:
        data: UTF-8 bytes.
        limit: How many there may be.

    Raises:
        InputError: There are more, a key has too many parts, or it is not TOML (``toml-syntax``).
    """
    if len(data) > limit:
        raise InputError(f"is over {limit:,} bytes", reason="toml-syntax")
    if found := _LONG_KEY.search(data):
        line = data.count(b"\n", 0, found.start()) + 1
        raise InputError(
            f"is not TOML that is read here: line {line} has a key of more than {PARTS} parts",
            reason="toml-syntax",
        )
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a number of too many digits is a bare ValueError
        raise InputError(f"is not TOML: {str(error)[:200]}", reason="toml-syntax") from error
