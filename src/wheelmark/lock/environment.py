"""Locked environments: virtual environments that hold exactly what lock files say, and chosen wheels.

An environment is found by the digest of what is in it (lock bytes, wheels' sha256, interpreter), made once and
reused. It is made in its final place, since scripts in it name that place, while a file lock is held; the last
thing written is the marker that says it is whole, so one that was killed half-way is made again.

Plan:

1. Key from the locks' pins, the wheels' bytes and the interpreter; an environment with that key and a marker is done.
2. Under the lock: an empty virtual environment; the pins are installed with hashes required and dependencies
   off; each wheel is installed from a snapshot of its bytes, by hash.
3. What is installed is compared with what was asked for: nothing more, nothing less, no other version.
4. Every requirement of every installed package is met inside the environment: a package that is not in the lock
   stops the build here and not at its first import.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from wheelmark import digests
from wheelmark.errors import CommandError, InputError, LockError
from wheelmark.packages import installer
from wheelmark.packages.pins import Pin, read_pins

_FORMAT = 1
_MARKER = "wheelmark-environment.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment that is whole."""

    root: Path
    python: Path
    """Its interpreter."""
    site_packages: Path
    key: str
    """sha256 of what is in it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """A wheel to be installed: its name, version and the digest of the bytes that were looked at."""

    path: Path
    name: str
    version: str
    sha256: str


def locked_environment(
    locks: Sequence[Path],
    *,
    cache: Path,
    wheels: Sequence[Path] = (),
    progress: Callable[[str], None] = lambda _line: None,
) -> Environment:
    """The environment that holds the locks' packages and the given wheels, made if it is not there yet.

    Args:
        locks: Lock files; a package in several of them must be locked to one version.
        cache: Environments live in ``<cache>/envs/<key>``.
        wheels: Wheel files installed from exactly these bytes, without their dependencies (which the locks hold).
        progress: Called with a line for people when something has to be made.

    Raises:
        LockError: A lock is malformed; two locks disagree (``lock-conflict``); a package's bytes have another
            hash (``lock-hash``) or are nowhere to be found (``lock-unavailable``); what is installed needs a package
            that is not in the lock (``lock-open``); or differs from the lock (``lock-mismatch``).
        InputError: A wheel cannot be read or has a malformed name.
        ToolError: Neither uv nor pip is there.
        CommandError: The installer failed for another reason.
    """
    pins = merge_pins(locks)
    snapshots = [_snapshot(wheel) for wheel in wheels]
    key = _key(pins, snapshots)
    root = (cache / "envs" / key).absolute()
    environment = Environment(
        root=root,
        python=root / "bin" / "python",
        site_packages=root
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages",
        key=key,
    )
    if _is_whole(environment):
        return environment
    label = ", ".join(lock.name for lock in locks)
    with _held(root.with_name(f"{key}.lock")):
        if _is_whole(environment):
            return environment
        progress(f"making the environment of {label} ({len(pins)} packages)")
        shutil.rmtree(root, ignore_errors=True)
        try:
            _make(environment, pins, snapshots, label)
            _check_exact(environment, pins, snapshots, label)
            _check_closed(environment, label)
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise
        _mark(environment, label)
    return environment


def merge_pins(locks: Sequence[Path]) -> tuple[Pin, ...]:
    """The pins of several locks that apply to this interpreter, each package once, sorted by name.

    Raises:
        LockError: A lock is malformed, or two locks disagree about a package (``lock-conflict``).
    """
    merged: dict[str, tuple[Pin, str]] = {}
    for lock in locks:
        for pin in read_pins(lock):
            if not pin.applies():
                continue
            earlier, where = merged.get(pin.name, (pin, lock.name))
            common = tuple(digest for digest in pin.hashes if digest in earlier.hashes)
            if earlier.version != pin.version or not common:
                raise LockError(
                    f"{where} locks {pin.name} {earlier.version}, {lock.name} locks {pin.version} with other bytes",
                    fix="wheelmark lock --upgrade",
                    reason="lock-conflict",
                )
            merged[pin.name] = (dataclasses.replace(pin, hashes=common, marker=""), where)
    return tuple(merged[name][0] for name in sorted(merged))


def _snapshot(wheel: Path) -> _Snapshot:
    try:
        name, version, _build, _tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise InputError(f"{wheel.name} is no wheel file name: {error}", reason="wheel-name") from error
    return _Snapshot(path=wheel, name=name, version=str(version), sha256=digests.sha256_file(wheel))


def _key(pins: Sequence[Pin], snapshots: Sequence[_Snapshot]) -> str:
    return digests.sha256(
        digests.canonical_json(
            {
                "format": _FORMAT,
                "python": [platform.python_implementation(), platform.python_version(), platform.machine()],
                "pins": [[pin.name, pin.version, *pin.hashes] for pin in pins],
                "wheels": sorted([snapshot.name, snapshot.sha256] for snapshot in snapshots),
            }
        )
    )


def _make(environment: Environment, pins: Sequence[Pin], snapshots: Sequence[_Snapshot], label: str) -> None:
    """Step 2."""
    root = environment.root
    work = root / "wheelmark-install"
    root.parent.mkdir(parents=True, exist_ok=True)
    venv.EnvBuilder(symlinks=True, with_pip=False).create(root)
    work.mkdir()
    requirements = work / "requirements.txt"
    lines = [pin.lines() for pin in pins]
    for snapshot in snapshots:
        copy = work / snapshot.sha256 / snapshot.path.name
        copy.parent.mkdir()
        shutil.copyfile(snapshot.path, copy)
        lines.append(f"{snapshot.name} @ {copy.as_uri()} --hash=sha256:{snapshot.sha256}\n")
    requirements.write_text("".join(lines), encoding="utf-8")
    try:
        installer.install(environment.python, requirements, folder=work)
    except CommandError as error:
        names = {pin.name for pin in pins} | {snapshot.name for snapshot in snapshots}
        raise installer.explain(error, names, label) from error
    shutil.rmtree(work)


def _installed(environment: Environment) -> dict[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions(path=[str(environment.site_packages)]):
        found[canonicalize_name(distribution.metadata["Name"])] = distribution
    return found


def _check_exact(
    environment: Environment, pins: Sequence[Pin], snapshots: Sequence[_Snapshot], label: str
) -> None:
    """Step 3."""
    found = _installed(environment)
    problems = []
    for pin in pins:
        distribution = found.pop(pin.name, None)
        if distribution is None:
            problems.append(f"{pin.name} {pin.version} is locked and was not installed")
        elif not pin.matches(distribution.version):
            problems.append(f"{pin.name} {pin.version} is locked, {distribution.version} was installed")
    for snapshot in snapshots:
        distribution = found.pop(snapshot.name, None)
        if distribution is None or distribution.version != snapshot.version:
            problems.append(f"{snapshot.path.name} was not installed")
    problems += [f"{name} was installed and is not locked" for name in sorted(found)]
    if problems:
        raise LockError(f"the environment of {label} differs: {'; '.join(problems)}", reason="lock-mismatch")


def _check_closed(environment: Environment, label: str) -> None:
    """Step 4."""
    found = _installed(environment)
    for name, distribution in sorted(found.items()):
        for text in distribution.requires or ():
            try:
                requirement = Requirement(text)
            except InvalidRequirement as error:
                raise LockError(f"{name} has a malformed requirement {text!r}", reason="lock-open") from error
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            needed = found.get(canonicalize_name(requirement.name))
            if needed is None:
                raise LockError(
                    f"{name} needs {requirement.name}, which is not in {label}",
                    cause="the lock was edited by hand, or the wheel's requirements changed after it was made",
                    fix="wheelmark lock",
                    reason="lock-open",
                )
            if not requirement.specifier.contains(needed.version, prereleases=True):
                raise LockError(
                    f"{name} needs {requirement}, and {label} holds {needed.version}",
                    fix="wheelmark lock --upgrade",
                    reason="lock-open",
                )


def _metadata_folders(environment: Environment) -> list[str]:
    with os.scandir(environment.site_packages) as entries:
        return sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))


def _mark(environment: Environment, label: str) -> None:
    """Write, at once and last, what says that the environment is whole."""
    marker: Mapping[str, object] = {
        "key": environment.key,
        "locks": label,
        "packages": _metadata_folders(environment),
    }
    partial = environment.root / f"{_MARKER}.partial"
    partial.write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    partial.replace(environment.root / _MARKER)


def _is_whole(environment: Environment) -> bool:
    """Whether the marker is there, the interpreter still exists, and no package was added or taken away since."""
    try:
        marker = json.loads((environment.root / _MARKER).read_text(encoding="utf-8"))
        return (
            marker["key"] == environment.key
            and environment.python.exists()
            and marker["packages"] == _metadata_folders(environment)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a file lock; a second process waits, and finds the environment made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)
