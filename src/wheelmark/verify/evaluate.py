"""Evaluation: facts, policy and circumstances in, a judgement out. Pure: no file, no network, no time of its own.

A statement counts for an artifact when its subject has the artifact's digest under the artifact's name, when the
root that verified may vouch for the certificate's issuer, and when a signer that the requirement names, under that
root, signed it. Everything else is a refusal that says which of these failed. Then each key of the requirement is
applied to what counts; what was asked and what was found is written down, step by step.
"""

from __future__ import annotations

from wheelmark.attest.predicates import Promotion
from wheelmark.verify.case import Attestation, Case, Question, Standing
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.conditions import (
    always,
    boms,
    gates,
    images,
    machines,
    promotions,
    provenance,
    scans,
    statements,
)
from wheelmark.verify.conditions.gates import Tested
from wheelmark.verify.policy import Policy, Requirement
from wheelmark.verify.signers import judge_signer
from wheelmark.verify.trail import Judgement, Trail
from wheelmark.verify.verdict import Accepted

__all__ = ["Attestation", "Case", "Judgement", "evaluate_artifact", "judge_signer"]


def evaluate_artifact(
    case: Case, rule: Requirement, policy: Policy, circumstances: Circumstances
) -> Judgement:
    """The judgement on one artifact: one ``Accepted``, or every refusal.

    Args:
        case: What is known of the artifact.
        rule: The requirement that it has to meet.
        policy: The policy that the rule is of.
        circumstances: The clock, the channel, and what this machine has seen.
    """
    question = Question(case=case, rule=rule, policy=policy, circumstances=circumstances)
    trail = Trail(case.artifact.path, case.artifact.sha256, rule=question.rule_name)
    always.check_bytes(question, trail)
    always.check_clock(circumstances, trail)
    standing = statements.sort_statements(question, trail)
    always.check_denials(policy, always.digests_of(question, standing), trail)
    statements.check_predicates(question, standing, trail)
    provenance.check_provenance(question, standing, trail)
    boms.check_sboms(question, standing, trail)
    tested = gates.check_tests(question, standing, trail)
    scans.check_scans(question, standing, tested.results, trail)
    machines.check_machines(question, trail)
    images.check_asked(question, standing, trail)
    images.check_image(question, trail)
    promotion = promotions.check_promotion(question, standing, trail)
    if not standing.counted and not trail.refusals:
        trail.refuse("predicates", "no statement of a signer that counts is there", reason="no-bundle")
    if trail.refusals:
        return Judgement(verdicts=trail.refusals, steps=trail.steps)
    accepted = _accept(question, standing, tested, promotion, trail)
    return Judgement(verdicts=(accepted,), steps=trail.steps)


def _accept(
    question: Question, standing: Standing, tested: Tested, promotion: Promotion | None, trail: Trail
) -> Accepted:
    last = max(standing.counted, key=lambda item: item.attestation.facts.time)
    facts = last.attestation.facts
    root = question.policy.root(facts.root)
    fields = sorted({field for item in standing.counted for field in item.attestation.facts.unauthenticated})
    if fields:
        trail.note(f"nothing authenticates: {', '.join(fields)}")
    return Accepted(
        subject=question.artifact.path,
        sha256=question.artifact.sha256,
        level=root.level,
        root=root.name,
        signer=last.signer.name,
        identity=facts.identity or facts.key_id,
        issuer=facts.issuer,
        time=facts.time,
        predicates=tuple(sorted({item.attestation.kind for item in standing.counted})),
        evidence=dict(tested.words),
        notes=trail.notes,
        target=question.artifact.target if question.artifact.is_image else "",
        platform=question.artifact.runs_as,
        promotion=promotion.key if promotion else "",
        sequence=promotion.sequence if promotion else 0,
    )
