"""Correctness: the installed wheel against its contract.

CPU targets run every dispatch path in turn on this machine, each forced through the payload's variable, and
are ``hardware`` evidence for these paths. GPU targets run the very kernel source whose digest the wheel's
manifest names in Triton's interpreter, check how the wheel's own library launches through a recording
driver, and run the CPU fallback that the wheel carries: ``emulated``. What this machine cannot run is
UNCHECKED and says so.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark.binaries.kernelmanifest import read_kernel_manifest
from wheelmark.binaries.wheel import read_wheel
from wheelmark.build.kernels import source_digests
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.context import Context
from wheelmark.gates.contract import Broke, CannotRun, Outcome, failed_cases, machine, run_contract
from wheelmark.gates.fake_driver import build_fake_driver
from wheelmark.lock.environment import locked_environment

NAME = "correctness"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the contract and what came of it."""

    name: str
    outcome: Outcome
    expected_dispatch: str = ""


def run(context: Context) -> Evidence:
    """Judge one wheel; see the module's text for what runs at which level."""
    if platform.machine() != context.row.host.value:
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.NONE,
            f"needs {context.row.host.value}; this machine is {platform.machine()}",
            reason="other-machine",
        )
    if context.row.target.is_gpu:
        return _gpu(context)
    return _cpu(context)


def _cpu(context: Context) -> Evidence:
    settings = context.declaration.gates.correctness
    environment = locked_environment([context.lock], cache=context.cache, wheels=[context.wheel])
    # A project without dispatch paths is asked once: no runs at all would prove nothing.
    runs = [
        Run(
            name=path or "correctness",
            expected_dispatch=path,
            outcome=run_contract(
                environment.python,
                settings.module,
                ["correctness"],
                environment={settings.dispatch_variable: path} if path else {},
            ),
        )
        for path in settings.dispatch or ("",)
    ]
    return judge(context, runs, Level.HARDWARE)


def _gpu(context: Context) -> Evidence:
    module = context.declaration.gates.correctness.module
    environment = locked_environment([context.build_lock], cache=context.cache, wheels=[context.wheel])
    changed = _changed_sources(context, environment.site_packages, environment.python)
    if changed:
        return context.evidence(
            NAME,
            Verdict.FAILED,
            Level.STATIC,
            f"the kernel source in the wheel is not the one that was compiled: {', '.join(changed)}",
            reason="source-digest",
            details={"kernels": list(changed)},
        )
    driver = build_fake_driver(context.cache)
    with tempfile.TemporaryDirectory(prefix="wheelmark-launch-") as folder:
        launch = ["launch", "--driver", str(driver), "--log", str(Path(folder, "calls.jsonl"))]
        runs = [
            Run(
                name="interpret",
                outcome=run_contract(
                    environment.python, module, ["interpret"], environment={"TRITON_INTERPRET": "1"}
                ),
            ),
            Run(name="launch", outcome=run_contract(environment.python, module, launch)),
            Run(name="fallback", outcome=run_contract(environment.python, module, ["correctness"])),
        ]
    return judge(context, runs, Level.EMULATED)


def _changed_sources(context: Context, site_packages: Path, python: Path) -> tuple[str, ...]:
    """Kernels whose installed source does not have the digest that the wheel's manifest names."""
    wheel = read_wheel(context.wheel, name=context.wheel.name)
    manifest = read_kernel_manifest(
        wheel.read(f"{context.declaration.project.import_name}/code_objects/manifest.json")
    )
    declarations = [
        context.declaration.root / context.declaration.project.source / path
        for path in context.declaration.kernels.declarations
    ]
    installed = source_digests(declarations, site_packages, python=python)
    return tuple(
        kernel.name for kernel in manifest.kernels if installed.get(kernel.name) != kernel.source_digest
    )


def judge(context: Context, runs: list[Run], level: Level) -> Evidence:
    """Evidence from finished runs: any failure fails; what could not run leaves it UNCHECKED."""
    details: dict[str, Any] = {}
    failures: list[str] = []
    not_run: list[str] = []
    versions: Mapping[str, Any] = {}
    for item in runs:
        outcome = item.outcome
        if isinstance(outcome, CannotRun):
            not_run.append(item.name)
            details[item.name] = {"not_run": outcome.why}
            continue
        if isinstance(outcome, Broke):
            failures.append(f"{item.name}: {outcome.why}")
            details[item.name] = {"broke": outcome.why}
            continue
        report = outcome.report
        versions = report.get("versions", versions)
        bad = failed_cases(report)
        details[item.name] = {
            "cases": len(report["cases"]),
            "failed": [dict(case) for case in bad[:20]],
            "worst": _worst(report["cases"]),
        }
        if item.expected_dispatch and report.get("dispatch") != item.expected_dispatch:
            failures.append(
                f"{item.name}: asked for {item.expected_dispatch}, ran {report.get('dispatch')!r}"
            )
        failures += [f"{item.name}: {_words(case)}" for case in bad]
    environment = {**machine(), **versions}
    if failures:
        return context.evidence(
            NAME,
            Verdict.FAILED,
            level,
            f"{len(failures)} failed; first: {failures[0][:300]}",
            reason="wrong-result",
            details=details,
            environment=environment,
        )
    if not_run:
        ran = [item.name for item in runs if item.name not in not_run]
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            level if ran else Level.NONE,
            f"this machine cannot run {', '.join(not_run)}; ran {', '.join(ran) or 'nothing'}",
            reason="path-not-run",
            details=details,
            environment=environment,
        )
    total = sum(detail["cases"] for detail in details.values())
    names = ", ".join(item.name for item in runs)
    return context.evidence(
        NAME,
        Verdict.PASSED,
        level,
        f"{total} cases over {names}",
        details=details,
        environment=environment,
    )


def _worst(cases: list[Any]) -> dict[str, Any]:
    """The case closest to its tolerance, or furthest beyond it; a result that is not finite is the furthest."""
    rated = [
        (math.inf if case["max_error"] is None else case["max_error"] / case["tolerance"], case)
        for case in cases
        if isinstance(case, dict)
        and isinstance(case.get("max_error", ""), int | float | None)
        and isinstance(case.get("tolerance"), int | float)
        and case["tolerance"] > 0
    ]
    return dict(max(rated, key=lambda pair: pair[0])[1]) if rated else {}


def _words(case: Mapping[str, Any]) -> str:
    parts = [str(case.get("name", "unnamed case"))]
    parts += [
        f"{key} {case[key]}" for key in ("max_error", "tolerance", "worst_index", "message") if case.get(key)
    ]
    return ", ".join(parts)
