"""in-toto vulns v0.2: what advisory data of which age says about one artifact.

Format: in-toto attestation framework, ``spec/predicates/vulns_02.md``. An empty ``result`` means that the
scanner found nothing, never that it did not look: where there was no service, there is no such statement.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from wheelmark.attest.fields import Fields, time_text
from wheelmark.evidence import Evidence, Verdict

VULNS = "https://in-toto.io/attestation/vulns/v0.2"
_REASON = "vulns"


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One advisory that applies to one component."""

    id: str
    """``GHSA-…``, ``PYSEC-…`` or ``CVE-…``."""
    purl: str = ""
    """The component, as a package URL."""
    severities: tuple[tuple[str, str], ...] = ()
    """Pairs of method (``CVSS_V3``) and score, as the advisory states them."""


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
        """The scan that an audit gate made, or ``None`` where the gate is UNCHECKED and none was made.

        The gate's ``details`` hold ``scanner`` (``uri``, ``version``), ``database`` (``uri``, ``version``,
        ``lastUpdate``), ``findings`` (each ``id``, ``purl``, and ``severity``: a list of ``method``, ``score``),
        ``started`` and ``finished``; times are RFC 3339 in UTC. Other members of ``details`` are not looked at.

        Raises:
            InputError: The gate answered and a field is absent or malformed (reason ``vulns``).
        """
        if evidence.verdict is Verdict.UNCHECKED and "scanner" not in evidence.details:
            return None
        fields = Fields(evidence.details, what=f"evidence of {evidence.gate}", reason=_REASON)
        scanner = fields.inner("scanner", ("uri", "version"))
        database = fields.inner("database", ("uri", "version", "lastUpdate"))
        return cls(
            scanner_uri=scanner.string("uri"),
            scanner_version=scanner.string("version"),
            database_uri=database.string("uri"),
            database_version=database.string("version", ""),
            database_updated=database.time("lastUpdate"),
            findings=tuple(sorted(_evidence_finding(fields, item) for item in fields.items("findings"))),
            started=fields.time("started"),
            finished=fields.time("finished"),
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
    if finding.purl:
        value["annotations"] = [{"purl": finding.purl}]
    return value


def _read_finding(scanner: Fields, value: Any) -> Finding:
    fields = Fields(
        value, what=f"{scanner.what}: result", reason=_REASON, known=("id", "severity", "annotations")
    )
    purl = ""
    for note in fields.items("annotations"):
        purl = Fields(note, what="annotation", reason=_REASON).string("purl", "") or purl
    return Finding(id=fields.string("id"), purl=purl, severities=_severities(fields))


def _evidence_finding(evidence: Fields, value: Any) -> Finding:
    fields = Fields(value, what=f"{evidence.what}: finding", reason=_REASON)
    return Finding(id=fields.string("id"), purl=fields.string("purl"), severities=_severities(fields))


def _severities(fields: Fields) -> tuple[tuple[str, str], ...]:
    scores = (
        Fields(item, what=f"{fields.what}: severity", reason=_REASON) for item in fields.items("severity")
    )
    return tuple((score.string("method"), score.string("score")) for score in scores)
