"""``wheelmark pull``: an image, verified by digest, its evidence kept for the hook, handed to the container engine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from wheelmark.cli.arguments import given, given_path

if TYPE_CHECKING:
    from wheelmark.deploy.engine import Podman

NAME = "pull"
HELP = "verify an image under a policy of yours, keep its evidence for the hook, and hand it to podman"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "ref", metavar="REF", help="HOST/REPOSITORY:TAG or …@sha256:…, or oci:PATH[:TAG] for a layout on disk"
    )
    parser.add_argument(
        "--policy",
        required=True,
        type=given_path,
        metavar="FILE",
        help="whom to trust and what to ask for; no default, and nobody else may be able to write it",
    )
    parser.add_argument(
        "--engine",
        type=_engine,
        default="podman",
        metavar="COMMAND",
        help='podman, with arguments of its own ("podman --root DIR"), or none: evidence alone (default: podman)',
    )
    parser.add_argument(
        "--store",
        type=given_path,
        metavar="DIR",
        help="evidence store (default: /var/lib/wheelmark/images for root, else images in the state directory)",
    )
    parser.add_argument(
        "--name",
        type=_name,
        metavar="NAME",
        help="how the engine is to name it, HOST/REPOSITORY[:TAG] (default: REF)",
    )
    parser.add_argument(
        "--target",
        type=given,
        metavar="ID",
        help="the target that it has to be for (default: any)",
    )
    parser.add_argument(
        "--channel",
        type=given,
        metavar="NAME",
        help="the channel that it is wanted for; it has to be promoted there",
    )
    parser.add_argument(
        "--bundle",
        action="append",
        default=[],
        type=given_path,
        metavar="FILE",
        help="a further bundle about the image (may be given more than once)",
    )
    parser.add_argument(
        "--audit-log",
        type=given_path,
        metavar="FILE",
        help="append a line of JSON for each verdict; nothing is kept or handed on that cannot be written there",
    )
    parser.add_argument("--plain-http", action="store_true", help="reach the registry without TLS")


def _name(text: str) -> str:
    from wheelmark.deploy.pull import check_engine_name
    from wheelmark.errors import InputError

    try:
        check_engine_name(given(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(f"{error.what}; write HOST/REPOSITORY[:TAG]") from error
    return text


def _engine(text: str) -> Podman | None:
    from wheelmark.deploy.pull import default_engine

    try:
        return default_engine(given(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} has a quote that is left open") from error


def run(args: argparse.Namespace) -> int:
    """Pull; a refusal by the verifier is printed as ``wheelmark verify`` prints it."""
    from wheelmark.deploy.pull import PullRequest, pull
    from wheelmark.deploy.store import EvidenceStore, default_store
    from wheelmark.oci.reference import parse_location
    from wheelmark.verify import AuditLog, load_policy

    policy = load_policy(args.policy, strict=True)
    done = pull(
        PullRequest(
            location=parse_location(args.ref),
            target=args.target or "",
            channel=args.channel or "",
            bundles=tuple(args.bundle),
            name=args.name or "",
            plain_http=args.plain_http,
        ),
        policy,
        store=EvidenceStore(args.store or default_store(), write=True),
        engine=args.engine,
        audit_log=AuditLog(args.audit_log) if args.audit_log else None,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if args.json:
        print(json.dumps(done.as_json(), indent=2), flush=True)
        return int(done.report.exit_code)
    lines = [done.report.as_table()]
    if done.report.accepted:
        lines.append(f"{done.digest}: evidence kept, with {done.bundles} bundles")
        if done.name:
            lines.append(f"{done.name}: {done.digest}, image {done.image_id[:12]}")
    print("\n".join(lines), flush=True)
    return int(done.report.exit_code)
