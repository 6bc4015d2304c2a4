"""DER has one spelling; every other one is refused."""

from __future__ import annotations

import pytest

from wheelmark.errors import InputError
from wheelmark.verify import der


def test_elements_are_what_was_encoded() -> None:
    for size in (0, 1, 127, 128, 255, 256, 70_000):
        inner = b"x" * size
        made = der.only(der.encode(der.OCTET_STRING, inner), der.OCTET_STRING)
        assert made.content == inner
        assert made.encoded == der.encode(der.OCTET_STRING, inner)
    two = der.encode(der.INTEGER, b"\1") + der.encode(der.NULL, b"")
    assert [item.tag for item in der.elements(two)] == [der.INTEGER, der.NULL]
    assert der.elements(b"") == ()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "020100"),
        (127, "02017f"),
        (128, "02020080"),
        (256, "02020100"),
        (1 << 63, "0209008000000000000000"),
    ],
)
def test_integers(value: int, encoded: str) -> None:
    assert der.encode_integer(value).hex() == encoded


@pytest.mark.parametrize(
    "data",
    [
        "02",
        "0201",
        "020201",
        "1f8100",
        "048100",
        "04817f",
        "04820001",
        "0480",
        "0485000000000161",
        "0482",
        "308000",
    ],
)
def test_other_spellings_are_refused(data: str) -> None:
    with pytest.raises(InputError) as caught:
        der.elements(bytes.fromhex(data))
    assert caught.value.reason == "der"


def test_a_long_length_has_no_leading_zero() -> None:
    with pytest.raises(InputError) as caught:
        der.elements(bytes.fromhex("04820080") + b"x" * 128)
    assert caught.value.reason == "der"


def test_only_one_element_of_one_tag() -> None:
    for data in (b"", bytes.fromhex("05000500"), bytes.fromhex("0500")):
        with pytest.raises(InputError):
            der.only(data, der.SEQUENCE)
