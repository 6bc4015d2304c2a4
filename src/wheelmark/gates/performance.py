"""Performance: a paired ratio where the target runs here, recorded static figures where it does not.

CPU targets: the contract times our operator and the reference implementation interleaved in one run; each pair
gives a ratio. The verdict comes from a distribution-free confidence interval of the median ratio (order
statistics; ranks from the binomial distribution, Conover, *Practical Nonparametric Statistics*, 3.2): FAILED
when the whole interval lies above the limit, PASSED when it lies at or below, otherwise UNCHECKED
("undecided"). GPU targets without hardware: registers, spills, shared memory and code size of every variant
against the committed baseline, ``static``.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from wheelmark import strictjson
from wheelmark.binaries.kernelmanifest import KernelManifest, read_kernel_manifest
from wheelmark.binaries.wheel import read_wheel
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.context import Context
from wheelmark.gates.contract import Broke, CannotRun, machine, run_contract
from wheelmark.lock.environment import locked_environment

NAME = "performance"
FIGURES = ("registers", "spill_stores", "spill_loads", "shared", "static_shared", "code_size")
"""What is compared for a variant; lower is better."""
MIN_PAIRS = 6
"""With fewer pairs no rank interval reaches 95 % confidence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval of the median."""

    low: float
    median: float
    high: float


def run(context: Context) -> Evidence:
    """Judge one wheel."""
    if context.row.target.is_gpu:
        return _static(context)
    if platform.machine() != context.row.host.value:
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.NONE,
            f"needs {context.row.host.value}; this machine is {platform.machine()}",
            reason="other-machine",
        )
    return _measured(context)


def median_interval(values: Sequence[float], confidence: float) -> Interval | None:
    """The shortest symmetric rank interval that covers the median with at least ``confidence``.

    Args:
        values: At least one ratio, in any order.
        confidence: For instance 0.95.

    Returns:
        The interval, or ``None`` where so few values cannot reach that confidence.
    """
    ordered = sorted(values)
    count = len(ordered)
    below = 0.0
    rank = -1
    for index in range(count // 2):
        below += math.comb(count, index) / 2.0**count
        if 1 - 2 * below < confidence:
            break
        rank = index
    if rank < 0:
        return None
    return Interval(low=ordered[rank], median=statistics.median(ordered), high=ordered[count - 1 - rank])


def decide(interval: Interval | None, limit: float) -> Verdict:
    """What an interval says of a limit on time(ours) / time(reference)."""
    if interval is None:
        return Verdict.UNCHECKED
    if interval.low > limit:
        return Verdict.FAILED
    return Verdict.PASSED if interval.high <= limit else Verdict.UNCHECKED


def _measured(context: Context) -> Evidence:
    settings = context.declaration.gates.performance
    environment = locked_environment([context.lock], cache=context.cache, wheels=[context.wheel])
    outcome = run_contract(
        environment.python, settings.module, ["performance", "--pairs", str(settings.pairs)]
    )
    if isinstance(outcome, CannotRun):
        return context.evidence(NAME, Verdict.UNCHECKED, Level.NONE, outcome.why, reason="path-not-run")
    if isinstance(outcome, Broke):
        return context.evidence(
            NAME, Verdict.FAILED, Level.HARDWARE, outcome.why[:300], reason="contract-broke"
        )
    cases: list[dict[str, Any]] = []
    for case in outcome.report["cases"]:
        ours, theirs = _times(case, "ours_ns"), _times(case, "reference_ns")
        if not ours or len(ours) != len(theirs):
            return context.evidence(
                NAME,
                Verdict.FAILED,
                Level.HARDWARE,
                f"the report has a case without paired times: {str(case)[:120]}",
                reason="contract-broke",
            )
        interval = median_interval([a / b for a, b in zip(ours, theirs, strict=True)], settings.confidence)
        kept = {key: case[key] for key in case if key not in {"ours_ns", "reference_ns"}}
        cases.append(
            {
                **kept,
                "pairs": len(ours),
                "ratio": dataclasses.asdict(interval) if interval else None,
                "ours_ms": round(min(ours) / 1e6, 4),
                "reference_ms": round(min(theirs) / 1e6, 4),
                "verdict": decide(interval, settings.max_ratio).value,
            }
        )
    return _judge(
        context,
        cases,
        {**machine(), **outcome.report.get("versions", {}), "threads": outcome.report.get("threads", 0)},
    )


def _judge(context: Context, cases: list[dict[str, Any]], environment: Mapping[str, Any]) -> Evidence:
    limit = context.declaration.gates.performance.max_ratio
    verdicts = {case["verdict"] for case in cases}
    details = {"limit": limit, "confidence": context.declaration.gates.performance.confidence, "cases": cases}
    ratios = [case["ratio"]["median"] for case in cases if case["ratio"]]
    span = (
        f"median ratio {min(ratios):.2f} to {max(ratios):.2f} over {len(cases)} cases, limit {limit}"
        if ratios
        else "no ratio"
    )
    if Verdict.FAILED.value in verdicts:
        slow = next(case for case in cases if case["verdict"] == Verdict.FAILED.value)
        summary = (
            f"{slow.get('name')}: whole interval above {limit} (from {slow['ratio']['low']:.2f}); {span}"
        )
        verdict, reason = Verdict.FAILED, "slower-than-limit"
    elif verdicts == {Verdict.PASSED.value}:
        summary, verdict, reason = span, Verdict.PASSED, ""
    else:
        open_cases = [str(case.get("name")) for case in cases if case["verdict"] == Verdict.UNCHECKED.value]
        summary = f"undecided for {', '.join(open_cases)}; {span}"
        verdict, reason = Verdict.UNCHECKED, "undecided"
    return context.evidence(
        NAME, verdict, Level.HARDWARE, summary, reason=reason, details=details, environment=environment
    )


def _times(case: Any, key: str) -> list[float]:
    values = case.get(key) if isinstance(case, dict) else None
    if not isinstance(values, list) or not all(isinstance(v, int | float) and v > 0 for v in values):
        return []
    return [float(value) for value in values]


def static_figures(manifest: KernelManifest) -> dict[str, dict[str, int]]:
    """``<kernel>/<variant>`` -> figures, as the baseline file holds them."""
    return {
        f"{kernel.name}/{variant.name}": {figure: int(getattr(variant, figure)) for figure in FIGURES}
        for kernel in manifest.kernels
        for variant in kernel.variants
    }


def regressions(figures: Mapping[str, Mapping[str, int]], baseline: Mapping[str, Any]) -> list[str]:
    """Where a figure is worse than the baseline's, or stands on one side only."""
    found = [f"{name}: not in the baseline" for name in figures if name not in baseline]
    found += [f"{name}: in the baseline, not in the wheel" for name in baseline if name not in figures]
    for name, ours in figures.items():
        known = baseline.get(name)
        for figure in FIGURES if name in baseline else ():
            was = known.get(figure) if isinstance(known, Mapping) else None
            if not isinstance(was, int) or isinstance(was, bool):
                found.append(f"{name}: {figure} has no number in the baseline")
            elif ours[figure] > was:
                found.append(f"{name}: {figure} {was} -> {ours[figure]}")
    return found


