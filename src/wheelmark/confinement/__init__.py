"""Confinement: a project's own code runs where the signing state and the pipeline's processes are not to be seen.

Compiling kernels imports the project, and its contract runs what was built: code that nobody has judged yet. It
runs with an environment made from nothing, and, where Linux grants namespaces, in a mount namespace in which the
state directory is an empty read-only folder, and a process namespace in which the pipeline's processes (and the
variables they were started with) do not exist. ``confined`` wraps a command; ``obstacle`` says why it cannot.

It keeps honest mistakes and curious code from the keys. It is no sandbox for hostile code, which has other ways
to act on a machine of the same user: sign on another machine or in another job (see SECURITY.md).
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wheelmark.trust.state import state_path

__all__ = ["confined", "obstacle"]

SCRIPT = Path(__file__).with_name("enter.py")


def confined(command: Sequence[str]) -> list[str]:
    """``command`` as it is run confined; unchanged where this machine does not grant that (``obstacle``)."""
    if obstacle():
        return list(command)
    return [*_entrance(), "--", *command]


@functools.cache
def obstacle() -> str:
    """Why commands cannot be confined on this machine; empty where they can."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no namespaces"
    try:
        done = subprocess.run(
            [*_entrance(), "--", "/bin/sh", "-c", "exit 23"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode == 23:  # noqa: PLR2004 - the number two lines above
        return ""
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


def _entrance() -> list[str]:
    return [sys.executable, "-I", "-S", str(SCRIPT), str(state_path())]
