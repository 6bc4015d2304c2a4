"""Verification needs no network and nothing but Wheelmark's own requirements."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from checkouts import REPOSITORY, Checkout
from presence import not_run
from wheelmark.lock.environment import Environment, locked_environment
from wheelmark.packages.pins import read_pins

# Not jwt, though our own code does not use it here: sigstore needs it.
ABSENT = (
    "torch",
    "triton",
    "cyclonedx",
    "nox",
    "asn1crypto",
    "jsonschema_rs",
    "pip_audit",
    "uv",
    "pytest",
    "packageurl",
)
NO_CONNECTIONS = """
import os, sys

# Opening a socket is not yet talking: urllib3, which sigstore imports, tries whether this machine knows IPv6 that way.
TALK = {"connect", "sendto", "sendmsg", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo"}

def refuse(event, arguments):
    if event.startswith("socket.") and event.removeprefix("socket.") in TALK:
        sys.stderr.write(f"talks: {event}\\n")
        sys.stderr.flush()
        os._exit(99)

sys.addaudithook(refuse)
"""


def closure(requirements: list[str]) -> set[str]:
    """Names of packages that requirements need, as the installed ones say."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (
            requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        for extra in requirement.extras:
            waiting += [
                item
                for item in map(Requirement, importlib.metadata.requires(name) or ())
                if item.marker is not None and item.marker.evaluate({"extra": extra})
            ]
    return found


@pytest.fixture(scope="module")
def core(release: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment of what an operator installs: the requirements of ``wheelmark`` without extras, locked."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    names = closure(declared)
    lock = tmp_path_factory.mktemp("core") / "core.txt"
    pins = [pin for pin in read_pins(REPOSITORY / "lockfiles/tools.txt") if pin.name in names]
    lock.write_text("".join(pin.lines() for pin in pins), encoding="utf-8")
    return locked_environment([lock], cache=release.environments)


def verified(
    small: Checkout, python: Path, *before: str, dist: Path | None = None, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Verify with another interpreter: nothing of this process' surroundings but the state directory."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{path}:{small.root / 'src'}" if path else str(small.root / "src"),
        "WHEELMARK_STATE": str(small.state),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        *before,
        str(python),
        "-m",
        "wheelmark",
        "verify",
        str(dist or small.dist),
        "--policy",
        str(small.policy),
    ]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)


def damaged(small: Checkout, folder: Path) -> Path:
    shutil.copytree(small.dist, folder / "dist")
    (path,) = (folder / "dist").glob("wheels/*.whl")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return folder / "dist"


def test_with_core_requirements_only(small: Checkout, core: Environment, tmp_path: Path) -> None:
    done = verified(small, core.python)
    assert done.returncode == 0, done.stderr
    assert "ACCEPTED" in done.stdout
    refused = verified(small, core.python, dist=damaged(small, tmp_path))
    assert refused.returncode == 1
    assert "file-digest" in refused.stdout
    script = f"import importlib.util as u; print([n for n in {ABSENT!r} if u.find_spec(n)])"
    seen = subprocess.run([str(core.python), "-I", "-c", script], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


def test_a_command_that_builds_says_what_it_lacks(small: Checkout, core: Environment) -> None:
    """Not a traceback, and not exit 1, which says "rejected"."""
    for stage in ("build", "sign"):
        done = subprocess.run(
            [str(core.python), "-m", "wheelmark", stage],
            cwd=small.root,
            env=small.variables({"WHEELMARK_DIST": "unused"}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode not in {0, 1}, done.stderr
        assert "Traceback" not in done.stderr


def test_no_connection_is_tried(small: Checkout, core: Environment, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(NO_CONNECTIONS, encoding="utf-8")
    probe = subprocess.run(
        [str(core.python), "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (probe.returncode, "talks: socket.getaddrinfo" in probe.stderr) == (99, True)
    done = verified(small, core.python, path=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cut_off() -> list[str]:
    """What runs a command without any network."""
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-current-user"]
    if shutil.which("unshare") is None:
        not_run("there is no unshare on this machine")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        not_run(f"this machine lets nobody cut off the network: {tried.stderr.strip()}")
    return words


def test_with_the_network_cut_off(
    small: Checkout, core: Environment, cut_off: list[str], tmp_path: Path
) -> None:
    there = subprocess.run(
        [*cut_off, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"^\s*(\w+):", there, re.MULTILINE)) <= {"lo"}
    done = verified(small, core.python, *cut_off)
    assert done.returncode == 0, done.stderr
    refused = verified(small, core.python, *cut_off, dist=damaged(small, tmp_path))
    assert refused.returncode == 1
    assert "file-digest" in refused.stdout
