"""One wheel, verified with the bundles found for it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelmark import manifest
from wheelmark.errors import ConfigError, InputError, WheelmarkError
from wheelmark.verify.artifact import WheelFacts, examine_wheel, read_bounded
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.evaluate import Attestation, Case, evaluate_artifact
from wheelmark.verify.facts import Examiner, Facts
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.release import BUNDLE
from wheelmark.verify.verdict import Accepted, Refusal, Report, Verdict, refusal

_MAX_BUNDLES = 10_000


def verify_one_wheel(path: Path, policy: Policy, *, now: dt.datetime, bundles: Sequence[Path] = ()) -> Report:
    """Verify a wheel with the bundle beside it, those given, and those of the release that it lies in.

    Args:
        path: The wheel.
        policy: Whom to trust and what to ask for.
        now: The verifier's clock, with a zone.
        bundles: Further bundles; each has to be about this wheel.

    Raises:
        InputError: The wheel cannot be read.
        ConfigError: The policy has no requirement for wheels of this target.
    """
    wheel = examine_wheel(path, subject=path.name)
    target = wheel.target
    try:
        rule = policy.requirement(Kind.WHEEL, target)
    except ConfigError:
        if not wheel.problems:
            raise
        # Its bytes do not say which requirement would apply, and none would take it.
        refused = tuple(refusal(wheel.path, item.reason, item.text) for item in wheel.problems)
        return Report(path=str(path), policy=policy.source, verdicts=refused)
    examiner = Examiner(policy.roots)
    refusals: list[Refusal] = []
    attestations: list[Attestation] = []
    for source, meant in _sources(path, bundles):
        try:
            facts = examiner.examine(read_bounded(source, LIMITS.size), artifact=wheel.sha256)
        except WheelmarkError as error:
            refusals.append(refusal(source.name, error.reason, error.what))
            continue
        attestations.append(Attestation(path=source.name, facts=facts))
        if meant and not _about(facts, wheel):
            refusals.append(
                refusal(
                    source.name, "subject-digest", f"it is not about {wheel.name} with sha256 {wheel.sha256}"
                )
            )
    case = Case(artifact=wheel, target=target, attestations=tuple(attestations))
    found: tuple[Verdict, ...] = evaluate_artifact(case, rule, policy, now)
    if refusals:
        found = tuple(item for item in found if not isinstance(item, Accepted))
    return Report(path=str(path), policy=policy.source, verdicts=(*refusals, *found))


def _sources(path: Path, given: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Bundles, and whether each is meant for this wheel (beside it or given) rather than found around it."""
    beside = path.with_name(path.name + BUNDLE)
    if os.path.isfile(beside):  # noqa: PTH113 - Path.is_file raises for names that are too long
        yield beside, True
    for bundle in given:
        yield bundle, True
    release = path.absolute().parent.parent
    if os.path.isfile(release / manifest.NAME):  # noqa: PTH113
        around = sorted((release / "bundles").glob(f"*{BUNDLE}"))
        if len(around) > _MAX_BUNDLES:
            raise InputError(f"{release} holds {len(around):,} bundles", reason="input-limit")
        yield from ((bundle, False) for bundle in around)


def _about(facts: Facts, wheel: WheelFacts) -> bool:
    if facts.statement is None:
        return facts.artifact_sha256 == wheel.sha256
    return any(
        subject.name == wheel.name or subject.sha256 == wheel.sha256 for subject in facts.statement.subjects
    )
