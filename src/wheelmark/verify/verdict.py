"""Verdict: the closed union of answers about one subject, and the report that collects them.

``Accepted``, ``Rejected`` (bad evidence, or an input that cannot be read), ``Missing`` (evidence that the
policy asks for is not there) and ``Unchecked`` (could not be checked) are different answers with different
exit codes. Only ``Accepted`` ever installs, starts or promotes anything.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from wheelmark.errors import Exit, InputError
from wheelmark.verify import reasons


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accepted:
    """The policy takes this subject."""

    subject: str
    """Path as it was given, or relative to the release directory."""
    sha256: str
    level: str
    """Trust level: the words of the root that verified, as the policy has them."""
    root: str
    signer: str
    """Name of the policy's signer rule that matched."""
    identity: str
    issuer: str
    time: dt.datetime
    """When it was signed, by a timestamp that the root vouches for."""
    predicates: tuple[str, ...]
    """Predicate types that were found and hold."""
    evidence: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Gate -> ``<VERDICT>@<level>``; empty where no test result was asked for."""
    notes: tuple[str, ...] = ()
    """What the reader should know: gates that are unchecked, fields that nothing authenticates."""
    target: str = ""
    """Of an image: the target that its label names."""
    platform: str = ""
    """Of an image: ``linux/amd64`` or the like."""
    promotion: str = ""
    """``<project>/<channel>`` that it is promoted to; empty where no channel was asked for."""
    sequence: int = 0
    """Sequence number of that promotion."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejected:
    """Evidence is bad, an input is malformed, or the policy's root cannot be used; ``reason`` says which (see ``reasons``)."""

    subject: str
    reason: str
    text: str
    sha256: str = ""
    """Of the subject's bytes; empty where they were not hashed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missing:
    """Evidence that the policy asks for is not there."""

    subject: str
    reason: str
    text: str
    sha256: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unchecked:
    """Something could not be checked, and the policy does not let that pass."""

    subject: str
    reason: str
    text: str
    sha256: str = ""


Verdict = Accepted | Rejected | Missing | Unchecked
Refusal = Rejected | Missing | Unchecked

_SEVERITY = (Exit.OK, Exit.UNCHECKED, Exit.MISSING, Exit.CONFIG, Exit.INPUT, Exit.REJECTED)
"""From best to worst: the worst of several is a command's exit code."""
_REJECTIONS = {reasons.Answer.INPUT: Exit.INPUT, reasons.Answer.CONFIG: Exit.CONFIG}


def refusal(subject: str, reason: str, text: str, *, sha256: str = "") -> Refusal:
    """The refusal that the table of reasons makes of ``reason``."""
    match reasons.answer_of(reason):
        case reasons.Answer.REJECT | reasons.Answer.INPUT | reasons.Answer.CONFIG:
            return Rejected(subject=subject, reason=reason, text=text, sha256=sha256)
        case reasons.Answer.MISSING:
            return Missing(subject=subject, reason=reason, text=text, sha256=sha256)
        case reasons.Answer.UNCHECKED:
            return Unchecked(subject=subject, reason=reason, text=text, sha256=sha256)
        case answer:
            assert_never(answer)


def refusal_of(subject: str, error: InputError) -> Refusal:
    """The refusal of what could not be read, with the cause and the fix that the error names."""
    text = error.what
    text += f"; likely cause: {error.cause}" if error.cause else ""
    text += f"; next step: {error.fix}" if error.fix else ""
    return refusal(subject, error.reason, text)


def exit_code(verdict: Verdict) -> Exit:
    """The exit code that one verdict asks for."""
    match verdict:
        case Accepted():
            return Exit.OK
        case Rejected():
            return _REJECTIONS.get(reasons.answer_of(verdict.reason), Exit.REJECTED)
        case Missing():
            return Exit.MISSING
        case Unchecked():
            return Exit.UNCHECKED
        case _:
            assert_never(verdict)


