"""Facts of good and bad statements about one wheel, and the questions that a test puts about them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

from releasing import Part
from wheelmark import digests
from wheelmark.attest.predicates import (
    PROMOTION,
    PROVENANCE,
    SBOM,
    TEST_RESULT,
    VULNS,
    Promotion,
    Provenance,
    Scan,
    TestResult,
)
from wheelmark.attest.statement import Statement, Subject
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.manifest import NAME
from wheelmark.sign import embedded
from wheelmark.verify.artifact import WheelFacts
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.evaluate import Attestation, Case, Judgement, evaluate_artifact
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Policy, Requirement, Signer
from wheelmark.verify.verdict import Accepted

TIME = dt.datetime(2026, 6, 1, 12, 0, 0, tzinfo=dt.UTC)
NOW = TIME + dt.timedelta(days=1)
AT = Circumstances(now=NOW)
RUNNER = embedded.runner_identity("gpu-a")
RELEASE = "7" * 64
PROD = Circumstances(now=NOW, channel="prod")


def wheel_facts(made: Part, **changes: Any) -> WheelFacts:
    with zipfile.ZipFile(io.BytesIO(made.wheel)) as archive:
        files = {name: digests.sha256(archive.read(name)) for name in archive.namelist()}
    found = WheelFacts(
        path=f"wheels/{made.name}",
        name=made.name,
        sha256=made.sha256,
        size=len(made.wheel),
        version="0.1.0+cpu",
        files=files,
    )
    return dataclasses.replace(found, **changes)


def facts(statement: Statement | None, **changes: Any) -> Facts:
    made = Facts(
        bundle_sha256="0" * 64,
        root="embedded",
        identity=embedded.RELEASE_IDENTITY,
        issuer=embedded.ISSUER,
        claims={},
        certificate_sha256="1" * 64,
        times=(TIME,),
        log_origin="log",
        log_index=1,
        entry_kind="hashedrekord 0.0.2",
        statement=statement,
        payload=statement.as_bytes() if statement else b"",
        artifact_sha256="",
        unauthenticated=(),
    )
    return dataclasses.replace(made, **changes)


def subject(made: Part, **changes: str) -> tuple[Subject, ...]:
    return (Subject(name=changes.get("name", made.name), sha256=changes.get("sha256", made.sha256)),)


def provenance(made: Part, **changes: str) -> Statement:
    predicate = Provenance(external_parameters={}, resolved_dependencies=(), builder_id="https://b.example/1")
    return Statement(
        subjects=subject(made, **changes), predicate_type=PROVENANCE, predicate=predicate.as_predicate()
    )


def sbom(made: Part, document: bytes | None = None, **changes: str) -> Statement:
    value = json.loads(made.sbom if document is None else document)
    return Statement(subjects=subject(made, **changes), predicate_type=SBOM, predicate=value)


def results(made: Part, evidence: Sequence[Evidence] | None = None, **changes: str) -> Statement:
    result = TestResult.of(made.evidence if evidence is None else evidence)
    return Statement(
        subjects=subject(made, **changes), predicate_type=TEST_RESULT, predicate=result.as_predicate()
    )


def case(made: Part, wheel: WheelFacts, *attestations: Facts, **changes: Any) -> Case:
    everything = Case(
        artifact=wheel,
        target=made.target,
        attestations=tuple(Attestation(path=f"bundles/{i}", facts=f) for i, f in enumerate(attestations)),
        documents=(made.sbom,),
        evidence_files={e.gate: digests.sha256(digests.canonical_json(e.as_json())) for e in made.evidence},
        levels={e.gate: f"{e.verdict.value}@{e.level.value}" for e in made.evidence},
    )
    return dataclasses.replace(everything, **changes)


def all_three(made: Part) -> list[Facts]:
    return [facts(provenance(made)), facts(sbom(made)), facts(results(made))]


def reasons(case: Case, rule: Requirement, policy: Policy, at: Circumstances = AT) -> set[str]:
    verdicts = evaluate_artifact(case, rule, policy, at).verdicts
    assert verdicts
    assert not any(isinstance(verdict, Accepted) for verdict in verdicts)
    return {verdict.reason for verdict in verdicts if not isinstance(verdict, Accepted)}


def with_runner(policy: Policy, rule: Requirement) -> tuple[Policy, Requirement]:
    runner = Signer(name="gpu-a", root="embedded", issuer=embedded.ISSUER, identity=RUNNER)
    rules = tuple(dataclasses.replace(item, runners=("gpu-a",)) for item in (rule,))
    return dataclasses.replace(policy, signers=(*policy.signers, runner), requirements=rules), rules[0]


def gates(made: Part, **changes: dict[str, Any]) -> list[Evidence]:
    return [dataclasses.replace(item, **changes.get(item.gate, {})) for item in made.evidence]


def under(made: Part, evidence: list[Evidence]) -> tuple[Part, list[Facts]]:
    changed = dataclasses.replace(made, evidence=evidence)
    return changed, [facts(provenance(made)), facts(sbom(made)), facts(results(made, evidence))]


def audited(made: Part, *ids: str) -> list[Evidence]:
    details = {
        "service": {"source": "osv", "date": "2026-05-01"},
        "components": [{"component": "pkg:pypi/x@1", "answer": "queried", "package": "x", "version": "1"}],
        "vulnerabilities": [{"package": "x", "version": "1", "id": name, "aliases": []} for name in ids],
    }
    environment = {"pip-audit": "2.9.0", "asked": "2026-05-02T00:00:00Z"}
    passed = {"verdict": Verdict.PASSED, "level": Level.STATIC, "reason": ""}
    return gates(made, audit={**passed, "details": details, "environment": environment})


def scan(made: Part, *ids: str) -> Scan:
    audit = next(item for item in audited(made, *ids) if item.gate == "audit")
    found = Scan.of(audit)
    assert found is not None
    return found


def scanned(made: Part, found: Scan) -> Facts:
    return facts(Statement(subjects=subject(made), predicate_type=VULNS, predicate=found.as_predicate()))


def promotion(**changes: Any) -> Promotion:
    made = Promotion(
        verifier_id="https://example.org/promoter",
        time=TIME,
        project="demo-kernels",
        channel="prod",
        policy_sha256="c" * 64,
        sequence=5,
        expires=NOW + dt.timedelta(days=7),
    )
    return dataclasses.replace(made, **changes)


def promoted(
    said: Promotion | None = None, *, name: str = NAME, sha256: str = RELEASE, **changes: Any
) -> Facts:
    predicate = (said or promotion()).as_predicate()
    statement = Statement(
        subjects=(Subject(name=name, sha256=sha256),), predicate_type=PROMOTION, predicate=predicate
    )
    return facts(statement, **{"identity": RUNNER, **changes})


@dataclasses.dataclass(frozen=True)
class Bench:
    """One good wheel under one requirement; a test changes one thing."""

    made: Part
    wheel: WheelFacts
    rule: Requirement
    policy: Policy

    def asking(self, **changes: Any) -> Bench:
        """With another requirement."""
        return dataclasses.replace(self, rule=dataclasses.replace(self.rule, **changes))

    def under(self, **changes: Any) -> Bench:
        """With another policy."""
        return dataclasses.replace(self, policy=dataclasses.replace(self.policy, **changes))

    def of(self, **changes: Any) -> Bench:
        """With other bytes."""
        return dataclasses.replace(self, wheel=dataclasses.replace(self.wheel, **changes))

    def naming(self, *signers: Signer) -> Bench:
        """With further signers."""
        return self.under(signers=(*self.policy.signers, *signers))

    def good(self) -> list[Facts]:
        return all_three(self.made)

    def judge(
        self, attestations: Sequence[Facts] | None = None, at: Circumstances = AT, **changes: Any
    ) -> Judgement:
        found = self.good() if attestations is None else attestations
        return evaluate_artifact(case(self.made, self.wheel, *found, **changes), self.rule, self.policy, at)

    def accepts(
        self, attestations: Sequence[Facts] | None = None, at: Circumstances = AT, **changes: Any
    ) -> Accepted:
        """The one verdict, which has to be acceptance."""
        (verdict,) = self.judge(attestations, at, **changes).verdicts
        assert isinstance(verdict, Accepted), verdict
        return verdict

    def refuses(
        self, attestations: Sequence[Facts] | None = None, at: Circumstances = AT, **changes: Any
    ) -> set[str]:
        """The reasons of a refusal, which it has to be."""
        judged = self.judge(attestations, at, **changes)
        assert judged.verdicts
        assert any(not step.holds for step in judged.steps)
        found = [verdict for verdict in judged.verdicts if not isinstance(verdict, Accepted)]
        assert len(found) == len(judged.verdicts)
        return {verdict.reason for verdict in found}
