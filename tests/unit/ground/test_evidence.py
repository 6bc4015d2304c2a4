from __future__ import annotations

from typing import Any

import pytest

from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict

SHA = "cd" * 32


def _evidence(**changes: Any) -> Evidence:
    values: dict[str, Any] = {
        "gate": "abi",
        "target": "cpu-x86_64",
        "subject": SHA,
        "verdict": Verdict.PASSED,
        "level": Level.STATIC,
        "summary": "fine",
    }
    return Evidence(**{**values, **changes})


def test_round_trip() -> None:
    evidence = _evidence(
        verdict=Verdict.UNCHECKED, level=Level.NONE, reason="other-machine", details={"a": [1]}
    )
    assert Evidence.from_json(evidence.as_json()) == evidence


def test_levels_are_ordered() -> None:
    assert [level.rank for level in Level] == [0, 1, 2, 3]
    assert Level.HARDWARE.at_least(Level.EMULATED)
    assert not Level.STATIC.at_least(Level.EMULATED)


@pytest.mark.parametrize(
    "changes",
    [
        {"level": Level.NONE},
        {"verdict": Verdict.FAILED},
        {"verdict": Verdict.UNCHECKED},
        {"subject": "ab"},
        {"subject": SHA.upper()},
    ],
)
def test_a_verdict_that_says_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        _evidence(**changes)
    assert caught.value.reason == "evidence"


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": 1},
        {"schema": "v2"},
        {"subject": SHA},
        {"verdict": "passed"},
        {"level": "gpu"},
        {"imported": "no"},
        {"details": []},
        {"gate": 1},
    ],
)
def test_foreign_records_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Evidence.from_json({**_evidence().as_json(), **changes})


def test_a_record_that_lacks_a_field_is_refused() -> None:
    value = _evidence().as_json()
    del value["level"]
    with pytest.raises(InputError):
        Evidence.from_json(value)
