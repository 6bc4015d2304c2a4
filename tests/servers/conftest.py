"""The programs and the clients."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clients import Client, clients
from instances.verifiers import Asking
from presence import need_program, not_run

JAVASCRIPT = Path(__file__).parents[1] / "integration" / "sign" / "javascript"


@pytest.fixture(scope="session")
def programs() -> dict[str, Client]:
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = "127.0.0.1,localhost"
    return dict(clients())


@pytest.fixture(scope="session")
def servers() -> Path:
    folder = os.environ.get("WHEELMARK_SERVERS", "")
    if not folder or not Path(folder, "fulcio").is_file():
        not_run("WHEELMARK_SERVERS names no folder with the servers: tests/servers/build.py makes it")
    return Path(folder)


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("javascript")
    for path in JAVASCRIPT.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    command = [need_program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(
        [*command, "--omit-lockfile-registry-resolved"], cwd=folder, check=True, capture_output=True
    )
    return folder


@pytest.fixture
def asking(programs: dict[str, Client], javascript: Path, tmp_path: Path) -> Asking:
    return Asking(programs, javascript, tmp_path)
