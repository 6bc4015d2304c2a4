"""in-toto statements: what is written is read back, and everything else is refused with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wheelmark.attest.statement import TYPE, Statement, Subject, read_statement
from wheelmark.errors import InputError

A, B = "a" * 64, "b" * 64
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"


def statement(*subjects: Subject, predicate: dict[str, Any] | None = None) -> Statement:
    return Statement(
        subjects=subjects or (Subject(name="x.whl", sha256=A),),
        predicate_type=PREDICATE_TYPE,
        predicate={"a": 1} if predicate is None else predicate,
    )


def document(**changes: Any) -> bytes:
    value = {
        "_type": TYPE,
        "subject": [{"name": "x.whl", "digest": {"sha256": A}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"a": 1},
        **changes,
    }
    return json.dumps({key: member for key, member in value.items() if member is not ...}).encode()


def test_what_is_written_is_read_back() -> None:
    made = statement(
        Subject(name="a.whl", sha256=A), Subject(name="b.whl", sha256=B, others={"gitCommit": "c" * 40})
    )
    assert read_statement(made.as_bytes()) == made


def test_equal_statements_have_equal_bytes_in_any_order() -> None:
    one, two = Subject(name="a.whl", sha256=A), Subject(name="b.whl", sha256=B)
    assert (
        statement(one, two, predicate={"x": 1, "y": 2}).as_bytes()
        == statement(two, one, predicate={"y": 2, "x": 1}).as_bytes()
    )


def test_another_spelling_means_the_same_and_has_one_canonical_form() -> None:
    assert read_statement(document()).as_bytes() == statement().as_bytes()
    assert document() != statement().as_bytes()


def test_the_older_type_is_read_and_never_written() -> None:
    older = read_statement(document(_type="https://in-toto.io/Statement/v0.1"))
    assert older == statement()
    assert TYPE.encode() in older.as_bytes()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"_type": "https://in-toto.io/Statement/v0.2"}, "statement-type"),
        ({"_type": ["https://in-toto.io/Statement/v1"]}, "statement-type"),
        ({"_type": ...}, "statement-type"),
        ({"_type": TYPE + "/"}, "statement-type"),
        ({"extra": 1}, "statement-fields"),
        ({"predicate": ...}, "statement-fields"),
        ({"subject": []}, "statement-subjects"),
        ({"subject": {}}, "statement-subjects"),
        ({"subject": ["x.whl"]}, "statement-subjects"),
        ({"subject": [{"digest": {"sha256": A}}]}, "statement-subjects"),
        ({"subject": [{"name": "", "digest": {"sha256": A}}]}, "statement-subjects"),
        ({"subject": [{"name": "x", "digest": {"sha256": A}, "uri": "a:b"}]}, "statement-subjects"),
        (
            {"subject": [{"name": "x", "digest": {"sha256": A}}, {"name": "x", "digest": {"sha256": B}}]},
            "statement-subjects",
        ),
        ({"subject": [{"name": "x", "digest": {"gitCommit": "c" * 40}}]}, "statement-subjects"),
        ({"subject": [{"name": "x", "digest": {}}]}, "statement-digest"),
        ({"subject": [{"name": "x", "digest": {"sha256": A.upper()}}]}, "statement-digest"),
        ({"subject": [{"name": "x", "digest": {"sha256": A[:-1]}}]}, "statement-digest"),
        ({"subject": [{"name": "x", "digest": {"sha256": [A]}}]}, "statement-digest"),
        ({"subject": [{"name": "x", "digest": {"sha256": A, "sha512": A}}]}, "statement-digest"),
        ({"subject": [{"name": "x", "digest": {"sha256": A, "crc32": "0" * 8}}]}, "statement-digest"),
        ({"predicateType": 3}, "statement-predicate-type"),
        ({"predicateType": ""}, "statement-predicate-type"),
        ({"predicateType": "provenance"}, "statement-predicate-type"),
        ({"predicateType": "https://slsa.dev/provenance v1"}, "statement-predicate-type"),
        ({"predicateType": PREDICATE_TYPE + "\n"}, "statement-predicate-type"),
        ({"predicate": []}, "statement-predicate"),
        ({"predicate": None}, "statement-predicate"),
    ],
)
def test_what_is_no_statement_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_statement(document(**changes))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (document().replace(b'"_type"', b'"_type": "x", "_type"'), "json-duplicate-key"),
        (b"[" * 10_000, "json-too-deep"),
        (b"[]", "json-type"),
        (b"\xff", "json-syntax"),
        (b'"' + b"x" * (17 << 20) + b'"', "json-too-large"),
    ],
)
def test_json_out_of_bounds_is_refused_before_it_is_read(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_statement(data)
    assert caught.value.reason == reason


def test_a_statement_cannot_be_made_without_subjects() -> None:
    with pytest.raises(InputError) as caught:
        Statement(subjects=(), predicate_type=PREDICATE_TYPE, predicate={})
    assert caught.value.reason == "statement-subjects"


def test_digests_of_two_subjects_that_contradict_each_other_are_refused() -> None:
    def made(*subjects: tuple[str, str, dict[str, str]]) -> Statement:
        return Statement(
            subjects=tuple(
                Subject(name=name, sha256=sha256, others=others) for name, sha256, others in subjects
            ),
            predicate_type="https://example.org/v1",
            predicate={},
        )

    one, two = "1" * 128, "2" * 128
    made(("a", A, {"sha512": one}), ("b", A, {"sha512": one}), ("c", B, {"sha512": two}), ("d", A, {}))
    made(("a", A, {"gitCommit": "c" * 40}), ("b", B, {"gitCommit": "c" * 40}))
    for bad in (
        (("a", A, {"sha512": one}), ("b", A, {"sha512": two})),
        (("a", A, {"sha512": one}), ("b", B, {"sha512": one})),
        (("a", A, {"sha1": "0" * 40}), ("b", B, {"sha1": "0" * 40, "sha512": two})),
    ):
        with pytest.raises(InputError) as caught:
            made(*bad)
        assert caught.value.reason == "statement-digest"
