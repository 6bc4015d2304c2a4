"""Faults that the correctness gate has to find: in one dispatch path, in a kernel's source, in how a kernel is launched."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from checkouts import Checkout, evidence_of
from rewheeling import context_of, replacing, rewheeled, with_wheel
from wheelmark.config import HostArch
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import correctness
from wheelmark.gates.context import Context
from wheelmark.gates.contract import Ran, run_contract
from wheelmark.gates.fake_driver import build_fake_driver
from wheelmark.lock.environment import locked_environment
from wheelmark.pipeline.gating import judge_gate

AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
SOURCE = "triton_kernels/tbe_forward.py"
Faulty = Callable[..., Checkout]


def flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return set(next(line for line in lines if line.startswith("flags")).split())


def test_a_wrong_sum_in_one_dispatch_path(faulty: Faulty) -> None:
    # The widest path that runs here: narrow rows are handed down from avx512 to avx2.
    path, prefix = ("avx512", "_mm512") if flags() >= AVX512 else ("avx2", "_mm256")
    checkout = faulty("abi", "coverage", "size", "correctness", targets=("cpu-x86_64",))
    checkout.edit(
        f"kernels/csrc/tbe_{path}.cpp",
        f"return {prefix}_add_ps(a, b);",
        f"return {prefix}_add_ps(a, {prefix}_mul_ps(b, {prefix}_set1_ps(1.0001f)));",
    )
    checkout.made("build")
    ran = checkout.run("test")
    assert ran.code == 10
    evidence = evidence_of(ran, "cpu-x86_64")
    assert {gate: item["verdict"] for gate, item in evidence.items()} == {
        "abi": "PASSED",
        "coverage": "PASSED",
        "size": "PASSED",
        "correctness": "FAILED",
    }
    found = evidence["correctness"]
    assert (found["reason"], found["level"]) == ("wrong-result", "hardware")
    assert f"first: {path}: " in found["summary"]
    for other in ("scalar", "avx2", "avx512"):
        detail = found["details"][other]
        if other == path:
            assert detail["failed"]
            worst = detail["worst"]
            assert worst["passed"] is False
            assert worst["max_error"] > worst["tolerance"] > 0
            assert worst["worst_index"]
        elif "not_run" not in detail:
            assert detail["failed"] == []
    signed = checkout.run("sign")
    assert (signed.code, signed.reason) == (10, "gate")
    assert not (checkout.dist / "release.json").exists()
    assert not (checkout.dist / "bundles").exists()


@pytest.fixture
def gpu(release: Checkout, tmp_path: Path) -> Context:
    return context_of(release.apart(tmp_path), "cuda-sm90")


def test_kernel_source_that_was_not_the_one_compiled(gpu: Context, tmp_path: Path) -> None:
    wheel = rewheeled(
        gpu.wheel, tmp_path / "changed", {SOURCE: lambda data: data.replace(b"tl.float32", b"tl.float16")}
    )
    evidence = correctness.run(with_wheel(gpu, wheel))
    assert (evidence.verdict, evidence.reason, evidence.level) == (
        Verdict.FAILED,
        "source-digest",
        Level.STATIC,
    )
    assert evidence.details["kernels"] == ["tbe_forward"]


def swapped_parameters(data: bytes) -> bytes:
    """The manifest with the first two pointers of one variant in the other order."""
    manifest = json.loads(data)
    parameters = manifest["kernels"][0]["variants"][0]["parameters"]
    parameters[0], parameters[1] = parameters[1], parameters[0]
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def test_parameters_in_a_wrong_order(gpu: Context, tmp_path: Path) -> None:
    wheel = rewheeled(gpu.wheel, tmp_path / "changed", {"code_objects/manifest.json": swapped_parameters})
    evidence = correctness.run(with_wheel(gpu, wheel))
    assert (evidence.verdict, evidence.reason, evidence.level) == (
        Verdict.FAILED,
        "wrong-result",
        Level.EMULATED,
    )
    assert "first: launch: " in evidence.summary
    assert "parameters" in evidence.summary
    assert evidence.details["launch"]["failed"]
    assert evidence.details["interpret"]["failed"] == []
    assert evidence.details["fallback"]["failed"] == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("                variant.shared,\n", "                variant.shared + 64,\n", "shared"),
        ("                variant.threads,\n", "                variant.threads * 2,\n", "block"),
    ],
)
def test_a_launcher_that_breaks_the_contract(
    gpu: Context, tmp_path: Path, old: str, new: str, words: str
) -> None:
    wheel = rewheeled(gpu.wheel, tmp_path / "changed", {"wheelmark_kernels/launch.py": replacing(old, new)})
    context = with_wheel(gpu, wheel)
    environment = locked_environment([context.build_lock], cache=context.cache, wheels=[wheel])
    driver = build_fake_driver(context.cache)
    outcome = run_contract(
        environment.python,
        context.declaration.gates.correctness.module,
        ["launch", "--driver", str(driver), "--log", str(tmp_path / "calls.jsonl")],
    )
    assert isinstance(outcome, Ran)
    evidence = correctness.judge(context, [correctness.Run(name="launch", outcome=outcome)], Level.EMULATED)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "wrong-result")
    messages = [str(case["message"]) for case in evidence.details["launch"]["failed"]]
    assert any(words in message for message in messages), messages[:3]


def test_a_wheel_without_a_kernel_manifest(gpu: Context, tmp_path: Path) -> None:
    wheel = rewheeled(gpu.wheel, tmp_path / "changed", {"code_objects/manifest.json": lambda _data: b"{}"})
    evidence = judge_gate(correctness, with_wheel(gpu, wheel))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "kernel-manifest")


def test_without_a_compiler_it_is_unchecked(
    release: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(release, "cuda-sm90")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    evidence = judge_gate(correctness, context)
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.NONE,
        "no-compiler",
    )


def test_a_wheel_for_another_cpu_is_unchecked(tmp_path: Path) -> None:
    other = HostArch.AARCH64 if platform.machine() == "x86_64" else HostArch.X86_64
    context = wheelmaking.context(tmp_path, {"demo_kernels/__init__.py": b""})
    context = dataclasses.replace(context, row=dataclasses.replace(context.row, host=other))
    evidence = correctness.run(context)
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.NONE,
        "other-machine",
    )
