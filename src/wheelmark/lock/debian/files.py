"""The Debian locks of a project: which ones its targets table needs, written, checked, and fetched."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from wheelmark.config import Declaration, HostArch
from wheelmark.config.recipe import Debian, load_recipe
from wheelmark.errors import ConfigError, InputError, LockError
from wheelmark.lock.debian import advisories
from wheelmark.lock.debian.compare import PackageChange, compare_locks
from wheelmark.lock.debian.document import DebianLock, read_debian_lock
from wheelmark.lock.debian.fetch import fetch_packages
from wheelmark.lock.debian.machine import Machine, this_machine
from wheelmark.lock.debian.resolve import debian_inputs, resolve_debian
from wheelmark.lock.plan import FOLDER
from wheelmark.lock.resolve import LockResult, LockState

ARCHITECTURES: Mapping[HostArch, str] = {HostArch.X86_64: "amd64", HostArch.AARCH64: "arm64"}
"""Debian's names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebianResult(LockResult):
    """One Debian lock's result."""

    changes: tuple[PackageChange, ...] = ()
    """What is other than in the file before."""
    advisories: str = ""
    """What the advisories of the changes are from, or why they are UNCHECKED; empty where nothing changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebianPlan:
    """One lock file that the targets table needs."""

    architecture: str
    debian: Debian
    """The recipes' table."""
    path: Path

    @property
    def inputs(self) -> str:
        """What the lock has to hold to fit."""
        return debian_inputs(self.debian, self.architecture)


def debian_lock_path(root: Path, host: HostArch) -> Path:
    """The Debian lock of a project for a CPU.

    Args:
        root: The folder of ``wheelmark.toml``.
        host: The CPU of the target row.
    """
    return root / FOLDER / f"debian-{ARCHITECTURES[host]}.json"


def debian_plans(declaration: Declaration) -> tuple[DebianPlan, ...]:
    """One plan for each CPU that has images from Debian packages.

    Raises:
        ConfigError: A recipe cannot be read; two recipes of one CPU ask for different packages (``recipe-debian``).
    """
    root = declaration.root
    plans: dict[HostArch, tuple[DebianPlan, str]] = {}
    for row in declaration.targets:
        debian = load_recipe(root / row.image, root=root).debian if row.image is not None else None
        if debian is None:
            continue
        plan = DebianPlan(
            architecture=ARCHITECTURES[row.host],
            debian=debian,
            path=debian_lock_path(declaration.root, row.host),
        )
        earlier, name = plans.setdefault(row.host, (plan, str(row.image)))
        if earlier.inputs != plan.inputs:
            raise ConfigError(
                f"{row.image} and {name} ask for different Debian packages",
                cause=f"all images for {row.host.value} share one lock, {plan.path.name}",
                fix="put [debian] into a recipe that both extend",
                reason="recipe-debian",
            )
    return tuple(plan for plan, _name in plans.values())


def lock_debian(
    declaration: Declaration,
    *,
    cache: Path,
    check: bool = False,
    machine: Machine | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> tuple[DebianResult, ...]:
    """Write, or check, every Debian lock of a project.

    A lock whose packages are still those of the archive stays as it is, byte for byte, with the index that vouched
    for them first.

    Args:
        declaration: The project.
        cache: Folder for apt's state.
        check: Only say whether each file fits the recipes; no network.
        machine: Where packages come from; default: as this machine's apt is configured.
        progress: Called with lines for people.

    Raises:
        ConfigError: As ``debian_plans``.
        LockError: As ``resolve_debian``.
    """
    plans = debian_plans(declaration)
    if check or not plans:
        return tuple(_check(plan) for plan in plans)
    known = machine or this_machine()
    with concurrent.futures.ThreadPoolExecutor(len(plans)) as workers:
        running = [
            workers.submit(
                resolve_debian, plan.debian, plan.architecture, cache=cache, machine=known, progress=progress
            )
            for plan in plans
        ]
        locks = [future.result() for future in running]
    return tuple(_write(plan, lock) for plan, lock in zip(plans, locks, strict=True))


def fetch_debian(
    declaration: Declaration,
    folder: Path,
    *,
    machine: Machine | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> tuple[DebianLock, ...]:
    """Fill a folder with the packages of every Debian lock of a project: what ``WHEELMARK_DEBIAN_POOL`` can name.

    Raises:
        ConfigError: As ``debian_plans``.
        LockError: As ``read_debian_lock`` and ``fetch_packages``; a lock does not fit its recipe (``lock-stale``).
    """
    locks = []
    for plan in debian_plans(declaration):
        lock = fitting_lock(plan.path, plan.debian, plan.architecture)
        fetch_packages(lock, pool=folder, machine=machine, progress=progress)
        locks.append(lock)
    return tuple(locks)


def fitting_lock(path: Path, debian: Debian, architecture: str) -> DebianLock:
    """A lock, if it was resolved from this table for this architecture.

    Raises:
        LockError: It cannot be read (``debian-lock``), or was resolved from another table (``lock-stale``).
    """
    lock = read_debian_lock(path)
    if (lock.architecture, lock.inputs) != (architecture, debian_inputs(debian, architecture)):
        raise LockError(
            f"{path.name} does not fit its recipe",
            cause="[debian] in containers/ changed since it was written",
            fix="nox -s lock",
            reason="lock-stale",
        )
    return lock


def _check(plan: DebianPlan) -> DebianResult:
    why, count = "", 0
    try:
        count = len(fitting_lock(plan.path, plan.debian, plan.architecture).packages)
    except LockError as error:
        why = error.what
    state = LockState.STALE if why else LockState.UNCHANGED
    return DebianResult(name=plan.path.name, path=plan.path, state=state, packages=count, why=why)


def _write(plan: DebianPlan, lock: DebianLock) -> DebianResult:
    try:
        old = read_debian_lock(plan.path)
    except LockError:
        old = None  # absent or damaged: written afresh
    changes, about = _changes(old, lock)
    same = old is not None and (old.inputs, old.suite, old.packages) == (
        lock.inputs,
        lock.suite,
        lock.packages,
    )
    if not same:
        plan.path.parent.mkdir(exist_ok=True)
        partial = plan.path.with_name(f".{plan.path.name}.{os.getpid()}.partial")
        partial.write_bytes(lock.as_bytes())
        partial.replace(plan.path)
    return DebianResult(
        name=plan.path.name,
        path=plan.path,
        state=LockState.UNCHANGED if same else LockState.WRITTEN,
        packages=len(lock.packages),
        changes=changes,
        advisories=about,
    )


def _changes(old: DebianLock | None, new: DebianLock) -> tuple[tuple[PackageChange, ...], str]:
    """What changed, and where its advisories are from."""
    if old is None or old.architecture != new.architecture:
        return (), ""
    folder = os.environ.get(advisories.VARIABLE, "")
    data, about = None, f"UNCHECKED: {advisories.VARIABLE} names no folder of Debian's security data"
    if folder:
        try:
            data = advisories.read_debian_advisories(Path(folder), suite=new.suite)
            changes = compare_locks(old, new, advisories=data)
        except (InputError, OSError) as error:
            about = f"UNCHECKED: {error}"
        else:
            return changes, f"{data.source}, {data.date}" if changes else ""
    changes = compare_locks(old, new)
    return changes, about if changes else ""
