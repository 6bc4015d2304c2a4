"""The part of MessagePack that AMD's code object metadata uses, read within bounds.

Source: the MessagePack specification. Strings, integers, booleans, nil, arrays and maps with string keys;
floats, binary and extension types do not occur there and are refused, as are duplicate keys, nesting beyond
16, more than 100,000 values, and bytes after the value. Every refusal is ``InputError`` with reason
``hsaco-metadata``.
"""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from wheelmark.errors import InputError

Value: TypeAlias = "bool | int | str | list[Value] | dict[str, Value] | None"

_DEPTH = 16
_VALUES = 100_000
_PLAIN: dict[int, bool | None] = {0xC0: None, 0xC2: False, 0xC3: True}
_STRINGS, _ARRAYS, _MAPS = {0xD9: 1, 0xDA: 2, 0xDB: 4}, {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_FIRST_UNSIGNED, _FIRST_SIGNED, _LAST_SIGNED = 0xCC, 0xD0, 0xD3
_NEGATIVE = 0xE0
_FIX_MAP, _FIX_ARRAY, _FIX_STRING, _FIX_END = 0x80, 0x90, 0xA0, 0xC0


def read_messagepack(data: bytes) -> Value:
    """The one value that ``data`` holds.

    Raises:
        InputError: Malformed, over a bound, or of a type that this format's users do not write.
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        _refuse(f"{len(data) - reader.at} bytes after the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.values = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            _refuse("it ends early")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def value(self, depth: int) -> Value:
        self.values += 1
        if depth > _DEPTH or self.values > _VALUES:
            _refuse("nested too deep, or too many values")
        mark = self.number(1)
        if mark in _PLAIN:
            return _PLAIN[mark]
        if mark < _FIX_MAP or mark >= _NEGATIVE or _FIRST_UNSIGNED <= mark <= _LAST_SIGNED:
            return self.integer(mark)
        return self.compound(mark, depth)

    def integer(self, mark: int) -> int:
        if mark < _FIX_MAP:
            return mark
        if mark >= _NEGATIVE:
            return mark - 256
        return self.number(1 << (mark & 3), signed=mark >= _FIRST_SIGNED)

    def compound(self, mark: int, depth: int) -> Value:
        if _FIX_STRING <= mark < _FIX_END or mark in _STRINGS:
            return self.string(self.number(_STRINGS[mark]) if mark in _STRINGS else mark & 31)
        if _FIX_ARRAY <= mark < _FIX_STRING or mark in _ARRAYS:
            return self.array(self.number(_ARRAYS[mark]) if mark in _ARRAYS else mark & 15, depth)
        if _FIX_MAP <= mark < _FIX_ARRAY or mark in _MAPS:
            return self.map(self.number(_MAPS[mark]) if mark in _MAPS else mark & 15, depth)
        return _refuse(f"type {mark:#x} is not read")

    def string(self, size: int) -> str:
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError("hsaco metadata: a string is not UTF-8", reason="hsaco-metadata") from error

    def array(self, count: int, depth: int) -> list[Value]:
        found: list[Value] = []
        for _ in range(count):
            found.append(self.value(depth + 1))  # noqa: PERF401 - bounded inside, element by element
        return found

    def map(self, count: int, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in found:
                _refuse("a key is no string, or stands twice")
            found[key] = self.value(depth + 1)
        return found


def _refuse(text: str) -> NoReturn:
    raise InputError(f"hsaco metadata: {text}", reason="hsaco-metadata")
