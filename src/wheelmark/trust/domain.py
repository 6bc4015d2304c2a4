"""Roots on this machine, without the means to sign: its own embedded root, and roots imported from others.

An imported root is a copy in the state directory under a name. Importing gives it no power: a policy has to
name the copy by path and digest, and say what it may vouch for (``wheelmark.trust.roots``).
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import ConfigError, StateError
from wheelmark.plainfiles import read_named
from wheelmark.trust import roots, state

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_LARGEST = 4 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRoot:
    """A trusted root that lies in the state directory."""

    name: str
    path: Path
    sha256: str
    """The digest by which a policy names it."""
    windows: tuple[roots.Window, ...]
    """When each of its certificate authorities issued, oldest first."""


def embedded_root(directory: Path | None = None) -> StoredRoot:
    """This machine's own root.

    Args:
        directory: The state directory; ``None`` for this machine's own.

    Raises:
        StateError: There is none yet (reason ``trust-absent``).
        ConfigError: It cannot be used, or others can enter the directory.
    """
    folder = state.embedded_directory(directory)
    path = state.embedded_root_path(directory)
    if not path.is_file():
        raise StateError(
            f"there is no embedded trust domain in {folder}",
            fix="wheelmark trust create",
            reason="trust-absent",
        )
    state.check_private(folder)
    return _stored(roots.THIS_MACHINE, path)


def export_root(target: Path, directory: Path | None = None) -> StoredRoot:
    """Write this machine's root to the new file ``target``, for others to import.

    Raises:
        ConfigError: ``target`` exists or cannot be written (reason ``export-target``).
    """
    root = embedded_root(directory)
    _write_new(target, root.path.read_bytes(), mode=0o644, reason="export-target")
    return root


def import_root(source: Path, name: str, directory: Path | None = None) -> StoredRoot:
    """Copy somebody's trusted root into the state directory.

    Args:
        source: Their trusted-root file. Compare its digest with one that they gave you by another way.
        name: How it is called here: lowercase letters, digits and hyphens.
        directory: The state directory; ``None`` for this machine's own.

    Raises:
        ConfigError: It cannot be used as a root, or the name is malformed or taken (reason ``root-name``).
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is no name for a root",
            fix="use lowercase letters, digits and -",
            reason="root-name",
        )
    data = read_named(source, _LARGEST + 1, fix="name a file that you may read", reason="root-absent")
    roots.read_root(data, name=name, issuers=(), level="", canonical=False)
    base = state.private_directory(directory) if directory else state.state_directory(create=True)
    path = state.private_directory(base / "roots") / f"{name}.json"
    if path.is_file() and path.read_bytes() == data:
        return _stored(name, path)
    _write_new(path, data, mode=0o600, reason="root-name")
    return _stored(name, path)


def imported_roots(directory: Path | None = None) -> tuple[StoredRoot, ...]:
    """The roots that were imported, by name.

    Raises:
        ConfigError: One of them cannot be used, or others can enter the directory.
    """
    folder = (directory or state.state_directory()) / "roots"
    if not folder.is_dir():
        return ()
    state.check_private(folder)
    return tuple(_stored(path.stem, path) for path in sorted(folder.glob("*.json")))


def _stored(name: str, path: Path) -> StoredRoot:
    data = path.read_bytes()
    found = roots.read_root(data, name=name, issuers=(), level="", canonical=False)
    windows = tuple(item.window for item in found.material.authorities)
    return StoredRoot(name=name, path=path, sha256=digests.sha256(data), windows=windows)


def _write_new(path: Path, data: bytes, *, mode: int, reason: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", fix="choose a name that is not taken", reason=reason
        ) from error
