"""``wheelmark build``: the first stage."""

from __future__ import annotations

import argparse
import json

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "build"
HELP = "compile kernels and native code, assemble and describe the wheels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments."""
    add_workspace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Build, then print a table of what was built."""
    from wheelmark.pipeline import Progress, build, next_steps
    from wheelmark.pipeline.progress import seconds, size, table

    built = build(workspace_of(args), Progress())
    if args.json:
        print(json.dumps(built.as_json(), indent=2))
        return 0
    rows = [
        (wheel.target, wheel.path, size(wheel.size), wheel.sha256[:16], seconds(wheel.seconds))
        for wheel in built.wheels
    ]
    rows += [
        (
            image.target,
            f"images/{image.target}" + ("" if image.is_releasable else " (not releasable)"),
            size(image.size),
            image.sha256[:16],
            "kept" if image.resumed else seconds(image.seconds),
        )
        for image in built.images
    ]
    rows += [(item.target, f"not built: {item.reason}", "", "", "") for item in built.not_built]
    print(table(("target", "artifact", "size", "sha256", "time"), rows))
    for step in next_steps(built.not_built):
        print(step)
    for wheel in built.wheels:
        for name in wheel.left_out:
            print(f"{wheel.target}: optional variant {name} was refused for this arch and left out")
    for why in dict.fromkeys(image.stand_in for image in built.images if image.stand_in):
        print(f"not releasable: {why}")
    if built.snapshot:
        print("snapshot: built from a tree that no commit describes")
    return 0
