"""``wheelmark install``: the wheel of a release that fits this machine, from exactly the bytes that were verified."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wheelmark.deploy import Outcome

NAME = "install"
HELP = "verify a release or a wheel under a policy of yours, and install what fits this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("ref", type=Path, metavar="REF", help="a release directory, or a wheel")
    parser.add_argument(
        "--policy",
        required=True,
        type=Path,
        metavar="FILE",
        help="whom to trust and what to ask for; no default, and nobody else may be able to write it",
    )
    parser.add_argument(
        "--target",
        default="auto",
        metavar="ID",
        help="a target id, or auto (default): what fits this machine",
    )
    parser.add_argument(
        "--channel",
        default="",
        metavar="NAME",
        help="the channel that it is wanted for; it has to be promoted there",
    )
    parser.add_argument(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="append a line of JSON for each verdict; nothing is installed that cannot be written there",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        metavar="FILE",
        help="interpreter of the environment to install into (default: the one that runs this)",
    )
    parser.add_argument(
        "--bundle",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a further bundle for a lone wheel (may be given more than once)",
    )
    parser.add_argument(
        "--no-deps", action="store_true", help="leave dependencies alone; what is needed has to be there"
    )
    parser.add_argument(
        "--without-card",
        action="store_true",
        help="with --target: the environment is for another machine; its card and driver are not looked at",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="install over what somebody else installed or changed, and change versions of dependencies",
    )
    parser.add_argument(
        "--installer", choices=("uv", "pip"), default="", help="what installs (default: uv where it is there)"
    )
    parser.add_argument("--dry-run", action="store_true", help="verify, choose and say what would be done")


def run(args: argparse.Namespace) -> int:
    """Install; a refusal by the verifier is printed as ``wheelmark verify`` prints it."""
    from wheelmark.deploy import Request, install
    from wheelmark.verify import AuditLog, Memory, load_policy, machine_clock

    policy = load_policy(args.policy, strict=True)
    request = Request(
        ref=args.ref,
        python=args.python,
        target=args.target,
        channel=args.channel,
        bundles=tuple(args.bundle),
        without_card=args.without_card,
        dependencies=not args.no_deps,
        dry_run=args.dry_run,
        replace=args.replace,
        program=args.installer,
    )
    outcome = install(
        request,
        policy,
        now=machine_clock,
        memory=Memory.of_this_machine(),
        audit_log=AuditLog(args.audit_log) if args.audit_log else None,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(outcome.as_json(), indent=2) if args.json else _words(outcome), flush=True)
    return int(outcome.report.exit_code)


def _words(outcome: Outcome) -> str:
    from wheelmark.verify.verdict import printable

    source, accepted = outcome.source, outcome.accepted
    if source is None or accepted is None:
        return outcome.report.as_table()
    who = accepted.identity or accepted.signer
    lines = [
        *(f"note: {note}" for note in outcome.machine.notes),
        *source.choice.why,
        f"accepted under {outcome.report.policy}: signed {accepted.time.isoformat()} by {who}",
        f"  root {accepted.root}: {accepted.level}",
        *(f"  note: {note}" for note in accepted.notes),
    ]
    if outcome.receipt is None:
        lines += [f"would {line}" for line in outcome.plan]
    else:
        word = (
            "is there already, unchanged"
            if outcome.already
            else "installed, and compared with what was verified"
        )
        lines += [
            f"{outcome.receipt.wheel}: {word}",
            f"receipt: {outcome.receipt_path} ({len(outcome.receipt.files)} files)",
        ]
    return "\n".join(printable(line) for line in lines)
