"""The payload's contract module, run in the environment where the finished wheel is installed.

The pipeline knows nothing of a payload but this: ``python -m MODULE <subcommand> --report FILE`` writes one JSON
report, bounded and read strictly here. Exit 3 says "this machine cannot run that" (a CPU dispatch path that
the CPU lacks); any other failure is the wheel's.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import strictjson
from wheelmark.errors import InputError

TIMEOUT = 900
"""Seconds after which a contract run counts as hung."""
_CANNOT_RUN = 3
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OMP_NUM_THREADS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """The report of a run that ended well."""

    report: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CannotRun:
    """This machine cannot run it; nothing was learnt."""

    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broke:
    """It crashed, hung, or wrote no usable report."""

    why: str


Outcome = Ran | CannotRun | Broke


def run_contract(
    python: Path,
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Outcome:
    """Run one subcommand and read its report.

    Args:
        python: Interpreter of the environment that holds the wheel.
        module: The contract module.
        arguments: Subcommand and its own arguments; ``--report`` is added.
        environment: Variables to set; otherwise only what a program needs is passed on.
        timeout: Seconds.
    """
    with tempfile.TemporaryDirectory(prefix="wheelmark-contract-") as folder:
        report = Path(folder, "report.json")
        command = [str(python), "-I", "-m", module, *arguments, "--report", str(report)]
        variables = {name: os.environ[name] for name in _KEPT if name in os.environ}
        variables |= {"HOME": folder, "TMPDIR": folder, "PYTHONHASHSEED": "0"} | dict(environment or {})
        try:
            done = subprocess.run(
                command, cwd=folder, env=variables, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return Broke(why=f"{module} {arguments[0]} did not end within {timeout:.0f} s")
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-2000:]
        if done.returncode == _CANNOT_RUN:
            return CannotRun(why=said or "exit 3")
        if not report.is_file():
            ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            return Broke(why=f"{module} {arguments[0]} wrote no report ({ended}): {said}")
        try:
            value = strictjson.load_object(report.read_bytes(), what=f"report of {module}")
        except InputError as error:
            return Broke(why=str(error))
        if value.get("schema") != 1 or not isinstance(value.get("cases"), list) or not value["cases"]:
            return Broke(
                why=f"{module} {arguments[0]}: the report has no cases; a run that tests nothing proves nothing"
            )
        return Ran(report=value)


def failed_cases(report: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Cases that did not say ``"passed": true``; an unreadable case counts as failed."""
    return tuple(
        case if isinstance(case, dict) else {"name": repr(case)}
        for case in report["cases"]
        if not isinstance(case, dict) or case.get("passed") is not True
    )


def machine() -> dict[str, Any]:
    """What a reader of a figure has to know of the machine that made it."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "machine": platform.machine(),
        "cpu": model,
        "cpus": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
