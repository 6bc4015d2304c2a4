"""Debian's security data against a lock, and what changed between two locks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from wheelmark.errors import InputError
from wheelmark.lock.debian import (
    DebianLock,
    DebianPackage,
    Finding,
    SignedIndex,
    compare_locks,
    read_debian_advisories,
)


def package(name: str, version: str, source: str = "", source_version: str = "") -> DebianPackage:
    return DebianPackage(
        name=name,
        version=version,
        architecture="amd64",
        sha256="a" * 64,
        size=10,
        path=f"pool/main/{name}.deb",
        source=source or name,
        source_version=source_version or version,
        suite="bookworm",
    )


def lock(*packages: DebianPackage, suite: str = "bookworm") -> DebianLock:
    index = SignedIndex(
        suite="bookworm",
        component="main",
        sha256="b" * 64,
        date="2026-07-11T10:16:37Z",
        valid_until="",
        keys=("A" * 40,),
        packages_sha256="c" * 64,
    )
    return DebianLock(architecture="amd64", suite=suite, inputs="d" * 64, signed=(index,), packages=packages)


def advisory(name: str, source: str, *events: dict[str, str], **more: object) -> dict[str, Any]:
    entry = {
        "package": {"ecosystem": "Debian:12", "name": source},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
        "ecosystem_specific": {"urgency": "low"},
    }
    return {"id": name, "schema_version": "1.7.0", "affected": [entry], **more}


def folder(path: Path, *advisories: dict[str, Any], packages: object = "all", **changes: object) -> Path:
    path.mkdir(exist_ok=True)
    coverage = {"ecosystem": "Debian:12", "packages": packages}
    manifest = {
        "schema": "https://wheelmark.dev/advisories/v1",
        "source": "Debian security tracker",
        "date": "2026-09-30",
        "coverage": coverage,
        **changes,
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    for value in advisories:
        (path / f"{value['id']}.json").write_text(json.dumps(value))
    return path


def affected(lock: DebianLock, path: Path) -> tuple[Finding, ...]:
    return read_debian_advisories(path, suite=lock.suite).affecting(lock)


ZERO = {"introduced": "0"}
SSL = (
    package("libssl3", "3.0.11-1~deb12u2", "openssl"),
    package("openssl", "3.0.11-1~deb12u2", "openssl"),
)


@pytest.mark.parametrize(
    ("events", "is_affected"),
    [
        ([ZERO], True),
        ([ZERO, {"fixed": "3.0.11-1~deb12u3"}], True),
        ([ZERO, {"fixed": "3.0.11-1~deb12u2"}], False),
        ([ZERO, {"fixed": "3.0.11-1"}], True),
        ([ZERO, {"fixed": "0"}], False),
        ([{"introduced": "1:0"}], False),
        ([ZERO, {"last_affected": "3.0.11-1~deb12u2"}], True),
        ([ZERO, {"last_affected": "3.0.11-1~deb12u1"}], False),
        ([{"fixed": "3.0.9-1"}, {"introduced": "3.0.10-1"}, ZERO], True),
        ([ZERO, {"limit": "3.0.0"}], False),
    ],
)
def test_ranges_follow_debians_order(tmp_path: Path, events: list[dict[str, str]], is_affected: bool) -> None:
    found = affected(lock(*SSL), folder(tmp_path, advisory("DSA-1-1", "openssl", *events)))
    assert [item.packages for item in found] == ([("libssl3", "openssl")] if is_affected else [])


def test_a_finding_says_what_the_record_says(tmp_path: Path) -> None:
    record = advisory(
        "DEBIAN-CVE-2023-5363",
        "openssl",
        ZERO,
        {"fixed": "3.0.11-1~deb12u3"},
        upstream=["CVE-2023-5363"],
        severity=[{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}],
    )
    (found,) = affected(lock(*SSL), folder(tmp_path, record))
    assert (found.advisory, found.aliases) == ("DEBIAN-CVE-2023-5363", ("CVE-2023-5363",))
    assert (found.source, found.version, found.fixed) == (
        "openssl",
        "3.0.11-1~deb12u2",
        ("3.0.11-1~deb12u3",),
    )
    assert (found.urgency, found.severity) == ("low", (("CVSS_V3", "CVSS:3.1/AV:N"),))


def test_the_source_packages_version_is_asked_not_the_binarys(tmp_path: Path) -> None:
    rebuilt = package("tool", "1.0-1+b2", "tools", "1.0-1")
    data = folder(tmp_path, advisory("DSA-1-1", "tools", ZERO, {"fixed": "1.0-1+b1"}))
    assert len(affected(lock(rebuilt), data)) == 1
    listed = advisory("DSA-2-1", "tools")
    listed["affected"][0]["versions"] = ["1.0-1", "not a version"]
    assert {item.advisory for item in affected(lock(rebuilt), folder(tmp_path, listed))} == {
        "DSA-1-1",
        "DSA-2-1",
    }


def test_withdrawn_records_and_other_releases_do_not_count(tmp_path: Path) -> None:
    other = advisory("DSA-2-1", "openssl", ZERO)
    other["affected"][0]["package"]["ecosystem"] = "Debian:13"
    names = advisory("DSA-3-1", "unrelated", ZERO)
    withdrawn = advisory("DSA-1-1", "openssl", ZERO, withdrawn="2026-01-01T00:00:00Z")
    assert affected(lock(*SSL), folder(tmp_path, withdrawn, other, names)) == ()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path, "audit-manifest"),
        (lambda path: folder(path, coverage={"ecosystem": "PyPI", "packages": "all"}), "audit-manifest"),
        (lambda path: folder(path, date="yesterday"), "audit-manifest"),
        (lambda path: folder(path, more=1), "audit-manifest"),
        (folder, "audit-control"),
        (lambda path: folder(path, advisory("X", "openssl", ZERO), sha256="0" * 64), "audit-data"),
        (lambda path: folder(path, {"id": "X", "affected": "Debian:12"}), "audit-data"),
        (lambda path: folder(path, advisory("X", "openssl", {"introduced": "x y"})), "audit-data"),
    ],
)
def test_data_that_cannot_answer_is_said(tmp_path: Path, make: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        affected(lock(*SSL), make(tmp_path))
    assert caught.value.reason == reason


def test_a_release_without_a_number_cannot_be_asked_about(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        affected(lock(*SSL, suite="sid"), folder(tmp_path, advisory("X", "openssl", ZERO)))
    assert caught.value.reason == "audit-data"


def test_changes_between_locks(tmp_path: Path) -> None:
    gone, stays = package("gone", "1"), package("stays", "1")
    old = lock(gone, SSL[0], stays)
    new = lock(package("added", "1"), package("libssl3", "3.0.11-1~deb12u3", "openssl"), stays)
    assert [change.as_line() for change in compare_locks(old, new)] == [
        "+ added 1  advisories: UNCHECKED",
        "- gone 1  advisories: UNCHECKED",
        "↑ libssl3 3.0.11-1~deb12u2 -> 3.0.11-1~deb12u3  advisories: UNCHECKED",
    ]
    records = (
        advisory("DSA-1-1", "openssl", ZERO, {"fixed": "3.0.11-1~deb12u3"}),
        advisory("DSA-2-1", "openssl", ZERO),
        advisory("DSA-3-1", "gone", ZERO),
    )
    data = read_debian_advisories(folder(tmp_path, *records), suite="bookworm")
    assert [change.as_line() for change in compare_locks(old, new, advisories=data)] == [
        "+ added 1",
        "- gone 1  fixes DSA-3-1",
        "↑ libssl3 3.0.11-1~deb12u2 -> 3.0.11-1~deb12u3  fixes DSA-1-1  still DSA-2-1",
    ]
    (back,) = [change for change in compare_locks(new, old, advisories=data) if change.name == "libssl3"]
    assert "OLDER" in back.as_line()
    assert compare_locks(old, old, advisories=data) == ()


def test_what_the_data_does_not_cover_is_unchecked(tmp_path: Path) -> None:
    old = lock(*SSL, package("zlib1g", "1", "zlib"))
    new = lock(*SSL, package("zlib1g", "2", "zlib"))
    records = advisory("DSA-1-1", "openssl", ZERO)
    data = read_debian_advisories(folder(tmp_path, records, packages=["openssl"]), suite="bookworm")
    (change,) = compare_locks(old, new, advisories=data)
    assert (change.fixes, data.outside(new)) == (None, ("zlib",))


def test_other_bytes_under_one_version_are_a_change() -> None:
    new = tuple(dataclasses.replace(item, sha256="e" * 64) for item in SSL)
    assert [change.as_line().partition(":")[2] for change in compare_locks(lock(*SSL), lock(*new))] == [
        " other bytes under the same version  advisories: UNCHECKED"
    ] * 2
