"""What the gates found: verdicts, levels, and whose word another machine's evidence is (rows 34 and 41)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import assert_never

from wheelmark import digests
from wheelmark.attest import predicates
from wheelmark.attest.predicates import TestResult
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.verify.case import Question, Standing
from wheelmark.verify.policy import Predicate, Requirement
from wheelmark.verify.trail import Trail

AUDITS = ("audit", "image-audit")
"""The gates that ask an advisory service: of wheels, of images."""
_VULNERABLE = "audit-vulnerable"
_WEIGHT = {Verdict.UNCHECKED: 0, Verdict.PASSED: 1, Verdict.FAILED: 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tested:
    """What the signed test results say."""

    results: tuple[TestResult, ...]
    words: Mapping[str, str]
    """Gate -> ``<VERDICT>@<level>``, the level being what it counts as here."""


def check_tests(question: Question, standing: Standing, trail: Trail) -> Tested:
    """Every counting test result against the requirement, and against what the release states."""
    confirmed = _confirmed(question, standing, trail)
    results = []
    found: dict[str, list[Evidence]] = {gate: [] for gate in question.gates}
    for item in standing.of(Predicate.TEST_RESULT):
        try:
            result = predicates.read_test_result(item.predicate)
        except InputError as error:
            trail.refuse("gates", f"{item.path}: {error.what}", reason=error.reason)
            continue
        results.append(result)
        _check_subject(question, result, trail)
        _compare_with_release(question, result, trail)
        for evidence in result.evidence:
            counts = dataclasses.replace(evidence, level=_level(evidence, confirmed))
            found.setdefault(evidence.gate, []).append(counts)
    words: dict[str, str] = {}
    for gate, several in sorted(found.items()) if results else ():
        if not several:
            trail.refuse(f"gates.{gate}", f"gate {gate} has no result", reason="gate-missing")
            continue
        # Of several results about these bytes each FAILED one counts, else the strongest: one audited later, for instance.
        last = max(several, key=lambda item: (_WEIGHT[item.verdict], item.level.rank))
        words[gate] = f"{last.verdict.value}@{last.level.value}"
        for evidence in [item for item in several if item.verdict is Verdict.FAILED] or [last]:
            _check_gate(question, evidence, trail)
    return Tested(results=tuple(results), words=words)


def _confirmed(question: Question, standing: Standing, trail: Trail) -> tuple[Evidence, ...]:
    """Evidence that a runner signed itself, about this artifact; its FAILED counts in any case."""
    found: list[Evidence] = []
    for item in standing.runners:
        try:
            found += predicates.read_test_result(item.predicate).evidence
        except InputError as error:
            trail.refuse("runners", f"{item.path}: {error.what}", reason=error.reason)
    for evidence in found:
        if evidence.verdict is Verdict.FAILED and evidence.subject in question.digests:
            text = f"a runner found that {evidence.gate} FAILED: {evidence.summary}"
            trail.refuse("runners", text, reason="gate-failed")
    return tuple(found)


def _level(evidence: Evidence, confirmed: Sequence[Evidence]) -> Level:
    """What another machine found counts as inspected only, unless that machine's own signature says so."""
    own = dataclasses.replace(evidence, imported=False)
    if evidence.imported and own not in confirmed and evidence.level.at_least(Level.STATIC):
        return Level.STATIC
    return evidence.level


def _check_subject(question: Question, result: TestResult, trail: Trail) -> None:
    if result.subject not in question.digests:
        text = f"the test result's evidence is about {result.subject}"
        trail.refuse("subject", text, reason="subject-digest")
    target = question.case.target
    if target and result.evidence[0].target != target:
        text = f"the test result is for {result.evidence[0].target}; the release says {target}"
        trail.refuse("target", text, reason="target")


def _compare_with_release(question: Question, result: TestResult, trail: Trail) -> None:
    files = question.case.evidence_files
    signed = {item.gate: digests.sha256(digests.canonical_json(item.as_json())) for item in result.evidence}
    if files is not None and signed != files:
        odd = sorted(gate for gate in {*signed, *files} if signed.get(gate) != files.get(gate))
        text = f"evidence files differ from the signed test result: {', '.join(odd)}"
        trail.refuse("evidence", text, reason="evidence-file")
    words = {item.gate: f"{item.verdict.value}@{item.level.value}" for item in result.evidence}
    if question.case.levels is not None and words != dict(question.case.levels):
        text = "release.json states other verdicts or levels than the signed test result"
        trail.refuse("evidence", text, reason="levels")


def _check_gate(question: Question, evidence: Evidence, trail: Trail) -> None:
    rule, gate, level, condition = question.rule, evidence.gate, evidence.level, f"gates.{evidence.gate}"
    asked = gate in question.gates
    match evidence.verdict:
        case Verdict.FAILED if _is_for_findings(rule, evidence):
            trail.hold(condition, f"gate {gate} FAILED by its findings; worst and vex_signers judge each")
        case Verdict.FAILED:
            trail.refuse(condition, f"gate {gate} FAILED: {evidence.summary}", reason="gate-failed")
        case Verdict.UNCHECKED:
            text = f"gate {gate} is UNCHECKED ({evidence.reason}): {evidence.summary}"
            if asked and gate not in rule.unchecked:
                trail.refuse(condition, text, reason="gate-unchecked")
                return
            trail.note(text)
            trail.hold(condition, f"{text}; the policy lets that pass")
        case Verdict.PASSED:
            lowest = rule.lowest(gate)
            text = f"gate {gate} PASSED at level {level.value}; the policy asks for "
            if asked and not level.at_least(lowest):
                trail.refuse(condition, text + lowest.value, reason="level-too-low")
                return
            trail.hold(condition, text + (lowest.value if asked else "nothing of it"))
        case verdict:
            assert_never(verdict)


def _is_for_findings(rule: Requirement, evidence: Evidence) -> bool:
    """Whether a gate failed for nothing but known vulnerabilities, and the policy says itself how bad one may be."""
    return (
        evidence.gate in AUDITS
        and evidence.reason == _VULNERABLE
        and Predicate.VULNERABILITIES in rule.predicates
    )
