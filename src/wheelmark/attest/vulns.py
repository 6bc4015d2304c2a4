"""in-toto vulns v0.2: what advisory data of which age says about one artifact.

Format: in-toto attestation framework, ``spec/predicates/vulns_02.md``. An empty ``result`` means that the
scanner found nothing, never that it did not look: where there was no service, there is no such statement.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from wheelmark.attest import severity
from wheelmark.attest.fields import Fields, read_time, time_text
from wheelmark.evidence import Evidence, Verdict

VULNS = "https://in-toto.io/attestation/vulns/v0.2"
_REASON = "vulns"
_ADVISORIES = "https://wheelmark.dev/advisories/"
"""Names, as a URI, advisory data whose source is given as words."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One advisory that applies to one component."""

    id: str
    """``GHSA-…``, ``PYSEC-…`` or ``CVE-…``."""
    purl: str = ""
    """The component, as a package URL."""
    aliases: tuple[str, ...] = ()
    """Other names of the advisory, sorted."""
    severities: tuple[tuple[str, str], ...] = ()
    """Pairs of method (``CVSS_V3``) and score, as the advisory states them."""

    @property
    def severity(self) -> str:
        """``none``, ``low``, ``medium``, ``high`` or ``critical``: the worst that is stated; empty where that is unknown."""
        return severity.worst_word(self.severities)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scan:
    """One scan of one artifact's components."""

    scanner_uri: str
    scanner_version: str
    database_uri: str
    """Where the advisories come from."""
    database_updated: dt.datetime
    """When the advisory data was last brought up to date: what a policy's age limit counts from."""
    findings: tuple[Finding, ...]
    started: dt.datetime
    finished: dt.datetime
    database_version: str = ""

    @classmethod
    def of(cls, evidence: Evidence) -> Scan | None:
        """The scan that an audit gate made of all its components, or ``None`` where it made none.

        An UNCHECKED audit made none, even where some packages were asked: an empty result would say that all were.

        Args:
            evidence: With ``details.service`` (``source``, ``date``), ``details.vulnerabilities`` (each ``package``,
                ``version``, ``id``, ``aliases`` and, where known, ``severities``; ``purl`` where it is none of PyPI's) and ``environment`` (``pip-audit``: version, ``asked``: time).

        Raises:
            InputError: The gate answered and a field is absent or malformed (reason ``vulns``).
        """
        if evidence.verdict is Verdict.UNCHECKED or "vulnerabilities" not in evidence.details:
            return None
        details = Fields(evidence.details, what=f"evidence of {evidence.gate}", reason=_REASON)
        environment = Fields(evidence.environment, what=details.what, reason=_REASON)
        service = Fields(details.mapping("service"), what=f"{details.what}: service", reason=_REASON)
        version, source, date = (
            environment.string("pip-audit"),
            service.string("source"),
            service.string("date"),
        )
        asked = _asked(environment.string("asked"), details)
        return cls(
            scanner_uri=f"pkg:pypi/pip-audit@{version}",
            scanner_version=version,
            database_uri=source if ":" in source else _ADVISORIES + quote(source),
            database_version=date,
            database_updated=read_time(f"{date}T00:00:00Z", what=f"{details.what}: date", reason=_REASON),
            findings=tuple(sorted(_found(details, item) for item in details.items("vulnerabilities"))),
            started=asked,
            finished=asked,
        )

    def as_predicate(self) -> dict[str, Any]:
        """The JSON object that ``read_vulns`` reads back."""
        database = {
            "uri": self.database_uri,
            "version": self.database_version,
            "lastUpdate": time_text(self.database_updated),
        }
        return {
            "scanner": {
                "uri": self.scanner_uri,
                "version": self.scanner_version,
                "db": {key: text for key, text in database.items() if text},
                "result": [_finding_json(finding) for finding in sorted(self.findings)],
            },
            "metadata": {
                "scanStartedOn": time_text(self.started),
                "scanFinishedOn": time_text(self.finished),
            },
        }


def read_vulns(predicate: Mapping[str, Any]) -> Scan:
    """Read a vulns predicate.

    Raises:
        InputError: A member is absent, unknown or malformed (reason ``vulns``).
    """
    fields = Fields(predicate, what="vulnerability scan", reason=_REASON, known=("scanner", "metadata"))
    scanner = fields.inner("scanner", ("uri", "version", "db", "result"))
    database = scanner.inner("db", ("uri", "version", "lastUpdate"))
    metadata = fields.inner("metadata", ("scanStartedOn", "scanFinishedOn"))
    if "result" not in predicate["scanner"]:
        raise fields.refusal("has no result: it does not say that nothing was found")
    return Scan(
        scanner_uri=scanner.string("uri"),
        scanner_version=scanner.string("version", ""),
        database_uri=database.string("uri", ""),
        database_version=database.string("version", ""),
        database_updated=database.time("lastUpdate"),
        findings=tuple(_read_finding(scanner, item) for item in scanner.items("result")),
        started=metadata.time("scanStartedOn"),
        finished=metadata.time("scanFinishedOn"),
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": finding.id,
        "severity": [{"method": method, "score": score} for method, score in finding.severities],
    }
    notes = {"purl": finding.purl, "aliases": list(finding.aliases)}
    if found := {name: note for name, note in notes.items() if note}:
        value["annotations"] = [found]
    return value


def _read_finding(scanner: Fields, value: Any) -> Finding:
    what = f"{scanner.what}: result"
    fields = Fields(value, what=what, reason=_REASON, known=("id", "severity", "annotations"))
    scores = [Fields(item, what=f"{what}: severity", reason=_REASON) for item in fields.items("severity")]
    notes = [Fields(item, what=f"{what}: annotation", reason=_REASON) for item in fields.items("annotations")]
    return Finding(
        id=fields.string("id"),
        purl=next((purl for note in notes if (purl := note.string("purl", ""))), ""),
        aliases=tuple(sorted(alias for note in notes for alias in note.strings("aliases"))),
        severities=tuple((score.string("method"), score.string("score")) for score in scores),
    )


def _found(evidence: Fields, value: Any) -> Finding:
    fields = Fields(value, what=f"{evidence.what}: vulnerability", reason=_REASON)
    pypi = f"pkg:pypi/{quote(fields.string('package'))}@{quote(fields.string('version'))}"
    scores = [
        Fields(item, what=f"{fields.what}: severity", reason=_REASON) for item in fields.items("severities")
    ]
    return Finding(
        id=fields.string("id"),
        purl=fields.string("purl", "") or pypi,
        aliases=tuple(sorted(fields.strings("aliases"))),
        severities=tuple((score.string("method"), score.string("score")) for score in scores),
    )


def _asked(text: str, evidence: Fields) -> dt.datetime:
    # The gate writes the offset as +00:00, which is the same time as Z.
    return read_time(text.replace("+00:00", "Z"), what=f"{evidence.what}: asked", reason=_REASON)
