"""A folder of OSV advisories, served on loopback the way osv.dev serves its own, for ``pip-audit`` to ask.

The folder holds OSV files (https://ossf.github.io/osv-schema/, one advisory a JSON file, in any sub-folder) and a
``manifest.json``::

    {"schema": "https://wheelmark.dev/advisories/v1",
     "source": "pypa/advisory-database",
     "date": "2026-10-01",
     "coverage": {"ecosystem": "PyPI", "packages": "all"}}

``packages`` is ``"all"``, or a list of names when the folder is a selection: what is outside cannot be called checked.
``sha256`` (``digests.sha256_tree`` of the advisories) may be given and is then held to. Whether a version is affected
follows "Evaluation" of the OSV schema, with versions compared by PEP 440.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

SCHEMA = "https://wheelmark.dev/advisories/v1"
MANIFEST = "manifest.json"
_ENDPOINT = "/v1/query"
_LONGEST_QUERY = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advisories:
    """Advisory data with what is known of it."""

    source: str
    date: dt.date
    packages: frozenset[str] | None
    """Normalized names that the data covers; ``None``: all of PyPI."""
    by_package: Mapping[str, tuple[Mapping[str, Any], ...]]
    """Normalized name -> its advisories (OSV objects)."""
    count: int

    def covers(self, name: str) -> bool:
        """Whether an answer about a package means anything."""
        return self.packages is None or name in self.packages

    def affecting(self, name: str, version: str) -> tuple[Mapping[str, Any], ...]:
        """The advisories that a version of a package is affected by.

        Raises:
            InputError: An advisory about the package has a version that PEP 440 cannot order (``audit-data``).
        """
        return tuple(
            advisory
            for advisory in self.by_package.get(canonicalize_name(name), ())
            if any(
                _affects(entry, version)
                for entry in advisory["affected"]
                if _package(entry) == canonicalize_name(name)
            )
        )

    def severities(self, names: AbstractSet[str]) -> tuple[tuple[str, str], ...]:
        """Pairs of type (``CVSS_V3``) and score of each advisory of one of these names, as OSV's ``severity`` has them."""
        found = {
            (entry["type"], entry["score"])
            for advisories in self.by_package.values()
            for advisory in advisories
            if names
            & {advisory["id"], *(item for item in _list(advisory, "aliases") if isinstance(item, str))}
            for entry in _list(advisory, "severity")
            if isinstance(entry, dict)
            and isinstance(entry.get("type"), str)
            and isinstance(entry.get("score"), str)
        }
        return tuple(sorted(found))

    def control(self) -> tuple[str, str] | None:
        """A package and version that must be reported: the first that the data itself lists as affected."""
        for name in sorted(self.by_package):
            for advisory in self.by_package[name]:
                for entry in advisory["affected"]:
                    for version in entry.get("versions", ()) if _package(entry) == name else ():
                        if not advisory.get("withdrawn") and _is_version(version):
                            return name, version
        return None


def read_advisories(folder: Path) -> Advisories:
    """Read and check a folder.

    Raises:
        InputError: No manifest (``audit-manifest``), a malformed one (same), a malformed advisory or another tree
            than the manifest names (``audit-data``).
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"the advisory folder {folder.name} has no {MANIFEST}",
            cause="without source, date and coverage nobody can say what an answer from it means",
            fix=f"write {MANIFEST} (see docs: gates, audit)",
            reason="audit-manifest",
        )
    manifest = _manifest(strictjson.load_object(path.read_bytes(), what=MANIFEST))
    files = [name for name in digests.tree_files(folder) if name.endswith(".json") and name != MANIFEST]
    if "sha256" in manifest:
        lines = "".join(f"{digests.sha256_file(folder / name)}  {name}\n" for name in files)
        if digests.sha256(lines.encode()) != manifest["sha256"]:
            raise InputError("the advisories are not those that the manifest names", reason="audit-data")
    by_package: dict[str, list[Mapping[str, Any]]] = {}
    for name in files:
        advisory = _advisory(strictjson.load_object((folder / name).read_bytes(), what=name), name)
        for package in {_package(entry) for entry in advisory["affected"]} - {""}:
            by_package.setdefault(package, []).append(advisory)
    packages = manifest["coverage"]["packages"]
    return Advisories(
        source=manifest["source"],
        date=dt.date.fromisoformat(manifest["date"]),
        packages=None if packages == "all" else frozenset(canonicalize_name(item) for item in packages),
        by_package={package: tuple(found) for package, found in by_package.items()},
        count=len(files),
    )


def _manifest(value: Mapping[str, Any]) -> Mapping[str, Any]:
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
        or coverage.get("ecosystem") != "PyPI"
        or set(coverage) != {"ecosystem", "packages"}
        or not (packages == "all" or listed)
        or not isinstance(value.get("sha256", ""), str)
    ):
        raise InputError(
            f"{MANIFEST} does not say schema, source, date (YYYY-MM-DD) and coverage of the advisories",
            fix="see docs: gates, audit",
            reason="audit-manifest",
        )
    return value


def _list(advisory: Mapping[str, Any], name: str) -> list[Any]:
    value = advisory.get(name)
    return value if isinstance(value, list) else []


def _advisory(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An OSV object with the fields that matching reads; what pip-audit would silently leave out is refused."""
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
        well_formed = (
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
        )
        if not well_formed:
            raise InputError(f"{name}: an entry of 'affected' is malformed", reason="audit-data")
    return {**value, "affected": affected}


