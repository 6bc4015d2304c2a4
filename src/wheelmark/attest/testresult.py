"""in-toto test-result v0.1: what the gates found out about one artifact.

Format: in-toto attestation framework, ``spec/predicates/test-result.md``. Its test lists know only names, so
each gate's whole ``Evidence`` (verdict, level, figures) stands in the annotations of one ``configuration``
resource, whose digest is that of the evidence's canonical bytes: the bytes of ``evidence/<wheel>/<gate>.json``.
A gate that is UNCHECKED goes under ``warnedTests`` and makes the whole result WARNED at best: a reader that
knows nothing of levels still sees that not all was checked.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from wheelmark import digests
from wheelmark.attest.fields import Fields
from wheelmark.attest.resource import Resource, read_resource
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Verdict

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
EVIDENCE_MEDIA_TYPE = "application/vnd.wheelmark.evidence+json"
_ANNOTATION = "evidence"
_REASON = "test-result"


class Result(enum.Enum):
    """The predicate's one-word answer."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    FAILED = "FAILED"


_LISTS = {
    Verdict.PASSED: "passedTests",
    Verdict.UNCHECKED: "warnedTests",
    Verdict.FAILED: "failedTests",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TestResult:
    """The evidence of all gates that looked at one artifact.

    Raises:
        InputError: No evidence, a gate twice, or evidence of different artifacts (reason ``test-result``).
    """

    __test__ = False  # pytest collects classes of this name otherwise

    evidence: tuple[Evidence, ...]
    """One for each gate, by gate name."""

    def __post_init__(self) -> None:
        gates = [item.gate for item in self.evidence]
        if not gates:
            raise InputError("a test result without evidence says nothing", reason=_REASON)
        if len(set(gates)) != len(gates):
            raise InputError("a test result has a gate twice", reason=_REASON)
        if len({(item.subject, item.target) for item in self.evidence}) != 1:
            raise InputError("a test result mixes evidence of different artifacts", reason=_REASON)
        object.__setattr__(self, "evidence", tuple(sorted(self.evidence, key=lambda item: item.gate)))

    @classmethod
    def of(cls, evidence: Iterable[Evidence]) -> TestResult:
        """The result that gathers ``evidence``, in any order."""
        return cls(evidence=tuple(evidence))

    @property
    def subject(self) -> str:
        """sha256 of the artifact that was tested."""
        return self.evidence[0].subject

    @property
    def result(self) -> Result:
        """FAILED if any gate failed, else WARNED if any is UNCHECKED, else PASSED."""
        verdicts = {item.verdict for item in self.evidence}
        if Verdict.FAILED in verdicts:
            return Result.FAILED
        return Result.WARNED if Verdict.UNCHECKED in verdicts else Result.PASSED

    def gate(self, name: str) -> Evidence | None:
        """The evidence of one gate, or ``None`` where it did not run."""
        return next((item for item in self.evidence if item.gate == name), None)

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """The gates that answered ``verdict``."""
        return tuple(item.gate for item in self.evidence if item.verdict is verdict)

    def as_predicate(self) -> dict[str, Any]:
        """The JSON object that ``read_test_result`` reads back."""
        return {
            "result": self.result.value,
            "configuration": [_resource(item).as_json() for item in self.evidence],
            **{name: list(self.names(verdict)) for verdict, name in _LISTS.items()},
        }


def read_test_result(predicate: Mapping[str, Any]) -> TestResult:
    """Read a test result that Wheelmark's gates made.

    Every redundant field is recomputed from the evidence, so that no two readers see different answers.

    Raises:
        InputError: A member is absent, unknown or contradicts the evidence (reason ``test-result``), or an
            evidence record is malformed (reason ``evidence``).
    """
    known = ("result", "configuration", *_LISTS.values())
    fields = Fields(predicate, what="test result", reason=_REASON, known=known)
    found = TestResult.of(
        _read_evidence(value, what=f"test result: configuration[{index}]")
        for index, value in enumerate(fields.items("configuration"))
    )
    if fields.string("result") != found.result.value:
        raise fields.refusal(
            f"says {fields.string('result')[:40]!r}, and its evidence says {found.result.value}"
        )
    for verdict, name in _LISTS.items():
        if tuple(sorted(fields.strings(name))) != found.names(verdict):
            raise fields.refusal(f"has {name} that contradict its evidence")
    return found


def _resource(evidence: Evidence) -> Resource:
    value = evidence.as_json()
    return Resource(
        name=evidence.gate,
        digest={"sha256": digests.sha256(digests.canonical_json(value))},
        media_type=EVIDENCE_MEDIA_TYPE,
        annotations={_ANNOTATION: value},
    )


def _read_evidence(value: Any, *, what: str) -> Evidence:
    resource = read_resource(value, what=what)
    if resource.media_type != EVIDENCE_MEDIA_TYPE or set(resource.annotations) != {_ANNOTATION}:
        raise InputError(f"{what} holds no evidence of a gate", reason=_REASON)
    evidence = Evidence.from_json(resource.annotations[_ANNOTATION])
    if resource != _resource(evidence):
        raise InputError(f"{what} has a name or digest that is not its evidence's", reason=_REASON)
    return evidence
