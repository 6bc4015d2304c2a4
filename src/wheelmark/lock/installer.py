"""uv, or pip where uv is absent: the programs that resolve and install, run with this machine's sources."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wheelmark.errors import CommandError, ToolError
from wheelmark.lock.index import PackageSources


def find_uv() -> Path | None:
    """The uv beside this interpreter, else the one of an importable ``uv`` package, else the one on ``PATH``."""
    beside = Path(sys.executable).parent / "uv"
    if beside.is_file():
        return beside
    if importlib.util.find_spec("uv") is not None:
        import uv  # noqa: PLC0415 - the package is there only with the build extra

        try:
            return Path(uv.find_uv_bin())
        except FileNotFoundError:
            pass
    found = shutil.which("uv")
    return Path(found) if found else None


def require_uv() -> Path:
    """uv, for what pip cannot do.

    Raises:
        ToolError: There is none (``no-uv``).
    """
    uv = find_uv()
    if uv is None:
        raise ToolError(
            "uv is not installed; locks are resolved with it",
            fix="python3 -m pip install --require-hashes -r lockfiles/nox.txt",
            reason="no-uv",
        )
    return uv


def run_uv(
    uv: Path, arguments: Sequence[str], *, sources: PackageSources, folder: Path, isolated: bool = False
) -> str:
    """Run uv and return what it printed on stdout.

    Args:
        uv: The program.
        arguments: Its arguments.
        sources: Where packages come from; passed in the environment.
        folder: Working directory.
        isolated: Keep every uv setting of this machine out (for what is committed).

    Raises:
        CommandError: It ended with a failure.
    """
    environment = dict(os.environ)
    if isolated:
        environment = {name: value for name, value in environment.items() if not name.startswith("UV_")}
        environment |= {
            name: os.environ[name] for name in ("UV_CACHE_DIR", "UV_OFFLINE") if name in os.environ
        }
        environment["UV_NO_CONFIG"] = "1"
    environment = {**sources.as_uv_environment(), **environment, "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    environment.pop("VIRTUAL_ENV", None)
    return _run([str(uv), *arguments], environment=environment, folder=folder)


def run_pip(arguments: Sequence[str], *, folder: Path) -> str:
    """Run pip, which reads its settings itself.

    Raises:
        ToolError: Neither uv nor pip is installed (``no-installer``).
        CommandError: It ended with a failure.
    """
    if importlib.util.find_spec("pip") is None:
        raise ToolError(
            "neither uv nor pip is installed for this interpreter",
            cause=f"{sys.executable} has no package uv and no package pip",
            fix="python3 -m ensurepip",
            reason="no-installer",
        )
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return _run([sys.executable, "-m", "pip", *arguments], environment=environment, folder=folder)


def _run(command: list[str], *, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise CommandError(command, done.returncode, done.stdout + done.stderr)
    return done.stdout
