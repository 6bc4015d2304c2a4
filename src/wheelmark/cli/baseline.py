"""``wheelmark baseline``: record what was built, for gates to compare with: static figures of GPU targets, digests of images."""

from __future__ import annotations

import argparse
import json

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "baseline"
HELP = "write static figures of kernels, and digests of images, into the committed baselines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workspace's arguments."""
    add_workspace_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Merge the figures of every built GPU target into the baseline file."""
    from wheelmark import strictjson
    from wheelmark.binaries.kernelmanifest import read_kernel_manifest
    from wheelmark.errors import ConfigError
    from wheelmark.gates.image.repeat import EXPECTED, expected_bytes, read_expected
    from wheelmark.gates.performance import static_figures
    from wheelmark.pipeline import read_built

    workspace = workspace_of(args)
    built = read_built(workspace)
    if built.images:
        root = workspace.declaration.root
        expected = {
            **read_expected(root),
            **{
                item.target: {"inputs": item.inputs, "digest": f"sha256:{item.sha256}"}
                for item in built.images
            },
        }
        (root / EXPECTED).write_bytes(expected_bytes(expected))
    path = workspace.declaration.gates.performance.baseline
    if path is None:
        raise ConfigError(
            "wheelmark.toml names no gates.performance.baseline",
            fix="name a JSON file there, for instance tests/baselines/static.json",
            reason="no-baseline",
        )
    file = workspace.declaration.root / path
    figures = strictjson.load_object(file.read_bytes(), what=str(path)) if file.is_file() else {}
    updated = []
    for wheel in built.wheels:
        manifests = [name for name in wheel.code_objects if name.endswith("/manifest.json")]
        for name in manifests:
            manifest = read_kernel_manifest((workspace.directory / name).read_bytes())
            figures[wheel.target] = static_figures(manifest)
            updated.append(wheel.target)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps({"baseline": str(path), "targets": updated}, indent=2))
    else:
        print(f"{path}: {', '.join(updated)}")
    return 0
