"""``wheelmark test``: the second stage."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

if TYPE_CHECKING:
    from wheelmark.pipeline import Gated, GatedImage

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
    from wheelmark.pipeline.progress import table

    tested = test(workspace_of(args), Progress())
    results = tested.all
    failed = [item for item in results if item.evidence.verdict is Verdict.FAILED]
    if args.json:
        print(json.dumps({"evidence": [item.evidence.as_json() for item in results]}, indent=2))
    else:
        print(table(*_matrix(tested.wheels)))
        if tested.images:
            print(table(*_matrix(tested.images)))
        print("(a level: PASSED at that level)")
        for line in _exceptions(results):
            print(line)
        counts = {v: sum(item.evidence.verdict is v for item in results) for v in Verdict}
        print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    for item in failed:
        print(f"FAILED {item.evidence.target} {item.evidence.gate}: {item.evidence.summary}", file=sys.stderr)
    return int(Exit.GATE if failed else Exit.OK)


def _matrix(results: Sequence[Gated | GatedImage]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """One row a target, one column a gate: the level where it PASSED, else the verdict."""
    from wheelmark.evidence import Verdict
    from wheelmark.pipeline.progress import seconds

    gates = tuple(dict.fromkeys(item.evidence.gate for item in results))
    rows: dict[str, dict[str, str]] = {}
    times: dict[str, float] = {}
    for item in results:
        evidence = item.evidence
        word = evidence.level.value if evidence.verdict is Verdict.PASSED else evidence.verdict.value
        rows.setdefault(evidence.target, {})[evidence.gate] = word
        times[evidence.target] = times.get(evidence.target, 0.0) + (0.0 if item.resumed else item.seconds)
    body = [
        (target, *(cells.get(gate, "-") for gate in gates), seconds(times[target]))
        for target, cells in rows.items()
    ]
    return ("target", *gates, "time"), body


def _exceptions(results: Sequence[Gated | GatedImage]) -> list[str]:
    """What did not pass, said once for all targets that have it in common."""
    from wheelmark.evidence import Verdict

    common: dict[tuple[str, str, str], list[str]] = {}
    for item in results:
        evidence = item.evidence
        if evidence.verdict is not Verdict.PASSED:
            key = (evidence.verdict.value, evidence.gate, evidence.summary)
            common.setdefault(key, []).append(evidence.target)
    return [
        textwrap.fill(
            f"{verdict} {gate}: {summary} ({', '.join(targets)})",
            width=110,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for (verdict, gate, summary), targets in common.items()
    ]
