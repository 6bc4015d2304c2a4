"""Promotions: SLSA verification summaries for a channel, read as strictly as they are written."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
from typing import Any

import pytest

from wheelmark.attest.predicates import ALL, PROMOTION, Promotion, read_promotion
from wheelmark.errors import InputError

TIME = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
MADE = Promotion(
    verifier_id="https://example.org/promoter",
    time=TIME,
    project="demo-kernels",
    channel="prod",
    policy_sha256="c" * 64,
    policy_uri="https://example.org/policy",
    sequence=5,
    expires=TIME + dt.timedelta(days=7),
    levels=("SLSA_BUILD_LEVEL_1",),
)


def test_what_is_written_is_a_verification_summary_and_is_read_back() -> None:
    predicate = MADE.as_predicate()
    assert predicate == {
        "verifier": {"id": "https://example.org/promoter"},
        "timeVerified": "2026-06-01T12:00:00Z",
        "resourceUri": "https://wheelmark.dev/channels/v1/demo-kernels/prod",
        "policy": {"uri": "https://example.org/policy", "digest": {"sha256": "c" * 64}},
        "verificationResult": "PASSED",
        "verifiedLevels": ["SLSA_BUILD_LEVEL_1"],
        "slsaVersion": "1.0",
        "wheelmark_sequence": 5,
        "wheelmark_expires": "2026-06-08T12:00:00Z",
    }
    assert read_promotion(predicate) == MADE
    assert MADE.key == "demo-kernels/prod"
    least = dataclasses.replace(MADE, policy_uri="", levels=())
    assert read_promotion(least.as_predicate()) == least
    assert PROMOTION not in ALL  # a release is signed without one


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verifier", {}),
        ("verifier", {"id": "x", "version": {}}),
        ("verifier", None),
        ("timeVerified", "2026-06-01"),
        ("timeVerified", "2027-06-01T12:00:00Z"),
        ("resourceUri", ""),
        ("resourceUri", "https://other.example/demo-kernels/prod"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/demo-kernels"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/demo-kernels/"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/demo-kernels/prod/x"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/demo-kernels/Prod"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/demo-kernels/prod\n"),
        ("resourceUri", "https://wheelmark.dev/channels/v1/../prod"),
        ("policy", {}),
        ("policy", {"digest": {"sha256": "C" * 64}}),
        ("policy", {"digest": {"sha256": "c" * 64, "sha1": "0"}}),
        ("verificationResult", "FAILED"),
        ("verificationResult", "passed"),
        ("verifiedLevels", "SLSA_BUILD_LEVEL_1"),
        ("slsaVersion", "2.0"),
        ("wheelmark_sequence", 0),
        ("wheelmark_sequence", -1),
        ("wheelmark_sequence", True),
        ("wheelmark_sequence", 5.0),
        ("wheelmark_sequence", "5"),
        ("wheelmark_sequence", 2**53),
        ("wheelmark_expires", "2026-06-01T12:00:00Z"),
        ("wheelmark_expires", "never"),
        ("surprise", 1),
    ],
)
def test_anything_else_is_refused(name: str, value: Any) -> None:
    predicate = copy.deepcopy(MADE.as_predicate())
    predicate[name] = value
    with pytest.raises(InputError) as caught:
        read_promotion(predicate)
    assert caught.value.reason == "promotion"


@pytest.mark.parametrize("name", sorted(set(MADE.as_predicate()) - {"verifiedLevels", "slsaVersion"}))
def test_a_member_that_is_not_there_is_refused(name: str) -> None:
    predicate = MADE.as_predicate()
    del predicate[name]
    with pytest.raises(InputError) as caught:
        read_promotion(predicate)
    assert caught.value.reason == "promotion"
