"""``wheelmark gate``: the gates of a target on a wheel that was built elsewhere."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

NAME = "gate"
HELP = "run a target's gates on a wheel that was built elsewhere (cibuildwheel); evidence says by which route it came"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The wheel, its target, its route, and where the evidence goes."""
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--target", required=True, metavar="ID", help="the target that it is for")
    parser.add_argument(
        "--route",
        action="append",
        required=True,
        metavar="NAME=VALUE",
        help="how it was built, for the evidence; `route=…` has to be among them",
    )
    parser.add_argument(
        "--second", type=Path, metavar="WHEEL", help="built again by the same route: the repeat gate compares"
    )
    parser.add_argument(
        "--gates", default="", metavar="NAMES", help="comma-separated (default: all that need only the wheel)"
    )
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="where evidence is written")
    parser.add_argument(
        "--project", type=Path, metavar="DIR", help="folder of wheelmark.toml (default: here)"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="caches (default: $WHEELMARK_CACHE, else .wheelmark)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the gates; exit code 10 if one FAILED."""
    from wheelmark.errors import Exit
    from wheelmark.evidence import Verdict
    from wheelmark.pipeline import Progress, open_workspace
    from wheelmark.pipeline.elsewhere import GATES, gate_wheel
    from wheelmark.pipeline.progress import table
    from wheelmark.targets import Target

    workspace = open_workspace(project=args.project, cache=args.cache)
    found = gate_wheel(
        workspace,
        args.wheel,
        workspace.declaration.row(Target.parse(args.target)),
        route=dict(item.partition("=")[::2] for item in args.route),
        second=args.second,
        gates=args.gates.split(",") if args.gates else GATES,
        progress=Progress(),
    )
    for evidence in found if args.evidence else ():
        path = args.evidence / f"{evidence.gate}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(evidence.as_json(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps({"evidence": [evidence.as_json() for evidence in found]}, indent=2))
    else:
        rows = [(item.gate, item.verdict.value, item.level.value, item.summary) for item in found]
        print(table(("gate", "verdict", "level", "summary"), rows))
    failed = [item for item in found if item.verdict is Verdict.FAILED]
    for evidence in failed:
        print(f"FAILED {evidence.target} {evidence.gate}: {evidence.summary}", file=sys.stderr)
    return int(Exit.GATE if failed else Exit.OK)
