from __future__ import annotations

from pathlib import Path

import pytest

from presence import build_environment, not_run
from sample_project import make_project
from wheelmark.build.compiler import Compiler, find_compiler
from wheelmark.config import Declaration, HostArch
from wheelmark.errors import ToolError
from wheelmark.lock.environment import Environment

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=list(HostArch), ids=lambda host: host.value)
def compiler(request: pytest.FixtureRequest) -> Compiler:
    """The compiler for each CPU; where there is none the test did not run, and says so."""
    try:
        return find_compiler(request.param)
    except ToolError as error:
        not_run(error.what)


@pytest.fixture
def declaration(tmp_path: Path) -> Declaration:
    return make_project(tmp_path / "project")


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A header tree that says it is torch's; the sample project includes nothing of it."""
    folder = tmp_path / "site/torch/include"
    (folder / "torch/headeronly").mkdir(parents=True)
    lines = [
        f"#define TORCH_VERSION_{name} {value}\n"
        for name, value in {"MAJOR": 2, "MINOR": 13, "PATCH": 0}.items()
    ]
    (folder / "torch/headeronly/version.h").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def torch_environment() -> Environment:
    """The pipeline's own build environment: torch and triton, by hash."""
    return build_environment()