def worst(codes: Iterable[Exit]) -> Exit:
    """The worst of several exit codes of verdicts; of none, ``MISSING``: nothing verified is no success."""
    return max(codes, key=_SEVERITY.index, default=Exit.MISSING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One condition of the policy, as it was applied to one subject: what `wheelmark policy explain` shows."""

    subject: str
    rule: str
    """Which part of the policy: ``require[2]``, ``signer 'release'``, ``deny[0]``."""
    condition: str
    """Key of the policy, or what is always asked: ``predicates``, ``gates.correctness``, ``bytes``, ``clock``."""
    holds: bool
    text: str
    """What was asked for and what was found."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What verification of one path found: every verdict, in the order of the subjects."""

    path: str
    policy: str
    """Where the policy came from."""
    verdicts: tuple[Verdict, ...]
    steps: tuple[Step, ...] = ()
    """Every condition that was applied, in order; of no weight for the verdicts."""
    policy_sha256: str = ""
    """Digest of the policy's bytes."""

    @property
    def exit_code(self) -> Exit:
        """The worst of the verdicts; nothing verified is never success."""
        return worst(exit_code(verdict) for verdict in self.verdicts)

    @property
    def accepted(self) -> bool:
        """Whether every subject was accepted, and there was one."""
        return self.exit_code is Exit.OK

    def reasons(self) -> tuple[str, ...]:
        """Reason codes of the refusals, in order."""
        return tuple(verdict.reason for verdict in self.verdicts if not isinstance(verdict, Accepted))

    def as_json(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return {
            "schema": "https://wheelmark.dev/verification/v1",
            "path": self.path,
            "policy": self.policy,
            "accepted": self.accepted,
            "exit_code": int(self.exit_code),
            "verdicts": [_verdict_json(verdict) for verdict in self.verdicts],
        }

    def as_table(self) -> str:
        """The report for people."""
        lines = [printable(line) for verdict in self.verdicts for line in _verdict_lines(verdict)]
        codes = dict.fromkeys(self.reasons())
        lines += [printable(f"next step  {code}: {reasons.next_step(code)}") for code in codes]
        word = "ACCEPTED" if self.accepted else f"NOT ACCEPTED (exit {int(self.exit_code)})"
        counts = collections.Counter(self.reasons())
        found = ", ".join(f"{reason} ({count})" if count > 1 else reason for reason, count in counts.items())
        last = f"{self.path}: {word} under {self.policy}" + (f": {found}" if found else "")
        return "\n".join([*lines, printable(last)])


def printable(text: str) -> str:
    """``text`` with every character escaped that is not to be seen as itself.

    Names of files, subjects and signers come from whoever made them: a line break among them could write
    ``ACCEPTED`` on a line of its own, a terminal's escape sequence could wipe out a refusal.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def _for(accepted: Accepted) -> str:
    said = ", ".join(text for text in (accepted.target, accepted.platform) if text)
    return f" ({said})" if said else ""


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    value = {"verdict": type(verdict).__name__.lower(), **dataclasses.asdict(verdict)}
    if isinstance(verdict, Accepted):
        value["time"] = verdict.time.isoformat()
        value["evidence"] = dict(verdict.evidence)
    else:
        value["next"] = reasons.next_step(verdict.reason)
    return value


def _verdict_lines(verdict: Verdict) -> list[str]:
    match verdict:
        case Accepted():
            gates: dict[str, list[str]] = {}
            for gate, word in sorted(verdict.evidence.items()):
                gates.setdefault(word, []).append(gate)
            evidence = "; ".join(f"{word}: {', '.join(names)}" for word, names in sorted(gates.items()))
            return [
                f"ACCEPTED   {verdict.subject}{_for(verdict)}",
                f"           signed {verdict.time.isoformat()} by {verdict.identity}",
                f"           root {verdict.root}: {verdict.level}",
                *([f"           {evidence}"] if evidence else []),
                *(f"           note: {note}" for note in verdict.notes),
            ]
        case Rejected() | Missing() | Unchecked():
            word = type(verdict).__name__.upper()
            return [f"{word:<10} {verdict.subject}: {verdict.reason}", f"           {verdict.text}"]
        case _:
            assert_never(verdict)
