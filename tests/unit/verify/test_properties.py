"""What holds of every evaluation: it depends on nothing but its inputs, and never lets more through for knowing more evil."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judging import (
    AT,
    NOW,
    PROD,
    RELEASE,
    RUNNER,
    TIME,
    Bench,
    facts,
    promoted,
    promotion,
    provenance,
    results,
    sbom,
)
from wheelmark.sign import embedded
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Denial, Signer
from wheelmark.verify.verdict import Accepted

# The bench is made once and never changed; hypothesis cannot see that.
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def prod(bench: Bench) -> Bench:
    promoter = Signer(name="promoter", root="embedded", issuer=embedded.ISSUER, identity=RUNNER)
    return bench.naming(promoter).asking(channel="prod", promoters=("promoter",))


def pool(bench: Bench) -> dict[str, Facts]:
    """Good statements and bad ones, by a word that says which."""
    made = bench.made
    return {
        "good provenance": facts(provenance(made)),
        "good sbom": facts(sbom(made)),
        "good results": facts(results(made)),
        "good promotion": promoted(),
        "good later promotion": promoted(promotion(sequence=8)),
        "idle promotion": promoted(promotion(channel="staging")),
        "idle expired": promoted(promotion(time=TIME - dt.timedelta(days=9), expires=TIME)),
        "bad digest": facts(provenance(made, sha256="0" * 64)),
        "bad name": facts(sbom(made, name="other.whl")),
        "bad identity": facts(results(made), identity="somebody@example.org"),
        "bad issuer": facts(provenance(made), issuer="https://other.example"),
        "bad time": facts(provenance(made), times=(NOW + dt.timedelta(days=1),)),
        "bad document": facts(sbom(made, b'{"bomFormat":"CycloneDX","specVersion":"1.6"}')),
    }


WORDS = (
    *("good provenance", "good sbom", "good results", "good promotion", "good later promotion"),
    *("idle promotion", "idle expired"),
    *("bad digest", "bad name", "bad identity", "bad issuer", "bad time", "bad document"),
)
NEEDED = {"good provenance", "good sbom", "good results"}
PROMOTED = {"good promotion", "good later promotion"}
chosen = st.lists(st.sampled_from(WORDS), unique=True)


def answer(
    bench: Bench, words: list[str], at: Circumstances = PROD
) -> tuple[bool, frozenset[tuple[str, str]]]:
    found = pool(bench)
    judged = prod(bench).judge([found[word] for word in words], at, release_sha256=RELEASE)
    accepted = all(isinstance(verdict, Accepted) for verdict in judged.verdicts) and bool(judged.verdicts)
    reasons = frozenset((verdict.subject, getattr(verdict, "reason", "")) for verdict in judged.verdicts)
    return accepted, reasons


def test_the_pool_is_what_the_words_say(bench: Bench) -> None:
    assert tuple(pool(bench)) == WORDS


@QUICK
@given(words=chosen)
def test_what_is_needed_and_nothing_bad_is_accepted(bench: Bench, words: list[str]) -> None:
    bad = any(word.startswith("bad") for word in words)
    expected = set(words) >= NEEDED and bool(PROMOTED & set(words)) and not bad
    assert answer(bench, words)[0] is expected


@QUICK
@given(data=st.data(), words=chosen)
def test_neither_order_nor_repetition_decides(bench: Bench, data: Any, words: list[str]) -> None:
    shuffled = data.draw(st.permutations(words))
    assert answer(bench, words) == answer(bench, words) == answer(bench, shuffled)


@QUICK
@given(words=chosen, further=st.sampled_from([word for word in WORDS if word.startswith("bad")]))
def test_bad_evidence_never_helps(bench: Bench, words: list[str], further: str) -> None:
    assert not answer(bench, [*words, further])[0]


@QUICK
@given(words=chosen, taken=st.sampled_from([word for word in WORDS if not word.startswith("bad")]))
def test_taking_good_evidence_away_never_helps(bench: Bench, words: list[str], taken: str) -> None:
    fewer = [word for word in words if word != taken]
    assert answer(bench, words)[0] or not answer(bench, fewer)[0]


@QUICK
@given(
    words=chosen,
    denied=st.lists(st.sampled_from(["0" * 64, RELEASE, "self", "file"]), unique=True),
)
def test_denying_more_never_accepts_more(bench: Bench, words: list[str], denied: list[str]) -> None:
    names = {"self": bench.wheel.sha256, "file": next(iter(bench.wheel.files.values()))}
    denials = tuple(Denial(sha256=names.get(word, word), why="w") for word in denied)
    before, after = answer(bench, words)[0], answer(bench.under(denials=denials), words)[0]
    assert before or not after
    if set(denied) - {"0" * 64}:
        assert not after


@QUICK
@given(
    seconds=st.integers(-(10**9), 10**9),
    seen=st.integers(-(10**9), 10**9) | st.none(),
    highest=st.integers(0, 20),
)
def test_knowing_more_of_the_past_never_accepts_more(
    bench: Bench, seconds: int, seen: int | None, highest: int
) -> None:
    now = NOW + dt.timedelta(seconds=seconds)
    last = None if seen is None else NOW + dt.timedelta(seconds=seen)
    words = [*sorted(NEEDED), "good promotion"]
    ignorant = answer(bench, words, dataclasses.replace(PROD, now=now))[0]
    knowing = answer(
        bench,
        words,
        dataclasses.replace(PROD, now=now, last_seen=last, sequences={"demo-kernels/prod": highest}),
    )[0]
    assert ignorant is (TIME <= now <= NOW + dt.timedelta(days=7))
    assert knowing is (ignorant and (last is None or last <= now) and highest <= 5)
    assert AT.last_seen is None
