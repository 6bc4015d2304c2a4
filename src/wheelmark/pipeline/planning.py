"""What would be built here, what would not, and why: the plan that ``wheelmark plan`` prints and ``build`` follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from wheelmark.build.kernels import declared_variants
from wheelmark.build.native import find_compiler
from wheelmark.config import TargetRow
from wheelmark.errors import ConfigError, ToolError
from wheelmark.lock.fitting import check_fitting
from wheelmark.manifest import NotBuilt
from wheelmark.pipeline.imageplan import NOT_ASKED, PlannedImage, plan_image
from wheelmark.pipeline.workspace import Workspace


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTarget:
    """One row of the targets table, as this machine sees it."""

    row: TargetRow
    variants: Mapping[str, tuple[str, ...]]
    """Kernel -> names of the variants that are compiled for it; empty for a CPU."""
    missing: NotBuilt | None
    """Why it cannot be built here, and what mends that; ``None`` where it can."""
    image: PlannedImage | None = None
    """``None`` where the row has no image."""

    def as_json(self) -> dict[str, Any]:
        """For ``wheelmark plan --json``."""
        return {
            "target": str(self.row.target),
            "host": self.row.host.value,
            "platform": f"{self.row.platform}_{self.row.host.value}",
            "local": self.row.local,
            "torch": self.row.torch,
            "torch_build": self.row.torch_build.value,
            "gates": list(self.row.gates),
            "variants": {kernel: list(names) for kernel, names in self.variants.items()},
            "buildable": self.missing is None,
            "reason": self.missing.reason if self.missing else "",
            "fix": self.missing.fix if self.missing else "",
            "image": self.image.as_json() if self.image else None,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Every target that was asked for."""

    targets: tuple[PlannedTarget, ...]
    unasked: tuple[NotBuilt, ...]
    """Declared targets that were left out by naming others."""

    @property
    def buildable(self) -> tuple[PlannedTarget, ...]:
        """What this machine builds."""
        return tuple(target for target in self.targets if target.missing is None)

    @property
    def not_built(self) -> tuple[NotBuilt, ...]:
        """What it cannot build, with the command that mends it."""
        return tuple(target.missing for target in self.targets if target.missing is not None)

    @property
    def no_images(self) -> tuple[NotBuilt, ...]:
        """Images that it cannot build, or was told not to, of targets whose wheel it builds."""
        return tuple(
            target.image.missing
            for target in self.buildable
            if target.image is not None and target.image.missing is not None
        )

    @property
    def absent(self) -> tuple[NotBuilt, ...]:
        """Every declared target or image that the release will not hold: a release without it is partial."""
        return (*self.not_built, *self.no_images, *self.unasked)


def make_plan(workspace: Workspace) -> Plan:
    """The plan of one run.

    Raises:
        ToolError: A target that was named, or any target or image with ``--release``, cannot be built here.
        ConfigError: Nothing at all can be built here (reason ``empty-matrix``), or an image recipe does not hold.
        LockError: A lock that an image recipe names cannot be read, or a lock does not fit the declaration (``lock-stale``).
    """
    declaration = workspace.declaration
    rows = [row for row in declaration.targets if not workspace.named or row.target in workspace.named]
    sources = [workspace.source / path for path in declaration.kernels.declarations]
    plan = Plan(
        targets=tuple(
            PlannedTarget(
                row=row,
                variants=declared_variants(sources, row.target) if row.target.is_gpu else {},
                missing=_missing(row),
                image=plan_image(workspace, row),
            )
            for row in rows
        ),
        unasked=tuple(
            NotBuilt(
                target=str(row.target),
                reason=NOT_ASKED,
                fix=f"nox -s build test sign -- --targets {row.target}, or without --targets",
            )
            for row in declaration.targets
            if row not in rows
        ),
    )
    fatal = plan.not_built if workspace.named else ()
    if workspace.release:
        fatal = (*plan.not_built, *plan.no_images)
    if fatal:
        first = fatal[0]
        raise ToolError(
            f"{first.target} cannot be built on this machine: {first.reason}",
            cause="it was named, or --release asks for every target and image"
            if workspace.named
            else "--release asks for every target and image",
            fix=first.fix,
            reason="target-not-buildable",
        )
    if not plan.buildable:
        reasons = "; ".join(f"{item.target}: {item.reason}" for item in plan.not_built)
        raise ConfigError(
            f"nothing can be built on this machine: {reasons}",
            fix=plan.not_built[0].fix if plan.not_built else "",
            reason="empty-matrix",
        )
    check_fitting(declaration, images=workspace.images)
    return plan


def next_steps(absent: Iterable[NotBuilt]) -> list[str]:
    """What mends it that something is not built, each step once with all that it is for; not for what was not asked for."""
    steps: dict[str, list[str]] = {}
    for item in absent:
        if item.reason != NOT_ASKED and item.target not in steps.setdefault(item.fix, []):
            steps[item.fix].append(item.target)
    return [f"{', '.join(names)}: {fix}" for fix, names in steps.items()]


def _missing(row: TargetRow) -> NotBuilt | None:
    try:
        find_compiler(row.host)
    except ToolError as error:
        return NotBuilt(target=str(row.target), reason=error.what, fix=error.fix)
    return None
