"""Toy payloads: wheels of a few lines of Python whose contract module behaves as a test wants, in real environments."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import wheelmaking
from wheelmark.config import CorrectnessGate, PerformanceGate
from wheelmark.gates.context import Context

MODULE = "demo_kernels.contract"
VARIABLE = "DEMO_PATH"
_HEAD = f"""
import json, os, signal, subprocess, sys, time
subcommand, report = sys.argv[1], sys.argv[sys.argv.index("--report") + 1]
path = os.environ.get("{VARIABLE}", "")

def write(value):
    with open(report, "w") as stream:
        json.dump(value, stream)

def case(name, error, tolerance=1e-6, **more):
    return dict(name=name, dtype="fp32", passed=error <= tolerance, max_error=error, tolerance=tolerance, **more)

GOOD = {{"schema": 1, "dispatch": path, "versions": {{"demo": "1"}}, "cases": [case("sum", 1e-7)]}}
"""


def payload(
    folder: Path, contract: str, *, dispatch: tuple[str, ...] = ("scalar",), pairs: int = 8
) -> Context:
    """A gate's context around a wheel for the CPU with this contract.

    Args:
        folder: For the wheel, an empty lock, and the environment that the gate makes.
        contract: Python; ``write``, ``case``, ``GOOD``, ``path``, ``report`` and ``subcommand`` are there.
        dispatch: The paths that the declaration names.
        pairs: Of times that the performance gate asks for.
    """
    files = {
        "demo_kernels/__init__.py": b"",
        "demo_kernels/contract.py": (_HEAD + textwrap.dedent(contract)).encode(),
    }
    made = wheelmaking.context(folder, files)
    made.lock.write_text("", encoding="utf-8")
    gates = dataclasses.replace(
        made.declaration.gates,
        correctness=CorrectnessGate(module=MODULE, dispatch=dispatch, dispatch_variable=VARIABLE),
        performance=PerformanceGate(module=MODULE, max_ratio=1.1, pairs=pairs),
    )
    return dataclasses.replace(made, declaration=dataclasses.replace(made.declaration, gates=gates))
