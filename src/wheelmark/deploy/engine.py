"""The container engine that is given a verified image: podman, by digest, from a layout that only this user can enter."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from wheelmark.errors import CommandError, RejectedError, ToolError, WheelmarkError

_TIMEOUT = 3600
"""Seconds for one command: an image may have gigabytes to unpack."""
_SHORT_TIMEOUT = 60
"""Seconds for a version."""


class Podman:
    """podman, as somebody calls it.

    Args:
        command: The program and the arguments that stand before every subcommand (``podman --root DIR``).
    """

    def __init__(self, command: Sequence[str] = ("podman",)) -> None:
        self.command = tuple(command)

    def check(self) -> None:
        """Find out whether it is there and answers, before there is something to give it.

        Raises:
            ToolError: It is not there, or is no podman (``engine-absent``).
            CommandError: It does not say its version.
        """
        said = self._run("--version", timeout=_SHORT_TIMEOUT)
        if not said.startswith("podman"):
            raise ToolError(
                f"{self.command[0]} is no podman: as its version it says {said.strip()[:100]!r}",
                cause="only podman takes an image by digest from a layout, and knows it by that digest",
                fix="name podman, or only fill the evidence store with --engine none",
                reason="engine-absent",
            )

    def take(self, layout: Path, *, digest: str, image_id: str, name: str) -> None:
        """Have the engine keep the only image of a layout, under a name.

        Args:
            layout: An image layout with one manifest; its own name is one that a repository could have, and nobody else's.
            digest: ``sha256:<hex>`` of it: what was verified.
            image_id: sha256 of its configuration, by which the engine knows it.
            name: Host, repository and tag.

        Raises:
            ToolError: podman is not there (``engine-absent``).
            CommandError: It failed.
            RejectedError: It keeps the image under another digest (``engine-digest``); the name was not given.
        """
        # By a relative path: podman makes a repository's name of it, and fails where that would be none.
        try:
            pulled = self._run("pull", "--quiet", f"oci:{layout.name}", folder=layout.parent)
            found = pulled.strip().splitlines()[-1:]
            said = self._run("image", "inspect", "--format", "{{.Id}} {{.Digest}}", image_id).split()
            if found != [image_id] or said != [image_id, digest]:
                raise RejectedError(
                    f"{self.command[0]} keeps {name} as image {' '.join(said)[:200]}, and not as {digest}",
                    cause="it converted the image, which happens where its layers or its manifest are of a type it does not know",
                    reason="engine-digest",
                )
            self._run("tag", image_id, name)
        finally:
            self._forget(f"localhost/{layout.name}:latest")

    def _forget(self, name: str) -> None:
        """Take a name away; the image stays where it has another."""
        with contextlib.suppress(WheelmarkError):
            self._run("untag", name, name)

    def _run(self, *arguments: str, folder: Path | None = None, timeout: int = _TIMEOUT) -> str:
        command = [*self.command, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
            )
        except OSError as error:
            raise ToolError(
                f"{self.command[0]} cannot be run on this machine: {error.strerror}",
                fix="install it, or only fill the evidence store with --engine none",
                reason="engine-absent",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise CommandError(command, -9, f"it was stopped after {timeout:,} seconds") from error
        if done.returncode:
            raise CommandError(command, done.returncode, f"{done.stdout}\n{done.stderr}")
        return done.stdout
