"""The build environment: an interpreter with Triton and torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from wheelmark.lock import locked_environment


@pytest.fixture(scope="session")
def build_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter in WHEELMARK_BUILD_PYTHON, this one if it has Triton, or one made from the lock."""
    if "WHEELMARK_BUILD_PYTHON" in os.environ:
        return Path(os.environ["WHEELMARK_BUILD_PYTHON"])
    if importlib.util.find_spec("triton") is not None:
        return Path(sys.executable)
    lock = Path(__file__).parents[4] / "lockfiles" / "build.txt"
    return locked_environment([lock], cache=tmp_path_factory.mktemp("cache")).python
