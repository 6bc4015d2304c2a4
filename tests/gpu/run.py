"""Run the correctness gate of a built wheel on this machine's card, and write the evidence.

    python tests/gpu/run.py WHEEL --evidence FILE

Installs the wheel's exact bytes into the virtual environment that runs this script (a PyTorch for the card must be there), runs its
contract on the precompiled kernels, and writes one evidence record (https://wheelmark.dev/evidence/v1) of level ``hardware``, bound
to the wheel's sha256; ``wheelmark evidence add`` takes it into a release. Needs nothing but pip and that PyTorch.

Exit codes: 0 all cases passed, 1 a case failed (the evidence says FAILED), 2 wrong usage, 3 no card here (no evidence is written:
what was not run is not passed), 4 the wheel could not be installed or its contract did not end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PASSED, FAILED, USAGE, NO_CARD, BROKEN = 0, 1, 2, 3, 4
SCHEMA = "https://wheelmark.dev/evidence/v1"
MANIFEST = "code_objects/manifest.json"
TIMEOUT = 1800
SHOWN = 20


class Stopped(Exception):  # noqa: N818 - not every end of this script is an error
    """The run ends here, with an exit code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def main(command_line: Sequence[str]) -> int:
    """Run the gate.

    Args:
        command_line: Without the program's name.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--evidence", type=Path, required=True, help="file that the evidence record is written to"
    )
    parser.add_argument("--device", type=int, default=0, help="ordinal of the card (default: 0)")
    arguments = parser.parse_args(command_line)
    try:
        return check(arguments.wheel, arguments.evidence, arguments.device)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.code


def check(wheel: Path, evidence: Path, device: int) -> int:
    """Install, run, and write the evidence.

    Raises:
        Stopped: There is no card, or it could not be run.
    """
    if sys.prefix == sys.base_prefix:
        raise Stopped(
            USAGE, "run this with the interpreter of a virtual environment: the wheel is installed there"
        )
    if not wheel.is_file():
        raise Stopped(USAGE, f"there is no wheel {wheel}")
    data = wheel.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory(prefix="wheelmark-gpu-") as folder:
        # What is installed is what was hashed, whatever becomes of the file meanwhile.
        copy = Path(folder, wheel.name)
        copy.write_bytes(data)
        package, target = read_target(copy)
        print(f"{wheel.name}: sha256 {sha256}, {target}")
        require_card()
        install(copy)
        report = run_contract(package, Path(folder), device)
    record = as_evidence(report, target=target, sha256=sha256)
    evidence.write_text(
        json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8"
    )
    print(f"{record['verdict']} at level hardware: {record['summary']}; written to {evidence}")
    return PASSED if record["verdict"] == "PASSED" else FAILED


def read_target(wheel: Path) -> tuple[str, str]:
    """The import name of the package that holds code objects, and the target that they are for."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [
                name for name in archive.namelist() if name.endswith("/" + MANIFEST) and name.count("/") == 2
            ]
            if len(found) != 1:
                raise Stopped(USAGE, f"{wheel.name} holds no kernels for a card: use a wheel of a GPU target")
            target = json.loads(archive.read(found[0]))["target"]
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise Stopped(USAGE, f"{wheel.name} cannot be read: {type(error).__name__}: {error}") from error
    return found[0].partition("/")[0], str(target)


def require_card() -> None:
    """Ask the installed PyTorch for a card, in a process of its own.

    Raises:
        Stopped: There is no PyTorch, or it finds no card.
    """
    question = (
        "import torch; print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name(0))"
    )
    done = _run([sys.executable, "-I", "-c", question])
    if done.returncode:
        raise Stopped(
            NO_CARD,
            f"PyTorch does not run in this environment, so nothing was checked:\n{done.stderr.strip()}",
        )
    version, _, card = done.stdout.strip().partition(" ")
    if card == "False":
        raise Stopped(
            NO_CARD,
            f"PyTorch {version} finds no card on this machine: nothing was run, and no evidence is written",
        )
    print(f"PyTorch {version} on {card}")


def install(wheel: Path) -> None:
    """Install the wheel's bytes, in place of any that are there.

    Raises:
        Stopped: pip refused.
    """
    command = [sys.executable, "-I", "-m", "pip", "install", "--no-deps", "--no-index", "--force-reinstall"]
    done = _run([*command, "--disable-pip-version-check", str(wheel)])
    if done.returncode:
        raise Stopped(
            BROKEN, f"the wheel could not be installed:\n{done.stdout.strip()}\n{done.stderr.strip()}"
        )


def run_contract(package: str, folder: Path, device: int) -> dict[str, Any]:
    """Run the installed wheel's contract on the card and read its report.

    Raises:
        Stopped: It says that this machine cannot run it, or it did not end.
    """
    report = folder / "report.json"
    module = f"{package}.contract"
    done = _run(
        [
            sys.executable,
            "-I",
            "-m",
            module,
            "hardware",
            "--device",
            str(device),
            "--report",
            str(report),
        ]
    )
    sys.stderr.write(done.stderr)
    if done.returncode == NO_CARD:
        raise Stopped(NO_CARD, "the contract could not be run on this machine: no evidence is written")
    if done.returncode not in {PASSED, FAILED} or not report.is_file():
        raise Stopped(BROKEN, f"{module} hardware ended with exit {done.returncode} and is no evidence")
    value = json.loads(report.read_bytes())
    if not isinstance(value, dict) or value.get("schema") != 1 or not value.get("cases"):
        raise Stopped(BROKEN, f"{module} hardware wrote no report with cases in it")
    return value


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise Stopped(BROKEN, f"{' '.join(command[:5])} did not end within {TIMEOUT} s") from error


def as_evidence(report: dict[str, Any], *, target: str, sha256: str) -> dict[str, Any]:
    """The evidence record of a run; its form is that of ``wheelmark.evidence.Evidence.as_json``."""
    cases = report["cases"]
    failed = [case for case in cases if case.get("passed") is not True]
    device = report["device"]
    rated = [case for case in cases if case.get("tolerance") and case.get("max_error") is not None]
    worst: dict[str, Any] = max(rated, key=lambda case: case["max_error"] / case["tolerance"], default={})
    on = f"{device['name']} ({device['arch']})"
    summary = (
        f"{len(failed)} of {len(cases)} cases failed on {on}; first: {failed[0].get('name')}"
        if failed
        else f"{len(cases)} cases on {on}"
    )
    return {
        "schema": SCHEMA,
        "gate": "correctness",
        "target": target,
        "subject": {"sha256": sha256},
        "verdict": "FAILED" if failed else "PASSED",
        "level": "hardware",
        "summary": summary,
        "reason": "wrong-result" if failed else "",
        "details": {"hardware": {"cases": len(cases), "failed": failed[:SHOWN], "worst": worst}},
        "environment": {
            **report["versions"],
            "device": device,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
        },
        "imported": False,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
