"""Which image of a target would be built here, which not, and why: part of the plan."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

from wheelmark.build.image.paths import Patterns
from wheelmark.config import TargetRow
from wheelmark.config.recipe import ImageRecipe, load_recipe
from wheelmark.errors import LockError
from wheelmark.lock.debian import DebianLock, Machine, debian_lock_path, read_debian_lock, this_machine
from wheelmark.lock.debian.fetch import POOL_VARIABLE, file_name
from wheelmark.lock.debian.machine import require_source
from wheelmark.lock.plan import FOLDER
from wheelmark.manifest import NotBuilt, image_name
from wheelmark.packages.pins import read_pins
from wheelmark.pipeline.workspace import Workspace

NOT_ASKED = "not asked for"
"""Reason of a target or an image that this machine may well be able to build."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedImage:
    """The image of one target, as this machine sees it."""

    recipe: ImageRecipe
    lock: Path
    """Lock of the Python packages that are laid out: the recipe's, or its stand-in."""
    debian_lock: Path | None
    """Lock of the operating system; ``None`` where the recipe names a base image."""
    stand_in: str
    """Why a stand-in takes the place of the recipe's dependencies; empty where it does not, and the image can be released."""
    missing: NotBuilt | None
    """Why it cannot be built here, and what mends that; ``None`` where it can."""
    base: Path | None = None
    """Layout of the recipe's base image; ``None`` without one."""

    @property
    def without(self) -> tuple[str, ...]:
        """Packages of the lock that are not laid out."""
        return self.recipe.dependencies.stand_in_without if self.stand_in else ()

    @property
    def is_releasable(self) -> bool:
        """Whether everything that the recipe names is in it."""
        return not self.stand_in

    def as_json(self) -> dict[str, Any]:
        """For ``wheelmark plan --json``."""
        return {
            "recipe": self.recipe.path.name,
            "dependencies": self.lock.name,
            "debian": self.debian_lock.name if self.debian_lock else "",
            "releasable": self.is_releasable,
            "stand_in": self.stand_in,
            "buildable": self.missing is None,
            "reason": self.missing.reason if self.missing else "",
            "fix": self.missing.fix if self.missing else "",
        }


def plan_image(workspace: Workspace, row: TargetRow) -> PlannedImage | None:
    """The plan for a row's image; ``None`` for a row without one.

    Raises:
        ConfigError: The recipe cannot be read, or says something that does not hold.
        LockError: A lock that the recipe names cannot be read.
    """
    if row.image is None:
        return None
    root = workspace.declaration.root
    recipe = load_recipe(root / row.image, root=root)
    if recipe.debian is not None:
        Patterns(recipe.debian.drop, recipe.debian.keep)
    lock, stand_in = _dependencies(workspace, recipe)
    debian_lock = debian_lock_path(root, row.host) if recipe.debian is not None else None
    missing = None
    if not workspace.images:
        missing = NotBuilt(
            target=image_name(str(row.target)),
            reason=NOT_ASKED,
            fix="nox -s build test sign, without --no-images",
        )
    elif debian_lock is not None and (found := _no_source(debian_lock, workspace.debian_pool)):
        missing = NotBuilt(target=image_name(str(row.target)), reason=found[0], fix=found[1])
    base = None
    if recipe.base is not None:
        base = workspace.environments / "bases" / recipe.base.image.rpartition(":")[2]
        if missing is None and not base.is_dir():
            missing = NotBuilt(
                target=image_name(str(row.target)),
                reason=f"the base image {recipe.base.image} is not here",
                fix=f"wheelmark copy {recipe.base.image} oci:{base}",
            )
    return PlannedImage(
        recipe=recipe,
        lock=lock,
        debian_lock=debian_lock,
        stand_in=stand_in,
        missing=missing,
        base=base,
    )


def _dependencies(workspace: Workspace, recipe: ImageRecipe) -> tuple[Path, str]:
    """The lock that is laid out, and why it is not the recipe's own."""
    folder = workspace.declaration.root / FOLDER
    wanted = recipe.dependencies.lock
    if not recipe.dependencies.stand_in:
        return folder / wanted, ""
    stand_in = folder / recipe.dependencies.stand_in
    without = recipe.dependencies.stand_in_without
    if stand_in.name == wanted:
        return stand_in, f"{wanted} has no {', '.join(without)} for this CPU, and the image is made without"
    if not any(pin.name == "torch" for pin in read_pins(folder / wanted)):
        return stand_in, f"{wanted} leaves torch to the machine: {stand_in.name} stands in"
    if not workspace.release:
        return stand_in, f"the closure of {wanted} is fetched with --release alone: {stand_in.name} stands in"
    return folder / wanted, ""


def _no_source(path: Path, pool: Path) -> tuple[str, str] | None:
    """Why this machine has nowhere to get the locked Debian packages from, and what mends that."""
    try:
        lock = read_debian_lock(path)
        if debian_source(lock, pool):
            return None
        for suite in sorted({package.suite for package in lock.packages}):
            require_source(_machine(), suite)
    except LockError as error:
        return error.what, error.fix
    return None


def debian_source(lock: DebianLock, pool: Path) -> str:
    """Where a lock's packages come from without a mirror; empty where one is needed.

    Args:
        lock: The lock.
        pool: Where packages were fetched to before.
    """
    named = os.environ.get(POOL_VARIABLE, "")
    for folder in (pool, *([Path(named)] if named else [])):
        if all((folder / file_name(package)).is_file() for package in lock.packages):
            return str(folder)
    return ""


@functools.cache
def _machine() -> Machine:
    return this_machine()
