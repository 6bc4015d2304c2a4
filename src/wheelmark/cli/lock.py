"""``wheelmark lock``: write the lock files, or say whether they are up to date."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wheelmark.config import Declaration
    from wheelmark.lock import LockResult

NAME = "lock"
HELP = "write lockfiles/ from wheelmark.toml, pyproject.toml and containers/, or check them without a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--project", type=Path, metavar="DIR", help="folder of wheelmark.toml (default: here)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where apt's indexes are kept (default: $WHEELMARK_CACHE, else .wheelmark)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a lock does not fit its inputs (no network)",
    )
    action.add_argument(
        "--upgrade",
        action="store_true",
        help="take the newest Python packages, not those locked now (of Debian's, archives have only the newest)",
    )
    action.add_argument(
        "--fetch",
        type=Path,
        metavar="DIR",
        help="write no lock; bring every locked Debian package into DIR, for $WHEELMARK_DEBIAN_POOL",
    )


def run(args: argparse.Namespace) -> int:
    """Write, check or fetch; data on stdout, progress on stderr.

    Raises:
        LockError: ``--check`` found stale files (``lock-stale``), the locks cannot be resolved, or packages cannot be
            fetched.
    """
    from wheelmark.config import find_declaration, load_declaration
    from wheelmark.errors import LockError
    from wheelmark.lock import LockState, lock_files
    from wheelmark.lock.debian import lock_debian

    declaration = load_declaration(find_declaration(args.project or Path()))
    if args.fetch:
        return _fetch(declaration, args.fetch, as_json=args.json)
    cache = args.cache or Path(os.environ.get("WHEELMARK_CACHE") or declaration.root / ".wheelmark")
    results: list[LockResult] = [
        *lock_files(declaration, check=args.check, upgrade=args.upgrade, progress=_say),
        *lock_debian(declaration, cache=cache, check=args.check, progress=_say),
    ]
    stale = [result for result in results if result.state is LockState.STALE]
    if args.json and not stale:
        print(json.dumps({"locks": [_as_json(result) for result in results]}, indent=2))
    elif not args.json:
        for result in results:
            why = f"  {result.why}" if result.why else ""
            print(f"{result.name:<22} {result.packages:>4} packages  {result.state.value}{why}")
            for line in _changes(result):
                print(f"    {line}")
    if stale:
        raise LockError(
            f"stale: {'; '.join(f'{result.name}: {result.why}' for result in stale)}",
            fix="wheelmark lock",
            reason="lock-stale",
        )
    return 0


def _fetch(declaration: Declaration, folder: Path, *, as_json: bool) -> int:
    from wheelmark.lock.debian import fetch_debian

    locks = fetch_debian(declaration, folder, progress=_say)
    if as_json:
        rows = [
            {"architecture": lock.architecture, "packages": len(lock.packages), "bytes": lock.size}
            for lock in locks
        ]
        print(json.dumps({"folder": str(folder), "locks": rows}, indent=2))
        return 0
    for lock in locks:
        print(f"debian-{lock.architecture}: {len(lock.packages)} packages, {lock.size:,} bytes, in {folder}")
    if not locks:
        print("no target has an image from Debian packages: nothing to fetch")
    return 0


def _as_json(result: LockResult) -> dict[str, Any]:
    from wheelmark.lock.debian import DebianResult

    row: dict[str, Any] = {
        "name": result.name,
        "state": result.state.value,
        "packages": result.packages,
    }
    if isinstance(result, DebianResult):
        row["changes"] = [
            {
                "name": change.name,
                "old": change.old,
                "new": change.new,
                "fixes": None if change.fixes is None else list(change.fixes),
                "remains": None if change.remains is None else list(change.remains),
            }
            for change in result.changes
        ]
        row["advisories"] = result.advisories
    return row


def _changes(result: LockResult) -> list[str]:
    """What a Debian lock's result says of its packages, for people."""
    from wheelmark.lock.debian import DebianResult

    if not isinstance(result, DebianResult) or not result.changes:
        return []
    return [*(change.as_line() for change in result.changes), f"advisories: {result.advisories}"]


def _say(line: str) -> None:
    # One write a line: several packages and architectures are worked on at once.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
