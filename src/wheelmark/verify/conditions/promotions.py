"""Channels: a promotion by the right signer, for this channel and this release, that has not run out (rows 31, 33)."""

from __future__ import annotations

import dataclasses

from packaging.utils import canonicalize_name

from wheelmark.attest import predicates
from wheelmark.attest.predicates import PROMOTION, Promotion
from wheelmark.errors import InputError
from wheelmark.verify.case import Attestation, Question, Standing
from wheelmark.verify.conditions.always import releases_of
from wheelmark.verify.policy import Signer
from wheelmark.verify.signers import judge_signer
from wheelmark.verify.trail import Trail


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failure:
    """Why one promotion does not count."""

    path: str
    reason: str
    text: str


def check_promotion(question: Question, standing: Standing, trail: Trail) -> Promotion | None:
    """The newest promotion that lets the artifact into the requirement's channel; ``None`` without a channel.

    One that counts is enough: promotions to other channels, or that have run out, may lie beside it. Where none
    counts, each of them is refused with what is wrong with it.
    """
    about = question.digests | releases_of(question, standing)
    found = [item for item in question.case.attestations if item.kind == PROMOTION and item.digests() & about]
    if not question.rule.channel:
        if found:
            trail.note(f"{len(found)} promotions lie there; no channel was asked for")
        return None
    answers = [_judge(item, question) for item in found]
    counting = [answer for answer in answers if isinstance(answer, Promotion)]
    if counting:
        best = max(counting, key=lambda item: item.sequence)
        text = f"promoted to {best.key} as number {best.sequence} until {best.expires.isoformat()}"
        trail.hold("channel", text)
        return best
    for failure in (answer for answer in answers if isinstance(answer, _Failure)):
        trail.refuse("channel", f"{failure.path}: {failure.text}", reason=failure.reason)
    if not answers:
        text = f"no promotion to channel {question.rule.channel!r} is about this artifact or its release"
        trail.refuse("channel", text, reason="promotion-missing")
    return None


def _judge(item: Attestation, question: Question) -> Promotion | _Failure:
    rule, circumstances = question.rule, question.circumstances
    signer = judge_signer(
        item.facts, question.policy, rule.promoters, circumstances, version=question.artifact.version
    )
    if not isinstance(signer, Signer):
        reason, text = signer
        # What is wrong with clock or root is not the signer's doing, and has its own answer.
        code = reason if reason in {"clock-behind", "root-age"} else "promotion-signer"
        return _Failure(path=item.path, reason=code, text=text)
    try:
        found = predicates.read_promotion(item.predicate)
    except InputError as error:
        return _Failure(path=item.path, reason=error.reason, text=error.what)
    project = canonicalize_name(question.case.project) if question.case.project else found.project
    asked = f"{project}/{rule.channel}"
    if found.key != asked:
        return _Failure(
            path=item.path, reason="promotion-channel", text=f"it is for {found.key}, not for {asked}"
        )
    if circumstances.now > found.expires:
        return _Failure(
            path=item.path, reason="promotion-expired", text=f"it ran out at {found.expires.isoformat()}"
        )
    highest = circumstances.sequences.get(found.key, 0)
    if found.sequence < highest:
        return _Failure(
            path=item.path,
            reason="promotion-rollback",
            text=f"it is number {found.sequence}; number {highest} was accepted here before",
        )
    return found
