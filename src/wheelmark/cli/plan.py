"""``wheelmark plan``: what would be built here, what would not, and why."""

from __future__ import annotations

import argparse
import json

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "plan"
HELP = "print what build would make on this machine, and what it cannot make and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments."""
    add_workspace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    from wheelmark.pipeline import make_plan
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
            )
        )
    print(table(("target", "platform", "label", "variants", "torch", "plan"), rows))
    for item in plan.not_built:
        print(f"\n{item.target}: {item.fix}")
    return 0
