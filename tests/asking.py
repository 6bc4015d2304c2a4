"""Asking the verifier as its users do, in process and as a command: the answer is an exit code and reason codes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forging import Forge
from rows import rows
from wheelmark.errors import Exit, WheelmarkError
from wheelmark.trust import state
from wheelmark.verify import reasons
from wheelmark.verify.reasons import Answer
from wheelmark.verify.verdict import Report

EXITS = {
    Answer.REJECT: Exit.REJECTED,
    Answer.MISSING: Exit.MISSING,
    Answer.UNCHECKED: Exit.UNCHECKED,
    Answer.CONFIG: Exit.CONFIG,
    Answer.INPUT: Exit.INPUT,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """An answer."""

    code: Exit
    reasons: frozenset[str]


def ask(call: Callable[[], object]) -> Asked:
    """What a call into the library answers: a report, an error of ours, or, of facts, nothing to say."""
    try:
        answer = call()
    except WheelmarkError as error:
        return Asked(code=error.exit_code, reasons=frozenset([error.reason]))
    if isinstance(answer, Report):
        return Asked(code=answer.exit_code, reasons=frozenset(answer.reasons()))
    return Asked(code=Exit.OK, reasons=frozenset())


def command(forge: Forge, *arguments: object) -> Asked:
    """What ``wheelmark … --json`` answers as a process of its own: no traceback, and nothing on stderr but an error's own lines."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "wheelmark", *map(str, arguments), "--json"],
        env={**os.environ, state.VARIABLE: str(forge.home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"]
    if "error" in document:
        assert done.stderr.startswith(f"wheelmark {arguments[0]}: {document['what']}")
        return Asked(code=Exit(done.returncode), reasons=frozenset([document["reason"]]))
    assert done.stderr == ""
    found = (item for report in document["reports"] for item in report["verdicts"] if "reason" in item)
    return Asked(code=Exit(done.returncode), reasons=frozenset(item["reason"] for item in found))


class Expect:
    """Holds an answer against what the test's row says; made by the fixture ``expect``.

    Args:
        request: The test, marked by ``rows.row`` or ``rows.report``.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        marks = [*request.node.iter_markers("row"), *request.node.iter_markers("report")]
        self._codes = {code for mark in marks for code in mark.args[1:]}
        self._answers = {
            word for mark in request.node.iter_markers("row") for word in rows()[mark.args[0]].answer
        }
        self.count = 0

    def __call__(self, found: Asked, *codes: str, also: tuple[str, ...] = ()) -> None:
        """Refused for exactly these codes (``also``: perhaps these too), with the exit code that goes with the worst."""
        assert codes
        assert set(codes) <= self._codes, f"the test's mark does not name {set(codes) - self._codes}"
        assert set(codes) <= found.reasons <= {*codes, *also}, found
        kinds = {reasons.answer_of(code) for code in found.reasons}
        for kind in (Answer.CONFIG, Answer.REJECT, Answer.INPUT, Answer.MISSING, Answer.UNCHECKED):
            if kind in kinds:
                assert found.code is EXITS[kind], found
                break
        if self._answers:
            assert {reasons.answer_of(code).value for code in codes} & self._answers, found
        self.count += 1

    def accepted(self, found: Asked) -> None:
        """Accepted, and nothing refused."""
        assert found == Asked(code=Exit.OK, reasons=frozenset())
        self.count += 1




SHIPPED = Path(__file__).resolve().parents[1] / "policies" / "embedded-dev.toml"
