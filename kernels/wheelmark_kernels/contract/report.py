"""The JSON report that every subcommand writes."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

SCHEMA: Final = 1
PASSED: Final = 0
FAILED: Final = 1
CANNOT_RUN: Final = 3
"""Exit code for "not on this machine", which is neither passed nor failed."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What came of one case."""

    name: str
    dtype: str
    passed: bool
    max_error: float | None = 0.0
    """The largest error, in the unit of the tolerance; None where a result was not finite."""
    tolerance: float = 0.0
    worst_index: tuple[int, ...] | None = None
    """Where the largest error lies in the result."""
    message: str = ""

    def __post_init__(self) -> None:
        if self.max_error is not None and not math.isfinite(self.max_error):
            object.__setattr__(self, "max_error", None)  # JSON has no infinity


def versions() -> dict[str, str]:
    """Versions that a reader of a result has to know."""
    try:
        package = importlib.metadata.version("wheelmark-kernels")
    except importlib.metadata.PackageNotFoundError:
        package = "not installed (source tree)"
    found = {
        "wheelmark_kernels": package,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.version.hip:
        found["hip"] = torch.version.hip
    return found


def write(destination: str, report: dict[str, Any]) -> None:
    """Write a report as one line of JSON with a newline.

    Args:
        destination: A file, or ``-`` for the standard output.
        report: Without ``schema`` and ``versions``, which are added.
    """
    text = json.dumps({"schema": SCHEMA, "versions": versions(), **report}, allow_nan=False) + "\n"
    if destination == "-":
        sys.stdout.write(text)
    else:
        Path(destination).write_text(text, encoding="utf-8")


def write_cases(destination: str, cases: Sequence[Case], **more: Any) -> int:
    """Write the report of a run that judges cases, and say on standard error what failed.

    Args:
        destination: A file, or ``-`` for the standard output.
        cases: At least one.
        **more: Other members of the report, such as ``dispatch``.

    Returns:
        The exit code: ``PASSED`` only if there are cases and all of them passed.
    """
    write(destination, {**more, "cases": [asdict(case) for case in cases]})
    failed = [case for case in cases if not case.passed]
    for case in failed[:20]:
        sys.stderr.write(
            f"FAILED {case.name}: error {case.max_error}, tolerance {case.tolerance}, "
            f"worst at {case.worst_index} {case.message}\n"
        )
    sys.stderr.write(f"{len(cases) - len(failed)} of {len(cases)} cases passed\n")
    return PASSED if cases and not failed else FAILED
