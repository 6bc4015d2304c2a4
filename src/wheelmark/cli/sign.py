"""``wheelmark sign``: the third stage."""

from __future__ import annotations

import argparse
import json

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "sign"
HELP = "close the release, state what is known of it, and sign the statements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments, among them the trust domain."""
    add_workspace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sign, then print what the release holds."""
    from wheelmark.manifest import Kind
    from wheelmark.oci.types import read_manifest
    from wheelmark.pipeline import NOT_ASKED, Progress, sign
    from wheelmark.pipeline.progress import size, table
    from wheelmark.sign import Domain

    workspace = workspace_of(args)
    signed = sign(workspace, Progress(), domain=Domain(args.domain), config=args.config)
    release = signed.release
    if args.json:
        document = {
            "domain": signed.domain.value,
            "identity": signed.identity,
            "partial": release.partial,
            "snapshot": release.snapshot,
            "bundles": list(signed.bundles),
            "release": json.loads(release.as_bytes()),
        }
        print(json.dumps(document, indent=2))
        return 0
    rows = []
    for entry in release.of_kind(Kind.WHEEL):
        words = release.levels[entry.target]
        level = words.get("correctness", "")
        rows.append((entry.path, size(entry.size), entry.sha256[:16], level))
    for entry in release.of_kind(Kind.IMAGE):
        parts = read_manifest((workspace.directory / entry.path).read_bytes()).layers
        word = release.levels[entry.target].get("image-run", "")
        rows.append((entry.subject_name, size(sum(part.size for part in parts)), entry.sha256[:16], word))
    rows += [(f"{item.target}: not built", "", "", item.reason) for item in release.not_built]
    print(table(("artifact", "size", "sha256", "runs"), rows))
    print(f"{len(signed.bundles)} bundles, signed by {signed.identity}")
    if signed.domain is Domain.EMBEDDED:
        print("trust: embedded. It proves integrity and that this machine signed; nothing more.")
    if release.partial:
        absent = [f"{item.target} ({item.fix})" for item in release.not_built if item.reason != NOT_ASKED]
        left = [item.target for item in release.not_built if item.reason == NOT_ASKED]
        asked = [
            f"{len(left)} {'targets or images' if any('/' in name for name in left) else 'targets'} not asked for"
        ]
        print("partial: " + "; ".join([*absent, *(asked if left else [])]))
    if release.snapshot:
        print("snapshot: built from a tree that no commit describes")
    return 0
