"""This interpreter as one that is installed into: an environment of folders in ``tmp_path``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from handinstalled import Installed, spread
from wheelmark.deploy.interpreter import Interpreter, read_interpreter


@pytest.fixture(scope="session")
def this_python() -> Interpreter:
    return read_interpreter(Path(sys.executable))


@pytest.fixture
def environment(this_python: Interpreter, tmp_path: Path) -> Interpreter:
    """An environment of folders; this interpreter answers for it."""
    site = tmp_path / "env" / "site"
    scripts = tmp_path / "env" / "bin"
    for folder in (site, scripts):
        folder.mkdir(parents=True)
    return dataclasses.replace(
        this_python,
        prefix=tmp_path / "env",
        purelib=site,
        platlib=site,
        scripts=scripts,
        data=tmp_path / "env",
        packages={},
    )


@pytest.fixture
def demo(environment: Interpreter) -> Installed:
    return spread(environment)
