"""The contract's own subcommands: they pass on what is built, fail on planted faults, and say what they cannot run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Python = Callable[..., CompletedProcess[str]]
Planted = Callable[[Sequence[tuple[str, str, str]]], Path]
MODULE = ("-m", "wheelmark_kernels.contract")
PATHS = ("scalar", "avx2", "avx512")


def runnable(python: Python, folder: Path) -> str:
    """The widest path of this CPU."""
    done = python(folder, "-c", "import wheelmark_kernels as w; print(w.cpu_dispatch())")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def correctness(python: Python, folder: Path, path: str, tmp_path: Path) -> tuple[int, dict[str, Any], str]:
    report = tmp_path / f"{path}.json"
    done = python(folder, *MODULE, "correctness", "--report", str(report), WHEELMARK_KERNELS_CPU=path)
    return done.returncode, json.loads(report.read_text()) if report.exists() else {}, done.stderr


@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_this_cpu_keeps_the_contract(
    python: Python, package_folder: Path, path: str, tmp_path: Path
) -> None:
    code, report, said = correctness(python, package_folder, path, tmp_path)
    if PATHS.index(path) > PATHS.index(runnable(python, package_folder)):
        assert (code, report) == (3, {})
        assert f"asks for {path}" in said
        return
    assert code == 0, said
    assert report["dispatch"] == path
    assert report["schema"] == 1
    assert len(report["cases"]) > 300
    assert all(case["passed"] for case in report["cases"])
    assert {case["name"].split("/")[0] for case in report["cases"]} >= {
        "forward",
        "gradient",
        "threads",
        "refusal",
        "widening",
    }


FAULTS = {
    "tbe_avx512.cpp": ("return _mm512_add_ps(a, b);", "return _mm512_add_ps(a, _mm512_mul_ps(b, set(1.0001f)));"),
    "tbe_avx2.cpp": ("_mm256_slli_epi32(wide, 16)", "_mm256_slli_epi32(wide, 15)"),
    "tbe_scalar.cpp": ("return sum + row * factor; }\n  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return a / divisor; }\n  static WHEELMARK_INLINE void store(float* out, Register a) { std::memcpy", "return sum + row; }\n  static WHEELMARK_INLINE Register divide(Register a, Register divisor) { return a / divisor; }\n  static WHEELMARK_INLINE void store(float* out, Register a) { std::memcpy"),
}  # fmt: skip


def test_a_wrong_sum_in_one_path_is_caught_in_that_path(
    python: Python, planted: Planted, package_folder: Path, tmp_path: Path
) -> None:
    widest = runnable(python, package_folder)
    name = f"tbe_{widest}.cpp"
    folder = planted([(name, *FAULTS[name])])
    code, report, _ = correctness(python, folder, widest, tmp_path)
    assert code == 1
    failed = [case for case in report["cases"] if not case["passed"]]
    assert failed
    assert all(case["name"].startswith(("forward/", "widening/")) for case in failed)
    assert all(case["worst_index"] is not None for case in failed)
    if widest != "scalar":
        assert correctness(python, folder, "scalar", tmp_path)[0] == 0


OTHER_FAULTS = (
    ("tbe.cpp", "offsets[i] < offsets[i - 1]", "offsets[i] + 1 < offsets[i] - 1"),
    ("tbe.cpp", "begin * share);", "begin * share) + (begin != 0);"),
    ("tbe_pool.h", "mean && count > 1", "mean && count > 2"),
    ("tbe_pool.h", "const bool inside = row < rows_;", "const bool inside = row <= rows_;"),
    ("cpu_dispatch.cpp", "const CpuPath widest = widest_path();", "const CpuPath widest = CpuPath::scalar;"),
)


def test_planted_faults_are_caught_and_a_path_that_this_cpu_lacks_is_exit_3(
    python: Python, planted: Planted, tmp_path: Path
) -> None:
    folder = planted(OTHER_FAULTS)
    code, report, said = correctness(python, folder, "avx2", tmp_path)
    assert (code, report) == (3, {})
    assert "asks for avx2" in said
    code, report, _ = correctness(python, folder, "scalar", tmp_path)
    assert code == 1
    failed = {case["name"] for case in report["cases"] if not case["passed"]}
    assert "refusal/offsets-fall" in failed
    assert "refusal/index-beyond" in failed
    assert "forward/fp32-i64-d64-t3-b11-mean" in failed
    assert "forward/fp32-i64-d64-t3-b11-sum" not in failed
    assert any(name.startswith("threads/") for name in failed)


def test_an_unknown_path_is_an_error(python: Python, package_folder: Path) -> None:
    done = python(
        package_folder,
        "-c",
        "import wheelmark_kernels as w; w.cpu_dispatch()",
        WHEELMARK_KERNELS_CPU="sse9",
    )
    assert done.returncode == 1
    assert "ValueError: WHEELMARK_KERNELS_CPU is 'sse9'" in done.stderr


def test_performance_reports_pairs(python: Python, package_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = ("performance", "--pairs", "7", "--shape", "small", "--report", str(file))
    done = python(package_folder, *MODULE, *command)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert report["threads"] >= 1
    assert {(case["precision"], case["distribution"]) for case in report["cases"]} == {
        ("fp32", "uniform"),
        ("fp32", "zipf 1.05"),
        ("fp16", "uniform"),
        ("fp16", "zipf 1.05"),
    }
    for case in report["cases"]:
        assert len(case["ours_ns"]) == len(case["reference_ns"]) == 7
        assert min(case["ours_ns"] + case["reference_ns"]) > 0
        assert case["batch"] == case["shapes"]["batch"]
    assert set(report["versions"]) >= {"torch", "python", "wheelmark_kernels"}


@pytest.mark.parametrize("arguments", [(), ("other",), ("performance", "--pairs", "0")])
def test_wrong_usage_is_exit_2(python: Python, package_folder: Path, arguments: tuple[str, ...]) -> None:
    assert python(package_folder, *MODULE, *arguments).returncode == 2
