"""Wheels that others made, from whatever index pip is configured with: the reader has to accept them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from presence import not_run
from wheelmark import digests
from wheelmark.binaries.elf import is_elf, read_elf
from wheelmark.binaries.wheel import read_wheel

PROJECTS = ["six", "packaging", "numpy", "uv", "cryptography", "hatchling", "auditwheel"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "-q",
        "-d",
        str(folder),
    ]
    done = subprocess.run([*command, *PROJECTS], check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        not_run(f"pip could not download: {done.stderr[-200:]}")
    return folder


@pytest.mark.parametrize("project", PROJECTS)
def test_ordinary_wheels(folder: Path, project: str) -> None:
    path = next(folder.glob(f"{project}-*.whl"))
    wheel = read_wheel(path)
    assert wheel.name == project
    assert wheel.sha256 == digests.sha256_file(path)
    with zipfile.ZipFile(path) as archive:
        assert set(wheel.files) == {name for name in archive.namelist() if not name.endswith("/")}
        for name in list(wheel.files)[:20]:
            data = wheel.read(name)
            assert data == archive.read(name)
            if is_elf(data):
                assert read_elf(data).dynamic is not None
