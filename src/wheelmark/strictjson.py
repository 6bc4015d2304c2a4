"""JSON from outside, read within bounds.

Size, nesting depth, container length and string length are checked, and duplicate keys, NaN and infinities
refused, **before** any parser of another library sees the bytes. Every refusal is an ``InputError`` with
a reason code: ``json-too-large``, ``json-too-deep``, ``json-too-long``, ``json-duplicate-key``,
``json-number``, ``json-syntax``, ``json-type``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any, NoReturn

from wheelmark.errors import InputError

# A string, to its end or the end of all: one that never ends is the parser's to refuse, and matched here all the
# same, or trying again from each quote inside it would be quadratic.
_STRING = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_QUOTES = 4
"""Of a member that is a string: two of its name, two of its own. More than that, on average, are escaped ones."""
_LEAF = re.compile(rb"\[\]|\{\}")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on one JSON document."""

    size: int = 16 << 20
    """Bytes of the whole document."""
    depth: int = 32
    """Nested arrays and objects."""
    items: int = 100_000
    """Members of one array or object."""
    string: int = 8 << 20
    """Characters of one string."""
    containers: int = 500_000
    """Arrays and objects of the whole document: each takes far more memory than the two bytes that it may be."""
    values: int = 500_000
    """Members of all arrays and objects together, for the same reason."""


DEFAULT = Limits()


def loads(data: bytes, *, what: str = "JSON document", limits: Limits = DEFAULT) -> Any:
    """Parse ``data`` as strict UTF-8 JSON within ``limits``.

    Args:
        data: The document's bytes.
        what: How error messages name it.
        limits: The bounds to hold.

    Raises:
        InputError: A bound is passed, a key stands twice, or this is not JSON.
    """
    if len(data) > limits.size:
        raise InputError(
            f"{what} holds {len(data):,} bytes; the limit is {limits.size:,}", reason="json-too-large"
        )
    # Counted first: to take millions of strings out takes half a second, and more memory than they do.
    if data.count(b'"') > _QUOTES * limits.values:
        raise InputError(f"{what} has more than {limits.values:,} values", reason="json-too-long")
    bare = _STRING.sub(b"", data)
    commas = bare.count(b",")
    if commas >= limits.values:
        raise InputError(f"{what} has more than {limits.values:,} values", reason="json-too-long")
    _check_depth(bare, what, limits)
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: _object(pairs, what, limits),
            parse_constant=lambda name: _constant(name, what),
            parse_int=lambda digits: _integer(digits, what),
            parse_float=lambda digits: _fraction(digits, what),
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8: {error.reason}", reason="json-syntax") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{what} is not JSON: {error}", reason="json-syntax") from error
    escaped = b"\\ud" in data or b"\\uD" in data
    # Short texts cannot hold long strings, and few commas no long array: most documents need no walk.
    if escaped or len(data) > limits.string or commas >= limits.items:
        _check_strings(value, what, limits, escaped=escaped)
    return value


def load_object(data: bytes, *, what: str = "JSON document", limits: Limits = DEFAULT) -> dict[str, Any]:
    """``loads`` for a document that has to be an object.

    Raises:
        InputError: As ``loads``; also when the document is not an object.
    """
    value = loads(data, what=what, limits=limits)
    if not isinstance(value, dict):
        raise InputError(f"{what} is not a JSON object", reason="json-type")
    return value


def _check_depth(bare: bytes, what: str, limits: Limits) -> None:
    """Bound nesting and the number of containers, in passes over the bytes without strings and no loop over tokens."""
    brackets = bare.translate(None, delete=_NOT_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") > limits.containers:
        raise InputError(
            f"{what} has more than {limits.containers:,} arrays and objects", reason="json-too-long"
        )
    # Each pass takes the innermost pairs away, one level: what is left after `depth` passes is nested deeper, or
    # does not pair, and then the openers that are left are levels too.
    for _ in range(limits.depth):
        if not brackets:
            return
        brackets = _LEAF.sub(b"", brackets)
    if _LEAF.search(brackets) or brackets.count(b"[") + brackets.count(b"{") > limits.depth:
        raise InputError(f"{what} is nested more than {limits.depth} deep", reason="json-too-deep")


def _object(pairs: list[tuple[str, Any]], what: str, limits: Limits) -> dict[str, Any]:
    if len(pairs) > limits.items:
        raise InputError(
            f"{what}: an object has {len(pairs):,} members; the limit is {limits.items:,}",
            reason="json-too-long",
        )
    value: dict[str, Any] = {}
    for key, member in pairs:
        if key in value:
            raise InputError(f"{what}: key {key[:80]!r} stands twice", reason="json-duplicate-key")
        value[key] = member
    return value


def _constant(name: str, what: str) -> NoReturn:
    raise InputError(f"{what}: {name} is not JSON", reason="json-number")


def _integer(digits: str, what: str) -> int:
    if len(digits) > 40:  # noqa: PLR2004 - no field of any format read here is longer
        raise InputError(f"{what}: a number has {len(digits)} digits", reason="json-number")
    return int(digits)


def _fraction(digits: str, what: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InputError(f"{what}: the number {digits[:40]} is too large", reason="json-number")
    return value


def _check_strings(value: Any, what: str, limits: Limits, *, escaped: bool) -> None:
    """Bound strings and arrays; where the text has escapes, refuse halves of surrogate pairs, which UTF-8 cannot carry."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and len(item) > limits.string:
            raise InputError(
                f"{what}: a string has {len(item):,} characters; the limit is {limits.string:,}",
                reason="json-too-long",
            )
        if escaped and isinstance(item, str) and _HALF_PAIR.search(item):
            raise InputError(f"{what}: a string has half a surrogate pair", reason="json-syntax")
        if isinstance(item, list):
            if len(item) > limits.items:
                raise InputError(
                    f"{what}: an array has {len(item):,} items; the limit is {limits.items:,}",
                    reason="json-too-long",
                )
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
