"""``wheelmark check``: is the declaration sound?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

NAME = "check"
HELP = "validate wheelmark.toml, the kernel declarations, image recipes and locks, without building anything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One optional path."""
    parser.add_argument("project", nargs="?", type=Path, default=Path(), help="folder of wheelmark.toml")


def run(args: argparse.Namespace) -> int:
    """Read everything that a build would read first."""
    from wheelmark.build.image.paths import Patterns
    from wheelmark.build.kernels import declared_variants
    from wheelmark.config import find_declaration, load_declaration
    from wheelmark.config.recipe import load_recipe
    from wheelmark.lock.fitting import check_fitting

    declaration = load_declaration(find_declaration(args.project))
    for image in dict.fromkeys(row.image for row in declaration.targets if row.image is not None):
        if (debian := load_recipe(declaration.root / image, root=declaration.root).debian) is not None:
            Patterns(debian.drop, debian.keep)
    check_fitting(declaration)
    sources = [
        declaration.root / declaration.project.source / path for path in declaration.kernels.declarations
    ]
    counts = {
        str(row.target): sum(len(v) for v in declared_variants(sources, row.target).values())
        for row in declaration.targets
        if row.target.is_gpu
    }
    if args.json:
        targets = [str(row.target) for row in declaration.targets]
        print(json.dumps({"ok": True, "targets": targets, "variants": counts}, indent=2))
    else:
        variants = sum(counts.values())
        print(
            f"{declaration.project.name} {declaration.project.version}: "
            f"{len(declaration.targets)} targets, {variants} kernel variants"
        )
    return 0
