"""Debian's security data in OSV form, held against a lock's source packages.

OSV's ecosystem ``Debian:12`` has one record for each DSA, DLA and CVE of the security tracker, by source package. Many
have no fixed version: Debian left them open, with an urgency that says how it sees them.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark.errors import InputError
from wheelmark.lock import osv
from wheelmark.lock.debian.document import DebianLock
from wheelmark.lock.debian.versions import version_key

RELEASES = {"bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "14", "duke": "15"}
"""Suite -> Debian's number (https://wiki.debian.org/DebianReleases)."""
VARIABLE = "WHEELMARK_DEBIAN_ADVISORIES"
"""Folder of the advisories."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A source package of a lock that an advisory is about."""

    advisory: str
    """For instance ``DSA-5532-1`` or ``DEBIAN-CVE-2023-5363``."""
    aliases: tuple[str, ...]
    """Other names, sorted: CVEs, and what the record is upstream of."""
    source: str
    version: str
    packages: tuple[str, ...]
    """Binary packages of the lock that are built from it."""
    fixed: tuple[str, ...]
    """Versions with a fix; empty: there is none in this release of Debian."""
    urgency: str
    """Debian's word (``unimportant``, ``low``, ``not yet assigned``, …); empty where the record has none."""
    severity: tuple[tuple[str, str], ...]
    """Type and score, as OSV has them: ``("CVSS_V3", "CVSS:3.1/…")``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebianAdvisories:
    """Advisories of one release of Debian."""

    ecosystem: str
    source: str
    date: dt.date
    covered: frozenset[str] | None
    """Source packages that the data covers; ``None``: all."""
    by_source: Mapping[str, tuple[Mapping[str, Any], ...]]
    count: int

    def outside(self, lock: DebianLock) -> tuple[str, ...]:
        """Source packages of a lock about which the data says nothing: they are unchecked."""
        if self.covered is None:
            return ()
        return tuple(sorted({package.source for package in lock.packages} - self.covered))

    def affecting(self, lock: DebianLock) -> tuple[Finding, ...]:
        """Every advisory that a package of a lock is affected by, by source package, then by advisory.

        Raises:
            InputError: An advisory about one of them has a version that cannot be ordered (``audit-data``).
        """
        built: dict[tuple[str, str], list[str]] = {}
        for package in lock.packages:
            built.setdefault((package.source, package.source_version), []).append(package.name)
        return tuple(
            _finding(advisory, entry, source, version, built[source, version])
            for source, version in sorted(built)
            for advisory in self.by_source.get(source, ())
            for entry in advisory["affected"]
            if osv.package_name(entry, self.ecosystem) == source
            and osv.affects(entry, version, key=version_key)
        )


def ecosystem_of(suite: str) -> str:
    """OSV's name of a suite's release.

    Raises:
        InputError: It is none that is known here (``audit-data``).
    """
    if suite not in RELEASES:
        raise InputError(f"no number of the Debian release {suite} is known", reason="audit-data")
    return f"Debian:{RELEASES[suite]}"


def read_debian_advisories(folder: Path, *, suite: str) -> DebianAdvisories:
    """Read a folder (form: ``wheelmark.lock.osv``).

    Raises:
        InputError: The folder cannot be used (``audit-manifest``, ``audit-data``), or holds nothing about this release
            (``audit-control``): no answer from it would mean anything.
    """
    ecosystem = ecosystem_of(suite)
    data = osv.read_folder(folder, ecosystem=ecosystem)
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for advisory in sorted(data.advisories, key=lambda advisory: str(advisory["id"])):
        if not advisory.get("withdrawn"):
            for name in {osv.package_name(entry, ecosystem) for entry in advisory["affected"]} - {""}:
                by_source.setdefault(name, []).append(advisory)
    if not by_source:
        raise InputError(f"no advisory of {folder.name} is about {ecosystem}", reason="audit-control")
    return DebianAdvisories(
        ecosystem=ecosystem,
        source=data.source,
        date=data.date,
        covered=data.packages,
        by_source={name: tuple(found) for name, found in by_source.items()},
        count=data.count,
    )


def _finding(
    advisory: Mapping[str, Any], entry: Mapping[str, Any], source: str, version: str, packages: list[str]
) -> Finding:
    aliases = {text for key in ("aliases", "upstream", "related") for text in _strings(advisory.get(key))}
    severity = advisory.get("severity")
    urgency = next(
        (
            value["urgency"]
            for value in (entry.get("ecosystem_specific"), entry.get("database_specific"))
            if isinstance(value, dict) and isinstance(value.get("urgency"), str)
        ),
        "",
    )
    return Finding(
        advisory=advisory["id"],
        aliases=tuple(sorted(aliases)),
        source=source,
        version=version,
        packages=tuple(sorted(packages)),
        fixed=osv.fixed_versions(entry),
        urgency=urgency,
        severity=tuple(
            (item["type"], item["score"])
            for item in (severity if isinstance(severity, list) else ())
            if isinstance(item, dict)
            and isinstance(item.get("type"), str)
            and isinstance(item.get("score"), str)
        ),
    )


def _strings(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
