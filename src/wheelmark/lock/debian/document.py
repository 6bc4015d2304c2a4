"""A Debian lock (``lockfiles/debian-<architecture>.json``): which packages, by digest, and which signed index vouched for them.

It names no mirror: a suite, and a path in the archive's pool, are the same on all of them. The file has one form,
``as_bytes``, and only that form is read.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError, LockError

SCHEMA = "https://wheelmark.dev/debian-lock/v1"
LARGEST = 1 << 30
"""Bytes that one package may have: none in Debian 12's main for a server comes near."""
_LIMITS = strictjson.Limits(size=4 << 20, depth=4, items=5000, string=1024)

# Debian Policy 5.6.1 (names), 5.6.12 (versions), 5.6.8 (architectures).
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
VERSION = re.compile(r"(?:[0-9]+:)?[0-9][A-Za-z0-9.+~:-]*")
ARCHITECTURE = re.compile(r"[a-z0-9][a-z0-9-]*")
SUITE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_PATH = re.compile(r"pool(?:/[A-Za-z0-9_+~%:-][A-Za-z0-9._+~%:-]*)+\.deb")
_KEY = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebianPackage:
    """One locked package."""

    name: str
    version: str
    """Of the binary package (deb-version(7))."""
    architecture: str
    """The lock's own, or ``all``."""
    sha256: str
    """Of the .deb file."""
    size: int
    """Bytes of the .deb file."""
    path: str
    """In the archive: ``pool/main/…``."""
    source: str
    """Name of the source package: security data is by source."""
    source_version: str
    """Version of the source package: a rebuild (``+b1``) has another than its binary."""
    suite: str
    """Suite whose index lists it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedIndex:
    """One component of a suite, as it was signed when the packages were resolved."""

    suite: str
    component: str
    sha256: str
    """Of the whole InRelease file."""
    date: str
    """``Date`` of the InRelease file, RFC 3339 in UTC."""
    valid_until: str
    """``Valid-Until``, likewise; empty where the archive says none."""
    keys: tuple[str, ...]
    """Fingerprints of the primary keys with a good signature, sorted."""
    packages_sha256: str
    """Of the uncompressed Packages file, which the InRelease file names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebianLock:
    """All packages of one architecture."""

    architecture: str
    """Debian's name: ``amd64``, ``arm64``."""
    suite: str
    inputs: str
    """sha256 of what was asked for (``debian_inputs``)."""
    signed: tuple[SignedIndex, ...]
    """In the order of the recipe's suites."""
    packages: tuple[DebianPackage, ...]
    """Sorted by name; a name stands once."""

    @property
    def size(self) -> int:
        """Bytes of all packages."""
        return sum(package.size for package in self.packages)

    def as_bytes(self) -> bytes:
        """The file: JSON with sorted keys and an indent of 1, so that a change is a few lines of a diff."""
        value = {"schema": SCHEMA, **dataclasses.asdict(self)}
        return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def read_debian_lock(path: Path) -> DebianLock:
    """Read a lock file, strictly.

    Raises:
        LockError: It is absent, malformed, contradicts itself, or was changed by hand (``debian-lock``).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LockError(
            f"cannot read the Debian lock {path.name}: {error.strerror}",
            fix="nox -s lock",
            reason="debian-lock",
        ) from error
    return parse_debian_lock(data, name=path.name)


def parse_debian_lock(data: bytes, *, name: str = "Debian lock") -> DebianLock:
    """``read_debian_lock`` for bytes; ``name`` is how messages call them.

    Raises:
        LockError: As ``read_debian_lock``.
    """
    try:
        lock = _lock(strictjson.load_object(data, what=name, limits=_LIMITS))
    except InputError as error:
        raise LockError(error.what, fix="nox -s lock", reason="debian-lock") from error
    except _MalformedError as error:
        raise LockError(f"{name}: {error}", fix="nox -s lock", reason="debian-lock") from error
    if lock.as_bytes() != data:
        raise LockError(
            f"{name} is not in its one form",
            cause="it was changed by hand, or by another program",
            fix="nox -s lock",
            reason="debian-lock",
        )
    return lock


class _MalformedError(Exception):
    """What is wrong; never leaves this module."""


def _lock(value: Mapping[str, Any]) -> DebianLock:
    if value.get("schema") != SCHEMA:
        raise _MalformedError(f"schema is {value.get('schema')!r}; this wheelmark reads {SCHEMA}")
    _keys(value, {"schema", *_names(DebianLock)}, "it")
    lock = DebianLock(
        architecture=_text(value, "architecture", ARCHITECTURE),
        suite=_text(value, "suite", SUITE),
        inputs=_digest(value, "inputs"),
        signed=tuple(_signed(entry) for entry in _entries(value, "signed")),
        packages=tuple(_package(entry) for entry in _entries(value, "packages")),
    )
    if not lock.signed or not lock.packages:
        raise _MalformedError("it holds no index or no package")
    indexes = [(index.suite, index.component) for index in lock.signed]
    if len(set(indexes)) != len(indexes):
        raise _MalformedError("an index stands twice")
    names = [package.name for package in lock.packages]
    if names != sorted(set(names)):
        raise _MalformedError("packages are not sorted by name, or one stands twice")
    suites = {index.suite for index in lock.signed}
    for package in lock.packages:
        if package.architecture not in {lock.architecture, "all"}:
            raise _MalformedError(f"{package.name} is for {package.architecture}, not {lock.architecture}")
        if package.suite not in suites:
            raise _MalformedError(f"{package.name} is from {package.suite}, whose index is not there")
    return lock


def _signed(value: Mapping[str, Any]) -> SignedIndex:
    _keys(value, _names(SignedIndex), "an index")
    keys = value["keys"]
    if (
        not isinstance(keys, list)
        or not keys
        or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys)
        or keys != sorted(set(keys))
    ):
        raise _MalformedError("an index has no sorted list of key fingerprints")
    return SignedIndex(
        suite=_text(value, "suite", SUITE),
        component=_text(value, "component", SUITE),
        sha256=_digest(value, "sha256"),
        date=_date(value, "date"),
        valid_until=_date(value, "valid_until") if value["valid_until"] != "" else "",
        keys=tuple(keys),
        packages_sha256=_digest(value, "packages_sha256"),
    )


def _package(value: Mapping[str, Any]) -> DebianPackage:
    _keys(value, _names(DebianPackage), "a package")
    size = value["size"]
    if type(size) is not int or not 0 < size <= LARGEST:
        raise _MalformedError(f"a package has the size {size!r}")
    return DebianPackage(
        name=_text(value, "name", NAME),
        version=_text(value, "version", VERSION),
        architecture=_text(value, "architecture", ARCHITECTURE),
        sha256=_digest(value, "sha256"),
        size=size,
        path=_text(value, "path", _PATH),
        source=_text(value, "source", NAME),
        source_version=_text(value, "source_version", VERSION),
        suite=_text(value, "suite", SUITE),
    )


def _names(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _keys(value: Mapping[str, Any], wanted: set[str], what: str) -> None:
    odd = sorted(wanted ^ set(value))
    if odd:
        raise _MalformedError(f"{what} has other keys than it should: {', '.join(odd)[:200]}")


def _entries(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = value[key]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _MalformedError(f"{key} is no list of objects")
    return entries


def _text(value: Mapping[str, Any], key: str, form: re.Pattern[str]) -> str:
    text = value[key]
    if not isinstance(text, str) or not form.fullmatch(text):
        raise _MalformedError(f"{key} is {str(text)[:120]!r}")
    return text


def _digest(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not digests.is_sha256(text):
        raise _MalformedError(f"{key} is no sha256")
    return text


def _date(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    try:
        if isinstance(text, str) and text == rfc3339(dt.datetime.fromisoformat(text)):
            return text
    except ValueError:
        pass
    raise _MalformedError(f"{key} is no time in UTC: {str(text)[:40]!r}")


def rfc3339(time: dt.datetime) -> str:
    """``2026-11-28T14:09:31Z``: whole seconds, in UTC."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_pool_path(text: str) -> bool:
    """Whether a path of an index is one that a lock may hold: below ``pool/``, without ``..``."""
    return _PATH.fullmatch(text) is not None
