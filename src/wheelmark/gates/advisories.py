"""A folder of OSV advisories, served on loopback the way osv.dev serves its own, for ``pip-audit`` to ask.

The folder's form is that of ``wheelmark.lock.osv``, with the ecosystem ``PyPI``; versions are compared by PEP 440.
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

from wheelmark import strictjson
from wheelmark.errors import InputError
from wheelmark.lock import osv

_ECOSYSTEM = "PyPI"
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
                osv.affects(entry, version, key=Version)
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
    data = osv.read_folder(folder, ecosystem=_ECOSYSTEM)
    by_package: dict[str, list[Mapping[str, Any]]] = {}
    for advisory in data.advisories:
        for package in {_package(entry) for entry in advisory["affected"]} - {""}:
            by_package.setdefault(package, []).append(advisory)
    return Advisories(
        source=data.source,
        date=data.date,
        packages=None if data.packages is None else frozenset(map(canonicalize_name, data.packages)),
        by_package={package: tuple(found) for package, found in by_package.items()},
        count=data.count,
    )


def _list(advisory: Mapping[str, Any], name: str) -> list[Any]:
    value = advisory.get(name)
    return value if isinstance(value, list) else []


def _package(entry: Mapping[str, Any]) -> str:
    name = osv.package_name(entry, _ECOSYSTEM)
    return canonicalize_name(name) if name else ""


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


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
