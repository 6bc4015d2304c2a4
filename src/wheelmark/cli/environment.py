"""``wheelmark environment``: make a locked environment and print its interpreter."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

NAME = "environment"
HELP = "make the environment that lock files describe, by hash, and print its interpreter"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Locks, wheels and the cache."""
    parser.add_argument("locks", nargs="+", type=Path, help="lock files, for instance lockfiles/build.txt")
    parser.add_argument(
        "--wheel",
        action="append",
        default=[],
        type=Path,
        help="install this wheel too, from exactly its bytes",
    )
    parser.add_argument("--cache", type=Path, help="default: $WHEELMARK_CACHE, else .wheelmark")


def run(args: argparse.Namespace) -> int:
    """Make it if it is not there yet."""
    from wheelmark.lock.environment import locked_environment

    cache = args.cache or Path(os.environ.get("WHEELMARK_CACHE", ".wheelmark"))
    made = locked_environment(
        args.locks,
        cache=cache,
        wheels=args.wheel,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if args.json:
        print(json.dumps({"python": str(made.python), "root": str(made.root), "key": made.key}, indent=2))
    else:
        print(made.python)
    return 0
