"""``wheelmark verify``: may these exact bytes be used, by the word of this policy?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

NAME = "verify"
HELP = "verify a release, a wheel, an image or a kernel pack under a policy of yours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a release directory, a wheel, an OCI image layout directory, or a directory of compiled kernels",
    )
    parser.add_argument(
        "--policy",
        required=True,
        type=Path,
        metavar="FILE",
        help="whom to trust and what to ask for; no default",
    )
    parser.add_argument(
        "--bundle",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a further bundle for a wheel, an image or kernels (may be given more than once)",
    )
    parser.add_argument(
        "--reference",
        default="",
        metavar="DIGEST|TAG|TAG@DIGEST",
        help="the image in a layout directory; a tag has to lead to the digest beside it (default: the only one)",
    )
    parser.add_argument(
        "--target", default="", metavar="TARGET", help="the target that an image has to be for (default: any)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep here what bundles proved and what bytes said, for the next run; a folder of yours alone",
    )
    parser.add_argument(
        "--channel",
        default="",
        metavar="NAME",
        help="the channel that it is wanted for; it has to be promoted there",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        metavar="DIR",
        help="what this machine has seen: times, and numbers of promotions "
        "(default: none; with --channel `memory` in the state directory)",
    )
    parser.add_argument(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="append a line of JSON for each verdict; nothing is accepted that cannot be written there",
    )


def run(args: argparse.Namespace) -> int:
    """Verify every path; the worst of the verdicts is the exit code."""
    from wheelmark.errors import Exit, InputError
    from wheelmark.verify import AuditLog, FactsCache, Memory, load_policy, machine_clock, verify
    from wheelmark.verify.verdict import Report, refusal_of, worst

    policy = load_policy(args.policy)
    cache = FactsCache(args.cache) if args.cache is not None else None
    log = AuditLog(args.audit_log) if args.audit_log else None
    memory = Memory(args.memory) if args.memory else Memory.of_this_machine() if args.channel else None
    reports: list[Report] = []
    for path in args.paths:
        try:
            reports.append(
                verify(
                    path,
                    policy,
                    now=machine_clock,
                    bundles=args.bundle,
                    reference=args.reference,
                    target=args.target,
                    channel=args.channel,
                    memory=memory,
                    audit_log=log,
                    cache=cache,
                )
            )
        except InputError as error:
            verdict = refusal_of(str(path), error)
            report = Report(
                path=str(path), policy=policy.source, verdicts=(verdict,), policy_sha256=policy.sha256
            )
            if log is not None:
                log.append(report)
            reports.append(report)
    code = worst(report.exit_code for report in reports)
    if args.json:
        document = {"exit_code": int(code), "reports": [report.as_json() for report in reports]}
        text = json.dumps(document, indent=2, sort_keys=True)
    else:
        text = "\n\n".join(report.as_table() for report in reports)
    try:
        print(text, flush=True)
    except OSError:
        # A refusal stays one where nobody can read why; an acceptance that nobody can read is none.
        return int(code or Exit.INTERNAL)
    return int(code)
