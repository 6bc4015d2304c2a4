"""podman, for the gate that runs images: a store of its own, and nothing of the machine's configuration.

Containers run as the deployed ones are to: no network, a read-only root, no capabilities, no new privileges, and the
image's own numeric user. Limits that podman would raise are set to what any machine grants.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wheelmark.errors import ToolError

_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
netns = "none"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{root}/store"
runroot = "{root}/run"
"""
CONFINED = (
    *("--network", "none", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
    *("--tmpfs", "/tmp:rw,mode=1777", "--rm", "--pull", "never"),  # noqa: S108 - inside the container
)
RUNTIMES = ("runc", "crun")
"""OCI runtimes, the preferred one first."""
_OF_PODMAN = 125
"""podman's own failure (podman-run(1), Exit status); everything else is the container's."""
_CANNOT_START = 126
_KEPT = ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "TMPDIR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A container that ran to its end."""

    code: int
    out: bytes
    err: str


def preferred_runtime() -> str:
    """The OCI runtime that podman is to use: runc, else crun, else (empty) podman's own choice.

    runc comes first, since crun ends where control groups of both versions are mounted.
    """
    return next((name for name in RUNTIMES if shutil.which(name)), "")


class Podman:
    """podman with a store in ``folder``.

    Args:
        folder: Made where absent. Several processes may use one; they take turns.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        runtime = preferred_runtime()
        self._runtime = ["--runtime", runtime] if runtime else []

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the store, set up.

        Raises:
            ToolError: podman is not installed (``no-podman``), or its store cannot be made (``podman``).
        """
        if shutil.which("podman") is None:
            raise ToolError("podman is not installed", fix="apt-get install podman", reason="no-podman")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "containers.conf").write_text(_CONTAINERS, encoding="utf-8")
            (self._folder / "storage.conf").write_text(_STORAGE.format(root=self._folder), encoding="utf-8")
            with (self._folder / "lock").open("a") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise ToolError(
                f"cannot use {self._folder} as podman's store: {error.strerror}", reason="podman"
            ) from error

    def take(self, layout: Path, name: str, tag: str) -> None:
        """Take an image from a layout; what had its name before goes.

        Args:
            layout: The layout directory.
            name: The image's name there.
            tag: The name that it gets.

        Raises:
            ToolError: podman cannot (``podman``).
        """
        # podman reads ``oci:PATH:NAME`` and makes a repository name of PATH: it is relative, and of letters alone.
        with tempfile.TemporaryDirectory(prefix="wheelmark-oci-") as folder:
            Path(folder, "layout").symlink_to(layout.resolve())
            pulled = self._podman(["pull", "--quiet", f"oci:layout:{name}"], timeout=600, folder=folder)
        identity = pulled.stdout.decode(errors="replace").strip().splitlines()
        if pulled.returncode or not identity:
            raise _failed("take the image", pulled)
        tagged = self._podman(["tag", identity[-1], tag], timeout=60)
        if tagged.returncode:
            raise _failed("name the image", tagged)
        self._podman(["image", "prune", "--force"], timeout=300)  # in a storage of our own

    def run(
        self, tag: str, arguments: Sequence[str], *, user: int, variables: Mapping[str, str], timeout: float
    ) -> Ended:
        """Run an image's program.

        Args:
            tag: The image.
            arguments: After its entry point.
            user: Numeric user and group.
            variables: Environment variables to set.
            timeout: Seconds.

        Raises:
            ToolError: podman or the runtime cannot run containers here (``podman``), or it did not end in time.
        """
        named = [item for key, text in variables.items() for item in ("--env", f"{key}={text}")]
        try:
            done = self._podman(
                ["run", *CONFINED, "--user", f"{user}:{user}", *named, tag, *arguments], timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            raise ToolError(
                f"the container did not end within {timeout:.0f} s", reason="podman-timeout"
            ) from error
        err = done.stderr.decode(errors="replace")
        if done.returncode == _OF_PODMAN or (done.returncode == _CANNOT_START and "OCI runtime" in err):
            raise _failed("run a container", done)
        return Ended(code=done.returncode, out=done.stdout, err=err)

    def _podman(
        self, arguments: Sequence[str], *, timeout: float, folder: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        variables = {name: os.environ[name] for name in _KEPT if name in os.environ}
        variables |= {
            "CONTAINERS_CONF": str(self._folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self._folder / "storage.conf"),
        }
        return subprocess.run(
            ["podman", *self._runtime, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout,
        )


def _failed(what: str, done: subprocess.CompletedProcess[bytes]) -> ToolError:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return ToolError(
        f"podman cannot {what} here: {lines[-1][:300] if lines else f'exit {done.returncode}'}",
        cause="no rights, no overlay file system, or limits that cannot be set",
        fix="wheelmark doctor, or nox -s test on a machine where podman runs containers",
        reason="podman",
    )
