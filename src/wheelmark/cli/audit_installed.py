"""``wheelmark audit-installed``: is what was installed still what was verified?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wheelmark.deploy import Audit

NAME = "audit-installed"
_NEXT = {
    False: "put it there with `wheelmark install REF --policy FILE`, which writes a receipt; or name its --python",
    True: "find out who changed it; `wheelmark install REF --policy FILE --replace` puts the verified bytes back",
}
"""By whether there is a receipt."""

HELP = "compare installed distributions with the receipts of their installation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="a distribution (default: all that have a receipt)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        metavar="FILE",
        help="interpreter of the environment (default: the one that runs this)",
    )


def run(args: argparse.Namespace) -> int:
    """Audit; the worst of the findings is the exit code."""
    from wheelmark.deploy import audit_environment
    from wheelmark.verify.verdict import printable, worst

    audits = audit_environment(args.python, name=args.name)
    code = worst(audit.exit_code for audit in audits)
    if args.json:
        document = {"exit_code": int(code), "audits": [audit.as_json() for audit in audits]}
        print(json.dumps(document, indent=2), flush=True)
        return int(code)
    for audit in audits:
        for item in audit.findings:
            print(printable(f"{item.reason}: {item.subject}: {item.text}"))
        about = audit.receipt
        files = (
            f"{about.wheel}, {len(about.files)} files, installed {about.installed}"
            if about
            else "no receipt to compare with"
        )
        print(printable(f"{audit.name}: {_word(audit)} ({files})"))
        if audit.findings:
            print(f"  next step:    {_NEXT[audit.receipt is not None]}")
        sys.stdout.flush()
    return int(code)


def _word(audit: Audit) -> str:
    """One word for the last line: without a receipt nothing was compared."""
    if not audit.findings:
        return "as installed"
    return "CHANGED" if audit.receipt is not None else "NOT COMPARED"
