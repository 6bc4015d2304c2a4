"""``wheelmark test``: the second stage."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "test"
HELP = "run every declared gate on the very bytes in the release directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments."""
    add_workspace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the gates, print a table, and fail if any gate FAILED."""
    from wheelmark.errors import Exit
    from wheelmark.evidence import Verdict
    from wheelmark.pipeline import Progress, test
    from wheelmark.pipeline.progress import seconds, table

    results = test(workspace_of(args), Progress())
    failed = [item for item in results if item.evidence.verdict is Verdict.FAILED]
    if args.json:
        print(json.dumps({"evidence": [item.evidence.as_json() for item in results]}, indent=2))
    else:
        rows = [
            (
                item.evidence.target,
                item.evidence.gate,
                item.evidence.verdict.value,
                item.evidence.level.value,
                textwrap.shorten(item.evidence.summary, 82, placeholder=" …"),
                seconds(item.seconds) + (" (earlier)" if item.resumed else ""),
            )
            for item in results
        ]
        print(table(("target", "gate", "verdict", "level", "what was found", "time"), rows))
        counts = {v: sum(item.evidence.verdict is v for item in results) for v in Verdict}
        print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    for item in failed:
        print(f"FAILED {item.evidence.target} {item.evidence.gate}: {item.evidence.summary}", file=sys.stderr)
    return int(Exit.GATE if failed else Exit.OK)
