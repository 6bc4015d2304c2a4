"""Known vulnerabilities: findings and how bad they are, how old the advisories, and whether all was asked (row 35).

A finding that is worse than the requirement lets pass is refused, unless a signer that the policy names for it says
in OpenVEX that it does not matter. VEX by anybody else counts for nothing and is told.

An empty result says that nothing was found only where everything was asked. Which components were, the scan's own
statement does not say; the audit gate's evidence in the signed test result does, and is held against the signed SBOM:
a component that has a package URL of PyPI with a version has a service that can be asked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark import digests
from wheelmark.attest import predicates
from wheelmark.attest.predicates import VEX, Finding, Scan, TestResult
from wheelmark.attest.sbom import read_sbom
from wheelmark.attest.vex import VexStatement
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.verify.case import Question, Standing
from wheelmark.verify.conditions.gates import AUDITS
from wheelmark.verify.policy import Predicate, Severity, Signer
from wheelmark.verify.signers import judge_signer
from wheelmark.verify.trail import Trail

_QUERIED = "queried"
_PYPI = "pkg:pypi/"
_SHOWN = 5


def check_scans(question: Question, standing: Standing, results: Sequence[TestResult], trail: Trail) -> None:
    """Scans that were signed, and those that the audit gate made, against the requirement."""
    scans: list[Scan] = []
    for item in standing.of(Predicate.VULNERABILITIES):
        try:
            scans.append(predicates.read_vulns(item.predicate))
        except InputError as error:
            trail.refuse("predicates", f"{item.path}: {error.what}", reason=error.reason)
    audits = [audit for result in results for gate in AUDITS if (audit := result.gate(gate)) is not None]
    made = list(_made(audits, trail))
    if question.case.evidence_files is not None:
        _compare(scans, [scan for _audit, scan in made], trail)
    statements = _vex(question, trail)
    if Predicate.VULNERABILITIES not in question.rule.predicates:
        return
    _check_findings(question, [*scans, *(scan for _audit, scan in made)], statements, trail)
    if not scans:
        return  # what is missing is said elsewhere
    _check_age(question, scans, trail)
    purls = list(_services(standing))
    for scan in scans:
        asked = [audit for audit, own in made if own.as_predicate() == scan.as_predicate()]
        _check_complete(question, asked, purls, trail)


def _made(audits: Iterable[Evidence], trail: Trail) -> Iterator[tuple[Evidence, Scan]]:
    for audit in audits:
        try:
            scan = Scan.of(audit)
        except InputError as error:
            trail.refuse("predicates", error.what, reason=error.reason)
        else:
            if scan is not None:
                yield audit, scan


def _compare(scans: Sequence[Scan], made: Sequence[Scan], trail: Trail) -> None:
    """A scan that was made has its own statement; one that vanished, or another one, is bad evidence."""
    expected = [scan.as_predicate() for scan in made]
    found = [scan.as_predicate() for scan in scans]
    if any(item not in expected for item in found):
        text = "the vulnerability statement is not about the scan that the audit gate made"
        trail.refuse("scan", text, reason="vulns")
    elif any(item not in found for item in expected):
        text = "the audit gate made a scan; its statement is not there"
        trail.refuse("scan", text, reason="predicate-missing")


def _check_findings(
    question: Question,
    scans: Iterable[Scan],
    statements: Sequence[tuple[dt.datetime, VexStatement]],
    trail: Trail,
) -> None:
    worst = question.rule.worst
    for finding in sorted({finding for scan in scans for finding in scan.findings}):
        severity = Severity(finding.severity or Severity.CRITICAL.value)
        about = f"{finding.id} applies to {finding.purl or 'a component'}"
        about += f" ({severity.value}{'' if finding.severity else ', since nobody says how bad it is'})"
        if not severity.exceeds(worst):
            trail.note(about)
        elif said := _set_aside(finding, question.digests, statements):
            trail.note(f"{about}; set aside by VEX: {said}")
        else:
            text = f"{about}; the policy lets {worst.value} pass"
            trail.refuse("worst", text, reason="vulnerable")
    trail.settle("worst", f"no finding above {worst.value} stands")


def _vex(question: Question, trail: Trail) -> list[tuple[dt.datetime, VexStatement]]:
    """VEX statements about the artifact by signers that the requirement names for it, with their signed times."""
    found: list[tuple[dt.datetime, VexStatement]] = []
    for item in question.case.attestations:
        if item.kind != VEX or not item.digests() & question.digests:
            continue
        answer = judge_signer(
            item.facts,
            question.policy,
            question.rule.vex_signers,
            question.circumstances,
            version=question.artifact.version,
        )
        if not isinstance(answer, Signer):
            trail.note(f"{item.path}: VEX that counts for nothing here: {answer[1]}")
            continue
        try:
            document = predicates.read_vex(item.predicate)
        except InputError as error:
            trail.refuse("vex_signers", f"{item.path}: {error.what}", reason=error.reason)
            continue
        found += ((item.facts.time, statement) for statement in document.statements)
    return found


def _set_aside(
    finding: Finding, sha256: frozenset[str], statements: Sequence[tuple[dt.datetime, VexStatement]]
) -> str:
    """What sets a finding aside: the latest word on it, if every statement of that moment does; else empty."""
    names = {finding.id, *finding.aliases}
    about = [
        ((time, statement.time), statement)
        for time, statement in statements
        if statement.names & names and statement.speaks_of(sha256, finding.purl)
    ]
    if not about:
        return ""
    latest = max(time for time, _statement in about)
    last = [statement for time, statement in about if time == latest]
    if not all(statement.sets_aside for statement in last):
        return ""
    why = last[0].justification.value if last[0].justification else last[0].status.value
    return f"{last[0].vulnerability} {why}"


def _check_age(question: Question, scans: Sequence[Scan], trail: Trail) -> None:
    """The newest data that was asked, by its own date; a later scan makes an older one good again."""
    limit, now = question.rule.advisory_age, question.circumstances.now
    if not limit:
        return
    updated = max(scan.database_updated for scan in scans)
    age = now - updated
    text = f"the advisory data is of {updated.date().isoformat()}; the limit is {limit} days"
    if updated > now:
        text = f"the advisory data is of {updated.date().isoformat()}, which is yet to come"
    if updated > now or age > dt.timedelta(days=limit):
        trail.refuse("advisory_age", text, reason="advisory-age")
        return
    trail.hold("advisory_age", text)


def _check_complete(
    question: Question, audits: Sequence[Evidence], services: Sequence[tuple[str, str]], trail: Trail
) -> None:
    """The evidence says of each component how it was asked, and lacks none that the SBOM has."""
    if not audits:
        text = (
            "nothing signed says which components the scan asked for: there is no evidence of its audit gate"
        )
        trail.refuse("complete", text, reason="scan-incomplete")
        return
    project = canonicalize_name(question.case.project)
    for audit in audits:
        asked = _asked(audit.details)
        if asked is None:
            text = "the audit gate's evidence does not say which components it asked for"
            trail.refuse("complete", text, reason="scan-incomplete")
            continue
        lacking = [f"{name} {version}" for name, version in services if (name, version) not in asked]
        lacking = [item for item in lacking if not project or item.partition(" ")[0] != project]
        lacking += _left_out(audit.details)
        if lacking:
            more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
            text = f"the scan did not ask for {', '.join(lacking[:_SHOWN])}{more}"
            trail.refuse("complete", text, reason="scan-incomplete")
    trail.settle("complete", "each component that has a service was asked for")


def _asked(details: Mapping[str, object]) -> frozenset[tuple[str, str]] | None:
    """Packages and versions that the gate asked for; ``None`` where its evidence does not list components."""
    components = details.get("components")
    if not isinstance(components, list) or not all(isinstance(item, Mapping) for item in components):
        return None
    return frozenset(
        (str(item.get("package", "")), str(item.get("version", "")))
        for item in components
        if item.get("answer") == _QUERIED
    )


def _left_out(details: Mapping[str, object]) -> list[str]:
    """What the gate says itself that no service answered for."""
    skipped, outside = details.get("skipped", []), details.get("outside_coverage", [])
    if not isinstance(skipped, list) or not isinstance(outside, list):
        return ["what its evidence does not say readably"]
    names = [item.get("package", item) if isinstance(item, Mapping) else item for item in skipped]
    return [str(name) for name in [*names, *outside]]


def _services(standing: Standing) -> Iterator[tuple[str, str]]:
    """Package and version of each component of the signed SBOMs that an advisory service can be asked for."""
    for item in standing.of(Predicate.SBOM):
        try:
            found = read_sbom(digests.canonical_json(dict(item.predicate)))
        except InputError:
            continue  # said where SBOMs are checked
        for component in found.components:
            name, _, version = component.purl.partition("?")[0].removeprefix(_PYPI).rpartition("@")
            if not component.purl.startswith(_PYPI) or not name:
                continue  # of another kind, or with a version that is chosen where it is installed
            yield canonicalize_name(unquote(name)), _public(unquote(version))


def _public(version: str) -> str:
    """As advisories know it: without a local label."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version
