"""Locks resolved by the real apt and gpgv from a small signed archive."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from pathlib import Path

import pytest

from debianarchive import NOW, Archive, Keys, table
from wheelmark.errors import LockError
from wheelmark.lock.debian import DebianLock, Machine, parse_debian_lock, resolve_debian
from wheelmark.lock.debian.index import find_package, read_packages, read_release

ASKED = table("tool", waived=("shell",))


def lock_of(archive: Archive, tmp_path: Path, architecture: str = "amd64", **changes: object) -> DebianLock:
    return resolve_debian(
        ASKED,
        architecture,
        cache=tmp_path / "cache",
        machine=archive.machine(**changes),
        now=NOW,
        timeout=2,
    )


def refused(archive: Archive, tmp_path: Path, **changes: object) -> LockError:
    with pytest.raises(LockError) as caught:
        lock_of(archive, tmp_path, "amd64", **changes)
    return caught.value


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_a_lock_holds_the_newest_of_all_suites_without_what_is_waived(
    archive: Archive, tmp_path: Path, architecture: str
) -> None:
    lock = lock_of(archive, tmp_path, architecture)
    assert [
        (item.name, item.version, item.architecture, item.suite, item.source, item.source_version)
        for item in lock.packages
    ] == [
        ("library", "1:1.1-1+deb12u1", architecture, "bookworm-security", "library", "1:1.1-1+deb12u1"),
        ("tables", "2026a-0", "all", "bookworm-updates", "tables", "2026a-0"),
        ("tool", "2.0-1+b1", architecture, "bookworm", "tools", "2.0-1"),
    ]
    for package in lock.packages:
        folder = "debian-security" if package.suite.endswith("-security") else "debian"
        data = (archive.root / folder / package.path).read_bytes()
        assert (package.sha256, package.size) == (hashlib.sha256(data).hexdigest(), len(data))
    for index in lock.signed:
        assert index.keys == (archive.keys.fingerprint,)
        assert index.date == "2026-10-01T12:00:00Z"
        assert (
            index.sha256
            == hashlib.sha256((archive.suite(index.suite) / "InRelease").read_bytes()).hexdigest()
        )
        packages = archive.suite(index.suite) / "main" / f"binary-{architecture}" / "Packages"
        assert index.packages_sha256 == hashlib.sha256(packages.read_bytes()).hexdigest()


def test_a_lock_is_the_same_again_and_names_no_host(archive: Archive, tmp_path: Path) -> None:
    first = lock_of(archive, tmp_path).as_bytes()
    assert lock_of(archive, tmp_path).as_bytes() == first
    assert lock_of(archive, tmp_path / "another").as_bytes() == first
    assert b"127.0.0.1" not in first
    assert b"://" not in first.replace(b"https://wheelmark.dev/debian-lock/v1", b"")
    assert parse_debian_lock(first).as_bytes() == first


def test_an_index_that_did_not_change_is_not_fetched_again(archive: Archive, tmp_path: Path) -> None:
    lock_of(archive, tmp_path)
    archive.asked.clear()
    lock_of(archive, tmp_path)
    assert not [path for path in archive.asked if path.endswith("Packages")]


def test_a_newer_version_is_taken_once_the_archive_has_it(archive: Archive, tmp_path: Path) -> None:
    before = lock_of(archive, tmp_path)
    archive.add("tool", "2.0-2", depends="library (>= 1.1)")
    archive.publish()
    after = lock_of(archive, tmp_path)
    changed = {item.name: item.version for item in set(after.packages) - set(before.packages)}
    assert changed == {"tool": "2.0-2"}


def test_an_index_that_another_key_signed_is_refused(
    archive: Archive, other_keys: Keys, tmp_path: Path
) -> None:
    archive.publish(signer=other_keys)
    assert refused(archive, tmp_path).reason == "debian-signature"


def test_a_changed_index_is_refused(archive: Archive, tmp_path: Path) -> None:
    path = archive.suite("bookworm-security") / "InRelease"
    path.write_bytes(path.read_bytes().replace(b"Label: Debian", b"Label: Debyan"))
    assert refused(archive, tmp_path).reason == "debian-signature"


def test_an_index_without_a_signature_is_refused(archive: Archive, tmp_path: Path) -> None:
    path = archive.suite("bookworm") / "InRelease"
    path.write_bytes(archive.release_text("bookworm", ""))
    assert refused(archive, tmp_path).reason in {"debian-signature", "debian-digest"}


def test_a_changed_packages_file_is_refused_and_the_next_run_is_not_spoilt(
    archive: Archive, tmp_path: Path
) -> None:
    path = archive.suite("bookworm") / "main" / "binary-amd64" / "Packages"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"2.0-1+b1", b"2.0-1+b9"))
    assert refused(archive, tmp_path).reason == "debian-digest"
    path.write_bytes(good)
    assert len(lock_of(archive, tmp_path).packages) == 3


def test_an_index_after_its_time_is_refused_unless_it_is_a_dated_snapshot(
    archive: Archive, tmp_path: Path
) -> None:
    archive.valid_until = NOW - dt.timedelta(days=1)
    archive.publish()
    assert refused(archive, tmp_path).reason == "debian-expired"
    dated = lock_of(archive, tmp_path, sources=(), snapshot=f"{archive.url}/{{archive}}")
    assert {index.valid_until for index in dated.signed} == {"2026-09-30T12:00:00Z"}
    told = (("Acquire::Check-Valid-Until", "false"),)
    assert lock_of(archive, tmp_path, settings=told).packages == dated.packages


def test_our_own_clock_is_held_against_an_index_too(archive: Archive, tmp_path: Path) -> None:
    archive.valid_until = dt.datetime.now(dt.UTC) + dt.timedelta(days=300)
    archive.publish()
    with pytest.raises(LockError) as caught:
        resolve_debian(
            ASKED,
            "amd64",
            cache=tmp_path,
            machine=archive.machine(),
            now=archive.valid_until + dt.timedelta(days=1),
        )
    assert caught.value.reason == "debian-expired"


def test_a_suite_that_no_source_has_is_named(archive: Archive, tmp_path: Path) -> None:
    error = refused(archive, tmp_path, sources=archive.machine().sources[:2])
    assert (error.reason, "bookworm-security" in error.what) == ("debian-source", True)


def test_an_absent_keyring_and_absent_programs_are_named(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(archive, tmp_path, keyring=tmp_path / "absent.gpg")
    assert (error.reason, "apt-get install debian-archive-keyring" in error.fix) == ("debian-source", True)
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refused(archive, tmp_path)
    assert (error.reason, "apt, gpgv" in error.what) == ("debian-source", True)


def test_an_architecture_or_package_that_the_archive_lacks(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(LockError) as caught:
        lock_of(archive, tmp_path, "riscv64")
    assert caught.value.reason in {"debian-source", "debian-fetch"}
    with pytest.raises(LockError) as caught:
        resolve_debian(table("absent"), "amd64", cache=tmp_path, machine=archive.machine(), now=NOW)
    assert caught.value.reason == "lock-unsolvable"


def test_a_dependency_that_nobody_waived_is_not_left_out(archive: Archive, tmp_path: Path) -> None:
    lock = resolve_debian(table("tool"), "amd64", cache=tmp_path, machine=archive.machine(), now=NOW)
    assert "shell" in {package.name for package in lock.packages}


@pytest.mark.parametrize("word", ["tool=1", "tool;id", "-oAPT::Foo=1", "../tool", "Tool"])
def test_what_is_no_name_never_reaches_apt(archive: Archive, tmp_path: Path, word: str) -> None:
    with pytest.raises(LockError) as caught:
        resolve_debian(table(word), "amd64", cache=tmp_path, machine=archive.machine(), now=NOW)
    assert caught.value.reason == "debian-source"
    assert archive.asked == []


def test_a_mirror_that_is_down_or_hangs_is_given_up(archive: Archive, tmp_path: Path) -> None:
    down = tuple(
        dataclasses.replace(item, uri="http://127.0.0.1:9/debian") for item in archive.machine().sources
    )
    assert refused(archive, tmp_path, sources=down).reason == "debian-fetch"
    archive.faults["debian-security/dists/bookworm-security/main/binary-amd64/Packages"] = ["hang"] * 20
    assert refused(archive, tmp_path).reason == "debian-fetch"


def test_a_mirror_that_fails_once_is_asked_again(archive: Archive, tmp_path: Path) -> None:
    archive.faults["binary-amd64/Packages"] = ["503"]
    assert len(lock_of(archive, tmp_path).packages) == 3


class TestOurOwnReading:
    """The same chain without apt: a lock does not hang on how apt is configured."""

    def release(self, archive: Archive, tmp_path: Path, data: bytes, suite: str = "bookworm") -> None:
        path = tmp_path / "InRelease"
        path.write_bytes(data)
        read_release(path, suite=suite, keyring=archive.keys.keyring)

    def refusal(self, archive: Archive, tmp_path: Path, data: bytes, suite: str = "bookworm") -> str:
        with pytest.raises(LockError) as caught:
            self.release(archive, tmp_path, data, suite)
        assert caught.value.reason == "debian-signature"
        return caught.value.what

    def test_good(self, archive: Archive, tmp_path: Path) -> None:
        self.release(archive, tmp_path, (archive.suite("bookworm") / "InRelease").read_bytes())

    def test_text_around_the_message(self, archive: Archive, tmp_path: Path) -> None:
        data = (archive.suite("bookworm") / "InRelease").read_bytes()
        assert "not one signed message" in self.refusal(archive, tmp_path, b"Codename: bookworm\n" + data)
        assert "not one signed message" in self.refusal(archive, tmp_path, data + b"Codename: bookworm\n")
        assert "not one signed message" in self.refusal(archive, tmp_path, data + data)
        assert "not one signed message" in self.refusal(archive, tmp_path, b"")

    def test_another_suite(self, archive: Archive, tmp_path: Path) -> None:
        data = (archive.suite("bookworm-updates") / "InRelease").read_bytes()
        assert "bookworm-updates" in self.refusal(archive, tmp_path, data)

    def test_another_key(self, archive: Archive, other_keys: Keys, tmp_path: Path) -> None:
        text = archive.release_text("bookworm", "")
        assert "unknown key" in self.refusal(archive, tmp_path, other_keys.clearsign(text))

    def test_changed_text(self, archive: Archive, tmp_path: Path) -> None:
        data = (archive.suite("bookworm") / "InRelease").read_bytes()
        changed = data.replace(b"Origin: Debian", b"Origin: Debyan")
        assert "does not fit" in self.refusal(archive, tmp_path, changed)

    def test_a_weak_hash(self, archive: Archive, tmp_path: Path) -> None:
        text = archive.release_text("bookworm", "")
        data = archive.keys.clearsign(text, "--digest-algo", "SHA1", "--allow-weak-digest-algos")
        assert "weak" in self.refusal(archive, tmp_path, data)

    def test_an_expired_signature(self, archive: Archive, tmp_path: Path) -> None:
        text = archive.release_text("bookworm", "")
        then = ("--faked-system-time", "20250101T000000", "--default-sig-expire", "1d")
        data = archive.keys.clearsign(text, *then)
        assert "EXPSIG" in self.refusal(archive, tmp_path, data)

    def test_other_packages(self, archive: Archive) -> None:
        release = read_release(
            archive.suite("bookworm") / "InRelease", suite="bookworm", keyring=archive.keys.keyring
        )
        path = archive.suite("bookworm") / "main" / "binary-amd64" / "Packages"
        data = read_packages(path, release, component="main", architecture="amd64")
        path.write_bytes(data + b"\n")
        with pytest.raises(LockError) as caught:
            read_packages(path, release, component="main", architecture="amd64")
        assert caught.value.reason == "debian-digest"
        with pytest.raises(LockError) as caught:
            read_packages(path, release, component="contrib", architecture="amd64")
        assert caught.value.reason == "debian-source"

    def test_a_stanza_without_a_digest(self) -> None:
        path = "pool/main/t/tool/tool_1_amd64.deb"
        stanza = f"Package: tool\nVersion: 1\nArchitecture: amd64\nFilename: {path}\nSize: 5\n".encode()
        with pytest.raises(LockError) as caught:
            find_package(stanza, path, suite="bookworm")
        assert caught.value.reason == "debian-digest"
        assert find_package(stanza, "pool/main/t/tool/tool_1", suite="bookworm") is None


def test_nothing_of_the_machine_is_read_but_its_sources(archive: Archive, tmp_path: Path) -> None:
    assert archive.machine() == Machine(sources=archive.machine().sources, keyring=archive.keys.keyring)
    lock_of(archive, tmp_path)
    assert all(path.startswith(("/debian/", "/debian-security/")) for path in archive.asked)
