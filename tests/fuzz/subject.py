"""What the fuzzer runs on: subjects, mutators by name, and what can come of a mutant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

UNCHANGED, EQUAL, LESS = "unchanged", "accepted, equal", "accepted, less evidence"
"""Outcomes beside reason codes: the mutant is the original; nothing that it says differs; signed times were taken out."""


class BrokenError(Exception):
    """An invariant does not hold: a defect of the verifier, or of this fuzzer."""


class SlowError(Exception):
    """A mutant took longer than any may."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Original:
    """An input that is accepted, and what is needed to judge its mutants."""

    name: str
    data: bytes
    context: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """For a replay: what the subject was built with, base64."""
    tree: Any = None
    """A parsed form that mutators copy and change; never changed itself."""


Mutator = Callable[[Random, Original], bytes]


class Subject(Protocol):
    """One kind of input."""

    name: str

    @property
    def originals(self) -> tuple[Original, ...]:
        """What is mutated."""

    @property
    def mutators(self) -> Mapping[str, Mutator]:
        """By name."""

    def judge(self, original: Original, mutant: bytes) -> str:
        """The outcome: a reason code, or one of the words above.

        Raises:
            BrokenError: An invariant does not hold.
        """
