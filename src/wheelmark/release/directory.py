"""``ReleaseDirectory``: where files of a release go, atomically, one run at a time.

Run state stands beside the directory, never in it: for ``dist/`` in ``.dist.state/`` (lock file, step
records, files on their way in). So a killed run leaves nothing half-written under ``dist/``, and what lies
there can be judged without knowing how it came about.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from wheelmark import digests, manifest
from wheelmark.errors import BusyError, StateError

FOLDERS = (
    *("wheels", "kernels", "images", "sbom", "locks", "evidence"),
    *("statements", "bundles", "trust", "report"),
)
"""Every folder that a release directory may hold."""


class ReleaseDirectory:
    """A release directory and the run state beside it.

    Args:
        root: The directory (``dist/``); made when first written to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.state = self.root.parent / f".{self.root.name}.state"

    def __truediv__(self, relative: str) -> Path:
        return self.root / relative

    @property
    def manifest_path(self) -> Path:
        """``release.json``."""
        return self.root / manifest.NAME

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory for this process; a second run is refused, not queued.

        Raises:
            BusyError: Another process holds it.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("a+", encoding="ascii") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                stream.seek(0)
                holder = stream.read().strip() or "unknown"
                raise BusyError(
                    f"another run (process {holder}) is working on {self.root}",
                    fix="wait for it to end, or name another directory with --dist",
                ) from error
            stream.truncate(0)
            stream.write(str(os.getpid()))
            stream.flush()
            shutil.rmtree(self._incoming, ignore_errors=True)
            try:
                yield
            finally:
                stream.truncate(0)

    @property
    def _incoming(self) -> Path:
        return self.state / "incoming"

    def write(self, relative: str, data: bytes, *, executable: bool = False) -> Path:
        """Write one file: wholly or not at all, mode 0644 (0755) whatever the umask.

        Returns:
            Its path.
        """
        target = self.root / relative
        if target.is_file() and not target.is_symlink() and target.read_bytes() == data:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        self._incoming.mkdir(parents=True, exist_ok=True)
        incoming = self._incoming / f"{os.getpid()}-{digests.sha256(relative.encode())[:16]}"
        with incoming.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        incoming.chmod(0o755 if executable else 0o644)
        incoming.replace(target)
        return target

    def take(self, source: Path, relative: str) -> Path:
        """Copy a finished file in, as ``write`` does."""
        return self.write(relative, source.read_bytes())

    def remove_except(self, folder: str, keep: set[str]) -> None:
        """Remove files of ``folder`` whose relative path (to the root) is not in ``keep``."""
        base = self.root / folder
        if not base.is_dir():
            return
        for name in digests.tree_files(base):
            if f"{folder}/{name}" not in keep:
                (base / name).unlink()
        for path in sorted((p for p in base.rglob("*") if p.is_dir()), reverse=True):
            if not any(path.iterdir()):
                path.rmdir()
        if not any(base.iterdir()):
            base.rmdir()

    def read_manifest(self) -> manifest.ReleaseManifest:
        """``release.json`` as it stands.

        Raises:
            StateError: The release is not closed yet.
            InputError: The file is not a release manifest.
        """
        if not self.manifest_path.is_file():
            raise StateError(
                f"{self.root} holds no {manifest.NAME}",
                cause="the release was not built, tested and closed here",
                fix="nox -s build test sign",
                reason="not-closed",
            )
        return manifest.ReleaseManifest.from_bytes(self.manifest_path.read_bytes())
