"""The trail of one evaluation: what was asked, what held, what did not, and what a reader should know."""

from __future__ import annotations

import dataclasses

from wheelmark.verify.verdict import Refusal, Step, Verdict, refusal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """The answer on one artifact."""

    verdicts: tuple[Verdict, ...]
    """One ``Accepted``, or every refusal."""
    steps: tuple[Step, ...]
    """Every condition that was applied, in order."""


class Trail:
    """Gathers refusals, notes and steps of one subject, so that a reader sees them all and not the first.

    Args:
        subject: How the report names it.
        sha256: Its digest.
        rule: The part of the policy that is applied where a step names no other.
    """

    def __init__(self, subject: str, sha256: str, *, rule: str) -> None:
        self._subject = subject
        self._sha256 = sha256
        self._rule = rule
        self._steps: list[Step] = []
        self._refusals: list[Refusal] = []
        self._notes: list[str] = []

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every refusal until now."""
        return tuple(self._refusals)

    @property
    def notes(self) -> tuple[str, ...]:
        """Every note until now."""
        return tuple(self._notes)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step until now."""
        return tuple(self._steps)

    def refuse(self, condition: str, text: str, *, reason: str, rule: str = "") -> None:
        """A condition does not hold.

        Args:
            condition: Key of the policy, or what is always asked.
            text: What was asked for and what was found.
            reason: Code of ``wheelmark.verify.reasons``.
            rule: The part of the policy, where it is not the requirement.
        """
        self._refusals.append(refusal(self._subject, reason, text, sha256=self._sha256))
        self._step(condition, text, rule=rule, holds=False)

    def hold(self, condition: str, text: str, *, rule: str = "") -> None:
        """A condition holds."""
        self._step(condition, text, rule=rule, holds=True)

    def settle(self, condition: str, text: str, *, rule: str = "") -> None:
        """A condition holds, unless something was refused for it before."""
        if all(step.holds or step.condition != condition for step in self._steps):
            self.hold(condition, text, rule=rule)

    def note(self, text: str) -> None:
        """Something that a reader should know, of no weight for the verdict."""
        self._notes.append(text)

    def _step(self, condition: str, text: str, *, rule: str, holds: bool) -> None:
        self._steps.append(
            Step(subject=self._subject, rule=rule or self._rule, condition=condition, holds=holds, text=text)
        )
