"""Marks that say which row of the case table (``rows.toml``) or which public report a test answers, and with what codes."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from pathlib import Path

import pytest

DATA = Path(__file__).with_name("rows.toml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of input."""

    number: int
    input: str
    answer: tuple[str, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Something that went wrong in another project, in public."""

    id: str
    happened: str
    right: str


@functools.cache
def rows() -> dict[int, Row]:
    """Number -> row."""
    found = tomllib.loads(DATA.read_text(encoding="utf-8"))["row"]
    return {item["number"]: Row(**{**item, "answer": tuple(item["answer"])}) for item in found}


@functools.cache
def reports() -> dict[str, Report]:
    """Id -> report."""
    return {item["id"]: Report(**item) for item in tomllib.loads(DATA.read_text(encoding="utf-8"))["report"]}


def row(number: int, *codes: str) -> pytest.MarkDecorator:
    """A test that answers a row.

    Args:
        number: Of the row.
        codes: Reason codes that the test asks for; none where it is about an acceptance.
    """
    return pytest.mark.row(number, *codes)


def report(ident: str, *codes: str) -> pytest.MarkDecorator:
    """A test that answers a public report; arguments as for ``row``."""
    return pytest.mark.report(ident, *codes)
