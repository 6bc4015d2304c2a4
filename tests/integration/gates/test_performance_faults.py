"""Slowdowns: in a payload that is timed here, and in the recorded figures of kernels that are not run here."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkouts import Checkout, evidence_of
from payloads import payload
from rewheeling import context_of
from wheelmark.binaries.kernelmanifest import read_kernel_manifest
from wheelmark.binaries.wheel import read_wheel
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import performance
from wheelmark.gates.context import Context
from wheelmark.pipeline.gating import judge_gate

Faulty = Callable[..., Checkout]


def timed(ours: str, theirs: str = "[100] * 8", **more: str) -> str:
    members = "".join(f", {key!r}: {value}" for key, value in more.items())
    return f'write({{**GOOD, "cases": [{{"name": "pool", "ours_ns": {ours}, "reference_ns": {theirs}{members}}}]}})'


@pytest.mark.parametrize(
    ("contract", "verdict", "reason"),
    [
        (timed("[50] * 8"), Verdict.PASSED, ""),
        (timed("[100] * 8"), Verdict.PASSED, ""),
        (timed("[200] * 8"), Verdict.FAILED, "slower-than-limit"),
        (timed("[90, 200] * 4"), Verdict.UNCHECKED, "undecided"),
        (timed("[90] + [200] * 7"), Verdict.UNCHECKED, "undecided"),
        (timed("[200] * 5", "[100] * 5"), Verdict.UNCHECKED, "undecided"),
        (timed("[200] * 8", "[100] * 7"), Verdict.FAILED, "contract-broke"),
        (timed("[0] * 8"), Verdict.FAILED, "contract-broke"),
        (timed('["1"] * 8'), Verdict.FAILED, "contract-broke"),
        (timed("[]", "[]"), Verdict.FAILED, "contract-broke"),
        ('write({**GOOD, "cases": ["pool"]})', Verdict.FAILED, "contract-broke"),
        ("print('no such card'); sys.exit(3)", Verdict.UNCHECKED, "path-not-run"),
    ],
)
def test_what_is_timed(tmp_path: Path, contract: str, verdict: Verdict, reason: str) -> None:
    evidence = performance.run(payload(tmp_path, contract))
    assert (evidence.verdict, evidence.reason) == (verdict, reason), evidence.summary
    if reason == "slower-than-limit":
        assert "whole interval above 1.1 (from 2.00)" in evidence.summary
    if reason == "path-not-run":
        assert evidence.level is Level.NONE


def test_one_slow_case_of_many_fails_the_gate(tmp_path: Path) -> None:
    contract = """
    fast, slow = [100] * 8, [300] * 8
    cases = [{"name": f"case{n}", "ours_ns": slow if n == 3 else fast, "reference_ns": fast} for n in range(6)]
    write({**GOOD, "cases": cases})
    """
    evidence = performance.run(payload(tmp_path, contract))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "slower-than-limit")
    assert evidence.summary.startswith("case3: ")


def test_an_operator_that_does_its_work_several_times(release: Checkout, faulty: Faulty) -> None:
    """As often as it takes on this machine to bring a case over the limit, twice at least; its results stay right."""
    (path,) = release.dist.glob("evidence/*+cpu-*/performance.json")
    healthy = json.loads(path.read_bytes())["details"]
    highest = max(case["ratio"]["median"] for case in healthy["cases"])
    times = max(2, math.ceil(1.5 * healthy["limit"] / highest))
    checkout = faulty("abi", "coverage", "size", "performance", targets=("cpu-x86_64",))
    checkout.edit(
        "kernels/wheelmark_kernels/tbe.py",
        "    result: Tensor = torch.ops.wheelmark.tbe_forward(\n",
        f"    for _ in range({times - 1}):\n"
        "        torch.ops.wheelmark.tbe_forward(\n"
        '            weights, table_offsets, indices, offsets, per_sample_weights, mode == "mean"\n'
        "        )\n"
        "    result: Tensor = torch.ops.wheelmark.tbe_forward(\n",
    )
    checkout.made("build")
    ran = checkout.run("test")
    assert ran.code == 10
    evidence = evidence_of(ran, "cpu-x86_64")
    assert {gate: item["verdict"] for gate, item in evidence.items()} == {
        "abi": "PASSED",
        "coverage": "PASSED",
        "size": "PASSED",
        "performance": "FAILED",
    }
    found = evidence["performance"]
    assert (found["reason"], found["level"]) == ("slower-than-limit", "hardware")
    slow = [case for case in found["details"]["cases"] if case["verdict"] == "FAILED"]
    assert slow
    limit = found["details"]["limit"]
    assert all(case["ratio"]["low"] > limit for case in slow)
    assert {"precision", "batch", "distribution", "shapes", "pairs"} <= set(slow[0])
    assert {"cpu", "cpus", "python", "torch", "threads"} <= set(found["environment"])


@pytest.fixture
def gpu(release: Checkout) -> Context:
    return context_of(release, "cuda-sm90")


def figures_of(context: Context) -> dict[str, dict[str, int]]:
    wheel = read_wheel(context.wheel)
    return performance.static_figures(
        read_kernel_manifest(wheel.read("wheelmark_kernels/code_objects/manifest.json"))
    )


def against(context: Context, folder: Path, baseline: Any) -> Context:
    """The context with a committed baseline."""
    (folder / "baseline.json").write_text(json.dumps(baseline), encoding="utf-8")
    gates = context.declaration.gates
    measured = dataclasses.replace(gates.performance, baseline=Path("baseline.json"))
    declaration = dataclasses.replace(
        context.declaration, root=folder, gates=dataclasses.replace(gates, performance=measured)
    )
    return dataclasses.replace(context, declaration=declaration)


def test_figures_within_the_baseline(gpu: Context, tmp_path: Path) -> None:
    evidence = performance.run(against(gpu, tmp_path, {"cuda-sm90": figures_of(gpu)}))
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)
    assert "compiled, not executed" in evidence.summary


@pytest.mark.parametrize("figure", performance.FIGURES)
def test_a_figure_that_got_worse(gpu: Context, tmp_path: Path, figure: str) -> None:
    figures = figures_of(gpu)
    name = min(figures)
    was = figures[name][figure] - 1
    figures[name] = {**figures[name], figure: was}
    evidence = performance.run(against(gpu, tmp_path, {"cuda-sm90": figures}))
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.FAILED,
        Level.STATIC,
        "static-regression",
    )
    assert evidence.details["worse"] == [f"{name}: {figure} {was} -> {was + 1}"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda figures, name: figures.pop(name), "not in the baseline"),
        (lambda figures, name: figures.update({"other/variant": figures[name]}), "not in the wheel"),
        (lambda figures, name: figures[name].pop("registers"), "registers has no number in the baseline"),
        (lambda figures, name: figures.update({name: 40}), "registers has no number in the baseline"),
        (lambda figures, name: figures[name].update(registers="40"), "registers has no number"),
    ],
)
def test_a_baseline_that_leaves_something_out_proves_nothing(
    gpu: Context, tmp_path: Path, change: Callable[[Any, str], Any], words: str
) -> None:
    figures = figures_of(gpu)
    change(figures, min(figures))
    evidence = performance.run(against(gpu, tmp_path, {"cuda-sm90": figures}))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "static-regression")
    assert any(words in line for line in evidence.details["worse"])


@pytest.mark.parametrize("baseline", [{}, {"cuda-sm80": {}}, {"cuda-sm90": []}])
def test_without_figures_of_the_target_it_is_unchecked(
    gpu: Context, tmp_path: Path, baseline: dict[str, Any]
) -> None:
    evidence = performance.run(against(gpu, tmp_path, baseline))
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "no-baseline")


def test_a_baseline_that_cannot_be_read_fails(gpu: Context, tmp_path: Path) -> None:
    context = against(gpu, tmp_path, {})
    (tmp_path / "baseline.json").write_text("{", encoding="utf-8")
    evidence = judge_gate(performance, context)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "json-syntax")


def test_a_baseline_that_is_not_there_is_unchecked(gpu: Context, tmp_path: Path) -> None:
    context = against(gpu, tmp_path, {})
    (tmp_path / "baseline.json").unlink()
    evidence = performance.run(context)
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "no-baseline")
