"""Codes are stable, documented, and each has one answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wheelmark.errors import Exit, InputError
from wheelmark.verify import reasons
from wheelmark.verify.verdict import (
    Missing,
    Rejected,
    Report,
    Unchecked,
    exit_code,
    refusal,
    refusal_of,
    worst,
)

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = REPOSITORY / "src" / "wheelmark"
CODE = re.compile(r'reason="([a-z][a-z0-9-]+)"')


def test_reference_page_is_what_the_table_says() -> None:
    page = REPOSITORY / "docs" / "reference" / "reason-codes.md"
    assert page.read_text(encoding="utf-8") == reasons.as_markdown()


@pytest.mark.parametrize(
    "room", ["verify", "trust/roots.py", "attest/statement.py", "strictjson.py", "manifest.py"]
)
def test_every_code_that_is_raised_stands_in_the_table(room: str) -> None:
    path = SOURCE / room
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    raised = {code for file in files for code in CODE.findall(file.read_text(encoding="utf-8"))}
    assert raised
    internal = {"der"}  # caught where it is raised
    assert sorted(raised - set(reasons.TABLE) - internal) == []


def test_codes_of_the_readers_of_bytes_stand_in_the_table() -> None:
    pattern = re.compile(r"^(?:``)?((?:wheel|object|sbom)-[a-z]+)", re.MULTILINE)
    for name in ("binaries/wheel.py", "binaries/kernelobjects.py"):
        found = set(pattern.findall((SOURCE / name).read_text(encoding="utf-8")))
        assert found
        assert sorted(found - set(reasons.TABLE)) == []


def test_every_code_has_a_next_step() -> None:
    steps = {code: reasons.next_step(code) for code in reasons.TABLE}
    assert all(text and "\n" not in text and "|" not in text and len(text) <= 120 for text in steps.values())
    assert steps["signature"].startswith("do not use it")
    assert "--bundle" in steps["no-bundle"]
    assert steps["clock-behind"] != steps["time-missing"]  # an override, and another
    assert reasons.next_step("never-heard-of").startswith("do not use it")


def test_no_next_step_is_for_a_code_that_there_is_not() -> None:
    groups = {group for _, group, _ in reasons.TABLE.values()}
    assert set(reasons._NEXT) <= set(reasons.TABLE)
    assert set(reasons._NEXT_OF_GROUP) == groups


def test_a_report_says_the_next_step_once_for_each_code() -> None:
    found = [refusal("a", "signature", "t"), refusal("b", "signature", "t"), refusal("c", "no-bundle", "t")]
    report = Report(path="p", policy="q", verdicts=tuple(found))
    lines = report.as_table().splitlines()
    said = [line for line in lines if line.startswith("next step")]
    assert said == [f"next step  {code}: {reasons.next_step(code)}" for code in ("signature", "no-bundle")]
    assert lines[-1].startswith("p: NOT ACCEPTED")
    assert [item["next"] for item in report.as_json()["verdicts"]] == [
        reasons.next_step(item.reason) for item in found
    ]


def test_cause_and_fix_of_an_error_stay() -> None:
    error = InputError("it is bad", cause="a disk", fix="get another", reason="manifest")
    refused = refusal_of("s", error)
    assert (refused.reason, refused.text) == (
        "manifest",
        "it is bad; likely cause: a disk; next step: get another",
    )
    assert refusal_of("s", InputError("it is bad")).text == "it is bad"


def test_each_answer_has_its_exit_code() -> None:
    expected = {
        "signature": Exit.REJECTED,
        "json-too-deep": Exit.INPUT,
        "no-bundle": Exit.MISSING,
        "unreadable": Exit.UNCHECKED,
        "never-heard-of": Exit.REJECTED,
    }
    assert {code: exit_code(refusal("s", code, "t")) for code in expected} == expected
    kinds = [type(refusal("s", code, "t")) for code in ("signature", "no-bundle", "unreadable")]
    assert kinds == [Rejected, Missing, Unchecked]


def test_the_worst_of_several_counts_and_nothing_is_no_success() -> None:
    assert worst([]) is Exit.MISSING
    assert worst([Exit.OK, Exit.UNCHECKED]) is Exit.UNCHECKED
    assert worst([Exit.MISSING, Exit.UNCHECKED]) is Exit.MISSING
    assert worst([Exit.MISSING, Exit.INPUT]) is Exit.INPUT
    assert worst([Exit.INPUT, Exit.REJECTED, Exit.OK]) is Exit.REJECTED
    empty = Report(path="p", policy="q", verdicts=())
    assert not empty.accepted
    assert empty.exit_code is Exit.MISSING
