"""The kernels' Triton source in the interpreter: right as it is, and each planted fault found."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
Python = Callable[..., subprocess.CompletedProcess[str]]

FAULTS = {
    "total = total / tl.maximum(end - begin, 1).to(tl.float32)": "total = total / tl.maximum(end - begin, 2).to(tl.float32)",
    "in_table = (index >= 0) & (index < rows)": "in_table = index < rows",
    "row = row * factor[:, None]": "row = row * factor[:, None].to(tl.float16).to(tl.float32)",
    "| (end > num_indices)": "| (end > num_indices + 1)",
}  # fmt: skip
FOUND = {
    "interpret/fp32-i32-d3-t3-b3-mean",
    "interpret/bf16-i64-d160-t3-b3-mean",
    "interpret/fp16-i64-d3-t3-b3-weighted-sum",
    "interpret/fp32-i64-d160-t3-b3-weighted-sum",
    "interpret/bad-index-negative",
}


def interpret(python: Python, package: Path, folder: Path) -> tuple[int, dict[str, bool]]:
    report = folder / "report.json"
    done = python(package, "-m", "wheelmark_kernels.contract", "interpret", "--report", str(report))
    assert report.is_file(), done.stderr
    value = json.loads(report.read_bytes())
    assert value["versions"]["triton"]
    return done.returncode, {case["name"]: case["passed"] for case in value["cases"]}


def test_the_source_is_right(python: Python, package_folder: Path, tmp_path: Path) -> None:
    code, cases = interpret(python, package_folder, tmp_path)
    assert (code, [name for name, passed in cases.items() if not passed]) == (0, [])
    combinations = {
        f"interpret/{dtype}-{indices}-d3-t3-b3-{factors}{pooling}"
        for dtype in ("fp32", "fp16", "bf16")
        for indices in ("i32", "i64")
        for factors in ("", "weighted-")
        for pooling in ("sum", "mean")
    }
    assert combinations | FOUND <= set(cases)


def test_planted_faults_are_found(python: Python, package_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(package_folder / "wheelmark_kernels", tmp_path / "wheelmark_kernels")
    file = tmp_path / "wheelmark_kernels" / "triton_kernels" / "tbe_forward.py"
    text = file.read_text(encoding="utf-8")
    for old, new in FAULTS.items():
        assert text.count(old) == 1, f"the kernel no longer holds {old!r} once: correct the planted fault"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    code, cases = interpret(python, tmp_path, tmp_path)
    assert code == 1
    assert {name for name in FOUND if cases[name]} == set()
    assert cases["interpret/fp32-i32-d3-t3-b3-sum"], "a case that no fault touches still passes"


def test_constants_without_code_objects_are_the_declared_ones(payload: ModuleType) -> None:
    module = importlib.import_module(f"{payload.__name__}.contract.interpret")
    declared = tomllib.loads((ROOT / "kernels" / "kernels.toml").read_text(encoding="utf-8"))
    assert list(module.UNCOMPILED) == [kernel["constants"] for kernel in declared["kernel"]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_package_with_a_damaged_manifest_is_not_interpreted(
    python: Python, package_folder: Path, tmp_path: Path, number: int
) -> None:
    shutil.copytree(package_folder / "wheelmark_kernels", tmp_path / "wheelmark_kernels")
    objects = tmp_path / "wheelmark_kernels" / "code_objects"
    objects.mkdir()
    (objects / "manifest.json").write_text(("{", '{"schema": "other"}')[number], encoding="utf-8")
    report = tmp_path / "report.json"
    done = python(tmp_path, "-m", "wheelmark_kernels.contract", "interpret", "--report", str(report))
    assert done.returncode not in {0, 3}
    assert "[manifest]" in done.stderr
    assert not report.exists()
