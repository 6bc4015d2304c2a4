"""A fresh embedded domain for each test; its keys are made once for each module, since they are slow to make."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wheelmark.sign import embedded


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture
def state(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The state directory of somebody else."""
    embedded.create(tmp_path / "other")
    return tmp_path / "other"
