"""Gates on a wheel that was built elsewhere: by cibuildwheel, by another machine, by whoever.

The same gates as in ``gating``, on the very bytes, with evidence that says by which route they came. Nothing of it is put
into a release directory: a release holds what this pipeline built.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.binaries.kernelmanifest import FOLDER, NAME, read_kernel_manifest
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.build.kernels.variants import expand, load_all
from wheelmark.config import Declaration, TargetRow
from wheelmark.errors import ConfigError
from wheelmark.evidence import Evidence
from wheelmark.gates.context import Context, Gate, SecondWheel
from wheelmark.lock.environment import locked_environment
from wheelmark.lock.plan import runtime_lock
from wheelmark.pipeline.gating import judge_gate
from wheelmark.pipeline.progress import Progress
from wheelmark.pipeline.workspace import Workspace

GATES = ("abi", "coverage", "size", "repeat", "correctness")
"""Gates that need nothing but the wheel. ``performance`` needs a quiet machine and ``audit`` the SBOM of a release."""


def gate_wheel(
    workspace: Workspace,
    wheel: Path,
    row: TargetRow,
    *,
    route: Mapping[str, str],
    second: Path | None = None,
    gates: Sequence[str] = GATES,
    progress: Progress,
) -> tuple[Evidence, ...]:
    """Run the row's gates on a wheel.

    Args:
        workspace: The project, and its caches.
        wheel: The wheel.
        row: The target that it is for.
        route: How it came to be, for the evidence; what ``repeat`` takes for the toolchain.
        second: The same wheel built again by the same route; without it ``repeat`` is not run.
        gates: Which of ``GATES``; those that the row does not name are left out.
        progress: Told of each gate.

    Raises:
        InputError: It cannot be read as a wheel.
        ConfigError: The route has no name (``gate-route``), or there is no such gate here (``gate-name``).
    """
    if unknown := [name for name in gates if name not in GATES]:
        raise ConfigError(
            f"no gate {unknown[0]!r} runs on a wheel that was built elsewhere",
            fix=f"name some of {', '.join(GATES)}",
            reason="gate-name",
        )
    if not route.get("route"):
        raise ConfigError(
            "evidence about a wheel that was built elsewhere has to say how",
            fix='--route "route=cibuildwheel 4.3.5"',
            reason="gate-route",
        )
    toolchain = digests.sha256(json.dumps(dict(route), sort_keys=True).encode())
    found = read_wheel(wheel)
    with tempfile.TemporaryDirectory(prefix="wheelmark-gate-") as folder:
        context = Context(
            declaration=workspace.declaration,
            row=row,
            wheel=wheel,
            sha256=found.sha256,
            sbom=_embedded(found, Path(folder)),
            lock=runtime_lock(workspace.declaration.root, row.torch_build),
            cache=workspace.environments,
            build_lock=workspace.build_lock,
            build_python=locked_environment(
                [workspace.build_lock], cache=workspace.environments, progress=progress.note
            ).python,
            declared_variants=declared_in(found, workspace.declaration, row),
            toolchain=toolchain,
            second=lambda: SecondWheel(path=second or wheel, toolchain=toolchain),
        )
        results = []
        for name in gates:
            if name not in row.gates or (name == "repeat" and second is None):
                continue
            gate: Gate = importlib.import_module(f"wheelmark.gates.{name}")
            evidence = judge_gate(gate, context)
            progress.note(f"{row.target} {name}: {evidence.verdict.value} ({evidence.level.value})")
            results.append(dataclasses.replace(evidence, environment={**evidence.environment, **dict(route)}))
    return tuple(results)


def _embedded(wheel: Wheel, folder: Path) -> Path:
    """The SBOM that the wheel carries: there is no other one."""
    inside = [path for path in wheel.files if path.startswith(f"{wheel.dist_info}/sboms/")]
    path = folder / "sbom.cdx.json"
    path.write_bytes(wheel.read(inside[0]) if inside else b"{}")
    return path


def declared_in(wheel: Wheel, declaration: Declaration, row: TargetRow) -> dict[str, tuple[str, ...]]:
    """Variants that have to be in a wheel: all that are declared, without optional ones that it lacks.

    The pipeline knows which optional variants a compiler refused; of another's wheel only their absence is known.

    Args:
        wheel: The wheel.
        declaration: The project.
        row: The target that it is for.

    Returns:
        Kernel -> names of its variants; empty for a CPU.
    """
    if not row.target.is_gpu:
        return {}
    path = f"{declaration.project.import_name}/{FOLDER}/{NAME}"
    held: set[tuple[str, str]] = set()
    if path in wheel.files:
        manifest = read_kernel_manifest(wheel.read(path))
        held = {(kernel.name, variant.name) for kernel in manifest.kernels for variant in kernel.variants}
    source = declaration.root / declaration.project.source
    found: dict[str, tuple[str, ...]] = {}
    for file in load_all([source / item for item in declaration.kernels.declarations]):
        for kernel in file.kernels:
            if kernel.is_for(row.target):
                found[kernel.name] = tuple(
                    item.name
                    for item in expand(kernel, row.target)
                    if not item.optional or (kernel.name, item.name) in held
                )
    return found
