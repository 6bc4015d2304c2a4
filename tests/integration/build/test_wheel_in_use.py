"""A wheel with a real operator, built against real torch headers, installed by real installers and called."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from sample_project import make_project
from wheelmark.build.native import build_native
from wheelmark.build.wheel import assemble_wheel
from wheelmark.config import Declaration
from wheelmark.lock.environment import Environment
from wheelmark.sbom import embedded_document
from wheelmark.sbom.inputs import read_inputs
from wheelmark.targets import Target

ROOT = Path(__file__).parents[3]
OPERATOR = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

using torch::stable::Tensor;

static Tensor twice(const Tensor& input) {
  STD_TORCH_CHECK(input.is_contiguous(), "input is not contiguous");
  Tensor output = torch::stable::empty_like(input);
  const float* from = static_cast<const float*>(input.data_ptr());
  float* to = static_cast<float*>(output.data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = 2 * from[i];
  return output;
}

STABLE_TORCH_LIBRARY(demo_kernels, library) { library.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(demo_kernels, CPU, library) { library.impl("twice", TORCH_BOX(&twice)); }
"""
PACKAGE = '''"""Demo."""

from pathlib import Path

import torch

torch.ops.load_library(str(Path(__file__).parent / "_native.so"))
'''
CALL = """
import importlib.metadata
import torch
import demo_kernels
print(torch.ops.demo_kernels.twice(torch.arange(3.0)).tolist())
try:
    torch.ops.demo_kernels.twice(torch.zeros(2, 2).t())
except RuntimeError as error:
    print("refused:", "csrc/two.cpp" in str(error) and "not contiguous" in str(error))
print(importlib.metadata.version("demo-kernels"))
print(importlib.metadata.metadata("demo-kernels")["License-Expression"])
"""
METADATA = """
import importlib.metadata, json
from packaging.requirements import Requirement
graph = {}
for found in importlib.metadata.distributions():
    needs = [Requirement(text) for text in found.requires or []]
    graph[found.name.lower().replace("_", "-")] = sorted(
        need.name.lower().replace("_", "-") for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
    )
print(json.dumps(graph))
"""


def run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Declaration:
    declaration = make_project(tmp_path / "project")
    (declaration.root / "payload/csrc/two.cpp").write_text(OPERATOR)
    (declaration.root / "payload/demo_kernels/__init__.py").write_text(PACKAGE)
    two = dataclasses.replace(declaration.native, sources=(Path("csrc/two.cpp"),))
    return dataclasses.replace(declaration, native=two)


@pytest.fixture
def wheel(project: Declaration, tmp_path: Path, torch_environment: Environment) -> Path:
    row = project.row(Target.parse("cpu-x86_64"))
    native = build_native(
        project,
        row.host,
        torch_include=torch_environment.site_packages / "torch/include",
        cache=tmp_path / "cache",
    )
    return assemble_wheel(
        project,
        row,
        native=native,
        kernels=None,
        output=tmp_path,
        sbom=functools.partial(embedded_document, declaration=project, row=row, native=native),
    )


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installed_and_called(
    wheel: Path, tmp_path: Path, torch_environment: Environment, installer: str
) -> None:
    assert "Done testing" in run([sys.executable, "-m", "zipfile", "-t", wheel])
    home = tmp_path / installer
    venv.create(home, with_pip=installer == "pip")
    python = home / "bin/python"
    if installer == "pip":
        run([python, "-m", "pip", "install", "--no-deps", "--no-index", wheel])
    else:
        run(
            [
                sys.executable,
                "-m",
                "uv",
                "pip",
                "install",
                "--no-deps",
                "--offline",
                "--python",
                python,
                wheel,
            ]
        )
    site = next((home / "lib").glob("python*/site-packages"))
    # torch comes from the build environment; the wheel's package from the one that it was installed into.
    (site / "torch.pth").write_text(f"{torch_environment.site_packages}\n")
    assert run([python, "-I", "-W", "ignore", "-c", CALL]).splitlines() == [
        "[0.0, 2.0, 4.0]",
        "refused: True",
        "0.1.0+cpu",
        "Apache-2.0",
    ]
    info = site / "demo_kernels-0.1.0+cpu.dist-info"
    assert (info / "sboms/demo_kernels.cdx.json").is_file()
    assert (info / "licenses/licences/NOTICE").is_file()


def test_stated_requirements_are_those_of_the_installed_packages(torch_environment: Environment) -> None:
    installed = json.loads(
        run(
            [
                sys.executable,
                "-I",
                "-c",
                f"import sys; sys.path.insert(0, {str(torch_environment.site_packages)!r})\n" + METADATA,
            ]
        )
    )
    inputs = read_inputs(ROOT)
    for name in ("torch", "jinja2", "sympy"):
        stated = set(inputs.package(name).requires)
        assert set(installed[name]) <= stated, name
