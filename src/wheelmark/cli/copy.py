"""``wheelmark copy``: an image with all its evidence, between registries and layouts on disk."""

from __future__ import annotations

import argparse
import dataclasses
import json

from wheelmark.cli.carrying import add_connection_arguments, connection_of, json_of, table_of

NAME = "copy"
HELP = "carry an image with everything attached to it between registries and layouts on disk (air-gapped)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    name = "HOST/REPOSITORY[:TAG][@DIGEST] or oci:PATH[:TAG][@DIGEST]"
    parser.add_argument("source", metavar="SOURCE", help=f"where it is: {name}")
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        help="where it is to be: the same; without a tag it keeps its own",
    )
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Copy."""
    from wheelmark.errors import Exit
    from wheelmark.oci.reference import parse_location
    from wheelmark.publish import copy

    destination = parse_location(args.destination)
    outcome = copy(parse_location(args.source), destination, connection=connection_of(args))
    if args.json:
        document = {
            "schema": "https://wheelmark.dev/copied/v1",
            "source": outcome.source,
            "destination": outcome.destination,
            "digest": outcome.digest,
            "carried": json_of(outcome.carried),
        }
        print(json.dumps(document, indent=2, sort_keys=True), flush=True)
    else:
        place = dataclasses.replace(destination, tag="", digest="")
        print(table_of(outcome.carried, str(place)), flush=True)
    return int(Exit.OK)
