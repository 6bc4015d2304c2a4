"""The wheels of a lock file for an image's platform, whatever this machine is, kept in a pool by digest.

pip fetches them with its own settings (indexes, folders, certificates), by hash and without dependencies; the lock's markers
are evaluated for the image and not for this interpreter. A wheel lies at ``<pool>/<sha256>/<file name>``, and is
hashed again before it is handed out.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheelmark import digests
from wheelmark.config import HostArch
from wheelmark.errors import CommandError, LockError, StateError
from wheelmark.packages import installer
from wheelmark.packages.pins import Pin, read_pins

_OLDEST, _NEWEST = 5, 36
"""Minor versions of glibc 2: from manylinux1's to Debian 12's."""
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


def fetch_wheels(
    lock: Path,
    *,
    pool: Path,
    python_version: str,
    host: HostArch,
    without: Collection[str] = (),
    newest_glibc: int = _NEWEST,
    progress: Callable[[str], None] = lambda _line: None,
) -> tuple[Path, ...]:
    """The wheels of a lock, from the pool or by pip.

    Args:
        lock: The lock file.
        pool: Where wheels are kept; made where absent.
        python_version: Of the image, ``3.11``.
        host: The image's CPU.
        without: Names of packages that are left out.
        newest_glibc: Minor version of glibc 2 in the image.
        progress: Called with a line for people when something has to be fetched.

    Returns:
        The wheels, sorted by their packages' names.

    Raises:
        LockError: The lock is malformed, a wheel's bytes are not the locked ones (``lock-hash``), or there is none for
            the image's platform (``lock-unavailable``).
        ToolError: pip is not installed.
        StateError: The pool cannot be written (``image-write``).
        CommandError: pip failed for another reason.
    """
    environment = _environment(python_version, host)
    pins = [pin for pin in read_pins(lock) if pin.applies(environment) and pin.name not in set(without)]
    platforms = _platforms(host, newest_glibc)
    tags = _tags(python_version, platforms)
    found = {pin.name: _kept(pin, pool, tags) for pin in pins}
    missing = [pin for pin in pins if found[pin.name] is None]
    if missing:
        progress(f"fetching {len(missing)} wheels of {lock.name} for {host.value}")
        try:
            _download(missing, lock, pool, host=host, python_version=python_version, platforms=platforms)
        except OSError as error:
            raise StateError(
                f"cannot write into the pool {pool}: {error.strerror}",
                fix="free some space, or name another cache",
                reason="image-write",
            ) from error
        found |= {pin.name: _kept(pin, pool, tags) for pin in missing}
    wheels = []
    for pin in sorted(pins, key=lambda item: item.name):
        path = found[pin.name]
        if path is None:
            raise _absent(pin, lock, host)
        wheels.append(path)
    return tuple(wheels)


def _environment(python_version: str, host: HostArch) -> dict[str, str]:
    """Markers' variables (PEP 508) of the image."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python_version}.0",
        "os_name": "posix",
        "platform_machine": host.value,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python_version}.0",
        "python_version": python_version,
        "sys_platform": "linux",
        "extra": "",
    }


def _platforms(host: HostArch, newest_glibc: int) -> tuple[str, ...]:
    """Platform tags that the image takes, best first (PEP 600)."""
    names: list[str] = []
    for minor in range(newest_glibc, _OLDEST - 1, -1):
        names.append(f"manylinux_2_{minor}_{host.value}")
        if minor in _LEGACY:
            names.append(f"{_LEGACY[minor]}_{host.value}")
    return (*names, f"linux_{host.value}")


def _tags(python_version: str, platforms: Sequence[str]) -> dict[Tag, int]:
    """Tags that the image's interpreter takes, with their rank: lower is better."""
    major, minor = (int(part) for part in python_version.split("."))
    known: Iterable[Tag] = itertools.chain(
        cpython_tags((major, minor), platforms=platforms),
        compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    )
    return {tag: rank for rank, tag in enumerate(dict.fromkeys(known))}


def _kept(pin: Pin, pool: Path, tags: dict[Tag, int]) -> Path | None:
    """The best wheel of a package in the pool whose bytes are locked; its version need not be in its name's spelling."""
    ranked = sorted(
        (rank, path)
        for sha256 in pin.hashes
        for path in _listed(pool / sha256)
        if (rank := _rank(path, pin, tags)) is not None
    )
    return next((path for _rank_, path in ranked if digests.sha256_file(path) == path.parent.name), None)


def _listed(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.glob("*.whl") if path.is_file() and not path.is_symlink())


def _rank(path: Path, pin: Pin, tags: dict[Tag, int]) -> int | None:
    try:
        name, version, _build, offered = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        return None
    ranks = [tags[tag] for tag in offered if tag in tags]
    return min(ranks) if ranks and name == pin.name and pin.matches(str(version)) else None


def _download(
    pins: Sequence[Pin],
    lock: Path,
    pool: Path,
    *,
    host: HostArch,
    python_version: str,
    platforms: Sequence[str],
) -> None:
    pool.mkdir(parents=True, exist_ok=True)
    short = python_version.replace(".", "")
    with tempfile.TemporaryDirectory(dir=pool, prefix=".fetching-") as folder:
        work = Path(folder)
        # Markers have been answered already, and for the image: pip would answer them for this interpreter.
        lines = [Pin(name=pin.name, version=pin.version, hashes=pin.hashes).lines() for pin in pins]
        (work / "lock.txt").write_text("".join(lines), encoding="utf-8")
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--dest", str(work / "wheels")]
        options += ["--implementation", "cp", "--python-version", short, "--progress-bar", "off"]
        options += [part for abi in (f"cp{short}", "abi3", "none") for part in ("--abi", abi)]
        options += [part for platform in platforms for part in ("--platform", platform)]
        try:
            installer.run_pip(["download", *options, "-r", str(work / "lock.txt")], folder=work)
        except CommandError as error:
            raise _explained(error, pins, lock, host) from error
        for path in sorted((work / "wheels").iterdir()):
            place = pool / digests.sha256_file(path) / path.name
            place.parent.mkdir(exist_ok=True)
            shutil.move(path, place)


def _explained(
    error: CommandError, pins: Sequence[Pin], lock: Path, host: HostArch
) -> LockError | CommandError:
    """What pip's words mean."""
    found = installer.explain(error, {pin.name for pin in pins}, lock.name)
    # With exact versions and no dependencies nothing can conflict but pip's own constraints with what was not found.
    absent = "ResolutionImpossible" in error.output
    if found.reason != "lock-unavailable" and not absent:
        return found
    named = (pin for pin in pins if f"{pin.name}=={pin.version}" in error.output.replace("_", "-"))
    return _absent(next(named, pins[0]), lock, host)


def _absent(pin: Pin, lock: Path, host: HostArch) -> LockError:
    return LockError(
        f"{lock.name}: there is no wheel of {pin.name} {pin.version} for {host.value} with a locked hash",
        cause="the lock names no file for this platform, or pip's indexes and folders do not have it",
        fix="give pip an index or a folder that has it; or name a closure without it as dependencies.stand_in in the"
        " recipe: the image is then not releasable",
        reason="lock-unavailable",
    )
