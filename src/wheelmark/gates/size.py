"""Size: the wheel against the declared budget, with what each file in it takes."""

from __future__ import annotations

from wheelmark.binaries.kernelobjects import Problem
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.gates.context import Context
from wheelmark.gates.inspection import judged, open_wheel, refused

NAME = "size"


def run(context: Context) -> Evidence:
    """Compare the wheel's bytes with ``gates.size_budget`` (reason ``over-budget``)."""
    try:
        wheel = open_wheel(context)
    except InputError as error:
        return refused(context, NAME, error)
    budget = context.declaration.gates.size_budget
    largest = sorted(wheel.files.items(), key=lambda item: (-item[1].compressed, item[0]))
    problems = []
    if wheel.size > budget:
        named = ", ".join(f"{path} {file.compressed:,}" for path, file in largest[:3])
        problems.append(
            Problem(
                reason="over-budget",
                text=f"{wheel.size:,} bytes; the budget is {budget:,}. Largest: {named}",
            )
        )
    return judged(
        context,
        NAME,
        problems,
        summary=f"{wheel.size:,} of {budget:,} bytes ({wheel.size / budget:.0%})",
        details={
            "size": wheel.size,
            "budget": budget,
            "files": {path: {"size": file.size, "in_wheel": file.compressed} for path, file in largest},
        },
    )
