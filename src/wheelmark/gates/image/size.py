"""Size: the image's own layers, compressed, against the recipe's budget. The dependencies' layer is not counted."""

from __future__ import annotations

from wheelmark.binaries.kernelobjects import Problem
from wheelmark.build.image import DEPENDENCIES
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.gates.image.context import ImageContext

NAME = "image-size"


def run(context: ImageContext) -> Evidence:
    """Compare with ``image.budget`` (reason ``over-budget``); a recipe without one has no limit."""
    try:
        sizes = {item.sha256: item.size for item in context.manifest().layers}
    except InputError as error:
        return context.refused(NAME, error)
    named = {name: sizes[sha256] for name, sha256 in context.layers.items()}
    counted = sum(size for name, size in named.items() if name != DEPENDENCIES)
    budget = context.recipe.image.budget
    problems = []
    if budget and counted > budget:
        largest = ", ".join(f"{name} {size:,}" for name, size in named.items() if name != DEPENDENCIES)
        problems.append(
            Problem(
                reason="over-budget",
                text=f"{counted:,} bytes without dependencies; the budget is {budget:,}: {largest}",
            )
        )
    of = f"of {budget:,} bytes ({counted / budget:.0%})" if budget else "bytes, no budget"
    return context.judged(
        NAME,
        problems,
        summary=f"{counted:,} {of} without dependencies; {sum(sizes.values()):,} with them",
        details={"budget": budget, "counted": counted, "layers": named},
    )
