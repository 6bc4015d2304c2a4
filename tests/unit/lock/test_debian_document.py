"""Debian locks are read in one form only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wheelmark.errors import LockError
from wheelmark.lock.debian import (
    DebianLock,
    DebianPackage,
    SignedIndex,
    parse_debian_lock,
    read_debian_lock,
)

ROOT = Path(__file__).parents[3]
PACKAGE = DebianPackage(
    name="libc6",
    version="2.36-9+deb12u14",
    architecture="amd64",
    sha256="a" * 64,
    size=10,
    path="pool/main/g/glibc/libc6_2.36-9+deb12u14_amd64.deb",
    source="glibc",
    source_version="2.36-9+deb12u14",
    suite="bookworm",
)
INDEX = SignedIndex(
    suite="bookworm",
    component="main",
    sha256="b" * 64,
    date="2026-07-11T10:16:37Z",
    valid_until="",
    keys=("A" * 40,),
    packages_sha256="c" * 64,
)
ZLIB = dataclasses.replace(
    PACKAGE, name="zlib1g", version="1:1.2.13.dfsg-1", source_version="1:1.2.13.dfsg-1", architecture="all"
)
LOCK = DebianLock(
    architecture="amd64", suite="bookworm", inputs="d" * 64, signed=(INDEX,), packages=(PACKAGE, ZLIB)
)


def test_what_is_written_is_read_again() -> None:
    assert parse_debian_lock(LOCK.as_bytes()) == LOCK
    assert LOCK.size == 20


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_committed_locks_are_whole_and_name_no_host(architecture: str) -> None:
    path = ROOT / "lockfiles" / f"debian-{architecture}.json"
    lock = read_debian_lock(path)
    assert lock.architecture == architecture
    assert {"libc6", "python3.11-minimal", "ca-certificates"} <= {package.name for package in lock.packages}
    assert path.read_bytes().count(b"://") == 1, "the schema's name is the only URL"


def changed(change: Callable[[Any], object]) -> bytes:
    value = json.loads(LOCK.as_bytes())
    change(value)
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def put(*path: object, value: object) -> Callable[[Any], object]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("schema", value="https://wheelmark.dev/debian-lock/v2"),
        put("more", value=1),
        lambda document: document.pop("inputs"),
        put("inputs", value="D" * 64),
        put("architecture", value="amd64 "),
        put("suite", value="../x"),
        put("signed", value=[]),
        put("packages", value=[]),
        put("packages", value={}),
        put("packages", value=[1]),
        put("signed", value=[json.loads(LOCK.as_bytes())["signed"][0]] * 2),
        put("packages", value=[json.loads(LOCK.as_bytes())["packages"][0]] * 2),
        lambda document: document["packages"].reverse(),
        put("packages", 0, "more", value=1),
        put("packages", 0, "name", value="Libc6"),
        put("packages", 0, "name", value="libc6\n"),
        put("packages", 0, "version", value="2.36 9"),
        put("packages", 0, "version", value=2),
        put("packages", 0, "architecture", value="arm64"),
        put("packages", 0, "sha256", value="a" * 63),
        put("packages", 0, "size", value=0),
        put("packages", 0, "size", value=True),
        put("packages", 0, "size", value=1.5),
        put("packages", 0, "size", value=1 << 40),
        put("packages", 0, "path", value="/pool/main/g/glibc/libc6.deb"),
        put("packages", 0, "path", value="pool/../../etc/x.deb"),
        put("packages", 0, "path", value="pool/main/.hidden/x.deb"),
        put("packages", 0, "path", value="pool//x.deb"),
        put("packages", 0, "path", value="pool/main/x.deb?y.deb"),
        put("packages", 0, "path", value="http://mirror/pool/x.deb"),
        put("packages", 0, "source", value=""),
        put("packages", 0, "source_version", value=""),
        put("packages", 0, "suite", value="trixie"),
        put("signed", 0, "keys", value=[]),
        put("signed", 0, "keys", value=["a" * 40]),
        put("signed", 0, "keys", value=["B" * 40, "A" * 40]),
        put("signed", 0, "date", value="2026-07-11"),
        put("signed", 0, "date", value="2026-07-11T10:16:37+00:00"),
        put("signed", 0, "valid_until", value=None),
        put("signed", 0, "packages_sha256", value=""),
        put("signed", 0, "sha256", value=1),
    ],
)
def test_what_is_malformed_or_contradicts_itself_is_refused(change: Callable[[Any], object]) -> None:
    with pytest.raises(LockError) as caught:
        parse_debian_lock(changed(change))
    assert caught.value.reason == "debian-lock"
    assert caught.value.fix == "nox -s lock"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        LOCK.as_bytes()[:-1],
        LOCK.as_bytes() + b"\n",
        LOCK.as_bytes().replace(b'"size": 10', b'"size": 10.0'),
        LOCK.as_bytes().replace(b'"size": 10', b'"size":  10'),
        LOCK.as_bytes().replace(b'"suite": "bookworm",', b'"suite": "bookworm", "suite": "bookworm",', 1),
        json.dumps(json.loads(LOCK.as_bytes())).encode(),
    ],
)
def test_any_other_form_is_refused(data: bytes) -> None:
    with pytest.raises(LockError) as caught:
        parse_debian_lock(data)
    assert caught.value.reason == "debian-lock"


def test_an_absent_lock_is_said(tmp_path: Path) -> None:
    with pytest.raises(LockError) as caught:
        read_debian_lock(tmp_path / "debian-amd64.json")
    assert caught.value.reason == "debian-lock"
