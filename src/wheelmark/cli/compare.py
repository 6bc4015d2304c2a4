"""``wheelmark compare``: what differs between two wheels, by what it means."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

NAME = "compare"
HELP = "print what differs between two wheels: tags, metadata, files, sections, symbols, components; no judgement"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two wheels."""
    parser.add_argument("first", type=Path, help="a wheel")
    parser.add_argument("second", type=Path, help="another one of the same target")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page")


def run(args: argparse.Namespace) -> int:
    """Compare and print; exit code 0 whatever was found."""
    from wheelmark.binaries.wheel import read_wheel
    from wheelmark.gates.comparison import compare_wheels
    from wheelmark.pipeline.progress import table
    from wheelmark.verify.verdict import printable

    found = compare_wheels(read_wheel(args.first), read_wheel(args.second))
    if args.json:
        print(json.dumps(found.as_json(), indent=2))
        return 0
    rows = [
        tuple(map(printable, (item.where, item.what, item.first, item.second))) for item in found.differences
    ]
    if args.markdown:
        for row in [("where", "what", "first", "second"), ("---",) * 4, *rows] if rows else ():
            print("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |")
    elif rows:
        print(table(("where", "what", "first", "second"), rows))
    if found.identical:
        print(f"identical: {found.same_files} files, sha256 {found.first}")
    else:
        print(f"{found.same_files} files are the same; facts that differ: {len(rows)}")
    return 0
