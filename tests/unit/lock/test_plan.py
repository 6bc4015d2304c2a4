import dataclasses
from pathlib import Path

import pytest

from wheelmark.config import Declaration, HostArch, TorchBuild, load_declaration
from wheelmark.errors import ConfigError
from wheelmark.lock import runtime_lock
from wheelmark.lock.plan import LockPlan, Torch, is_accelerator, plans

ROOT = Path(__file__).parents[3]


@pytest.fixture
def declaration(tmp_path: Path) -> Declaration:
    return dataclasses.replace(load_declaration(ROOT / "wheelmark.toml"), root=tmp_path)


def by_name(declaration: Declaration) -> dict[str, LockPlan]:
    return {plan.name: plan for plan in plans(declaration)}


def test_this_repository_has_all_eight() -> None:
    found = by_name(load_declaration(ROOT / "wheelmark.toml"))
    assert list(found) == [
        *("nox.txt", "tools.txt", "check.txt", "cibuildwheel.txt"),
        *("runtime-cpu.txt", "runtime-default.txt", "runtime-rocm.txt", "build.txt"),
    ]
    assert {text.split(">")[0] for text in found["nox.txt"].requirements} == {"nox", "uv"}
    assert "hatchling==1.33.0" in found["tools.txt"].requirements
    assert set(found["check.txt"].requirements) > set(found["tools.txt"].requirements)
    assert found["runtime-cpu.txt"].hosts == (HostArch.X86_64, HostArch.AARCH64)
    assert found["runtime-default.txt"].hosts == (HostArch.X86_64,)
    assert found["build.txt"].torch is Torch.CPU
    assert "triton==3.7.1" in found["build.txt"].requirements


def test_a_project_that_only_uses_the_pipeline_locks_what_it_builds_and_runs(
    declaration: Declaration,
) -> None:
    (declaration.root / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert set(by_name(declaration)) == {
        "runtime-cpu.txt",
        "runtime-default.txt",
        "runtime-rocm.txt",
        "build.txt",
    }


def test_only_builds_in_the_table_are_locked(declaration: Declaration) -> None:
    rows = tuple(row for row in declaration.targets if row.torch_build is TorchBuild.CPU)
    assert set(by_name(dataclasses.replace(declaration, targets=rows))) == {"runtime-cpu.txt", "build.txt"}


@pytest.mark.parametrize("field", ["torch", "torch_cpu_sha256", "triton"])
def test_each_declared_input_changes_the_digest_of_a_lock_that_holds_it(
    declaration: Declaration, field: str
) -> None:
    value = "f" * 64 if field == "torch_cpu_sha256" else "9.9"
    changed = dataclasses.replace(declaration, locks=dataclasses.replace(declaration.locks, **{field: value}))
    assert by_name(changed)["build.txt"].inputs != by_name(declaration)["build.txt"].inputs


def test_the_digest_does_not_depend_on_where_the_project_lies(
    declaration: Declaration, tmp_path: Path
) -> None:
    moved = dataclasses.replace(declaration, root=tmp_path / "else" / "where")
    assert [plan.inputs for plan in plans(moved)] == [plan.inputs for plan in plans(declaration)]


def test_groups_include_groups_and_malformed_ones_are_refused(declaration: Declaration) -> None:
    text = (
        '[project]\nname = "wheelmark"\ndependencies = ["a"]\n[project.optional-dependencies]\nbuild = ["nox", "uv"]\n'
        '[dependency-groups]\ndev = ["b", {include-group = "more"}]\nmore = ["c", {include-group = "dev"}]\n'
    )
    path = declaration.root / "pyproject.toml"
    path.write_text(text)
    assert set(by_name(declaration)["check.txt"].requirements) == {
        "a",
        "b",
        "c",
        "editables",
        "nox",
        "numpy",
        "uv",
    }
    for change, reason in (
        (('"b"', "3"), "pyproject"),
        (('["a"]', '"a"'), "pyproject"),
        (('"c"', '"c c"'), "requirement"),
        (("[project]", "[project"), "pyproject"),
    ):
        path.write_text(text.replace(*change))
        with pytest.raises(ConfigError) as refusal:
            plans(declaration)
        assert refusal.value.reason == reason


def test_accelerator_packages_are_known_by_name() -> None:
    assert [
        name
        for name in ("nvidia-cublas", "cuda-toolkit", "triton", "numpy", "jinja2")
        if is_accelerator(name)
    ] == [*("nvidia-cublas", "cuda-toolkit", "triton")]


def test_the_runtime_lock_of_a_build(tmp_path: Path) -> None:
    assert runtime_lock(tmp_path, TorchBuild.DEFAULT) == tmp_path / "lockfiles" / "runtime-default.txt"
