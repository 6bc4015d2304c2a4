from __future__ import annotations

import math
import random

import pytest

from wheelmark.evidence import Verdict
from wheelmark.gates.performance import Interval, decide, median_interval, regressions


def test_interval_ranks_are_those_of_the_published_table() -> None:
    # Conover, Table of ranks for the median: n = 30, 95 % -> ranks 10 and 21; n = 10 -> 2 and 9; n = 6 -> 1 and 6.
    for count, low, high in ((30, 10, 21), (10, 2, 9), (6, 1, 6)):
        interval = median_interval([float(i) for i in range(1, count + 1)], 0.95)
        assert interval is not None
        assert (interval.low, interval.high) == (low, high)


def test_five_pairs_cannot_reach_95_percent() -> None:
    assert median_interval([1.0] * 5, 0.95) is None
    assert decide(None, 1.1) is Verdict.UNCHECKED


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(2000):
        interval = median_interval([math.exp(rng.gauss(0, 0.3)) for _ in range(30)], 0.95)
        assert interval is not None
        hits += interval.low <= 1.0 <= interval.high
    assert hits / 2000 >= 0.94


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, 0.6, Verdict.PASSED),
        (1.0, 1.1, Verdict.PASSED),
        (1.05, 1.2, Verdict.UNCHECKED),
        (1.1, 1.2, Verdict.UNCHECKED),
        (1.11, 1.2, Verdict.FAILED),
        (2.0, 2.1, Verdict.FAILED),
    ],
)
def test_only_a_whole_interval_beyond_the_limit_fails(low: float, high: float, verdict: Verdict) -> None:
    assert decide(Interval(low=low, median=(low + high) / 2, high=high), 1.1) is verdict


def test_static_figures_against_the_baseline() -> None:
    figures = {
        "k/a": {
            "registers": 40,
            "spill_stores": 0,
            "spill_loads": 0,
            "shared": 0,
            "static_shared": 0,
            "code_size": 100,
        }
    }
    assert regressions(figures, figures) == []
    assert regressions(figures, {"k/a": {**figures["k/a"], "registers": 39}}) == ["k/a: registers 39 -> 40"]
    assert regressions(figures, {"k/a": {**figures["k/a"], "registers": 41}}) == []
    assert regressions(figures, {}) == ["k/a: not in the baseline"]
    assert regressions({}, figures) == ["k/a: in the baseline, not in the wheel"]
