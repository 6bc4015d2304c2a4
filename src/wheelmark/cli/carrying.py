"""What ``publish`` and ``copy`` share: how registries are spoken to, and the table of what was carried."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wheelmark.publish import Carried, Connection

_SHOWN = 19
"""Characters of a digest: its algorithm and 12 digits."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """How registries are spoken to."""
    parser.add_argument(
        "--plain-http",
        action="store_true",
        help="speak to a registry of another machine without TLS; no credentials are sent to it (this machine's own "
        "is spoken to so unless it has TLS)",
    )
    parser.add_argument(
        "--jobs", type=_jobs, default=4, metavar="N", help="blobs at a time, 1 to 16 (default: 4)"
    )


def _jobs(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 16:  # noqa: PLR2004 - as the help says
        raise ValueError
    return count


def connection_of(args: argparse.Namespace) -> Connection:
    """The connection that parsed arguments name; progress goes to stderr."""
    from wheelmark.publish import Connection
    from wheelmark.verify.verdict import printable

    return Connection(
        plain_http=args.plain_http,
        workers=args.jobs,
        progress=lambda line: print(printable(line), file=sys.stderr, flush=True),
    )


def table_of(carried: Carried, destination: str) -> str:
    """For people: one line a blob or manifest, then the tags."""
    from wheelmark.verify.verdict import printable

    cells = [("artifact", "size", "digest", "done", "seconds")]
    cells += [
        (
            row.artifact,
            f"{row.size:,}",
            row.digest[:_SHOWN],
            row.action.value,
            f"{row.seconds:.1f}",
        )
        for row in carried.rows
    ]
    widths = [max(len(line[at]) for line in cells) for at in range(5)]
    lines = [
        f"{name:<{widths[0]}}  {size:>{widths[1]}}  {digest:<{widths[2]}}  {done:<{widths[3]}}  {seconds:>{widths[4]}}"
        for name, size, digest, done, seconds in cells
    ]
    lines += [f"note: {note}" for note in carried.notes]
    lines += [f"{destination}:{tag}  {digest}" for tag, digest in carried.tags.items()]
    lines.append(f"{destination}: whole; {carried.sent():,} bytes were sent")
    return "\n".join(printable(line) for line in lines)


def json_of(carried: Carried) -> dict[str, object]:
    """For machines."""
    return {
        "rows": [row.as_json() for row in carried.rows],
        "tags": dict(carried.tags),
        "notes": list(carried.notes),
        "bytes_sent": carried.sent(),
    }
