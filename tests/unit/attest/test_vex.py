"""OpenVEX in in-toto, read strictly: nothing is set aside by what was not understood."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from wheelmark.attest.predicates import VEX, Vex, read_vex
from wheelmark.attest.vex import Justification, Product, Status, VexStatement
from wheelmark.errors import InputError

TIME = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
SHA256 = "a" * 64


def document(**changes: Any) -> dict[str, Any]:
    """As ``vexctl`` writes it."""
    statement = {
        "vulnerability": {
            "@id": "https://nvd.nist.gov/vuln/detail/CVE-2026-1",
            "name": "CVE-2026-1",
            "aliases": ["GHSA-1"],
        },
        "products": [
            {
                "@id": "pkg:pypi/demo@1",
                "hashes": {"sha-256": SHA256},
                "subcomponents": [{"@id": "pkg:pypi/x@1"}],
            }
        ],
        "status": "not_affected",
        "justification": "vulnerable_code_not_in_execute_path",
        "impact_statement": "never called",
    }
    for name in list(changes):
        if name.startswith("_"):
            value = changes.pop(name)
            if value is None:
                statement.pop(name[1:], None)
            else:
                statement[name[1:]] = value
    made: dict[str, Any] = {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": "https://openvex.dev/docs/public/vex-1",
        "author": "Somebody",
        "role": "Document Creator",
        "timestamp": "2023-01-08T18:02:03.647787998-06:00",
        "version": 1,
        "tooling": "vexctl",
        "statements": [statement],
    }
    made |= changes
    return {name: value for name, value in made.items() if value is not None}


def test_what_vexctl_writes_is_read() -> None:
    found = read_vex(document())
    assert found.time == dt.datetime(2023, 1, 9, 0, 2, 3, 647787, tzinfo=dt.UTC)
    (said,) = found.statements
    assert said.names == {"CVE-2026-1", "GHSA-1"}
    assert said.time == found.time
    assert said.sets_aside
    assert said.justification is Justification.NOT_IN_EXECUTE_PATH
    assert said.products == (Product(id="pkg:pypi/demo@1", sha256=SHA256, components=("pkg:pypi/x@1",)),)
    assert said.speaks_of({SHA256}, "pkg:pypi/x@1")
    assert not said.speaks_of({SHA256}, "pkg:pypi/x@2")
    assert not said.speaks_of({SHA256}, "")
    assert not said.speaks_of({"b" * 64}, "pkg:pypi/x@1")


def test_inner_times_go_before_outer_ones() -> None:
    (said,) = read_vex(document(_timestamp="2026-01-01T00:00:00Z")).statements
    assert said.time == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    both = document(_timestamp="2026-01-01T00:00:00Z", _last_updated="2026-02-01T00:00:00.5Z")
    (said,) = read_vex(both).statements
    assert said.time == dt.datetime(2026, 2, 1, 0, 0, 0, 500000, tzinfo=dt.UTC)


@pytest.mark.parametrize("status", Status)
def test_what_is_written_is_read_back(status: Status) -> None:
    affected = status is Status.AFFECTED
    said = VexStatement(
        vulnerability="CVE-1",
        aliases=("GHSA-1",),
        status=status,
        time=TIME,
        justification=Justification.COMPONENT_NOT_PRESENT if status is Status.NOT_AFFECTED else None,
        products=(
            Product(id="pkg:x/y", sha256=SHA256, components=("pkg:x/z",)),
            Product(id="", sha256=SHA256),
        ),
        action="upgrade" if affected else "",
    )
    plain = VexStatement(vulnerability="CVE-2", status=Status.FIXED, time=TIME)
    made = Vex(id="https://example.org/1", author="A", time=TIME, statements=(said, plain), version=3)
    assert read_vex(made.as_predicate()) == made
    assert said.sets_aside is (status in {Status.NOT_AFFECTED, Status.FIXED})
    assert plain.speaks_of({"0" * 64}, "")


@pytest.mark.parametrize(
    "change",
    [
        {"@context": "https://openvex.dev/ns"},
        {"@context": None},
        {"@id": None},
        {"author": ""},
        {"timestamp": None},
        {"timestamp": "2023-01-08"},
        {"timestamp": "2023-13-08T18:02:03Z"},
        {"timestamp": "2023-01-08T18:02:03"},
        {"version": None},
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"statements": []},
        {"statements": None},
        {"statements": {}},
        {"statements": ["x"]},
        {"surprise": 1},
        {"_vulnerability": None},
        {"_vulnerability": "CVE-1"},
        {"_vulnerability": {"@id": "x"}},
        {"_vulnerability": {"name": "x", "surprise": 1}},
        {"_vulnerability": {"name": "x", "aliases": ["a", "a"]}},
        {"_status": None},
        {"_status": "ignored"},
        {"_status": "fixed"},
        {"_status": "affected", "_justification": None},
        {"_justification": None},
        {"_justification": "because"},
        {"_timestamp": "now"},
        {"_products": []},
        {"_products": "x"},
        {"_products": [{"@id": "x", "surprise": 1}]},
        {"_products": [{"@id": "x", "hashes": {"sha-256": 1}}]},
        {"_products": [{"@id": "x", "subcomponents": [{}]}]},
        {"_surprise": 1},
    ],
)
def test_anything_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        read_vex(document(**change))
    assert caught.value.reason == "vex"


def test_the_predicate_type_is_the_versioned_one() -> None:
    assert VEX == "https://openvex.dev/ns/v0.2.0"
