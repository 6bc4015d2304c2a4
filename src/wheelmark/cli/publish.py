"""``wheelmark publish``: the images of a release into a registry, with their evidence."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wheelmark.cli.arguments import given, given_path
from wheelmark.cli.carrying import add_connection_arguments, connection_of, json_of, table_of

if TYPE_CHECKING:
    from wheelmark.publish import Published

NAME = "publish"
HELP = "push a release's images with signatures, SBOMs and results to a registry; the tags last"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "destination", metavar="HOST/REPOSITORY[:TAG]", help="where to; a tag is as good as --tag"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=given_path,
        default=Path("dist"),
        metavar="DIR",
        help="release directory or image layout (default: dist)",
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        type=given,
        metavar="TAG",
        help="TAG for the index or the only image, TAG-NAME for each image (default: the layout's names); repeatable",
    )
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        type=given,
        metavar="NAME",
        help="push this image or index of the layout (default: all); repeatable",
    )
    parser.add_argument(
        "--policy",
        type=given_path,
        metavar="FILE",
        help="verify every image under it first, and push nothing if one is refused",
    )
    parser.add_argument("--snapshot", action="store_true", help="push also what is marked as not for release")
    parser.add_argument("--unsigned", action="store_true", help="push also what nobody signed")
    parser.add_argument(
        "--mount-from",
        type=given,
        metavar="REPOSITORY",
        help="a repository of the same registry that may have the layers already",
    )
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Publish; a refusal by the verifier is printed as ``wheelmark verify`` prints it."""
    from wheelmark.oci.reference import parse_reference
    from wheelmark.publish import publish
    from wheelmark.verify import load_policy

    outcome = publish(
        args.source,
        parse_reference(args.destination),
        tags=args.tag,
        names=args.image,
        policy=load_policy(args.policy) if args.policy is not None else None,
        snapshot=args.snapshot,
        unsigned=args.unsigned,
        mount_from=args.mount_from or "",
        connection=connection_of(args),
    )
    if args.json:
        print(json.dumps(_json(outcome), indent=2, sort_keys=True), flush=True)
        return int(outcome.exit_code)
    for report in outcome.reports:
        print(report.as_table(), file=sys.stdout if outcome.carried is None else sys.stderr)
    if outcome.carried is not None:
        print(table_of(outcome.carried, outcome.destination), flush=True)
    return int(outcome.exit_code)


def _json(outcome: Published) -> dict[str, object]:
    return {
        "schema": "https://wheelmark.dev/published/v1",
        "destination": outcome.destination,
        "exit_code": int(outcome.exit_code),
        "reports": [report.as_json() for report in outcome.reports],
        "carried": None if outcome.carried is None else json_of(outcome.carried),
    }
