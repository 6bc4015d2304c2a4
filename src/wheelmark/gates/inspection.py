"""What the gates that only look share: the wheel, read once and bound to its digest, and problems as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from wheelmark.binaries.kernelmanifest import FOLDER
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.context import Context

_SHOWN = 50
"""Problems that evidence lists; the number of all of them is always given."""


def open_wheel(context: Context) -> Wheel:
    """The wheel under test.

    Raises:
        InputError: It cannot be read as a wheel, or is not the one that the context is about
            (reason ``other-bytes``).
    """
    wheel = read_wheel(context.wheel)
    if wheel.sha256 != context.sha256:
        raise InputError(
            f"{context.wheel.name} is not the wheel that evidence is to be bound to", reason="other-bytes"
        )
    return wheel


def code_folder(context: Context) -> PurePosixPath:
    """The folder of the wheel that may hold code objects."""
    return PurePosixPath(context.declaration.project.import_name) / FOLDER


def refused(context: Context, gate: str, error: InputError) -> Evidence:
    """FAILED, because the wheel or something in it could not be read."""
    return context.evidence(
        gate,
        Verdict.FAILED,
        Level.STATIC,
        error.what,
        reason=error.reason,
        details={"problems": [error.what]},
    )


def judged(
    context: Context, gate: str, problems: Sequence[Problem], *, summary: str, details: Mapping[str, Any]
) -> Evidence:
    """PASSED where there is no problem; else FAILED with the first one's reason, and all that were found."""
    if not problems:
        return context.evidence(gate, Verdict.PASSED, Level.STATIC, summary, details=details)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return context.evidence(
        gate,
        Verdict.FAILED,
        Level.STATIC,
        problems[0].text + more,
        reason=problems[0].reason,
        details={
            **details,
            "problem_count": len(problems),
            "problems": [{"reason": problem.reason, "text": problem.text} for problem in problems[:_SHOWN]],
        },
    )
