"""A policy's own examples, run: what it has to answer, and what it does answer."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.verify.policy.model import Example, Policy
from wheelmark.verify.verdict import Report, exit_code, refusal

Verify = Callable[[Example, dt.datetime], Report]
"""Verifies what an example names, at a time, under the policy."""

_ANSWERS = {
    Exit.OK: "ACCEPT",
    Exit.REJECTED: "REJECT",
    Exit.MISSING: "MISSING",
    Exit.UNCHECKED: "UNCHECKED",
    Exit.INPUT: "INPUT",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One example, run."""

    name: str
    expected: str
    """The answer, with the reason code where the example names one."""
    found: str
    """The answer, with every reason code."""
    holds: bool

    def as_json(self) -> dict[str, Any]:
        """The outcome for ``--json``."""
        return dataclasses.asdict(self)


def run_examples(policy: Policy, verify: Verify, *, now: dt.datetime) -> tuple[Outcome, ...]:
    """Run every example of a policy.

    Args:
        policy: The policy.
        verify: How an example is verified.
        now: The clock of the examples that have none of their own.

    Raises:
        ConfigError: There are none (``policy-empty``).
    """
    if not policy.examples:
        raise ConfigError(
            f"policy {policy.source} has no [[example]]",
            cause="a test of nothing would pass",
            fix="add an artifact that it has to accept, and a near miss that it has to refuse",
            reason="policy-empty",
        )
    return tuple(_run(example, verify, now) for example in policy.examples)


def _run(example: Example, verify: Verify, now: dt.datetime) -> Outcome:
    at = dt.datetime.fromisoformat(example.at) if example.at else now
    try:
        report = verify(example, at)
        answer, codes = _ANSWERS[report.exit_code], report.reasons()
    except ConfigError as error:
        answer, codes = "CONFIG", (error.reason,)
    except InputError as error:
        # As ``wheelmark verify`` makes a refusal of it.
        answer = _ANSWERS[exit_code(refusal(str(example.path), error.reason, error.what))]
        codes = (error.reason,)
    holds = answer == example.answer and (not example.reason or example.reason in codes)
    return Outcome(
        name=example.name,
        expected=f"{example.answer} {example.reason}".strip(),
        found=f"{answer} {' '.join(dict.fromkeys(codes))}".strip(),
        holds=holds,
    )
