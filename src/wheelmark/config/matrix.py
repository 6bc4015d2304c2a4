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
    """The targets table as Markdown."""
    lines = ["| target | wheel | torch | gates |", "| --- | --- | --- | --- |"]
    for row in declaration.targets:
        wheel = f"`{declaration.project.version}+{row.local}` · `{row.platform}_{row.host.value}`"
        torch = f"{row.torch} ({_TORCH_WORDS[row.torch_build]})"
        lines.append(f"| `{row.target}` | {wheel} | {torch} | {', '.join(row.gates)} |")
    return "\n".join(lines) + "\n"
