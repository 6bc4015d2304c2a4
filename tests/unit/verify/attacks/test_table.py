"""The case table: every row has a test, every code is one, and the page says what the marks say."""

from __future__ import annotations

import ast

import pytest

import casetable
import rows
from casetable import PAGE, TESTS, Marked
from wheelmark.verify import reasons
from wheelmark.verify.reasons import Answer

MARKED = casetable.marked()


@pytest.mark.parametrize("number", rows.rows())
def test_every_row_has_a_test(number: int) -> None:
    found = [item for item in MARKED if (item.mark, item.of) == ("row", number)]
    assert found
    answers = set(rows.rows()[number].answer)
    told = {reasons.answer_of(code).value for item in found for code in item.codes}
    if answers & set(Answer.__members__):
        assert told & answers
    else:  # what is done, or ACCEPT
        assert any(not item.codes for item in found) or told


@pytest.mark.parametrize("ident", rows.reports())
def test_every_report_has_a_test(ident: str) -> None:
    assert any((item.mark, item.of) == ("report", ident) for item in MARKED)


@pytest.mark.parametrize("item", MARKED, ids=lambda item: f"{item.shown}-{item.of}")
def test_a_mark_says_what_its_test_asks_for(item: Marked) -> None:
    assert item.of in (rows.rows() if item.mark == "row" else rows.reports())
    assert set(item.codes) <= set(reasons.TABLE)
    tree = ast.parse((TESTS / item.path).read_text(encoding="utf-8"))
    marks = {
        id(node)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in {"row", "report"}
        for node in ast.walk(call)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in marks
    ]
    assert all(any(code in text for text in texts) for code in item.codes)


def test_rows_are_numbered() -> None:
    assert list(rows.rows()) == list(range(1, 45))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == casetable.page(), "run `python tests/casetable.py`"