def _package(entry: Mapping[str, Any]) -> str:
    package = entry.get("package", {})
    if package.get("ecosystem") != "PyPI" or not isinstance(package.get("name"), str):
        return ""
    return canonicalize_name(package["name"])


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _affects(entry: Mapping[str, Any], version: str) -> bool:
    """OSV schema, "Evaluation": listed in ``versions``, or inside a range. Git ranges name commits, not versions."""
    asked = Version(version)
    if any(
        text == version or (_is_version(text) and Version(text) == asked)
        for text in entry.get("versions", ())
    ):
        return True
    return any(
        _in_range(item["events"], asked)
        for item in entry.get("ranges", ())
        if item.get("type") in {"ECOSYSTEM", "SEMVER"}
    )


def _in_range(events: list[dict[str, str]], asked: Version) -> bool:
    """Whether the events, in order of their versions, leave the version affected."""
    limits = [_version(event["limit"]) for event in events if event.get("limit", "*") != "*"]
    if limits and not any(limit is None or asked < limit for limit in limits):
        return False
    ordered: list[tuple[Version | None, str]] = [
        (_version(event[kind]), kind)
        for event in events
        for kind in ("introduced", "fixed", "last_affected")
        if kind in event
    ]
    # "0" comes before every version; of two events at one version the introduction is older.
    lowest = Version("0.dev0")
    ordered.sort(key=lambda item: (item[0] is not None, item[0] or lowest, item[1] != "introduced"))
    affected = False
    for at, kind in ordered:
        if kind == "introduced" and (at is None or asked >= at):
            affected = True
        elif (kind == "fixed" and (at is None or asked >= at)) or (
            kind == "last_affected" and at is not None and asked > at
        ):
            affected = False
    return affected


def _version(text: str) -> Version | None:
    """An event's version; ``None`` is OSV's "0", which comes before all others."""
    if text == "0":
        return None
    try:
        return Version(text)
    except InvalidVersion as error:
        raise InputError(
            f"an advisory has the version {text!r}, which PEP 440 cannot order", reason="audit-data"
        ) from error


@contextlib.contextmanager
def serve(advisories: Advisories) -> Iterator[str]:
    """Answer OSV queries on a free loopback port until the block ends; gives the endpoint's URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        """``POST /v1/query`` (https://google.github.io/osv.dev/post-v1-query/)."""

        def log_message(self, *_args: object) -> None:
            """Nothing: what was asked stands in pip-audit's own answer."""

        def do_POST(self) -> None:
            """One query, one answer."""
            try:
                size = int(self.headers.get("Content-Length", ""))
                if self.path != _ENDPOINT or not 0 <= size <= _LONGEST_QUERY:
                    return self._answer(404, {"message": "no such endpoint"})
                query = strictjson.load_object(self.rfile.read(size), what="query")
                found = advisories.affecting(query["package"]["name"], query["version"])
            except (InputError, KeyError, TypeError, ValueError) as error:
                return self._answer(500, {"message": str(error)})
            return self._answer(200, {"vulns": list(found)} if found else {})

        def _answer(self, status: int, value: Mapping[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{_ENDPOINT}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
