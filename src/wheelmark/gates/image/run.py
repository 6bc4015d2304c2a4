"""Run: the image started as it is to be deployed, and the contract module run in it as its user.

No network, a read-only root, no capabilities, no new privileges. A CPU image runs the correctness part of the contract,
each eighth call of it, on the CPU that is there. A GPU image does so too, by its fallback; then it is asked for its hardware part, and has to
say that it finds no card where there is none. What cannot be run here is UNCHECKED and says why.
"""

from __future__ import annotations

import platform
from typing import Any

from wheelmark import strictjson
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.contract import failed_cases, machine
from wheelmark.gates.image.context import ImageContext
from wheelmark.gates.image.podman import Ended, Podman

NAME = "image-run"
TIMEOUT = 900
EVERY = 8
"""The wheel's own gate runs every case; here each eighth call shows that they run in the image."""
_CANNOT_RUN = 3
_SHOWN = 20


def run(context: ImageContext) -> Evidence:
    """Start one image.

    Raises:
        ToolError: podman is not installed, or cannot run containers here.
    """
    without = context.recipe.dependencies.stand_in_without
    if context.stand_in and without:
        next_step = (
            f"next: a lock that has {', '.join(without)} for {context.row.host.value}, named in the recipe"
        )
        return _unchecked(context, "stand-in", f"it cannot start: {context.stand_in}; {next_step}")
    if platform.machine() != context.row.host.value:
        host = context.row.host.value
        text = f"needs {host}; this machine is {platform.machine()}; next: nox -s build test on a machine of {host}"
        return _unchecked(context, "other-machine", text)
    tag = f"localhost/wheelmark-gate:{context.row.target}"
    podman = Podman(context.cache / "podman")
    details: dict[str, Any] = {}
    with podman.held():
        podman.take(context.layout, str(context.row.target), tag)
        ended = _contract(context, podman, tag, "correctness", "--every", str(EVERY))
        failure = _judge_contract(ended, details)
        if not failure and context.row.target.is_gpu:
            failure = _judge_hardware(_contract(context, podman, tag, "hardware"), details)
    environment = {**machine(), **details.pop("versions", {})}
    level = Level.EMULATED if context.row.target.is_gpu else Level.HARDWARE
    if failure:
        return context.evidence(
            NAME,
            Verdict.FAILED,
            level,
            failure[:300],
            reason="wrong-result",
            details=details,
            environment=environment,
        )
    summary = f"{details['correctness']['cases']} cases as user {context.recipe.image.user}, read-only"
    if context.row.target.is_gpu:
        summary += f"; on the CPU by its fallback, and of a card it says: {details['hardware'][:100]}"
    return context.evidence(NAME, Verdict.PASSED, level, summary, details=details, environment=environment)


def _unchecked(context: ImageContext, reason: str, text: str) -> Evidence:
    return context.evidence(NAME, Verdict.UNCHECKED, Level.NONE, text, reason=reason)


def _contract(context: ImageContext, podman: Podman, tag: str, *part: str) -> Ended:
    return podman.run(
        tag,
        ["-I", "-m", context.declaration.gates.correctness.module, *part, "--report", "-"],
        user=context.recipe.image.user,
        variables={"PYTHONHASHSEED": "0"},
        timeout=TIMEOUT,
    )


def _judge_contract(ended: Ended, details: dict[str, Any]) -> str:
    """What is wrong with the correctness part; what it said is written into the details."""
    last = ended.err.strip()[-500:]
    try:
        report = strictjson.load_object(ended.out, what="report of the contract in the image")
    except InputError as error:
        details["correctness"] = {"exit": ended.code, "stderr": last}
        return f"the contract gave no report (exit {ended.code}): {last or error.what}"
    cases = report.get("cases")
    if not isinstance(cases, list) or not cases:
        return "the contract's report has no cases"
    bad = failed_cases(report)
    details["correctness"] = {"cases": len(cases), "failed": [dict(case) for case in bad[:_SHOWN]]}
    details["dispatch"] = report.get("dispatch", "")
    details["versions"] = report.get("versions", {})
    if bad:
        return f"{len(bad)} of {len(cases)} cases failed; first: {bad[0].get('name', 'unnamed')}"
    return f"exit {ended.code}, and no case failed: {last}" if ended.code else ""


def _judge_hardware(ended: Ended, details: dict[str, Any]) -> str:
    """What is wrong with what a GPU image says where there is no card."""
    said = ended.err.strip()
    details["hardware"] = said[-500:]
    if ended.code != _CANNOT_RUN or not said:
        return (
            f"without a card the hardware part ended with exit {ended.code}, not {_CANNOT_RUN}: {said[-200:]}"
        )
    return ""
