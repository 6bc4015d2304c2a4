from __future__ import annotations

import dataclasses
from pathlib import Path

import wheelmaking as make
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import size

FILES = {make.LIBRARY: bytes(range(256)) * 40, "demo_kernels/__init__.py": b""}


def test_within_the_budget(tmp_path: Path) -> None:
    context = make.context(tmp_path, FILES)
    evidence = size.run(context)
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)
    assert evidence.subject == context.sha256
    assert evidence.details["size"] == context.wheel.stat().st_size
    assert evidence.details["files"][make.LIBRARY]["size"] == 10_240


def test_the_budget_itself_is_allowed_and_one_byte_more_is_not(tmp_path: Path) -> None:
    exact = make.context(tmp_path, FILES).wheel.stat().st_size
    assert size.run(make.context(tmp_path, FILES, size_budget=exact)).verdict is Verdict.PASSED
    evidence = size.run(make.context(tmp_path, FILES, size_budget=exact - 1))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "over-budget")


def test_what_grew_is_named(tmp_path: Path) -> None:
    files = {**FILES, "demo_kernels/big.bin": make.golden("native.so") * 40}
    evidence = size.run(make.context(tmp_path, files, size_budget=4_000))
    assert evidence.reason == "over-budget"
    assert next(iter(evidence.details["files"])) == "demo_kernels/big.bin"
    assert "demo_kernels/big.bin" in evidence.summary


def test_another_wheel_than_the_evidence_is_about(tmp_path: Path) -> None:
    context = dataclasses.replace(make.context(tmp_path, FILES), sha256="0" * 64)
    assert size.run(context).reason == "other-bytes"


def test_a_wheel_that_is_malformed(tmp_path: Path) -> None:
    context = make.context(tmp_path, FILES)
    context.wheel.write_bytes(context.wheel.read_bytes() + b"\0")
    assert (size.run(context).verdict, size.run(context).reason) == (Verdict.FAILED, "wheel-zip")
