"""``wheelmark audit-log``: does every line of an audit log follow the one before?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

NAME = "audit-log"
HELP = "check the chain of an audit log: every line, and that each follows the one before"
_NEXT = "keep the file as it is for whoever looks into it; nothing from the line before that one on can be relied on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The log."""
    parser.add_argument("log", type=Path, metavar="FILE", help="what `--audit-log` named")


def run(args: argparse.Namespace) -> int:
    """Check; exit 0 where the chain is whole, 1 where it is not."""
    from wheelmark.errors import Exit
    from wheelmark.verify import AuditLog
    from wheelmark.verify.verdict import printable

    chain = AuditLog(args.log).examine()
    code = Exit.REJECTED if chain.bad_line else Exit.OK
    if args.json:
        document = {
            "exit_code": int(code),
            "log": str(args.log),
            "lines": chain.lines,
            "last_sha256": chain.last_sha256,
            "bad_line": chain.bad_line or None,
            "problem": chain.problem,
        }
        print(json.dumps(document, indent=2), flush=True)
    elif chain.bad_line:
        print(printable(f"{args.log}: BROKEN at line {chain.bad_line}: {chain.problem}"))
        print(f"  {chain.lines} lines before it follow one another")
        print(f"  next step:    {_NEXT}", flush=True)
    else:
        print(printable(f"{args.log}: {chain.lines} lines, unbroken"))
        if chain.lines:
            # What is done to the end leaves a whole chain: only this digest, kept elsewhere, shows that.
            print(f"  last line: sha256 {chain.last_sha256}", flush=True)
    return int(code)
