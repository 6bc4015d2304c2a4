from __future__ import annotations

import pytest

from wheelmark.binaries.messagepack import read_messagepack
from wheelmark.errors import InputError


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\xc0", None),
        (b"\xc2", False),
        (b"\xc3", True),
        (b"\xcc\xff", 255),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x00\x01\x00\x00", 65536),
        (b"\xcf" + bytes(7) + b"\x09", 9),
        (b"\xd0\x80", -128),
        (b"\xd1\xff\xfe", -2),
        (b"\xd2\xff\xff\xff\xfd", -3),
        (b"\xd3" + b"\xff" * 8, -1),
        (b"\xa3abc", "abc"),
        (b"\xd9\x02ab", "ab"),
        (b"\xda\x00\x02ab", "ab"),
        (b"\xdb\x00\x00\x00\x02ab", "ab"),
        (b"\x92\x01\x02", [1, 2]),
        (b"\xdc\x00\x01\x05", [5]),
        (b"\xdd\x00\x00\x00\x01\x05", [5]),
        (b"\x81\xa1a\x01", {"a": 1}),
        (b"\xde\x00\x01\xa1a\x01", {"a": 1}),
        (b"\xdf\x00\x00\x00\x01\xa1a\x90", {"a": []}),
    ],
)
def test_what_the_specification_says(data: bytes, value: object) -> None:
    assert read_messagepack(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92\x01",
        b"\xa3ab",
        b"\xcd\x01",
        b"\x01\x01",
        b"\xc1",
        b"\xca\x00\x00\x00\x00",
        b"\xc4\x01a",
        b"\xd4\x01a",
        b"\xa1\xff",
        b"\x81\x01\x01",
        b"\x82\xa1a\x01\xa1a\x01",
        b"\x91" * 17 + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\x00\x01\x86\xa1" + bytes(100_001),
    ],
)
def test_what_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        read_messagepack(data)
    assert caught.value.reason == "hsaco-metadata"
