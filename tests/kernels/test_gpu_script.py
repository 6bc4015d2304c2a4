"""tests/gpu/run.py up to the point where a card is needed, and the evidence that it would write."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wheelmark.evidence import Evidence, Level, Verdict

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_run", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, manifest: str | None = '{"target": "cuda-sm90"}') -> Path:
    path = folder / "wheelmark_kernels-0.1.0+sm90-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("wheelmark_kernels/__init__.py", "")
        if manifest is not None:
            archive.writestr("wheelmark_kernels/code_objects/manifest.json", manifest)
    return path


def run(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(SCRIPT), *arguments],
        capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def test_without_a_card_nothing_is_installed_and_no_evidence_written(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.json"
    path = wheel(tmp_path)
    done = run(str(path), "--evidence", str(evidence))
    assert done.returncode == 3
    assert "finds no card on this machine: nothing was run, and no evidence is written" in done.stderr
    assert hashlib.sha256(path.read_bytes()).hexdigest() in done.stdout
    assert not evidence.exists()


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    done = run(str(tmp_path / "absent.whl"), "--evidence", str(tmp_path / "e.json"))
    assert done.returncode == 2
    assert "there is no wheel" in done.stderr


@pytest.mark.parametrize("manifest", [None, "{", "[]", "{}"])
def test_a_wheel_without_kernels(tmp_path: Path, manifest: str | None) -> None:
    done = run(str(wheel(tmp_path, manifest)), "--evidence", str(tmp_path / "e.json"))
    assert done.returncode == 2
    assert ("holds no kernels" if manifest is None else "cannot be read") in done.stderr


def test_no_zip_file(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    path.write_bytes(b"junk")
    done = run(str(path), "--evidence", str(tmp_path / "e.json"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_outside_a_virtual_environment(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert script.main([str(wheel(tmp_path)), "--evidence", str(tmp_path / "e.json")]) == 2


def report(*passed: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "versions": {"torch": "2.13.0", "cuda": "12.8"},
        "device": {"name": "NVIDIA H100", "arch": "sm90", "driver": "570.26"},
        "cases": [
            {"name": f"hardware/{number}", "passed": right, "max_error": number * 1e-7, "tolerance": 1e-6}
            for number, right in enumerate(passed)
        ],
    }


@pytest.mark.parametrize(
    ("cases", "verdict", "reason"),
    [
        ((True, True, True), Verdict.PASSED, ""),
        ((True, False, True), Verdict.FAILED, "wrong-result"),
    ],
)
def test_the_record_is_evidence_of_level_hardware(
    script: ModuleType, cases: tuple[bool, ...], verdict: Verdict, reason: str
) -> None:
    record = script.as_evidence(report(*cases), target="cuda-sm90", sha256="a" * 64)
    evidence = Evidence.from_json(json.loads(json.dumps(record)))
    assert (evidence.verdict, evidence.level, evidence.reason) == (verdict, Level.HARDWARE, reason)
    assert (evidence.target, evidence.subject, evidence.gate) == ("cuda-sm90", "a" * 64, "correctness")
    assert evidence.details["hardware"]["worst"]["name"] == "hardware/2"
    assert evidence.environment["device"]["name"] == "NVIDIA H100"
    assert evidence.environment["torch"] == "2.13.0"
    assert evidence.environment["date"].endswith("Z")
    assert "NVIDIA H100 (sm90)" in evidence.summary


@pytest.mark.parametrize("passed", [None, 1, "true"])
def test_what_does_not_say_that_it_passed_failed(script: ModuleType, passed: Any) -> None:
    one = report(True)
    one["cases"][0]["passed"] = passed
    record = script.as_evidence(one, target="cuda-sm90", sha256="a" * 64)
    assert record["verdict"] == "FAILED"


@pytest.mark.parametrize(
    ("code", "content", "expected"),
    [
        (3, "", 3),
        (0, "", 4),
        (-11, '{"schema": 1, "cases": [1]}', 4),
        (0, '{"schema": 1, "cases": []}', 4),
        (0, '{"schema": 2, "cases": [1]}', 4),
        (0, "[]", 4),
    ],
)
def test_a_contract_that_did_not_end_is_no_evidence(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: int,
    content: str,
    expected: int,
) -> None:
    def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
        if content:
            Path(command[command.index("--report") + 1]).write_text(content, encoding="utf-8")
        return subprocess.CompletedProcess(command, code, "", "")

    monkeypatch.setattr(script, "_run", ended)
    with pytest.raises(script.Stopped) as caught:
        script.run_contract("wheelmark_kernels", tmp_path, 0)
    assert caught.value.code == expected