def _static(context: Context) -> Evidence:
    wheel = read_wheel(context.wheel, name=context.wheel.name)
    import_name = context.declaration.project.import_name
    figures = static_figures(read_kernel_manifest(wheel.read(f"{import_name}/code_objects/manifest.json")))
    details: dict[str, Any] = {"figures": figures}
    path = context.declaration.gates.performance.baseline
    file = context.declaration.root / path if path else None
    if file is None or not file.is_file():
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.STATIC,
            "no committed baseline of registers, spills, shared memory and code size",
            reason="no-baseline",
            details=details,
        )
    known = strictjson.load_object(file.read_bytes(), what=str(path)).get(str(context.row.target))
    if not isinstance(known, dict):
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.STATIC,
            f"{path} has no figures for {context.row.target}",
            reason="no-baseline",
            details=details,
        )
    worse = regressions(figures, known)
    if worse:
        return context.evidence(
            NAME,
            Verdict.FAILED,
            Level.STATIC,
            f"{len(worse)} figures are worse than {path}; first: {worse[0]}",
            reason="static-regression",
            details={**details, "worse": worse},
        )
    return context.evidence(
        NAME,
        Verdict.PASSED,
        Level.STATIC,
        f"{len(figures)} variants within {path}; compiled, not executed",
        details=details,
    )
