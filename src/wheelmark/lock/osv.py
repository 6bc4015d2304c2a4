"""A folder of OSV advisories (https://ossf.github.io/osv-schema/), read strictly, whatever its ecosystem.

One advisory a JSON file, in any sub-folder, and a ``manifest.json``::

    {"schema": "https://wheelmark.dev/advisories/v1",
     "source": "pypa/advisory-database",
     "date": "2026-10-01",
     "coverage": {"ecosystem": "PyPI", "packages": "all"}}

``packages`` is ``"all"``, or a list of names when the folder is a selection: what is outside cannot be called checked.
``sha256`` (``digests.sha256_tree`` of the advisories) may be given and is then held to.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

SCHEMA = "https://wheelmark.dev/advisories/v1"
MANIFEST = "manifest.json"
_FIX = "see docs: gates, audit"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advisories:
    """Advisory data with what is known of it."""

    source: str
    date: dt.date
    packages: frozenset[str] | None
    """Names that the data covers, as written; ``None``: all of the ecosystem."""
    advisories: tuple[Mapping[str, Any], ...]
    """OSV objects that name the ecosystem."""
    count: int
    """Files of the folder."""


def read_folder(folder: Path, *, ecosystem: str) -> Advisories:
    """Read and check a folder.

    Args:
        folder: The folder.
        ecosystem: OSV's name, for instance ``Debian:12``.

    Raises:
        InputError: No manifest, or a malformed one (``audit-manifest``); a malformed advisory or another tree than the
            manifest names (``audit-data``).
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"the advisory folder {folder.name} has no {MANIFEST}",
            cause="without source, date and coverage nobody can say what an answer from it means",
            fix=f"write {MANIFEST} ({_FIX})",
            reason="audit-manifest",
        )
    manifest = _manifest(strictjson.load_object(_read(path, MANIFEST), what=MANIFEST), ecosystem)
    names = [name for name in digests.tree_files(folder) if name.endswith(".json") and name != MANIFEST]
    lines, found = [], []
    for name in names:
        data = _read(folder / name, name)
        lines.append(f"{digests.sha256(data)}  {name}\n")
        advisory = _advisory(strictjson.load_object(data, what=name), name)
        if any(package_name(entry, ecosystem) for entry in advisory["affected"]):
            found.append(advisory)
    if manifest.get("sha256") not in {None, digests.sha256("".join(lines).encode())}:
        raise InputError("the advisories are not those that the manifest names", reason="audit-data")
    packages = manifest["coverage"]["packages"]
    return Advisories(
        source=manifest["source"],
        date=dt.date.fromisoformat(manifest["date"]),
        packages=None if packages == "all" else frozenset(packages),
        advisories=tuple(found),
        count=len(names),
    )


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the advisory {name}: {error.strerror}", reason="audit-data") from error


def package_name(entry: Mapping[str, Any], ecosystem: str) -> str:
    """The package that an entry of ``affected`` is about, if it is of this ecosystem; else empty."""
    package = entry.get("package", {})
    name = package.get("name")
    return name if package.get("ecosystem") == ecosystem and isinstance(name, str) else ""


def affects(entry: Mapping[str, Any], version: str, *, key: Callable[[str], Any]) -> bool:
    """OSV schema, "Evaluation": listed in ``versions``, or inside a range. Git ranges name commits, not versions.

    Args:
        entry: One of ``affected``.
        version: The version asked about.
        key: What versions of the ecosystem sort by; a ``ValueError`` says that a text is none.

    Raises:
        InputError: A range has a version that cannot be ordered (``audit-data``).
    """
    asked = key(version)
    for text in entry.get("versions", ()):
        try:
            if key(text) == asked:
                return True
        except ValueError:
            continue  # a version that nobody can have under this order
    return any(
        _in_range(item["events"], asked, key)
        for item in entry.get("ranges", ())
        if item.get("type") in {"ECOSYSTEM", "SEMVER"}
    )


