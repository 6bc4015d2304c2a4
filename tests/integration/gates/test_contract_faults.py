"""A contract module that says nothing, breaks or hangs proves nothing: every such run is FAILED, never PASSED."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from payloads import MODULE, payload
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import correctness, performance
from wheelmark.gates.context import Context
from wheelmark.gates.contract import Broke, run_contract
from wheelmark.lock.environment import locked_environment


def python_of(context: Context) -> Path:
    return locked_environment([context.lock], cache=context.cache, wheels=[context.wheel]).python


def test_a_contract_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    evidence = correctness.run(payload(tmp_path, "write(GOOD)", dispatch=("scalar", "wide")))
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.HARDWARE)
    assert evidence.summary == "2 cases over scalar, wide"
    assert evidence.environment["demo"] == "1"


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        ('write({**GOOD, "cases": []})', "the report has no cases"),
        ('write({"schema": 1, "dispatch": path})', "the report has no cases"),
        ('write({**GOOD, "schema": 2})', "the report has schema 2"),
        ('write({**GOOD, "versions": ["1"]})', "the versions in the report are no object"),
        ("raise SystemExit(0)", "wrote no report (exit 0)"),
        ("raise RuntimeError('no such symbol')", "no such symbol"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "wrote no report (signal 11)"),
        (
            "write(GOOD); os.kill(os.getpid(), signal.SIGABRT)",
            "(signal 6): no case failed, and yet the run did",
        ),
        ("write(GOOD); raise SystemExit(1)", "(exit 1): no case failed, and yet the run did"),
        ('open(report, "w").write("{\\"schema\\": 1")', "report of demo_kernels.contract correctness"),
        ('open(report, "w").write("[" * 100000)', "report of demo_kernels.contract correctness"),
        ('open(report, "w").write(" " * (17 << 20))', "the report is over 16,777,216 bytes"),
    ],
)
def test_a_broken_contract_fails_the_gate(tmp_path: Path, contract: str, words: str) -> None:
    context = payload(tmp_path, contract)
    evidence = correctness.run(context)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "wrong-result")
    assert words in evidence.details["scalar"]["broke"]
    measured = performance.run(context)
    assert (measured.verdict, measured.reason) == (Verdict.FAILED, "contract-broke")


@pytest.mark.parametrize(
    ("case", "worst"),
    [
        ('case("sum", 2e-6, worst_index=[3, 1])', "sum"),
        ('{"name": "sum", "max_error": 0.0, "tolerance": 1.0}', "first"),
        ('{"name": "sum", "passed": 1, "max_error": 0.0, "tolerance": 1.0}', "first"),
        ('{"name": "sum", "passed": False, "max_error": None, "tolerance": 1.0}', "sum"),
        ('"sum"', "first"),
    ],
)
def test_a_case_that_did_not_pass_is_named(tmp_path: Path, case: str, worst: str) -> None:
    contract = f'write({{**GOOD, "cases": [case("first", 5e-7), {case}]}})'
    evidence = correctness.run(payload(tmp_path, contract))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "wrong-result")
    assert "scalar: " in evidence.summary
    assert "sum" in evidence.summary
    assert evidence.details["scalar"]["worst"]["name"] == worst


def test_another_path_than_the_one_asked_for_fails(tmp_path: Path) -> None:
    evidence = correctness.run(payload(tmp_path, 'write({**GOOD, "dispatch": "wide"})'))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "wrong-result")
    assert "asked for scalar, ran 'wide'" in evidence.summary


def test_a_path_that_this_cpu_lacks_is_unchecked(tmp_path: Path) -> None:
    contract = (
        'if path == "wide":\n    print("this CPU has no wide registers")\n    sys.exit(3)\nwrite(GOOD)\n'
    )
    evidence = correctness.run(payload(tmp_path, contract, dispatch=("scalar", "wide")))
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.HARDWARE,
        "path-not-run",
    )
    assert evidence.details["wide"] == {"not_run": "this CPU has no wide registers"}


def test_nothing_that_can_run_is_level_none(tmp_path: Path) -> None:
    evidence = correctness.run(payload(tmp_path, "sys.exit(3)"))
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.NONE,
        "path-not-run",
    )


def test_a_hanging_contract_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    # The child keeps the output open: whoever waited for its end would wait as long as it lives.
    contract = """
    noted = os.environ["DEMO_CHILD"]
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", noted])
    open(noted, "w").close()
    time.sleep(3600)
    """
    noted = tmp_path / "child"
    context = payload(tmp_path, contract)
    outcome = run_contract(
        python_of(context), MODULE, ["correctness"], environment={"DEMO_CHILD": str(noted)}, timeout=5
    )
    assert outcome == Broke(why=f"{MODULE} correctness did not end within 5 s")
    assert noted.exists()
    assert ended(str(noted))
    evidence = correctness.judge(context, [correctness.Run(name="scalar", outcome=outcome)], Level.HARDWARE)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "wrong-result")


def ended(marker: str) -> bool:
    """Whether every process with this among its arguments is gone (process ids inside say nothing out here)."""
    for _ in range(500):
        if not running(marker):
            return True
        time.sleep(0.01)
    for pid in running(marker):
        os.kill(pid, 9)
    return False


def running(marker: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
