"""The clients, the embedded domain that everything is signed in, and the table of results."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients import Client, clients
from instances.table import Table
from instances.verifiers import Asking
from presence import need_program, not_run
from wheelmark.sign import embedded

JAVASCRIPT = Path(__file__).parents[1] / "sign" / "javascript"


@pytest.fixture(scope="session", autouse=True)
def _no_proxy() -> None:
    """Go's programs would send loopback requests to a proxy that the environment names."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def programs() -> dict[str, Client]:
    return dict(clients())


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript verifier and the packages of its lock."""
    npm = need_program("npm")
    need_program("node")
    folder = tmp_path_factory.mktemp("javascript")
    for path in JAVASCRIPT.iterdir():
        shutil.copy(path, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        not_run("the npm registry does not answer")
    if done.returncode:
        if "EINTEGRITY" in done.stderr:
            pytest.fail(done.stderr)
        not_run(f"npm ci failed: {done.stderr.strip()[-300:]}")
    return folder


@pytest.fixture
def asking(programs: dict[str, Client], javascript: Path, tmp_path: Path) -> Asking:
    folder = tmp_path / "asked"
    folder.mkdir()
    return Asking(programs, javascript, folder)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of the embedded domain."""
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of somebody else's."""
    path = tmp_path_factory.mktemp("stranger") / "state"
    embedded.create(path)
    return path


@pytest.fixture(scope="session")
def table(programs: dict[str, Client]) -> Iterator[Table]:
    """Results for the page; written where ``WHEELMARK_INTEROP_PAGE`` names it."""
    made = Table(programs)
    yield made
    if page := os.environ.get("WHEELMARK_INTEROP_PAGE"):
        made.write(Path(page))
