"""One artifact outside a release, judged with the bundles that were found for it: wheel, image or kernel pack."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from wheelmark import manifest
from wheelmark.attest.predicates import PROMOTION
from wheelmark.errors import ConfigError, InputError, WheelmarkError
from wheelmark.plainfiles import read_bounded
from wheelmark.verify.artifact import ArtifactFacts
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.case import Attestation, Case
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.evaluate import evaluate_artifact
from wheelmark.verify.facts import Examiner, Facts
from wheelmark.verify.gathering import BUNDLE
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.trail import Judgement
from wheelmark.verify.verdict import Accepted, Refusal, refusal

MAX_BUNDLES = 10_000
_NONE: Mapping[str, str] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where a bundle may be read from."""

    name: str
    """As the report names it."""
    read: Callable[[], bytes]
    meant: bool
    """Whether it is for this artifact (beside it, attached to it, or given) rather than found around it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examined:
    """A source that was read, and what it proves whatever the artifact is."""

    source: Source
    data: bytes = b""
    facts: Facts | None = None
    """``None`` for a signature over an artifact's digest, which has to be known first; and where there is an error."""
    error: WheelmarkError | None = None


def examine_sources(sources: Iterable[Source], examiner: Examiner) -> tuple[Examined, ...]:
    """Establish the facts of bundles; it can be done while the artifact itself is still being read.

    Args:
        sources: The bundles.
        examiner: With the policy's roots and keys.
    """
    return tuple(_examined(source, examiner) for source in sources)


def _examined(source: Source, examiner: Examiner) -> Examined:
    data = b""
    try:
        data = source.read()
        return Examined(source=source, data=data, facts=examiner.examine(data))
    except WheelmarkError as error:
        waits = error.reason == "statement-expected"
        return Examined(source=source, data=data, error=None if waits else error)


def judge_alone(
    artifact: ArtifactFacts,
    kind: Kind,
    bundles: Iterable[Examined],
    policy: Policy,
    *,
    examiner: Examiner,
    circumstances: Circumstances,
    members: Mapping[str, str] = _NONE,
) -> Judgement:
    """The judgement on one artifact.

    Args:
        artifact: What its bytes say.
        kind: Which requirements apply.
        bundles: Each that is meant for the artifact has to be about it.
        policy: Whom to trust and what to ask for.
        examiner: That examined the bundles.
        circumstances: The clock, the channel, and what this machine has seen.
        members: Further subject names -> sha256 that a statement has to be right about where it names them.

    Raises:
        ConfigError: The policy has no requirement for this kind and target in this channel.
    """
    try:
        rule = policy.requirement(kind, artifact.target, channel=circumstances.channel)
    except ConfigError:
        if not artifact.problems:
            raise
        # Its bytes do not say which requirement would apply, and none would take it.
        refused = tuple(refusal(artifact.path, item.reason, item.text) for item in artifact.problems)
        return Judgement(verdicts=refused, steps=())
    refusals: list[Refusal] = []
    attestations: list[Attestation] = []
    meant: list[Attestation] = []
    for item in bundles:
        source = item.source
        try:
            facts = _facts(item, examiner, artifact.sha256)
        except WheelmarkError as error:
            refusals.append(refusal(source.name, error.reason, error.what))
            continue
        attestations.append(Attestation(path=source.name, facts=facts))
        if source.meant:
            meant.append(attestations[-1])
        for name in _wrong(facts, members):
            text = f"it is about {name} with another sha256 than lies here"
            refusals.append(refusal(source.name, "subject-digest", text))
    for found in meant:
        if not (is_about(found.facts, artifact) or _is_promotion(found, artifact, attestations)):
            what = artifact.name or artifact.path
            text = f"it is not about {what} with sha256 {artifact.sha256}"
            refusals.append(refusal(found.path, "subject-digest", text))
    case = Case(
        artifact=artifact,
        target=artifact.target,
        attestations=tuple(attestations),
        project=artifact.project,
    )
    judged = evaluate_artifact(case, rule, policy, circumstances)
    if not refusals:
        return judged
    kept = tuple(item for item in judged.verdicts if not isinstance(item, Accepted))
    return Judgement(verdicts=(*refusals, *kept), steps=judged.steps)


def _facts(item: Examined, examiner: Examiner, artifact: str) -> Facts:
    if item.error is not None:
        raise item.error
    return item.facts or examiner.examine(item.data, artifact=artifact)


def is_about(facts: Facts, artifact: ArtifactFacts) -> bool:
    """Whether a bundle speaks of an artifact: by name, or by the digest of it or of what holds it by digest."""
    same = {artifact.sha256, *artifact.linked_from}
    if facts.statement is None:
        return facts.artifact_sha256 in same
    return any(
        subject.sha256 in same or (artifact.name and subject.name == artifact.name)
        for subject in facts.statement.subjects
    )


def _is_promotion(item: Attestation, artifact: ArtifactFacts, found: Iterable[Attestation]) -> bool:
    """Whether it promotes a release that one of the statements about the artifact is about as well."""
    releases = {
        subject.sha256
        for other in found
        if other.facts.statement is not None and is_about(other.facts, artifact)
        for subject in other.facts.statement.subjects
        if subject.name == manifest.NAME
    }
    return item.kind == PROMOTION and bool(item.digests() & releases)


def _wrong(facts: Facts, members: Mapping[str, str]) -> list[str]:
    subjects = facts.statement.subjects if facts.statement is not None else ()
    return [item.name for item in subjects if members.get(item.name, item.sha256) != item.sha256]


def files(paths: Iterable[Path], *, meant: bool) -> Iterator[Source]:
    """Bundle files as sources."""
    for path in paths:
        yield Source(name=path.name, read=lambda path=path: read_bounded(path, LIMITS.size), meant=meant)  # type: ignore[misc]


def beside(path: Path) -> Sequence[Path]:
    """The bundle beside a file, where there is one."""
    found = path.with_name(path.name + BUNDLE)
    return [found] if os.path.lexists(found) else []


def around(release: Path) -> Sequence[Path]:
    """The bundles of a release directory; none where it is no release.

    Raises:
        InputError: There are too many (``input-limit``).
    """
    if not os.path.isfile(release / manifest.NAME):  # noqa: PTH113 - Path.is_file raises for names that are too long
        return []
    found = sorted((release / "bundles").glob(f"*{BUNDLE}"))
    if len(found) > MAX_BUNDLES:
        raise InputError(f"{release} holds {len(found):,} bundles", reason="input-limit")
    return found
