"""What is asked whatever the requirement says: the bytes themselves, the clock (row 39), the deny list (row 42)."""

from __future__ import annotations

from collections.abc import Iterable

from wheelmark import manifest
from wheelmark.verify.case import Question, Standing
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.policy import Policy, Predicate
from wheelmark.verify.trail import Trail


def check_bytes(question: Question, trail: Trail) -> None:
    """Everything that was found wrong with the bytes."""
    for problem in question.artifact.problems:
        trail.refuse("bytes", problem.text, reason=problem.reason, rule="always")
    trail.settle("bytes", f"sha256 {question.artifact.sha256}", rule="always")


def check_clock(circumstances: Circumstances, trail: Trail) -> None:
    """The clock is not behind what this machine has seen; signed times are compared where signers are judged."""
    now, last = circumstances.now, circumstances.last_seen
    if last is not None and circumstances.is_behind(last):
        text = f"the clock says {now.isoformat()}, and this machine has seen {last.isoformat()}: one of them is wrong"
        trail.refuse("clock", text, reason="clock-behind", rule="always")
    trail.settle("clock", f"it is {now.isoformat()}", rule="always")


def check_denials(policy: Policy, digests: Iterable[tuple[str, str]], trail: Trail) -> None:
    """Nothing of it is on the deny list.

    Args:
        policy: With the list.
        digests: sha256 and name of the subject, and of everything in it or around it that stands or falls with it.
        trail: What is written to.
    """
    found = dict(digests)
    for index, denial in enumerate(policy.denials):
        if denial.sha256 in found:
            text = f"{found[denial.sha256]} ({denial.sha256}) is denied: {denial.why}"
            trail.refuse("deny", text, reason="denied", rule=f"deny[{index}]")
    if policy.denials:
        trail.settle("deny", f"none of {len(policy.denials)} denied digests is in it", rule="deny")


def digests_of(question: Question, standing: Standing) -> list[tuple[str, str]]:
    """What a denial of an artifact may name: itself, what it holds, and the releases that it is of."""
    artifact = question.artifact
    inside = [(sha256, f"{path} in it") for path, sha256 in artifact.files.items()]
    around = [(sha256, f"its {manifest.NAME}") for sha256 in releases_of(question, standing)]
    holding = [(sha256, "what holds it") for sha256 in artifact.linked_from]
    return [*inside, *around, *holding, (artifact.sha256, "the artifact")]


def releases_of(question: Question, standing: Standing) -> frozenset[str]:
    """Digests of each ``release.json`` that signed evidence links the artifact to.

    In a release it is the one beside it, which the provenance is about as well (``wheelmark.verify.release``). An
    artifact alone is of the releases whose provenance names both.
    """
    linked = {
        subject.sha256
        for item in standing.of(Predicate.PROVENANCE)
        for subject in (item.facts.statement.subjects if item.facts.statement else ())
        if subject.name == manifest.NAME
    }
    return frozenset({question.case.release_sha256} - {""} or linked)
