"""What ``build`` left behind, and its record beside the release directory, read strictly: the later stages start from it.

A record that somebody or something else wrote, or an earlier Wheelmark, is an error with its remedy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.config.reader import read_table
from wheelmark.errors import ConfigError, InputError, StateError
from wheelmark.manifest import NotBuilt
from wheelmark.pipeline.imaging import ReleaseImage
from wheelmark.plainfiles import read_bounded

_MAPS = ("inputs", "files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltWheel:
    """One wheel of the release directory."""

    target: str
    path: str
    """Relative to the release directory."""
    sha256: str
    size: int
    sbom: str
    """Its detached SBOM, relative."""
    lock: str
    """Its runtime lock, relative."""
    code_objects: tuple[str, ...]
    """Kernel manifest and code objects, relative."""
    left_out: tuple[str, ...]
    """``<kernel>/<variant>`` of optional variants that the compiler or a limit refused."""
    toolchain: str
    """Digest of what compiled it."""
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """What ``build`` left in the release directory; the later stages start from it."""

    wheels: tuple[BuiltWheel, ...]
    images: tuple[ReleaseImage, ...]
    not_built: tuple[NotBuilt, ...]
    snapshot: bool
    commit: str
    inputs: Mapping[str, str]
    """Name -> sha256 of what went in: declaration, sources, locks."""
    build_lock: str
    """Lock of the environment that compiled the kernels and ran them in the interpreter, relative."""
    files: Mapping[str, str]
    """Path relative to the release directory -> sha256 of everything that was left there."""

    def as_json(self) -> dict[str, Any]:
        """What is written down, and printed by ``--json``."""
        return {
            "wheels": [dataclasses.asdict(wheel) for wheel in self.wheels],
            "images": [dataclasses.asdict(image) for image in self.images],
            "not_built": [dataclasses.asdict(item) for item in self.not_built],
            "snapshot": self.snapshot,
            "commit": self.commit,
            "inputs": dict(self.inputs),
            "build_lock": self.build_lock,
            "files": dict(self.files),
        }


def read_record(path: Path, directory: Path) -> Built:
    """What ``Built.as_json`` was written to a file.

    Args:
        path: The record.
        directory: The release directory that it is about, for messages.

    Raises:
        StateError: There is none (``not-built``), or it is no such record (``build-record``).
    """
    if not path.exists() and not path.is_symlink():
        raise StateError(f"nothing was built in {directory}", fix="nox -s build", reason="not-built")
    try:
        value = strictjson.load_object(read_bounded(path, strictjson.DEFAULT.size), what=path.name)
        return _built(value, path.name)
    except (InputError, ConfigError) as error:
        raise StateError(
            f"the record of the build cannot be read: {error.what}",
            cause="it was changed by hand, or written by another wheelmark",
            fix=f"rm {path}, then nox -s build test sign",
            reason="build-record",
        ) from error


def _built(value: Mapping[str, Any], where: str) -> Built:
    given = {name: _digests_of(value.get(name), f"{where}: {name}") for name in _MAPS}
    rest = {name: item for name, item in value.items() if name not in given}
    built = read_table(Built, rest, where=where, given=given)
    for relative in _paths(built):
        path = PurePosixPath(relative)
        if path.is_absolute() or ".." in path.parts or str(path) != relative:
            raise InputError(f"{where}: {relative!r:.200} is no path in the release directory")
    lost = [relative for relative in _paths(built) if relative not in built.files]
    if lost:
        raise InputError(f"{where}: files does not list {lost[0]!r:.200}")
    return built


def _paths(built: Built) -> list[str]:
    """Every file that is named."""
    wheels = [
        path for wheel in built.wheels for path in (wheel.path, wheel.sbom, wheel.lock, *wheel.code_objects)
    ]
    images = [path for image in built.images for path in (image.wheel, *image.files, *image.locks)]
    return [*built.files, built.build_lock, *wheels, *images]


def _digests_of(value: Any, where: str) -> dict[str, str]:
    """Name -> sha256."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be an object")
    for name, sha256 in value.items():
        if not isinstance(sha256, str) or not digests.is_sha256(sha256):
            raise InputError(f"{where}: {name!r:.200} has no sha256")
    return value
