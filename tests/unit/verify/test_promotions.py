"""Rows 31 and 33: what lets a release into a channel, and what does not."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

from judging import AT, NOW, PROD, RELEASE, RUNNER, TIME, Bench, facts, promoted, promotion, provenance
from rows import row
from wheelmark.attest.predicates import PROMOTION, Promotion
from wheelmark.attest.statement import Statement, Subject
from wheelmark.manifest import NAME
from wheelmark.sign import embedded
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Signer
from wheelmark.verify.verdict import Missing


@pytest.fixture
def prod(bench: Bench) -> Bench:
    promoter = Signer(name="promoter", root="embedded", issuer=embedded.ISSUER, identity=RUNNER)
    return bench.naming(promoter).asking(channel="prod", promoters=("promoter",))


def in_release(bench: Bench, *further: Facts, at: Circumstances = PROD) -> set[str]:
    judged = bench.judge([*bench.good(), *further], at, release_sha256=RELEASE, project="Demo.Kernels")
    return {getattr(verdict, "reason", "ACCEPT") for verdict in judged.verdicts}


def test_a_promotion_of_the_release_lets_its_wheels_in(prod: Bench) -> None:
    assert in_release(prod, promoted()) == {"ACCEPT"}
    verdict = prod.accepts([*prod.good(), promoted()], PROD, release_sha256=RELEASE)
    assert (verdict.promotion, verdict.sequence) == ("demo-kernels/prod", 5)
    assert promoted().statement is not None
    own = promoted(name="anything", sha256=prod.wheel.sha256)
    assert in_release(prod, own) == {"ACCEPT"}


@row(33, "promotion-missing")
def test_without_a_promotion_it_is_missing(prod: Bench) -> None:
    assert in_release(prod) == {"promotion-missing"}
    assert in_release(prod, promoted(sha256="0" * 64)) == {"promotion-missing"}
    (verdict,) = prod.judge(at=PROD).verdicts
    assert isinstance(verdict, Missing)


# Row 33.
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (promotion(channel="staging"), "promotion-channel"),
        (promotion(channel="prod2"), "promotion-channel"),
        (promotion(project="demo"), "promotion-channel"),
        (promotion(expires=NOW - dt.timedelta(microseconds=1)), "promotion-expired"),
        (promotion(time=TIME - dt.timedelta(days=9), expires=TIME), "promotion-expired"),
        (promotion(sequence=4), "promotion-rollback"),
    ],
)
def test_a_promotion_that_is_not_for_this_is_refused(prod: Bench, said: Promotion, reason: str) -> None:
    at = dataclasses.replace(PROD, sequences={"demo-kernels/prod": 5})
    assert in_release(prod, promoted(said), at=at) == {reason}
    # A good one beside it is enough.
    assert in_release(prod, promoted(said), promoted(), at=at) == {"ACCEPT"}


@row(33, "promotion-signer")
@pytest.mark.parametrize("identity", [embedded.RELEASE_IDENTITY, RUNNER + "2", "somebody@example.org"])
def test_a_promotion_by_somebody_else_is_refused(prod: Bench, identity: str) -> None:
    assert in_release(prod, promoted(identity=identity)) == {"promotion-signer"}
    assert in_release(prod, promoted(issuer="https://other.example")) == {"promotion-signer"}


# Row 31.
@row(31, "promotion-rollback")
def test_an_older_release_is_a_rollback_once_a_newer_was_accepted(prod: Bench) -> None:
    for highest, expected in ((0, "ACCEPT"), (4, "ACCEPT"), (5, "ACCEPT"), (6, "promotion-rollback")):
        at = dataclasses.replace(PROD, sequences={"demo-kernels/prod": highest, "demo-kernels/staging": 99})
        assert in_release(prod, promoted(), at=at) == {expected}


def test_the_last_instant_counts_and_the_clock_has_to_be_right(prod: Bench) -> None:
    assert in_release(prod, promoted(promotion(expires=NOW))) == {"ACCEPT"}
    early = promoted(times=(NOW + dt.timedelta(seconds=1),))
    assert in_release(prod, early) == {"clock-behind"}


def test_the_newest_of_several_is_what_is_remembered(prod: Bench) -> None:
    several = [promoted(promotion(sequence=number)) for number in (5, 9, 7)]
    verdict = prod.accepts([*prod.good(), *several], PROD, release_sha256=RELEASE)
    assert verdict.sequence == 9


def test_a_malformed_promotion_is_refused(prod: Bench) -> None:
    statement = Statement(
        subjects=(Subject(name=NAME, sha256=RELEASE),), predicate_type=PROMOTION, predicate={"surprise": 1}
    )
    assert in_release(prod, facts(statement, identity=RUNNER)) == {"promotion"}


# A wheel alone: the provenance links it to its release.
def test_a_wheel_alone_is_promoted_with_the_release_that_its_provenance_names(prod: Bench) -> None:
    statement = provenance(prod.made)
    both = dataclasses.replace(statement, subjects=(*statement.subjects, Subject(name=NAME, sha256=RELEASE)))
    alone: dict[str, Any] = {"documents": None, "evidence_files": None, "levels": None}
    linked = [facts(both), *prod.good()[1:], promoted()]
    prod.accepts(linked, PROD, **alone)
    assert prod.refuses([*prod.good(), promoted()], PROD, **alone) == {"promotion-missing"}
    by_stranger = [facts(both, identity="somebody@example.org"), *prod.good(), promoted()]
    assert "promotion-missing" in prod.refuses(by_stranger, PROD, **alone)


def test_without_a_channel_promotions_are_only_told(bench: Bench) -> None:
    found = [*bench.good(), promoted(), promoted(identity="somebody@example.org")]
    verdict = bench.accepts(found, AT, release_sha256=RELEASE)
    assert "2 promotions lie there; no channel was asked for" in verdict.notes
    assert verdict.promotion == ""
