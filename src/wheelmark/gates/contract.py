"""The payload's contract module, run in the environment where the finished wheel is installed.

The pipeline knows nothing of a payload but this: ``python -m MODULE <subcommand> --report FILE`` writes one JSON
report, bounded and read strictly here. Exit 3 says "this machine cannot run that" (a CPU dispatch path that
the CPU lacks); any other failure is the wheel's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import strictjson
from wheelmark.confinement import confined
from wheelmark.errors import InputError

TIMEOUT = 900
"""Seconds after which a contract run counts as hung."""
_PASSED, _FAILED, _CANNOT_RUN = 0, 1, 3
_TOLD = 2000
"""Bytes of a run's last words that are kept."""
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
        command = confined([str(python), "-I", "-m", module, *arguments, "--report", str(report)])
        variables = {name: os.environ[name] for name in _KEPT if name in os.environ}
        variables |= {"HOME": folder, "TMPDIR": folder, "PYTHONHASHSEED": "0"} | dict(environment or {})
        words = Path(folder, "words.txt")
        code = _run(command, Path(folder), variables, words, timeout)
        if code is None:
            return Broke(why=f"{module} {arguments[0]} did not end within {timeout:.0f} s")
        said = _last(words)
        if code == _CANNOT_RUN:
            return CannotRun(why=said or "exit 3")
        return _read(report, f"{module} {arguments[0]}", code, said)


def _read(report: Path, name: str, code: int, said: str) -> Outcome:
    ended = f"signal {-code}" if code < 0 else f"exit {code}"
    if not report.is_file():
        return Broke(why=f"{name} wrote no report ({ended}): {said}")
    if report.stat().st_size > strictjson.DEFAULT.size:
        return Broke(why=f"{name}: the report is over {strictjson.DEFAULT.size:,} bytes")
    try:
        value = strictjson.load_object(report.read_bytes(), what=f"report of {name}")
    except InputError as error:
        return Broke(why=str(error))
    problem = _problem(value, code)
    return Broke(why=f"{name} ({ended}): {problem}: {said}") if problem else Ran(report=value)


def _problem(value: Mapping[str, Any], code: int) -> str:
    """Why a report cannot be used, or nothing."""
    cases = value.get("cases")
    if value.get("schema") != 1:
        return f"the report has schema {value.get('schema')!r}; 1 is read"
    if not isinstance(cases, list) or not cases:
        return "the report has no cases; a run that tests nothing proves nothing"
    if not isinstance(value.get("versions", {}), dict):
        return "the versions in the report are no object"
    # A library that crashes when it is unloaded has written its report before.
    told = any(isinstance(case, dict) and case.get("passed") is False for case in cases)
    return "" if code == _PASSED or (code == _FAILED and told) else "no case failed, and yet the run did"


def _run(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], words: Path, timeout: float
) -> int | None:
    """The exit status; ``None`` where it did not end in time. Nothing that it started is left behind."""
    # A file, not a pipe: a child of the run that lives on would keep a pipe open, and the reader waiting.
    with words.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last(words: Path) -> str:
    with words.open("rb") as stream:
        stream.seek(max(0, words.stat().st_size - _TOLD))
        return stream.read().decode("utf-8", "replace").strip()


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
