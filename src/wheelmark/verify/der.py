"""DER, read strictly: just enough to see that an encoding has no byte that means nothing (ITU-T X.690).

Parsers of other libraries accept fields that no signature covers and that they do not look at. Where a whole
encoding has to be accounted for, it is taken apart here, element by element.
"""

from __future__ import annotations

import dataclasses

from wheelmark.errors import InputError

INTEGER, OCTET_STRING, NULL, OBJECT_ID = 0x02, 0x04, 0x05, 0x06
SEQUENCE, SET, EXPLICIT_0 = 0x30, 0x31, 0xA0
_LONG_FORM, _LENGTH_OCTETS, _MULTI_BYTE_TAG = 0x80, 0x7F, 0x1F
_LONGEST = 4
"""Octets of a length: contents up to 4 GiB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Element:
    """One tag, length and contents."""

    tag: int
    content: bytes
    encoded: bytes
    """The element as it stands, tag and length included."""


def elements(data: bytes) -> tuple[Element, ...]:
    """The elements that ``data`` is made of, one after the other.

    Raises:
        InputError: A tag or a length that DER has not, or bytes left over (``der``).
    """
    found: list[Element] = []
    start = 0
    while start < len(data):
        head, length = _head(data, start)
        end = start + head + length
        if end > len(data):
            raise _refusal("an element ends after its container")
        found.append(Element(tag=data[start], content=data[start + head : end], encoded=data[start:end]))
        start = end
    return tuple(found)


def only(data: bytes, tag: int) -> Element:
    """The one element that ``data`` is, which has to have ``tag``.

    Raises:
        InputError: None, several, or another (``der``).
    """
    found = elements(data)
    if len(found) != 1 or found[0].tag != tag:
        raise _refusal(f"one element with tag {tag:#04x} is expected")
    return found[0]


def encode(tag: int, content: bytes) -> bytes:
    """The DER encoding of one element."""
    if len(content) < _LONG_FORM:
        return bytes([tag, len(content)]) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, _LONG_FORM | len(size)]) + size + content


def encode_integer(value: int) -> bytes:
    """The DER encoding of a non-negative INTEGER."""
    return encode(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _head(data: bytes, start: int) -> tuple[int, int]:
    """Octets of tag and length, and the length that they say."""
    if start + 2 > len(data) or data[start] & _MULTI_BYTE_TAG == _MULTI_BYTE_TAG:
        raise _refusal("a tag or a length is cut off or of a kind that is not read")
    first = data[start + 1]
    if first < _LONG_FORM:
        return 2, first
    octets = first & _LENGTH_OCTETS
    length = int.from_bytes(data[start + 2 : start + 2 + octets], "big")
    # The shortest form is the only one: no leading zero, no long form for what the short one can say.
    if not 1 <= octets <= _LONGEST or start + 2 + octets > len(data) or length < _LONG_FORM:
        raise _refusal("a length is not in its one form")
    if length.bit_length() <= 8 * (octets - 1):
        raise _refusal("a length is not in its one form")
    return 2 + octets, length


def _refusal(text: str) -> InputError:
    return InputError(f"not DER: {text}", reason="der")
