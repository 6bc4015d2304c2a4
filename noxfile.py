"""Thin sessions; the logic is in ``src/wheelmark``.

``nox -s build test sign`` makes a release, ``nox -s verify`` judges it, ``nox -s check`` is what CI runs. Arguments after
``--`` go to every stage: ``nox -s build test sign -- --targets cuda-sm90,cpu-x86_64 --domain public``. A stage requires the one
before it, and starts only if that one succeeded; finished work is skipped.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["check"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
TARGETS = [
    row["target"] for row in tomllib.loads((ROOT / "wheelmark.toml").read_text(encoding="utf-8"))["targets"]
]


def install(session: nox.Session, lock: str) -> None:
    """Install a lock by hash, and this project, unless this environment holds exactly these already."""
    lock_file = ROOT / "lockfiles" / lock
    marker = Path(session.virtualenv.location) / "wheelmark-lock"
    held = hashlib.sha256(lock_file.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    wanted = f"{held} {ROOT}"
    if marker.is_file() and marker.read_text(encoding="utf-8") == wanted:
        return
    session.install("--require-hashes", "--no-deps", "-r", str(lock_file))
    session.install("--no-deps", "--no-build-isolation", "-e", str(ROOT))
    marker.write_text(wanted, encoding="utf-8")


def wheelmark(session: nox.Session, *arguments: str) -> None:
    session.run("python", "-m", "wheelmark", *arguments)


@nox.session(tags=["release"], default=False)
def build(session: nox.Session) -> None:
    """Compile kernels and native code, assemble and describe the wheels."""
    install(session, "tools.txt")
    wheelmark(session, "build", *session.posargs)


@nox.session(tags=["release"], default=False, requires=["build"])
def test(session: nox.Session) -> None:
    """Run every declared gate on the very bytes in dist/."""
    install(session, "tools.txt")
    wheelmark(session, "test", *session.posargs)


@nox.session(tags=["release"], default=False, requires=["test"])
def sign(session: nox.Session) -> None:
    """Close the release, state what is known of it, sign the statements."""
    install(session, "tools.txt")
    wheelmark(session, "sign", *session.posargs)


@nox.session(default=False)
def verify(session: nox.Session) -> None:
    """Verify dist/ under the embedded development policy, or what the arguments name."""
    install(session, "tools.txt")
    wheelmark(session, "verify", *(session.posargs or ["dist", "--policy", "policies/embedded-dev.toml"]))


@nox.session(default=False)
@nox.parametrize("target", TARGETS, ids=TARGETS)
def rebuild(session: nox.Session, target: str) -> None:
    """Build one target again, apart from dist/, to compare it with a release."""
    install(session, "tools.txt")
    again = str(ROOT / ".nox" / "rebuilt" / target / "dist")
    wheelmark(session, "build", "--snapshot", "--targets", target, "--dist", again, *session.posargs)


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Write lockfiles/ from pyproject.toml and wheelmark.toml."""
    install(session, "tools.txt")
    wheelmark(session, "lock", *session.posargs)
    if "--check" not in session.posargs:
        session.run("python", "-m", "containers.manylinux.image", "--lock")


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """The payload's wheels by cibuildwheel in a container, gated and compared: `-- --targets cpu-x86_64 --image pinned`."""
    install(session, "tools.txt")
    session.install("--require-hashes", "--no-deps", "-r", str(ROOT / "lockfiles" / "cibuildwheel.txt"))
    session.run("python", "-m", "containers.manylinux.wheels", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure the pipeline (`-- verify`: the verifier; `-- images`: images); prints a table for docs/benchmarks."""
    programs = {"verify": "tests/bench/verify.py", "images": "tests/bench/images.py"}
    what = next((name for name in programs if session.posargs[:1] == [name]), "")
    install(session, "check.txt" if what == "images" else "tools.txt")
    tests = {"PYTHONPATH": str(ROOT / "tests")} if what == "images" else {}
    program = programs.get(what, "tests/bench/run.py")
    session.run("python", program, *session.posargs[bool(what) :], env=tests)


@nox.session(default=False)
def conformance(session: nox.Session) -> None:
    """Sigstore's conformance suite: every case in the folder that WHEELMARK_CASES names."""
    install(session, "tools.txt")
    session.run("python", "tests/conformance/run.py", *session.posargs)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Mutate bundles, wheels, releases, roots and policies: `-- --seconds 60 --seed 1 --workers 2`, or `--replay FILE`."""
    install(session, "check.txt")
    session.run("python", "-m", "fuzz", *session.posargs, env={"PYTHONPATH": str(ROOT / "tests")})


@nox.session(default=False)
def interop(session: nox.Session) -> None:
    """Other people's clients and ours judge each other's bundles; `-- --write` puts the results into docs/interop.md."""
    install(session, "check.txt")
    session.run("python", "tests/clients.py")
    page = {"WHEELMARK_INTEROP_PAGE": str(ROOT / "docs" / "interop.md")}
    arguments = [argument for argument in session.posargs if argument != "--write"]
    environment = page if "--write" in session.posargs else {}
    session.run("pytest", "tests/integration/interop", "-q", *arguments, env=environment)


@nox.session(default=False)
def servers(session: nox.Session) -> None:
    """Build Fulcio, rekor-tiles and timestamp-authority from Debian's sources (some minutes) and sign with them."""
    install(session, "check.txt")
    folder = ROOT / ".wheelmark" / "servers"
    if not (folder / "versions.json").is_file():
        session.run("python", "tests/servers/build.py", str(folder))
    session.run("pytest", "tests/servers", "-q", *session.posargs, env={"WHEELMARK_SERVERS": str(folder)})


@nox.session
def check(session: nox.Session) -> None:
    """Lint, types, layers, unit, kernel and integration tests, workflows, docs and drift."""
    install(session, "check.txt")
    lint(session)
    docs(session)
    cut_off = ["--disable-socket", "--allow-unix-socket"]
    workers = ["-n", "auto", "--maxprocesses", "8", "--dist", "loadfile"]
    session.run("pytest", "tests/unit", *cut_off, *workers, "-q", *session.posargs)
    kernels(session)
    session.run("pytest", "tests/integration", "-q", *session.posargs)


def lint(session: nox.Session) -> None:
    """Style, types, import layers, workflows."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports", "--no-logo")
    session.run("zizmor", "--offline", "--pedantic", ".github/workflows")
    workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


def docs(session: nox.Session) -> None:
    """Generated files are up to date, locks fit their inputs, the site builds without a warning."""
    wheelmark(session, "check")
    wheelmark(session, "docs", "--check")
    wheelmark(session, "lock", "--check")
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", f"{session.virtualenv.location}/site")


def kernels(session: nox.Session) -> None:
    """The payload's numerics, in the build environment (triton and torch), never in ours."""
    locks = ["lockfiles/build.txt", "lockfiles/check.txt"]
    python = session.run("python", "-m", "wheelmark", "environment", *locks, silent=True)
    interpreter = str(python).strip().splitlines()[-1]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), str(ROOT / "src")])}
    session.run(interpreter, "-m", "pytest", "tests/kernels", "-q", external=True, env=environment)
