"""Patterns of what a recipe leaves out."""

from __future__ import annotations

import pytest

from wheelmark.build.image.paths import Patterns
from wheelmark.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("usr/bin/*", ["usr/bin/x", "usr/bin/"], ["usr/bin", "usr/bin/a/b", "xusr/bin/x"]),
        ("usr/share/man/**", ["usr/share/man", "usr/share/man/a/b"], ["usr/share/mana"]),
        ("a/**/b", ["a/x/b", "a/x/y/b"], ["a/b/c"]),
        ("lib?.so", ["libc.so"], ["lib/.so", "lib.so"]),
        ("x[0-9]y", ["x1y"], ["xay", "x-y"]),
        ("x[!0-9]y", ["xay"], ["x1y", "x/y"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_patterns(pattern: str, hits: list[str], misses: list[str]) -> None:
    made = Patterns([pattern])
    assert [path for path in hits if not made.match(path)] == []
    assert [path for path in misses if made.match(path)] == []


def test_what_is_kept_stays() -> None:
    made = Patterns(["usr/bin/*"], ["usr/bin/python3*"])
    assert made.match("usr/bin/ldd")
    assert not made.match("usr/bin/python3.11")
    assert not Patterns([], ["a"]).match("b")


@pytest.mark.parametrize("pattern", ["", "/usr", "a[b"])
def test_odd_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Patterns([pattern])
    assert caught.value.reason == "recipe-pattern"
