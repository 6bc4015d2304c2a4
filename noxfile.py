"""Thin sessions; the logic is in ``src/wheelmark``.

``nox -s build test sign`` makes a release, ``nox -s verify`` judges it, ``nox -s check`` is what CI runs. Arguments after
``--`` go to the command: ``nox -s build -- --targets cuda-sm90,cpu-x86_64``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["check"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent


def install(session: nox.Session, lock: str) -> None:
    """Install a lock by hash and this project itself, unless this environment holds exactly these already."""
    lock_file = ROOT / "lockfiles" / lock
    marker = Path(session.virtualenv.location) / "wheelmark-lock"
    wanted = hashlib.sha256(lock_file.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    wanted += f" {ROOT}"
    if marker.is_file() and marker.read_text() == wanted:
        return
    session.install("--require-hashes", "--no-deps", "-r", str(lock_file))
    session.install("--no-deps", "--no-build-isolation", "-e", str(ROOT))
    marker.write_text(wanted)


def wheelmark(session: nox.Session, command: str, *arguments: str) -> None:
    session.run("python", "-m", "wheelmark", command, *arguments, *session.posargs)


@nox.session(tags=["release"], default=False)
def build(session: nox.Session) -> None:
    """Compile kernels and native code, assemble and describe the wheels."""
    install(session, "tools.txt")
    wheelmark(session, "build")


@nox.session(tags=["release"], default=False)
def test(session: nox.Session) -> None:
    """Run every declared gate on the very bytes in dist/."""
    install(session, "tools.txt")
    wheelmark(session, "test")


@nox.session(tags=["release"], default=False)
def sign(session: nox.Session) -> None:
    """Close the release, state what is known of it, sign the statements."""
    install(session, "tools.txt")
    wheelmark(session, "sign")


@nox.session(default=False)
def verify(session: nox.Session) -> None:
    """Verify dist/ under the embedded development policy."""
    install(session, "tools.txt")
    arguments = session.posargs or ["dist", "--policy", "policies/embedded-dev.toml"]
    session.run("python", "-m", "wheelmark", "verify", *arguments)


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Write lockfiles/ from pyproject.toml and wheelmark.toml."""
    install(session, "tools.txt")
    wheelmark(session, "lock")
