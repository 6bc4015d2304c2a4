"""Which runs the correctness gate asks for on a CPU target."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wheelmaking
from wheelmark.config import HostArch
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import correctness
from wheelmark.gates.context import Context
from wheelmark.gates.contract import Ran

CASE = {"name": "one", "passed": True, "max_error": 0.0, "tolerance": 0.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The variables of each run of a contract that passes one case and echoes the path it was given."""
    seen: list[Mapping[str, str]] = []

    def contract(
        _python: Path, _module: str, arguments: Sequence[str], *, environment: Mapping[str, str]
    ) -> Any:
        assert list(arguments) == ["correctness"]
        seen.append(environment)
        return Ran(report={"schema": 1, "cases": [CASE], "dispatch": "".join(environment.values())})

    monkeypatch.setattr(correctness, "run_contract", contract)
    monkeypatch.setattr(correctness, "locked_environment", lambda *_a, **_k: SimpleNamespace(python=Path()))
    return seen


def with_dispatch(folder: Path, *paths: str) -> Context:
    context = wheelmaking.context(folder, {"demo_kernels/__init__.py": b""})
    gates = context.declaration.gates
    settings = dataclasses.replace(gates.correctness, dispatch=paths, dispatch_variable="DEMO_CPU")
    declaration = dataclasses.replace(
        context.declaration, gates=dataclasses.replace(gates, correctness=settings)
    )
    row = dataclasses.replace(context.row, host=HostArch(platform.machine()))
    return dataclasses.replace(context, declaration=declaration, row=row)


def test_each_dispatch_path_is_forced_in_turn(tmp_path: Path, asked: list[Mapping[str, str]]) -> None:
    evidence = correctness.run(with_dispatch(tmp_path, "scalar", "avx2"))
    assert asked == [{"DEMO_CPU": "scalar"}, {"DEMO_CPU": "avx2"}]
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.HARDWARE)


def test_a_project_without_paths_is_run_once_and_not_passed_unseen(
    tmp_path: Path, asked: list[Mapping[str, str]]
) -> None:
    evidence = correctness.run(with_dispatch(tmp_path))
    assert asked == [{}]
    assert (evidence.verdict, evidence.summary) == (Verdict.PASSED, "1 cases over correctness")
