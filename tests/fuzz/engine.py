"""Runs ranges of mutants: number ``n`` of a seed is made, judged and counted; what breaks an invariant is kept."""

from __future__ import annotations

import base64
import collections
import dataclasses
import json
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from fuzz.subject import BrokenError, Original, SlowError, Subject

LONGEST = 10.0
"""Seconds that one mutant may take before it is broken off and counts as a defect; the slowest is recorded."""
NOT_MADE = "not made"
"""Outcome: the mutator found nothing to change in this original."""
_WEIGHTS = {"releases": 1, "images": 3, "policies": 10, "roots": 20, "wheels": 20, "layers": 20}
_BUNDLES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken:
    """A mutant that breaks an invariant, whole."""

    seed: int
    number: int
    subject: str
    mutator: str
    original: Original
    mutant: bytes
    why: str

    def as_json(self) -> dict[str, Any]:
        """For a file that a replay reads."""
        return {
            "seed": self.seed,
            "number": self.number,
            "subject": self.subject,
            "mutator": self.mutator,
            "why": self.why,
            "original": {
                "name": self.original.name,
                "data": base64.b64encode(self.original.data).decode(),
                "context": dict(self.original.context),
            },
            "mutant": base64.b64encode(self.mutant).decode(),
        }

    def save(self, folder: Path) -> Path:
        """Write it as ``SEED-NUMBER.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.seed}-{self.number}.json"
        path.write_text(json.dumps(self.as_json(), indent=1), encoding="utf-8")
        return path


@dataclasses.dataclass(kw_only=True)
class Tally:
    """What came of mutants: (subject, mutator) -> outcome -> count."""

    counts: dict[tuple[str, str], collections.Counter[str]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    slowest: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    broken: list[Broken] = dataclasses.field(default_factory=list)
    peak: int = 0
    """Bytes of the largest process."""

    @property
    def total(self) -> int:
        """Mutants judged."""
        return sum(counter.total() for counter in self.counts.values())

    def add(self, other: Tally) -> None:
        """Count what another range counted too."""
        for key, counter in other.counts.items():
            self.counts.setdefault(key, collections.Counter()).update(counter)
        for name, seconds in other.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        for name, seconds in other.slowest.items():
            self.slowest[name] = max(self.slowest.get(name, 0.0), seconds)
        self.broken += other.broken
        self.peak = max(self.peak, other.peak)

    def as_json(self) -> dict[str, Any]:
        """For the state file of a run that goes on later."""
        return {
            "counts": [[*key, dict(counter)] for key, counter in self.counts.items()],
            "seconds": dict(self.seconds),
            "slowest": dict(self.slowest),
            "broken": len(self.broken),
            "peak": self.peak,
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Tally:
        """Read back what ``as_json`` gave; mutants that broke something have files of their own."""
        tally = cls(peak=value["peak"])
        for subject, mutator, counter in value["counts"]:
            tally.counts[subject, mutator] = collections.Counter(counter)
        tally.seconds |= value["seconds"]
        tally.slowest |= value["slowest"]
        return tally


def run(
    subjects: Sequence[Subject], seed: int, numbers: Iterator[int] | range, *, until: float = float("inf")
) -> Tally:
    """Judge the mutants of some numbers.

    Args:
        subjects: What is mutated.
        seed: Names the run.
        numbers: Which mutants.
        until: ``time.monotonic`` after which no further one is made.
    """
    tally = Tally()
    weights = [_WEIGHTS.get(subject.name, _BUNDLES) for subject in subjects]
    for number in numbers:
        started = time.monotonic()
        if started >= until:
            break
        rng = Random(f"{seed}:{number}")
        subject = rng.choices(subjects, weights)[0]
        original = rng.choice(subject.originals)
        mutator = rng.choice(tuple(subject.mutators))
        outcome, broken = _one(subject, mutator, original, rng)
        taken = time.monotonic() - started
        tally.counts[subject.name, mutator][outcome] += 1
        tally.seconds[subject.name] += taken
        tally.slowest[subject.name] = max(tally.slowest[subject.name], taken)
        if broken is not None:
            tally.broken.append(dataclasses.replace(broken, seed=seed, number=number))
    tally.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return tally


def _one(subject: Subject, mutator: str, original: Original, rng: Random) -> tuple[str, Broken | None]:
    try:
        mutant = subject.mutators[mutator](rng, original)
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        return NOT_MADE, None
    try:
        with _limit():
            return subject.judge(original, mutant), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - invariant (c): whatever comes out is a finding, panics of Rust included
        why = (
            str(error)
            if isinstance(error, BrokenError)
            else "".join(traceback.format_exception(error))[-3000:]
        )
        found = Broken(
            seed=0,
            number=0,
            subject=subject.name,
            mutator=mutator,
            original=original,
            mutant=mutant,
            why=why,
        )
        return "BROKEN", found


@contextmanager
def _limit() -> Iterator[None]:
    def late(_signal: int, _frame: object) -> None:
        raise SlowError(f"over {LONGEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
