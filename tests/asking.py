"""Asking the verifier as its users do, in process and as a command: the answer is an exit code and reason codes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forging import Forge, Json, canonical
from releasing import Part
from rows import rows
from wheelmark.attest.predicates import PROVENANCE, Provenance
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import Exit, WheelmarkError
from wheelmark.trust import state
from wheelmark.trust.roots import Root
from wheelmark.verify import reasons, verify_wheel
from wheelmark.verify.policy import Policy
from wheelmark.verify.reasons import Answer
from wheelmark.verify.verdict import Report

SHIPPED = Path(__file__).resolve().parents[1] / "policies" / "embedded-dev.toml"
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
        words = {word for mark in request.node.iter_markers("row") for word in rows()[mark.args[0]].answer}
        self._answers = {word for word in words if word in Answer.__members__}
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


@dataclasses.dataclass(kw_only=True)
class Stand:
    """A wheel, a policy that asks for its provenance, and the clock."""

    forge: Forge
    folder: Path
    policy: Policy
    now: dt.datetime
    part: Part

    @property
    def wheel(self) -> Path:
        return self.folder / self.part.name

    def statement(self, *subjects: Subject, **changes: Any) -> bytes:
        """Provenance of the wheel, or of other subjects."""
        about = subjects or (Subject(name=self.part.name, sha256=self.part.sha256),)
        made = Provenance(external_parameters={}, resolved_dependencies=(), builder_id="https://b.example/1")
        values = {"subjects": about, "predicate_type": PROVENANCE, "predicate": made.as_predicate()}
        return Statement(**{**values, **changes}).as_bytes()

    def bundle(self, **changes: Any) -> Json:
        """A good bundle as JSON, to be spoiled."""
        return self.forge.dsse(self.statement(), **changes)

    def put(self, bundle: bytes | Json | None, wheel: bytes | None = None) -> Path:
        """Write the wheel and the bundle beside it."""
        self.wheel.write_bytes(self.part.wheel if wheel is None else wheel)
        beside = self.wheel.with_name(f"{self.wheel.name}.sigstore.json")
        beside.unlink(missing_ok=True)
        if bundle is not None:
            beside.write_bytes(bundle if isinstance(bundle, bytes) else canonical(bundle))
        return self.wheel

    def ask(
        self,
        bundle: bytes | Json | None,
        *,
        wheel: bytes | None = None,
        policy: Policy | None = None,
        now: dt.datetime | None = None,
    ) -> Asked:
        """The answer of the library."""
        path = self.put(bundle, wheel)
        return ask(lambda: verify_wheel(path, policy or self.policy, now=now or self.now))

    def command(self, bundle: bytes | Json | None, *, wheel: bytes | None = None) -> Asked:
        """The answer of the command, under the policy for this machine."""
        return command(self.forge, "verify", self.put(bundle, wheel), "--policy", SHIPPED)

    def under(self, root: Root) -> Policy:
        """The policy with its root replaced."""
        return dataclasses.replace(self.policy, roots=(root,))

    def windowed(self, change: Callable[[Json], None]) -> Policy:
        """The policy with something of its root changed."""
        return self.under(self.forge.root(canonical=False, change=change))
