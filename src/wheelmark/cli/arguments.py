"""Arguments that several commands share, and the workspace that they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wheelmark.pipeline import Workspace


def given(text: str) -> str:
    """The value of an option that was given, and so says something.

    Raises:
        argparse.ArgumentTypeError: It is empty: a variable of a script that was not set.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def given_path(text: str) -> Path:
    """A path; as ``given``."""
    return Path(given(text))


def add_workspace_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to work, on which targets, and who vouches: one line of arguments fits every stage."""
    parser.add_argument(
        "--project", type=Path, metavar="DIR", help="folder of wheelmark.toml (default: here)"
    )
    parser.add_argument(
        "--dist", type=Path, metavar="DIR", help="release directory (default: $WHEELMARK_DIST, else dist)"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="caches (default: $WHEELMARK_CACHE, else .wheelmark)"
    )
    parser.add_argument("--environments", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument(
        "--targets",
        default="",
        metavar="IDS",
        help="comma-separated target ids (default: all that can be built)",
    )
    parser.add_argument(
        "--release", action="store_true", help="every declared target must be built; nothing may be missing"
    )
    parser.add_argument(
        "--snapshot", action="store_true", help="allow uncommitted changes; the release is marked everywhere"
    )
    parser.add_argument(
        "--no-images", action="store_true", help="build no container images; the release is partial then"
    )
    parser.add_argument(
        "--domain",
        choices=("embedded", "public", "file"),
        default="embedded",
        help="for sign, who vouches: embedded (this machine alone, the default), public (Sigstore, ambient OIDC), "
        "file (a ClientTrustConfig)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="for sign, ClientTrustConfig of --domain file"
    )


def workspace_of(args: argparse.Namespace) -> Workspace:
    """The workspace that parsed arguments name."""
    from wheelmark.pipeline import open_workspace

    return open_workspace(
        project=args.project,
        dist=args.dist,
        cache=args.cache,
        environments=args.environments,
        targets=args.targets.split(","),
        release=args.release,
        snapshot=args.snapshot,
        images=not args.no_images,
    )
