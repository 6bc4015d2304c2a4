"""Evaluation: facts, policy and clock in, verdicts out. Pure: no file, no network, no time of its own.

A statement counts for a wheel when its subject has the wheel's digest under the wheel's file name, when the
root that verified may vouch for the certificate's issuer, and when a signer that the requirement names, under
that root, signed it. Everything else is a refusal that says which of these failed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

from wheelmark import digests
from wheelmark.attest import predicates
from wheelmark.attest.predicates import Scan, TestResult
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level
from wheelmark.evidence import Verdict as GateVerdict
from wheelmark.verify import sbom
from wheelmark.verify.artifact import ArtifactFacts
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Policy, Predicate, Requirement, Signer
from wheelmark.verify.verdict import Accepted, Refusal, Verdict, refusal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attestation:
    """A bundle that verified, and where it was found."""

    path: str
    facts: Facts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that is known of one artifact."""

    artifact: ArtifactFacts
    target: str
    """As the release says; empty for a wheel alone."""
    attestations: tuple[Attestation, ...]
    """Those found for this wheel, and in a release all of them."""
    document: bytes | None = None
    """The SBOM beside it; ``None`` for a wheel alone."""
    evidence_files: Mapping[str, str] | None = None
    """Gate -> sha256 of its evidence file; ``None`` for a wheel alone."""
    levels: Mapping[str, str] | None = None
    """Gate -> word, as ``release.json`` says; ``None`` for a wheel alone."""


def judge_signer(
    facts: Facts, policy: Policy, allowed: Sequence[str], now: dt.datetime
) -> Signer | tuple[str, str]:
    """The signer rule that a bundle's facts match.

    Args:
        facts: Of the bundle.
        policy: The policy.
        allowed: Names of the signer rules that count.
        now: The verifier's clock.

    Returns:
        The rule, or reason code and text of why there is none.
    """
    root = policy.root(facts.root)
    if facts.issuer not in root.issuers:
        return (
            "issuer-not-vouched",
            f"root {root.name!r} may not vouch for issuer {facts.issuer!r}; it may for {', '.join(root.issuers)}",
        )
    here = [signer for signer in policy.signers if signer.root == facts.root]
    same = [signer for signer in here if signer.identity == facts.identity]
    matching = [signer for signer in same if signer.issuer == facts.issuer]
    if not same:
        return (
            "signer-identity",
            f"signed by {facts.identity!r}, whom the policy does not name under root {root.name!r}",
        )
    if not matching:
        return (
            "signer-issuer",
            f"{facts.identity!r} comes from issuer {facts.issuer!r}; the policy names {same[0].issuer!r}",
        )
    counting = [signer for signer in matching if signer.name in allowed]
    if not counting:
        return (
            "signer-not-allowed",
            f"signer {matching[0].name!r} is not one of those that count here: {', '.join(allowed)}",
        )
    if now < facts.time:
        return (
            "clock-behind",
            f"signed at {facts.time.isoformat()}, and the clock says {now.isoformat()}: one of them is wrong",
        )
    return counting[0]


def evaluate_artifact(case: Case, rule: Requirement, policy: Policy, now: dt.datetime) -> tuple[Verdict, ...]:
    """The verdict on one artifact: one ``Accepted``, or every refusal.

    Args:
        case: What is known of the wheel.
        rule: The requirement that it has to meet.
        policy: The policy that the rule is of.
        now: The verifier's clock.
    """
    return _Evaluation(case, rule, policy, now).run()


