"""``wheelmark plan``: what would be built here, what would not, and why."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

if TYPE_CHECKING:
    from wheelmark.pipeline import PlannedTarget

NAME = "plan"
HELP = "print what build would make on this machine, and what it cannot make and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments."""
    add_workspace_arguments(parser)


def _image_words(target: PlannedTarget) -> str:
    image = target.image
    if image is None or target.missing is not None:
        return "-"
    if image.missing is not None:
        return f"not here: {image.missing.reason}"
    return "build" if image.is_releasable else "build, not releasable"


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    from wheelmark.pipeline import make_plan, next_steps
    from wheelmark.pipeline.progress import table

    plan = make_plan(workspace_of(args))
    if args.json:
        print(json.dumps({"targets": [target.as_json() for target in plan.targets]}, indent=2))
        return 0
    rows = []
    for target in plan.targets:
        count = sum(len(names) for names in target.variants.values())
        state = "build" if target.missing is None else f"not here: {target.missing.reason}"
        rows.append(
            (
                str(target.row.target),
                f"{target.row.platform}_{target.row.host.value}",
                f"+{target.row.local}",
                str(count) if count else "-",
                target.row.torch_build.value,
                state,
                _image_words(target),
            )
        )
    print(table(("target", "platform", "label", "variants", "torch", "plan", "image"), rows))
    for step in next_steps((*plan.not_built, *plan.no_images)):
        print(f"\n{step}")
    for why in dict.fromkeys(target.image.stand_in for target in plan.targets if target.image):
        if why:
            print(f"\nnot releasable: {why}")
    return 0
