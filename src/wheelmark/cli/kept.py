"""``wheelmark hook images`` and ``forget``: what the evidence store holds, listed and taken away."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from wheelmark.cli.arguments import given_path

if TYPE_CHECKING:
    from wheelmark.deploy.store import EvidenceStore

_DIGEST = re.compile("(?:sha256:)?(?P<hex>[0-9a-f]{12,64})")
Answer = tuple[int, dict[str, Any], list[str]]
"""Exit code, document, lines."""


def digest_part(text: str) -> str:
    """The digits of a digest, or of its beginning.

    Raises:
        argparse.ArgumentTypeError: They are none, or too few to name an image.
    """
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is no sha256 digest, nor 12 digits or more of one")
    return match["hex"]


def add_store_argument(parser: argparse.ArgumentParser) -> None:
    """Which store."""
    parser.add_argument(
        "--store", type=given_path, metavar="DIR", help="evidence store (default: as of wheelmark pull)"
    )


def list_images(args: argparse.Namespace) -> Answer:
    """Every image that is kept; one whose evidence was changed is named as that, and the exit code says so."""
    from wheelmark.deploy.imagechoice import target_of
    from wheelmark.errors import Exit, RejectedError
    from wheelmark.verify.verdict import printable

    store = _store(args)
    rows: list[dict[str, str]] = []
    for sha256 in store.images():
        row = {"digest": f"sha256:{sha256}", "target": "", "kept": "", "reference": "", "problem": ""}
        try:
            found = store.find(sha256)
        except RejectedError as error:
            row["problem"] = error.what
        else:
            if found is None:
                continue  # forgotten since it was listed
            row |= {"target": target_of(found.config), "kept": found.kept, "reference": found.reference}
        rows.append(row)
    names = ("digest", "target", "kept", "reference")
    whole = [names, *(tuple(row[name] for name in names) for row in rows if not row["problem"])]
    widths = [max(len(line[at]) for line in whole) for at in range(len(names))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in whole]
    lines += [f"{row['digest']}  {row['problem']}" for row in rows if row["problem"]]
    document = {
        "schema": "https://wheelmark.dev/kept-images/v1",
        "store": str(store.directory),
        "images": rows,
    }
    bad = any(row["problem"] for row in rows)
    return (
        int(Exit.REJECTED if bad else Exit.OK),
        document,
        [printable(line.rstrip()) for line in lines] if rows else [f"no image is kept in {store.directory}"],
    )


def forget(args: argparse.Namespace) -> Answer:
    """Remove one image's evidence."""
    from wheelmark.errors import Exit, InputError

    store = _store(args)
    found = [sha256 for sha256 in store.images() if sha256.startswith(args.digest)]
    if len(found) > 1:
        raise InputError(
            f"{len(found)} images that are kept begin with {args.digest}: {', '.join(found[:5])}",
            fix="name more digits of one",
            reason="image-reference",
        )
    digest = f"sha256:{found[0] if found else args.digest}"
    gone = bool(found) and store.forget(found[0])
    word = "forgotten: containers of it will not start any more" if gone else "nothing was kept of it"
    document = {"digest": digest, "forgotten": gone}
    return int(Exit.OK if gone else Exit.MISSING), document, [f"{digest}: {word}"]


def _store(args: argparse.Namespace) -> EvidenceStore:
    from wheelmark.deploy.store import EvidenceStore, default_store

    return EvidenceStore(args.store or default_store())
