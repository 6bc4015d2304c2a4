"""Row 35 and known vulnerabilities: how bad, how old, whether all was asked, and what VEX sets aside."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest

from judging import AT, RUNNER, TIME, Bench, facts, gates, provenance, results, sbom, scanned, subject
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import VEX, Scan
from wheelmark.attest.statement import Statement, Subject
from wheelmark.attest.vex import Justification, Product, Status, Vex, VexStatement
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.sign import embedded
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.evaluate import Judgement
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Predicate, Severity, Signer
from wheelmark.verify.verdict import Accepted

CRITICAL = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
LOW = "CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N"
PURL = "pkg:pypi/x@1"


def finding(
    name: str = "CVE-1", score: str = "", aliases: Sequence[str] = (), package: str = "x"
) -> dict[str, Any]:
    value: dict[str, Any] = {"package": package, "version": "1", "id": name, "aliases": list(aliases)}
    if score:
        value["severities"] = [{"method": "CVSS_V3", "score": score}]
    return value


def audit_of(
    bench: Bench, *found: dict[str, Any], date: str = "2026-05-30", **details: Any
) -> list[Evidence]:
    says = {
        "service": {"source": "osv", "date": date},
        "components": [{"component": PURL, "answer": "queried", "package": "x", "version": "1"}],
        "vulnerabilities": list(found),
        **details,
    }
    verdict = Verdict.FAILED if found else Verdict.PASSED
    change = {
        "verdict": verdict,
        "level": Level.STATIC,
        "reason": "audit-vulnerable" if found else "",
        "details": {name: value for name, value in says.items() if value is not None},
        "environment": {"pip-audit": "2.9.0", "asked": "2026-06-01T00:00:00Z"},
    }
    return gates(bench.made, audit=change)


def asking(bench: Bench, **changes: Any) -> Bench:
    return bench.asking(predicates=(*bench.rule.predicates, Predicate.VULNERABILITIES), **changes)


def judged(
    bench: Bench,
    evidence: list[Evidence],
    *further: Facts,
    at: Circumstances = AT,
) -> Judgement:
    """With the scan that the audit gate made, signed."""
    audit = next(item for item in evidence if item.gate == "audit")
    made = Scan.of(audit)
    changed = dataclasses.replace(bench, made=dataclasses.replace(bench.made, evidence=evidence))
    found = [
        facts(provenance(bench.made)),
        facts(sbom(changed.made)),
        facts(results(bench.made, evidence)),
        *([scanned(bench.made, made)] if made else []),
        *further,
    ]
    return changed.judge(found, at)


def scan_of(evidence: list[Evidence]) -> Scan:
    made = Scan.of(next(item for item in evidence if item.gate == "audit"))
    assert made is not None
    return made


def reasons(judgement: Judgement) -> set[str]:
    return {verdict.reason for verdict in judgement.verdicts if not isinstance(verdict, Accepted)}


@pytest.mark.parametrize(
    ("score", "worst", "good"),
    [
        (CRITICAL, Severity.CRITICAL, True),
        (CRITICAL, Severity.HIGH, False),
        (LOW, Severity.LOW, True),
        (LOW, Severity.NONE, False),
        ("", Severity.HIGH, False),
        ("", Severity.CRITICAL, True),
        ("CVSS:3.1/garbage", Severity.HIGH, False),
    ],
)
def test_a_finding_that_is_worse_than_the_policy_lets_pass_is_refused(
    bench: Bench, score: str, worst: Severity, good: bool
) -> None:
    found = judged(asking(bench, worst=worst), audit_of(bench, finding(score=score)))
    assert reasons(found) == (set() if good else {"vulnerable"})
    if good:
        (verdict,) = found.verdicts
        assert isinstance(verdict, Accepted)
        assert any("CVE-1 applies to pkg:pypi/x@1" in note for note in verdict.notes)


def test_a_gate_that_failed_by_findings_counts_where_the_policy_asks_for_no_scan(bench: Bench) -> None:
    lenient = bench.asking(worst=Severity.CRITICAL)
    assert reasons(judged(lenient, audit_of(bench, finding(score=LOW)))) == {"gate-failed"}
    evidence = audit_of(bench, finding(score=LOW))
    other = [
        dataclasses.replace(item, reason="audit-skipped") if item.gate == "audit" else item
        for item in evidence
    ]
    assert "gate-failed" in reasons(judged(asking(bench, worst=Severity.CRITICAL), other))


def test_one_that_failed_by_findings_hides_none_that_failed_otherwise(bench: Bench) -> None:
    by_findings = audit_of(bench, finding(score=LOW))
    otherwise = gates(
        bench.made, audit={"verdict": Verdict.FAILED, "level": Level.STATIC, "reason": "audit-skipped"}
    )
    tolerant = asking(bench, worst=Severity.CRITICAL)
    alone: dict[str, Any] = {"documents": None, "evidence_files": None, "levels": None}
    both = [facts(results(bench.made, by_findings)), facts(results(bench.made, otherwise))]
    rest = [*bench.good()[:2], scanned(bench.made, scan_of(by_findings))]
    tolerant.accepts([*rest, both[0]], **alone)
    for order in (both, both[::-1]):
        assert tolerant.refuses([*rest, *order], **alone) == {"gate-failed"}


def test_a_finding_of_the_gate_counts_though_no_statement_has_it(bench: Bench) -> None:
    evidence = audit_of(bench, finding())
    clean = scanned(bench.made, Scan.of(next(i for i in audit_of(bench) if i.gate == "audit")))  # type: ignore[arg-type]
    found = asking(bench).judge(
        [*bench.good()[:2], facts(results(bench.made, evidence)), clean],
        documents=None,
        evidence_files=None,
        levels=None,
    )
    assert reasons(found) == {"vulnerable", "scan-incomplete"}


# The age of the data, not of the run.
@row(35, "advisory-age")
@pytest.mark.parametrize(
    ("date", "limit", "good"),
    [
        ("2026-06-01", 1, True),
        ("2026-05-31", 3, True),
        ("2026-05-31", 2, False),
        ("2026-05-31", 0, True),
        ("2020-01-01", 0, True),
        ("2026-06-03", 30, False),
        ("9999-12-31", 30, False),
    ],
)
def test_old_advisory_data_is_refused(bench: Bench, date: str, limit: int, good: bool) -> None:
    at = Circumstances(now=dt.datetime(2026, 6, 2, 12, tzinfo=dt.UTC))
    if limit == 1:
        at = Circumstances(now=dt.datetime(2026, 6, 2, 0, 0, 0, tzinfo=dt.UTC))
    found = judged(asking(bench, advisory_age=limit), audit_of(bench, date=date), at=at)
    assert reasons(found) == (set() if good else {"advisory-age"})


def test_a_later_scan_makes_an_older_one_good_again(bench: Bench) -> None:
    old, new = audit_of(bench, date="2026-01-01"), audit_of(bench, date="2026-06-01")
    later = facts(results(bench.made, [item for item in new if item.gate == "audit"]))
    fresh = scanned(bench.made, scan_of(new))
    alone: dict[str, Any] = {"documents": None, "evidence_files": None, "levels": None}
    first = [*bench.good()[:2], facts(results(bench.made, old)), scanned(bench.made, scan_of(old))]
    weekly = asking(bench, advisory_age=7)
    assert weekly.refuses(first, **alone) == {"advisory-age"}
    weekly.accepts([*first, later, fresh], **alone)
    # It says nothing about the older one's findings.
    bad = audit_of(bench, finding(), date="2026-01-01")
    first = [*bench.good()[:2], facts(results(bench.made, bad)), scanned(bench.made, scan_of(bad))]
    assert weekly.refuses([*first, later, fresh], **alone) == {"vulnerable"}


# Everything that has a service was asked.
def with_component(bench: Bench, purl: str) -> bytes:
    document = json.loads(bench.made.sbom)
    document["components"].append(
        {
            "type": "library",
            "bom-ref": purl,
            "name": "y",
            "version": "2",
            "purl": purl,
            "properties": [{"name": "wheelmark:role", "value": "dependency"}],
        }
    )
    return digests.canonical_json(document)


@row(35, "scan-incomplete")
@pytest.mark.parametrize(
    ("purl", "good"),
    [
        ("pkg:pypi/x@1", True),
        ("pkg:pypi/X@1", True),
        ("pkg:pypi/x@1%2Bcpu?file=x.whl", True),
        ("pkg:pypi/demo-kernels@0.1.0", True),
        ("pkg:pypi/torch", True),
        ("pkg:deb/debian/libc6@2.36", True),
        ("pkg:pypi/y@2", False),
        ("pkg:pypi/x@2", False),
        ("pkg:pypi/x@later", False),
    ],
)
def test_a_component_that_was_not_asked_for_is_refused(bench: Bench, purl: str, good: bool) -> None:
    document = with_component(bench, purl)
    evidence = audit_of(bench)
    scan = scan_of(evidence)
    found = asking(bench).judge(
        [
            facts(provenance(bench.made)),
            facts(sbom(bench.made, document)),
            facts(results(bench.made, evidence)),
            scanned(bench.made, scan),
        ],
        documents=(document,),
        evidence_files=None,
        levels=None,
        project="Demo_Kernels",
    )
    assert reasons(found) == (set() if good else {"scan-incomplete"})


def test_a_malformed_sbom_is_refused_for_itself(bench: Bench) -> None:
    evidence = audit_of(bench)
    broken = facts(sbom(bench.made, b'{"bomFormat":"CycloneDX","specVersion":"1.4"}'))
    found = [*bench.good()[:1], broken, facts(results(bench.made, evidence))]
    found.append(scanned(bench.made, scan_of(evidence)))
    alone: dict[str, Any] = {"documents": None, "evidence_files": None, "levels": None}
    assert asking(bench).refuses(found, **alone) == {"sbom-format"}


@row(35, "scan-incomplete")
@pytest.mark.parametrize(
    "details",
    [
        {"components": None},
        {"components": "all"},
        {"components": ["x"]},
        {"skipped": [{"package": "x 1", "why": "not found"}]},
        {"skipped": ["x"]},
        {"skipped": "x"},
        {"outside_coverage": ["x"]},
        {"outside_coverage": {"x": 1}},
    ],
)
def test_a_scan_that_left_something_out_is_refused(bench: Bench, details: dict[str, Any]) -> None:
    assert reasons(judged(asking(bench), audit_of(bench, **details))) == {"scan-incomplete"}


def test_a_long_list_of_what_was_left_out_is_cut(bench: Bench) -> None:
    found = judged(asking(bench), audit_of(bench, outside_coverage=[f"p{i}" for i in range(9)]))
    (verdict,) = found.verdicts
    assert not isinstance(verdict, Accepted)
    assert verdict.text.endswith("p4 and 4 more")


def test_a_scan_of_which_nothing_says_what_it_asked_for_is_refused(bench: Bench) -> None:
    scan = scan_of(audit_of(bench))
    only = asking(bench).asking(
        predicates=(Predicate.PROVENANCE, Predicate.VULNERABILITIES), gates=(), levels={}, unchecked=()
    )
    found = [facts(provenance(bench.made)), scanned(bench.made, scan)]
    alone: dict[str, Any] = {"documents": None, "evidence_files": None, "levels": None}
    assert only.refuses(found, **alone) == {"scan-incomplete"}


# VEX.
VEX_IDENTITY = "https://embedded.invalid/wheelmark/runner/security"


def vex(
    bench: Bench, *said: VexStatement, identity: str = VEX_IDENTITY, after: int = 0, **subjects: str
) -> Facts:
    document = Vex(id="https://example.org/vex/1", author="security", time=TIME, statements=said)
    statement = Statement(
        subjects=subject(bench.made, **subjects), predicate_type=VEX, predicate=document.as_predicate()
    )
    return facts(statement, identity=identity, times=(TIME + dt.timedelta(seconds=after),))


def says(status: Status = Status.NOT_AFFECTED, name: str = "CVE-1", **changes: Any) -> VexStatement:
    made = VexStatement(
        vulnerability=name,
        status=status,
        time=TIME,
        justification=Justification.NOT_IN_EXECUTE_PATH if status is Status.NOT_AFFECTED else None,
        action="upgrade" if status is Status.AFFECTED else "",
    )
    return dataclasses.replace(made, **changes)


def with_vex(bench: Bench) -> Bench:
    security = Signer(name="security", root="embedded", issuer=embedded.ISSUER, identity=VEX_IDENTITY)
    return asking(bench.naming(security), vex_signers=("security",))


@pytest.mark.parametrize(
    ("statements", "good"),
    [
        ([says()], True),
        ([says(Status.FIXED)], True),
        ([says(name="GHSA-1")], True),
        ([says(name="PYSEC-9", aliases=("CVE-1",))], True),
        ([says(products=(Product(id="w", sha256="SELF"),))], True),
        ([says(products=(Product(id="w", sha256="SELF", components=("pkg:pypi/a@1", PURL)),))], True),
        ([says(Status.AFFECTED)], False),
        ([says(Status.UNDER_INVESTIGATION)], False),
        ([says(name="CVE-2")], False),
        ([says(name="cve-1")], False),
        ([says(products=(Product(id="w", sha256="0" * 64),))], False),
        ([says(products=(Product(id=PURL),))], False),
        ([says(products=(Product(id="w", sha256="SELF", components=("pkg:pypi/x@2",)),))], False),
        # The latest word of one document, and two of one moment that contradict each other.
        ([says(Status.AFFECTED), says(time=TIME + dt.timedelta(days=1))], True),
        ([says(), says(Status.AFFECTED, time=TIME + dt.timedelta(days=1))], False),
        ([says(), says(Status.UNDER_INVESTIGATION)], False),
    ],
)
def test_vex_sets_a_finding_aside_only_where_it_says_so(
    bench: Bench, statements: list[VexStatement], good: bool
) -> None:
    about_us = [
        dataclasses.replace(
            item,
            products=tuple(
                dataclasses.replace(product, sha256=product.sha256.replace("SELF", bench.made.sha256))
                for product in item.products
            ),
        )
        for item in statements
    ]
    evidence = audit_of(bench, finding(aliases=["GHSA-1"]))
    found = judged(with_vex(bench), evidence, vex(bench, *about_us))
    assert reasons(found) == (set() if good else {"vulnerable"})
    if good:
        (verdict,) = found.verdicts
        assert isinstance(verdict, Accepted)
        assert any("set aside by VEX" in note for note in verdict.notes)


def test_the_latest_signature_has_the_last_word(bench: Bench) -> None:
    evidence = audit_of(bench, finding())
    first, second = vex(bench, says()), vex(bench, says(Status.AFFECTED), after=10)
    assert reasons(judged(with_vex(bench), evidence, first, second)) == {"vulnerable"}
    assert reasons(judged(with_vex(bench), evidence, second, first)) == {"vulnerable"}
    third = vex(bench, says(Status.FIXED), after=20)
    assert reasons(judged(with_vex(bench), evidence, first, third, second)) == set()


def test_one_vex_sets_one_finding_aside(bench: Bench) -> None:
    evidence = audit_of(bench, finding(), finding("CVE-7"))
    found = judged(with_vex(bench), evidence, vex(bench, says()))
    assert [verdict.text.split()[0] for verdict in found.verdicts if not isinstance(verdict, Accepted)] == [
        "CVE-7"
    ]


@pytest.mark.parametrize("identity", [embedded.RELEASE_IDENTITY, RUNNER, "somebody@example.org"])
def test_vex_by_anybody_else_counts_for_nothing_and_is_told(bench: Bench, identity: str) -> None:
    other = vex(bench, says(), identity=identity)
    assert reasons(judged(with_vex(bench), audit_of(bench, finding()), other)) == {"vulnerable"}
    (verdict,) = judged(with_vex(bench), audit_of(bench), other).verdicts
    assert isinstance(verdict, Accepted)
    assert any("VEX that counts for nothing here" in note for note in verdict.notes)


def test_vex_about_something_else_counts_for_nothing(bench: Bench) -> None:
    evidence = audit_of(bench, finding())
    assert reasons(judged(with_vex(bench), evidence, vex(bench, says(), sha256="0" * 64))) == {"vulnerable"}
    # It is found by digest: a name that somebody else gave these bytes is no matter.
    assert reasons(judged(with_vex(bench), evidence, vex(bench, says(), name="pkg:pypi/demo"))) == set()


def test_malformed_vex_of_a_signer_that_counts_is_refused(bench: Bench) -> None:
    about = (Subject(name=bench.made.name, sha256=bench.made.sha256),)
    broken = facts(Statement(subjects=about, predicate_type=VEX, predicate={}), identity=VEX_IDENTITY)
    assert reasons(judged(with_vex(bench), audit_of(bench), broken)) == {"vex"}
    stranger = dataclasses.replace(broken, identity="somebody@example.org")
    assert reasons(judged(with_vex(bench), audit_of(bench), stranger)) == set()
