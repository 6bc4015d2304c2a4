"""uv, or pip where uv is absent: the programs that resolve and install, run with this machine's sources."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from wheelmark.errors import CommandError, LockError, ToolError
from wheelmark.packages.index import PackageSources, read_sources


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


def install(
    python: Path,
    requirements: Path,
    *,
    folder: Path,
    program: str = "",
    uv_options: Sequence[str] = (),
    pip_options: Sequence[str] = (),
    local: bool = False,
) -> str:
    """Install exactly what a requirements file says: hashes required, dependencies off, wheels only.

    Args:
        python: Interpreter of the environment.
        requirements: Lines of names, versions or file URLs, each with its hashes.
        folder: Working directory.
        program: ``uv`` or ``pip``; empty: uv where it is there, else pip.
        uv_options: Further arguments for uv.
        pip_options: Further arguments for pip.
        local: Every line is a file of this machine: no index is known to the program.

    Returns:
        The program that did it.

    Raises:
        ToolError: The program named, or both, are not installed (``no-installer``, ``no-uv``).
        CommandError: It ended with a failure.
    """
    common = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(requirements)]
    uv = None if program == "pip" else require_uv() if program == "uv" else find_uv()
    if uv is None:
        no_index = ["--no-index"] if local else []
        run_pip(["--python", str(python), "install", *no_index, *pip_options, *common], folder=folder)
        return "pip"
    # One package may be looked for in every place: the hashes decide which file it is.
    options = ["--python", str(python), "--index-strategy", "unsafe-best-match", *uv_options]
    sources = PackageSources(no_index=True) if local else read_sources()
    run_uv(uv, ["pip", "install", *options, *common], sources=sources, folder=folder)
    return "uv"


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


_NAMED = re.compile(r"`?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*[A-Za-z0-9.+!_-]+`?")
_HASH_WORDS = ("hash mismatch", "hash-checking", "do not match the hashes", "hashes are required")
_ABSENT_WORDS = (
    "no solution found",
    "no version of",
    "not found in the",
    "no matching distribution",
    "no wheels",
)


def explain(error: CommandError, known: Collection[str], label: str) -> LockError | CommandError:
    """What the installer's words mean; anything not understood stays the installer's own error.

    Args:
        error: As the installer ended.
        known: Normalized names of the packages that were to be installed.
        label: How messages call what was installed from.
    """
    text = " ".join(error.output.split())
    words = text.lower()
    named = [canonicalize_name(match["name"]) for match in _NAMED.finditer(text)]
    name = next((candidate for candidate in named if candidate in known), "a package")
    if any(phrase in words for phrase in _HASH_WORDS):
        return LockError(
            f"{name} of {label} is not the locked bytes\n{_indented(error.output)}",
            cause="the file that was found has another sha256 than the lock: other build, changed or damaged file",
            fix=f"find out where {name} comes from; if the change is wanted: wheelmark lock --upgrade",
            reason="lock-hash",
        )
    if any(phrase in words for phrase in _ABSENT_WORDS):
        return LockError(
            f"{name} of {label} was not found as a wheel for this machine\n{_indented(error.output)}",
            cause="no index or wheel folder that pip is configured with has it",
            fix=f"give pip an index or find-links with {name}, or: wheelmark lock --upgrade",
            reason="lock-unavailable",
        )
    return error


def _indented(output: str) -> str:
    return "\n".join(f"    {line}" for line in output.strip().splitlines()[-12:])
