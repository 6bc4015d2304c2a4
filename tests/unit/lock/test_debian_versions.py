"""Debian's order of versions; held to dpkg itself in tests/integration/lock."""

from __future__ import annotations

import itertools

import pytest

from wheelmark.lock.debian import version_key

# Ascending: deb-version(7), Debian Policy 5.6.12, and what dpkg's own tests hold.
ASCENDING = [
    "0~~",
    "0~",
    "0",
    "0a",
    "0.0~rc1",
    "0.0",
    "0.1~~a",
    "0.1~a",
    "0.1~a1",
    "0.1",
    "0.1a",
    "0.1+b1",
    "0.1.",
    "0.1.1",
    "0.9",
    "0.10",
    "1.0~rc1-1",
    "1.0-0+deb12u1",
    "1.0-1~bpo12+1",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1+deb12u1",
    "1.0-1.1",
    "1.0-2",
    "1.0a-1",
    "1.0+dfsg-1",
    "1.0.1-1",
    "1.0.99999999999999999999-1",
    "1.0.100000000000000000000-1",
    "1:0.1",
    "1:0.1-1",
    "2:0~",
    "10:0",
]
EQUAL = [
    ("1.0", "0:1.0"),
    ("1.0", "1.00"),
    ("1.0", "1.0-0"),
    ("1.0-01", "1.0-1"),
    ("00:1", "1"),
    ("1.", "1.0"),
]


def test_versions_ascend() -> None:
    keys = [version_key(text) for text in ASCENDING]
    assert all(first < second for first, second in itertools.pairwise(keys))


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_versions_are_the_same(first: str, second: str) -> None:
    assert version_key(first) == version_key(second)


@pytest.mark.parametrize("text", ["", "a", ":1", "1 ", "1_0", "-1", "é", "1\n", "1" * 1001])
def test_what_is_no_version_has_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="no Debian version"):
        version_key(text)
