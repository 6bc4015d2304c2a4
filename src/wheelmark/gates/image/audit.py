"""Audit: the image's Python packages as the wheel's are, its Debian packages by Debian's own security data.

Debian's data is a folder of OSV files of ecosystem ``Debian:<number>``, named by ``WHEELMARK_DEBIAN_ADVISORIES``; an
advisory is about a source package. An urgency of ``unimportant`` is Debian's word that nothing has to be done, and no
finding. The gate PASSED only where both were asked; a finding of either fails it.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

from wheelmark.attest.sbom import Sbom, read_sbom, unexplained_files
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates import audit
from wheelmark.gates.components import Answer, classify
from wheelmark.gates.image.context import ImageContext
from wheelmark.lock.debian import (
    DebianAdvisories,
    DebianLock,
    Finding,
    read_debian_advisories,
    read_debian_lock,
)
from wheelmark.lock.debian.advisories import VARIABLE

NAME = "image-audit"
_NOTHING_TO_DO = "unimportant"
_Answer = tuple[Verdict, str, str]


def run(context: ImageContext) -> Evidence:
    """Judge one image's components.

    Raises:
        ToolError: pip-audit is not installed (``no-pip-audit``).
        LockError: The Debian lock is malformed.
    """
    return audit_image(context, now=dt.datetime.now(dt.UTC))


def audit_image(context: ImageContext, *, now: dt.datetime) -> Evidence:
    """``run`` at a given time (which advisory data ages by)."""
    details: dict[str, Any] = {}
    environment = audit.environment_at(now)
    try:
        sbom = _described(context)
    except InputError as error:
        return context.refused(NAME, error)
    audited = classify(sbom, project=context.declaration.project.name)
    details["components"] = [item.as_json() for item in audited]
    odd = [item.component for item in audited if item.answer is Answer.UNEXPLAINED]
    if odd:
        text = f"{len(odd)} components cannot be audited: {', '.join(odd[:5])}"
        return context.evidence(
            NAME, Verdict.FAILED, Level.STATIC, text, reason="audit-unexplained", details=details
        )
    python = audit.ask(audited, context.declaration, details, now=now)
    debian = _debian(context, details, now)
    verdict, reason, summary = _worse(python, debian)
    if verdict is Verdict.UNCHECKED:
        details.pop("vulnerabilities", None)  # an empty list would say that everything was asked
    return context.evidence(
        NAME,
        verdict,
        Level.NONE if verdict is Verdict.UNCHECKED else Level.STATIC,
        summary,
        reason=reason,
        details=details,
        environment=environment,
    )


def _described(context: ImageContext) -> Sbom:
    """The image's document, if it is about this image and explains every blob."""
    sbom = read_sbom(context.sbom.read_bytes())
    manifest = context.manifest()
    blobs = {item.digest: item.sha256 for item in (manifest.config, *manifest.layers)}
    if sbom.subject.hashes != (context.sha256,) or unexplained_files(sbom, blobs):
        raise InputError("the SBOM is not about this image and its blobs", reason="audit-unexplained")
    return sbom


def _worse(python: _Answer, debian: _Answer) -> _Answer:
    """The two answers as one: a finding counts whatever the other says, and nothing asked passes nothing."""
    order = [Verdict.PASSED, Verdict.UNCHECKED, Verdict.FAILED]
    both = sorted((python, debian), key=lambda answer: order.index(answer[0]))
    verdict, reason, _summary = both[-1]
    return verdict, reason, f"Python: {python[2]}; Debian: {debian[2]}"


def _debian(context: ImageContext, details: dict[str, Any], now: dt.datetime) -> _Answer:
    """What Debian's data says of the locked packages; findings are added to the details."""
    if context.debian_lock is None:
        return (
            Verdict.UNCHECKED,
            "audit-base",
            "what lies in the base image is not known; next: a recipe with [debian]",
        )
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return (
            Verdict.UNCHECKED,
            "audit-no-service",
            f"{VARIABLE} names no folder of Debian's security data; next: set it and run nox -s test",
        )
    lock = read_debian_lock(context.debian_lock)
    try:
        data = read_debian_advisories(Path(folder), suite=lock.suite)
        findings = [item for item in data.affecting(lock) if item.urgency != _NOTHING_TO_DO]
    except InputError as error:
        return Verdict.UNCHECKED, error.reason, error.what
    details["debian"] = {"source": data.source, "date": data.date.isoformat(), "advisories": data.count}
    if findings:
        _add(details, lock, findings)
        named = ", ".join(f"{item.advisory} ({item.source} {item.version})" for item in findings[:5])
        return Verdict.FAILED, "audit-vulnerable", f"{len(findings)} known vulnerabilities: {named}"
    if gap := _gap(data, lock, now, context.declaration.gates.audit.max_age_days):
        return Verdict.UNCHECKED, *gap
    return Verdict.PASSED, "", f"{len(lock.packages)} packages, none with a known vulnerability"


def _gap(data: DebianAdvisories, lock: DebianLock, now: dt.datetime, limit: int) -> tuple[str, str] | None:
    """Why finding nothing says nothing: reason and summary."""
    age, outside = (now.date() - data.date).days, data.outside(lock)
    if not 0 <= age <= limit:
        return "audit-stale", f"the advisories of {data.source} are {age} days old; the limit is {limit}"
    if outside:
        return "audit-coverage", f"the advisories do not cover {', '.join(outside[:8])}"
    return None


def _add(details: dict[str, Any], lock: DebianLock, findings: list[Finding]) -> None:
    """Write findings as the scan's statement takes them; it says one source and date: Python's is named where it answered."""
    debian, service = details["debian"], details.get("service")
    if not isinstance(service, dict) or "date" not in service:
        details["service"] = {"kind": "debian", "source": debian["source"], "date": debian["date"]}
    details["vulnerabilities"] = [
        *details.get("vulnerabilities", []),
        *(
            {
                "package": item.source,
                "version": item.version,
                "purl": f"pkg:deb/debian/{item.source}@{item.version}?arch=source&distro={lock.suite}",
                "id": item.advisory,
                "aliases": list(item.aliases),
                "fixed_in": list(item.fixed),
                "severities": [{"method": method, "score": score} for method, score in item.severity],
            }
            for item in findings
        ),
    ]