def fixed_versions(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Versions that the ranges call fixed, as written."""
    return tuple(
        event["fixed"]
        for item in entry.get("ranges", ())
        for event in item["events"]
        if isinstance(event.get("fixed"), str)
    )


def _in_range(events: Iterable[Mapping[str, Any]], asked: Any, key: Callable[[str], Any]) -> bool:
    """Whether the events, in order of their versions, leave the version affected."""
    limits = [event["limit"] for event in events if event.get("limit", "*") != "*"]
    if limits and not any(asked < _key(text, key) for text in limits):
        return False
    ordered = [
        (event[kind] != "0", None if event[kind] == "0" else _key(event[kind], key), kind)
        for event in events
        for kind in ("introduced", "fixed", "last_affected")
        if kind in event
    ]
    # "0" comes before every version, whatever the ecosystem says; of two events at one version the introduction is older.
    first = [item for item in ordered if not item[0]]
    later = sorted((item for item in ordered if item[0]), key=lambda item: (item[1], item[2] != "introduced"))
    affected = False
    for above, at, kind in (*sorted(first, key=lambda item: item[2] != "introduced"), *later):
        if kind == "introduced" and (not above or asked >= at):
            affected = True
        elif (kind == "fixed" and (not above or asked >= at)) or (
            kind == "last_affected" and above and asked > at
        ):
            affected = False
    return affected


def _key(text: object, key: Callable[[str], Any]) -> Any:
    try:
        if isinstance(text, str):
            return key(text)
    except ValueError:
        pass
    raise InputError(
        f"an advisory has the version {str(text)[:80]!r}, which cannot be ordered", reason="audit-data"
    )


def _manifest(value: Mapping[str, Any], ecosystem: str) -> Mapping[str, Any]:
    coverage = value.get("coverage")
    packages = coverage.get("packages") if isinstance(coverage, dict) else None
    listed = isinstance(packages, list) and all(isinstance(item, str) for item in packages)
    try:
        dt.date.fromisoformat(value.get("date", ""))
        dated = True
    except (TypeError, ValueError):
        dated = False
    if (
        value.get("schema") != SCHEMA
        or set(value) - {"schema", "source", "date", "coverage", "sha256"}
        or not isinstance(value.get("source"), str)
        or not value["source"]
        or not dated
        or not isinstance(coverage, dict)
        or set(coverage) != {"ecosystem", "packages"}
        or not (packages == "all" or listed)
        or not isinstance(value.get("sha256", ""), str)
    ):
        raise InputError(
            f"{MANIFEST} does not say schema, source, date (YYYY-MM-DD) and coverage of the advisories",
            fix=_FIX,
            reason="audit-manifest",
        )
    if coverage["ecosystem"] != ecosystem:
        raise InputError(
            f"{MANIFEST} says that the advisories are about {str(coverage['ecosystem'])[:80]}, not {ecosystem}",
            fix=_FIX,
            reason="audit-manifest",
        )
    return value


def _advisory(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An OSV object with the fields that matching reads; what would silently be left out is refused."""
    affected = value.get("affected", [])
    if (
        not isinstance(value.get("id"), str)
        or str(value.get("schema_version", "1.0.0")).partition(".")[0] != "1"
        or not isinstance(affected, list)
        or not all(isinstance(entry, dict) for entry in affected)
    ):
        raise InputError(f"{name} is no OSV advisory of schema 1", reason="audit-data")
    for entry in affected:
        ranges, versions = entry.get("ranges", []), entry.get("versions", [])
        if not (
            isinstance(entry.get("package", {}), dict)
            and isinstance(versions, list)
            and all(isinstance(version, str) for version in versions)
            and isinstance(ranges, list)
            and all(
                isinstance(item, dict)
                and isinstance(item.get("events"), list)
                and all(isinstance(event, dict) for event in item["events"])
                for item in ranges
            )
        ):
            raise InputError(f"{name}: an entry of 'affected' is malformed", reason="audit-data")
    return {**value, "affected": affected}
