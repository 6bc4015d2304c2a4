"""TOML within bounds: what would keep the parser busy is refused before it begins."""

from __future__ import annotations

import pytest

from wheelmark import stricttoml
from wheelmark.errors import InputError

LIMIT = 1 << 18


def refused(data: bytes, *, limit: int = LIMIT) -> str:
    with pytest.raises(InputError) as caught:
        stricttoml.loads(data, limit=limit)
    assert caught.value.reason == "toml-syntax"
    return caught.value.what


@pytest.mark.parametrize(
    "data",
    [
        b"a." * 100_000 + b"a = 1",
        b"[" + b"a." * 100_000 + b"a]",
        b"x = {" + b"a . " * 60_000 + b"a = 1}",
        b"'a'." * 60_000 + b"a = 1",
        b'"a\\".b".' * 30_000 + b"a = 1",
        b"a." * stricttoml.PARTS + b"a = 1",
    ],
)
def test_a_key_of_many_parts(data: bytes) -> None:
    assert "line 3 has a key of more than 16 parts" in refused(b"# one\nx.y = 1\n" + data)


def test_what_is_read() -> None:
    parts = b".".join([b"a"] * stricttoml.PARTS)
    text = "." * 100_000
    found = stricttoml.loads(parts + b" = 1\nt = '" + text.encode() + b"'\n", limit=LIMIT)
    assert found["t"] == text
    assert list(found) == ["a", "t"]


@pytest.mark.parametrize(
    "data", [b"a", b"\xff", b"a = " + b"[" * 50_000, b"a = " + b"1" * 5000, b'"' * 250_001, b"a = 1\na = 2"]
)
def test_what_is_no_toml(data: bytes) -> None:
    assert refused(data).startswith("is not TOML: ")


def test_a_bound_on_bytes() -> None:
    assert stricttoml.loads(b"a = 1", limit=5) == {"a": 1}
    assert refused(b"a = 11", limit=5) == "is over 5 bytes"