class _Evaluation:
    """One wheel under one requirement; refusals are gathered, so that a reader sees them all."""

    def __init__(self, case: Case, rule: Requirement, policy: Policy, now: dt.datetime) -> None:
        self._case = case
        self._artifact = case.artifact
        self._rule = rule
        self._policy = policy
        self._now = now
        self._refusals: list[Refusal] = []
        self._signed: list[tuple[Facts, Signer]] = []
        self._evidence: dict[str, str] = {}
        self._notes: list[str] = []

    def run(self) -> tuple[Verdict, ...]:
        for problem in self._artifact.problems:
            self._refuse(problem.reason, problem.text)
        about = [item for item in self._case.attestations if self._is_about(item)]
        counting: dict[str, list[Facts]] = {}
        for item in about:
            answer = judge_signer(item.facts, self._policy, self._rule.signers, self._now)
            kind = item.facts.statement.predicate_type if item.facts.statement else ""
            if isinstance(answer, Signer):
                counting.setdefault(kind, []).append(item.facts)
                self._signed.append((item.facts, answer))
            elif not self._by_runner(item.facts):
                self._refuse(answer[0], f"{item.path}: {answer[1]}")
        for predicate in self._rule.predicates:
            if not counting.get(predicate.uri):
                code = "predicate-missing" if self._case.attestations else "no-bundle"
                self._refuse(
                    code, f"no {predicate.value} statement of a signer that counts is about this wheel"
                )
        self._check_provenance(counting.get(Predicate.PROVENANCE.uri, []))
        self._check_sbom(counting.get(Predicate.SBOM.uri, []))
        self._check_runners(about)
        results = self._check_tests(counting.get(Predicate.TEST_RESULT.uri, []), about)
        self._check_scan(counting.get(Predicate.VULNERABILITIES.uri, []), results)
        if self._refusals:
            return tuple(self._refusals)
        return (self._accept(sorted(counting)),)

    def _refuse(self, reason: str, text: str) -> None:
        self._refusals.append(refusal(self._artifact.path, reason, text))

    def _is_about(self, item: Attestation) -> bool:
        """Whether a statement is about this wheel: by digest and by name, or a refusal (rows 1, 19, 32)."""
        statement = item.facts.statement
        if statement is None:
            if item.facts.artifact_sha256 == self._artifact.sha256:
                self._notes.append(f"{item.path} is a bare signature and says nothing of how this was made")
            return False
        named = [subject for subject in statement.subjects if subject.name == self._artifact.name]
        same = [subject for subject in statement.subjects if subject.sha256 == self._artifact.sha256]
        if named and named[0].sha256 == self._artifact.sha256:
            return True
        if named:
            self._refuse(
                "subject-digest",
                f"{item.path} is about {self._artifact.name} with sha256 {named[0].sha256}; "
                f"this file has {self._artifact.sha256}",
            )
        elif same:
            self._refuse("subject-name", f"{item.path} is about these bytes as {same[0].name!r}")
        return False

    def _by_runner(self, facts: Facts) -> bool:
        kind = facts.statement.predicate_type if facts.statement else ""
        answer = judge_signer(facts, self._policy, self._rule.runners, self._now)
        return kind == Predicate.TEST_RESULT.uri and isinstance(answer, Signer)

    def _check_provenance(self, found: Iterable[Facts]) -> None:
        for facts in found:
            try:
                predicates.read_provenance(_predicate(facts))
            except InputError as error:
                self._refuse(error.reason, error.what)

    def _check_sbom(self, found: Iterable[Facts]) -> None:
        for facts in found:
            predicate = _predicate(facts)
            for problem in sbom.check_description(predicate, self._artifact):
                self._refuse(problem.reason, problem.text)
            document = self._case.document
            if document is not None and not sbom.same_document(predicate, document):
                self._refuse(
                    "sbom-document", "the signed SBOM does not say what the document in the release says"
                )

    def _check_tests(self, found: Sequence[Facts], about: Sequence[Attestation]) -> list[TestResult]:
        results = []
        for facts in found:
            try:
                result = predicates.read_test_result(_predicate(facts))
            except InputError as error:
                self._refuse(error.reason, error.what)
                continue
            results.append(result)
            if result.subject != self._artifact.sha256:
                self._refuse("subject-digest", f"the test result's evidence is about {result.subject}")
            if self._case.target and result.evidence[0].target != self._case.target:
                self._refuse(
                    "target",
                    f"the test result is for {result.evidence[0].target}; the release says {self._case.target}",
                )
            self._compare_with_release(result)
            confirmed = self._confirmed(about) if any(item.imported for item in result.evidence) else ()
            for gate in sorted({*self._rule.gates, *(item.gate for item in result.evidence)}):
                self._check_gate(gate, result.gate(gate), confirmed)
        return results

    def _compare_with_release(self, result: TestResult) -> None:
        files = self._case.evidence_files
        signed = {
            item.gate: digests.sha256(digests.canonical_json(item.as_json())) for item in result.evidence
        }
        if files is not None and signed != files:
            odd = sorted(gate for gate in {*signed, *files} if signed.get(gate) != files.get(gate))
            self._refuse(
                "evidence-file", f"evidence files differ from the signed test result: {', '.join(odd)}"
            )
        words = {item.gate: f"{item.verdict.value}@{item.level.value}" for item in result.evidence}
        if self._case.levels is not None and words != dict(self._case.levels):
            self._refuse("levels", "release.json states other verdicts or levels than the signed test result")

    def _confirmed(self, about: Sequence[Attestation]) -> tuple[Evidence, ...]:
        """Evidence that a runner signed itself, about this wheel."""
        found: list[Evidence] = []
        for item in about:
            if not self._by_runner(item.facts):
                continue
            try:
                found += predicates.read_test_result(_predicate(item.facts)).evidence
            except InputError as error:
                self._refuse(error.reason, f"{item.path}: {error.what}")
        return tuple(found)

    def _check_runners(self, about: Sequence[Attestation]) -> None:
        """A runner's own FAILED counts, also where the signer's result does not speak of it (row 34)."""
        for evidence in self._confirmed(about):
            if evidence.verdict is GateVerdict.FAILED and evidence.subject == self._artifact.sha256:
                self._refuse("gate-failed", f"a runner found that {evidence.gate} FAILED: {evidence.summary}")

    def _check_gate(self, gate: str, evidence: Evidence | None, confirmed: tuple[Evidence, ...]) -> None:
        if evidence is None:
            self._refuse("gate-missing", f"gate {gate} has no result")
            return
        level = evidence.level
        # What another machine found counts as inspected only, unless that machine's own signature says so.
        own = dataclasses.replace(evidence, imported=False)
        if evidence.imported and own not in confirmed and level.at_least(Level.STATIC):
            level = Level.STATIC
        self._evidence[gate] = f"{evidence.verdict.value}@{level.value}"
        match evidence.verdict:
            case GateVerdict.FAILED:
                self._refuse("gate-failed", f"gate {gate} FAILED: {evidence.summary}")
            case GateVerdict.UNCHECKED if gate in self._rule.unchecked or gate not in self._rule.gates:
                self._notes.append(f"gate {gate} is UNCHECKED ({evidence.reason}): {evidence.summary}")
            case GateVerdict.UNCHECKED:
                self._refuse(
                    "gate-unchecked", f"gate {gate} is UNCHECKED ({evidence.reason}): {evidence.summary}"
                )
            case GateVerdict.PASSED:
                lowest = self._rule.lowest(gate)
                if gate in self._rule.gates and not level.at_least(lowest):
                    self._refuse(
                        "level-too-low",
                        f"gate {gate} PASSED at level {level.value}; the policy asks for {lowest.value}",
                    )

    def _check_scan(self, found: Sequence[Facts], results: Sequence[TestResult]) -> None:
        scans = []
        for facts in found:
            try:
                scans.append(predicates.read_vulns(_predicate(facts)))
            except InputError as error:
                self._refuse(error.reason, error.what)
        if Predicate.VULNERABILITIES in self._rule.predicates:
            for advisory in sorted({finding.id for scan in scans for finding in scan.findings}):
                self._refuse("vulnerable", f"{advisory} applies to a component of this wheel")
        for result in results:
            try:
                made = Scan.of(audit) if (audit := result.gate("audit")) else None
            except InputError as error:
                self._refuse(error.reason, error.what)
                continue
            # A scan that was made has its own statement; one that vanished, or another one, is bad evidence.
            expected = made.as_predicate() if made is not None else None
            if self._case.evidence_files is not None and any(
                scan.as_predicate() != expected for scan in scans
            ):
                self._refuse(
                    "vulns", "the vulnerability statement is not about the scan that the audit gate made"
                )
            elif self._case.evidence_files is not None and made is not None and not scans:
                self._refuse("predicate-missing", "the audit gate made a scan; its statement is not there")

    def _accept(self, kinds: Sequence[str]) -> Accepted:
        facts, signer = max(self._signed, key=lambda pair: pair[0].time)
        root = self._policy.root(facts.root)
        fields = sorted({field for item, _signer in self._signed for field in item.unauthenticated})
        if fields:
            self._notes.append(f"nothing authenticates: {', '.join(fields)}")
        return Accepted(
            subject=self._artifact.path,
            sha256=self._artifact.sha256,
            level=root.level,
            root=root.name,
            signer=signer.name,
            identity=facts.identity,
            issuer=facts.issuer,
            time=facts.time,
            predicates=tuple(kinds),
            evidence=dict(self._evidence),
            notes=tuple(self._notes),
        )


def _predicate(facts: Facts) -> Mapping[str, object]:
    """The predicate of a statement; those without one were sorted out before."""
    return facts.statement.predicate if facts.statement else {}
