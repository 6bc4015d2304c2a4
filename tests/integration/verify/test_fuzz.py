"""The fuzzer, for a short while, in this process; and that it finds what a weaker verifier lets through."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from fuzz import bundlejudge, corpus, engine, record
from fuzz.__main__ import main
from fuzz.subject import Mutator, Original, Subject
from rows import row
from wheelmark.errors import RejectedError
from wheelmark.verify import entry, facts, log, timestamps
from wheelmark.verify.bundle import Bundle

SECONDS = 20
SEED = 20
PLANTED = 4000
"""Mutants in which a weakness that is planted has to be found."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Subject, ...]]:
    with corpus.subjects(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def told(broken: list[engine.Broken]) -> list[str]:
    return [
        f"{item.number}, {item.subject}, {item.mutator}: {item.why[:400]} … {item.why[-200:]}"
        for item in broken
    ]


def memory(field: str) -> int:
    """A figure of this process in bytes, as the kernel has it."""
    found = re.search(
        rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE
    )
    assert found
    return int(found[1]) << 10


@row(44)
def test_every_invariant_holds_for_a_while(subjects: tuple[Subject, ...]) -> None:
    # The peak is of the whole process, which has run other tests: it starts anew here.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = memory("VmRSS")
    tally = engine.run(subjects, SEED, range(10**9), until=time.monotonic() + SECONDS)
    assert told(tally.broken) == []
    assert tally.total > 500
    assert {name for name, _ in tally.counts} == {subject.name for subject in subjects}
    assert memory("VmHWM") - before < 400 << 20
    assert "| own bundles | checkpoint |" in record.table(tally)


def test_every_mutator_makes_mutants_of_every_original(subjects: tuple[Subject, ...]) -> None:
    for subject in subjects:
        for mutator, mutate in subject.mutators.items():
            made = 0
            for original in subject.originals[:3]:
                for number in range(8):
                    try:
                        made += mutate(Random(f"{SEED}:{number}"), original) != original.data
                    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
                        continue
            assert made, f"{subject.name}: {mutator} makes nothing"


def test_one_number_is_one_mutant(subjects: tuple[Subject, ...]) -> None:
    for subject in subjects:
        original, mutate = subject.originals[0], next(iter(subject.mutators.values()))
        assert mutate(Random("1:2"), original) == mutate(Random("1:2"), original)


def nothing(*_arguments: object, **_options: object) -> None:
    return None


def first_time(token: bytes, _signature: bytes, _authorities: object) -> object:
    return timestamps._decode(token)[3]


PLANTS: dict[str, tuple[object, str, Callable[..., object], str]] = {
    "log entry not compared": (entry, "check_body", nothing, "(b)"),
    "inclusion not recomputed": (log, "check_inclusion", nothing, "(b)"),
    "signature not checked": (facts, "signed", lambda *_: True, "(b)"),
    "timestamps not checked": (timestamps, "check_timestamp", first_time, "(b)"),
    "form not compared": (Bundle, "spelled", nothing, "(a)"),
    "nothing named": (facts, "_unauthenticated", lambda *_, **__: (), "(b)"),
}


@pytest.mark.parametrize("weakness", PLANTS)
def test_a_planted_weakness_is_found(
    subjects: tuple[Subject, ...], monkeypatch: pytest.MonkeyPatch, weakness: str
) -> None:
    holder, name, replacement, invariant = PLANTS[weakness]
    if weakness == "form not compared":
        real = facts.Examiner._follow_plan

        def follow(self: facts.Examiner, data: bytes, *rest: str) -> facts.Facts:
            monkeypatch.setattr(Bundle, "spelled", lambda _bundle: data)
            return real(self, data, *rest)

        monkeypatch.setattr(facts.Examiner, "_follow_plan", follow)
    else:
        monkeypatch.setattr(holder, name, replacement)
    # sigstore-python would find most of these by itself, as invariant (d).
    monkeypatch.setattr(bundlejudge._Reference, "refuses", lambda *_: "")
    bundles = [subject for subject in subjects if "bundles" in subject.name]
    broken = engine.run(bundles, SEED, range(PLANTED)).broken
    assert any(item.why.startswith(invariant) for item in broken), weakness


def test_what_breaks_is_saved_and_judged_again(
    subjects: tuple[Subject, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    subject = next(subject for subject in subjects if subject.name == "own bundles")
    original = subject.originals[0]
    broken = engine.Broken(
        seed=1,
        number=2,
        subject=subject.name,
        mutator="by hand",
        original=original,
        mutant=original.data + b"\n",
        why="a test",
    )
    saved = broken.save(tmp_path)
    assert base64.b64decode(json.loads(saved.read_text())["mutant"]) == original.data + b"\n"
    assert main(["--replay", str(saved)]) == 0
    assert "not-canonical" in capsys.readouterr().out
    real = facts.Examiner._follow_plan
    monkeypatch.setattr(
        facts.Examiner, "_follow_plan", lambda self, data, *rest: real(self, data.rstrip(), *rest)
    )
    assert main(["--replay", str(saved)]) == 1
    assert "BROKEN: (a)" in capsys.readouterr().out


def test_what_escapes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As a library in Rust raises."""

    class Odd:
        name = "odd"
        originals = (Original(name="x", data=b"x"),)

        def __init__(self, raises: BaseException) -> None:
            self._raises = raises
            self.mutators: dict[str, Mutator] = {"any": lambda _rng, _original: b"y"}

        def judge(self, _original: Original, _mutant: bytes) -> str:
            raise self._raises

    for error in (ZeroDivisionError(), Panic(), RejectedError("not even a refusal may escape the judge")):
        tally = engine.run([Odd(error)], 1, range(3))
        assert len(tally.broken) == 3
        assert type(error).__name__ in tally.broken[0].why

    class Slow(Odd):
        def judge(self, _original: Original, _mutant: bytes) -> str:
            while True:
                time.sleep(0.01)

    monkeypatch.setattr(engine, "LONGEST", 0.05)
    assert "SlowError" in engine.run([Slow(Panic())], 1, range(1)).broken[0].why


def test_a_run_that_was_broken_off_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, page = tmp_path / "state.json", tmp_path / "fuzz.md"
    common = ["--seed", "3", "--kinds", "policies", "--workers", "1", "--state", str(state)]
    assert main([*common, "--count", "500"]) == 0
    assert main([*common, "--count", "1000", "--record", str(page)]) == 0
    captured = capsys.readouterr()
    assert "going on after 500 mutants" in captured.err
    assert "1,000 mutants" in captured.out
    assert "| policies | line taken out |" in page.read_text()
