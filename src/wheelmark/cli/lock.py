"""``wheelmark lock``: write the lock files, or say whether they are up to date."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

NAME = "lock"
HELP = "write lockfiles/ from wheelmark.toml and pyproject.toml, or check them without a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--project", type=Path, metavar="DIR", help="folder of wheelmark.toml (default: here)"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a lock does not fit its inputs (no network)",
    )
    action.add_argument(
        "--upgrade", action="store_true", help="take the newest versions, not those locked now"
    )


def run(args: argparse.Namespace) -> int:
    """Write or check; data on stdout, progress on stderr.

    Raises:
        LockError: ``--check`` found stale files (``lock-stale``), or the locks cannot be resolved.
    """
    from wheelmark.config import find_declaration, load_declaration
    from wheelmark.errors import LockError
    from wheelmark.lock import LockState, lock_files

    results = lock_files(
        load_declaration(find_declaration(args.project or Path())),
        check=args.check,
        upgrade=args.upgrade,
        progress=lambda line: print(line, file=sys.stderr),
    )
    stale = [result for result in results if result.state is LockState.STALE]
    if args.json and not stale:
        rows = [
            {"name": result.name, "state": result.state.value, "packages": result.packages}
            for result in results
        ]
        print(json.dumps({"locks": rows}, indent=2))
    elif not args.json:
        for result in results:
            why = f"  {result.why}" if result.why else ""
            print(f"{result.name:<22} {result.packages:>4} packages  {result.state.value}{why}")
    if stale:
        raise LockError(
            f"stale: {'; '.join(f'{result.name}: {result.why}' for result in stale)}",
            fix="wheelmark lock",
            reason="lock-stale",
        )
    return 0
