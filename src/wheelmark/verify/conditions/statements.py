"""Which statements are about the artifact, and who has to answer for them (rows 1, 4 to 7, 16, 18, 19, 32, 40, 41).

A statement is about an artifact when its subject has the artifact's digest under the artifact's name. An artifact
without a name of its own (an image: a copy in another registry has another one) is found by its digest alone.
OpenVEX and promotions are sorted out before: they are found by digest, and by whom they count is theirs to say.
"""

from __future__ import annotations

from wheelmark.attest.predicates import PROMOTION, VEX
from wheelmark.verify.case import Attestation, Counted, Question, Standing
from wheelmark.verify.policy import Kind, Predicate, Signer
from wheelmark.verify.signers import judge_signer
from wheelmark.verify.trail import Trail

APART = frozenset({PROMOTION, VEX})
"""Predicate types whose statements are no evidence of their own: whose they are decides what they do."""


def sort_statements(question: Question, trail: Trail) -> Standing:
    """Sort what was found; a statement about the artifact by nobody who counts is refused."""
    counted: list[Counted] = []
    runners: list[Attestation] = []
    for item in question.case.attestations:
        if item.kind in APART or not _is_about(item, question, trail):
            continue
        if by_runner := _is_by_runner(item, question):
            runners.append(item)
        answer = _judge(item, question, question.rule.signers)
        if isinstance(answer, Signer):
            counted.append(Counted(attestation=item, signer=answer))
            trail.hold(
                "signers",
                f"{item.path} is signed by {item.facts.identity or item.facts.key_id}",
                rule=f"signer {answer.name!r}",
            )
        elif not by_runner:
            reason, text = answer
            trail.refuse("signers", f"{item.path}: {text}", reason=reason)
    return Standing(counted=tuple(counted), runners=tuple(runners))


def check_predicates(question: Question, standing: Standing, trail: Trail) -> None:
    """Every kind of statement that the requirement asks for is there (row 18)."""
    missing = "predicate-missing" if question.case.attestations else "no-bundle"
    where = ""
    if missing == "no-bundle" and question.rule.kind is not Kind.RELEASE:
        where = " (bundles lie beside it, are attached to it, or are given with --bundle)"
    for predicate in question.rule.predicates:
        found = standing.of(predicate)
        if found:
            trail.hold("predicates", f"{predicate.value}: {', '.join(item.path for item in found)}")
            continue
        trail.refuse(
            "predicates",
            f"no {predicate.value} statement of a signer that counts is about this artifact{where}",
            reason=missing,
        )


def _judge(item: Attestation, question: Question, allowed: tuple[str, ...]) -> Signer | tuple[str, str]:
    return judge_signer(
        item.facts, question.policy, allowed, question.circumstances, version=question.artifact.version
    )


def _is_by_runner(item: Attestation, question: Question) -> bool:
    if item.kind != Predicate.TEST_RESULT.uri:
        return False
    return isinstance(_judge(item, question, question.rule.runners), Signer)


def _is_about(item: Attestation, question: Question, trail: Trail) -> bool:
    """Whether a statement is about this artifact: by digest and by name, or a refusal."""
    artifact, statement = question.artifact, item.facts.statement
    if statement is None:
        if item.facts.artifact_sha256 in question.digests:
            trail.note(f"{item.path} is a bare signature and says nothing of how this was made")
        return False
    if not artifact.name:
        return bool(item.digests() & question.digests)
    named = [subject for subject in statement.subjects if subject.name == artifact.name]
    same = [subject for subject in statement.subjects if subject.sha256 == artifact.sha256]
    if named and named[0].sha256 == artifact.sha256:
        return True
    if named:
        trail.refuse(
            "subject",
            f"{item.path} is about {artifact.name} with sha256 {named[0].sha256}; this file has {artifact.sha256}",
            reason="subject-digest",
        )
    elif same:
        trail.refuse(
            "subject", f"{item.path} is about these bytes as {same[0].name!r}", reason="subject-name"
        )
    return False
