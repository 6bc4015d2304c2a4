"""What is derived from the targets table: the CI matrix and the table in the docs. Never written by hand."""

from __future__ import annotations

from typing import Any

from wheelmark.config.model import Declaration, TorchBuild

_TORCH_WORDS = {
    TorchBuild.CPU: "CPU build",
    TorchBuild.DEFAULT: "the index's build",
    TorchBuild.ROCM: "ROCm build, from its own index",
}


def ci_matrix(declaration: Declaration) -> dict[str, Any]:
    """The matrix of the release workflow (GitHub Actions ``strategy.matrix``): one job a target."""
    return {
        "include": [
            {"target": str(row.target), "host": row.host.value, "torch": row.torch_build.value}
            for row in declaration.targets
        ]
    }


def targets_table(declaration: Declaration) -> str:
    """The targets table as Markdown; gates are a column only where they differ."""
    shared = len({row.gates for row in declaration.targets}) == 1
    header = ["target", "wheel", "torch", *([] if shared else ["gates"])]
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    for row in declaration.targets:
        wheel = f"`{declaration.project.version}+{row.local}` · `{row.platform}_{row.host.value}`"
        torch = f"{row.torch} ({_TORCH_WORDS[row.torch_build]})"
        cells = [f"`{row.target}`", wheel, torch, *([] if shared else [", ".join(row.gates)])]
        lines.append(f"| {' | '.join(cells)} |")
    if shared:
        lines += ["", f"Gates of every target: {', '.join(declaration.targets[0].gates)}."]
    return "\n".join(lines) + "\n"
