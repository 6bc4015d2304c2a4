from __future__ import annotations

import json
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.manifest import Entry, Kind, NotBuilt, ReleaseManifest

SHA = "ab" * 32


def _manifest(**changes: Any) -> ReleaseManifest:
    values: dict[str, Any] = {
        "project": "p",
        "version": "1.0",
        "targets": ("cuda-sm90", "cpu-x86_64"),
        "not_built": (NotBuilt(target="cpu-aarch64", reason="no compiler", fix="apt-get install it"),),
        "snapshot": False,
        "entries": (
            Entry(path="wheels/b.whl", kind=Kind.WHEEL, sha256=SHA, size=2, target="cpu-x86_64"),
            Entry(path="locks/a.txt", kind=Kind.LOCK, sha256=SHA, size=1),
        ),
        "levels": {"cpu-x86_64": {"abi": "PASSED@static"}},
    }
    return ReleaseManifest(**{**values, **changes})


def test_round_trip_and_order() -> None:
    data = _manifest().as_bytes()
    read = ReleaseManifest.from_bytes(data)
    assert read.as_bytes() == data
    assert [entry.path for entry in read.entries] == ["locks/a.txt", "wheels/b.whl"]
    assert read.partial
    assert _manifest(not_built=()).partial is False


def _changed(**changes: Any) -> bytes:
    value = json.loads(_manifest().as_bytes())
    value.update(changes)
    return digests.canonical_json(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_changed(schemaVersion=2), "manifest-version"),
        (_changed(extra=1), "manifest"),
        (_changed(partial=False), "manifest"),
        (_changed(snapshot="no"), "manifest"),
        (_changed(entries=[{}]), "manifest"),
        (_changed(targets=None), "manifest"),
        (_manifest().as_bytes() + b"\n", "manifest"),
        (_manifest().as_bytes().replace(b'"size":2', b'"size":2.0'), "manifest"),
        (b"[]", "json-type"),
    ],
)
def test_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        ReleaseManifest.from_bytes(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a//b", "./a", "a\\b", "a/./b"])
def test_unsafe_paths_are_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        Entry(path=path, kind=Kind.LOCK, sha256=SHA, size=1)
    assert caught.value.reason == "manifest-path"


def test_a_path_listed_twice_is_refused() -> None:
    entry = Entry(path="locks/a.txt", kind=Kind.LOCK, sha256=SHA, size=1)
    with pytest.raises(InputError):
        _manifest(entries=(entry, entry))
