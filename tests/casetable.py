"""Writes ``docs/reference/cases.md`` from ``rows.toml`` and the marks of the tests: ``python tests/casetable.py [--check]``.

Tests are read, not run: what stands in the page is what a mark says, and ``tests/unit/verify/attacks/test_table.py`` holds
that every row has a test, that every code stands in the table of reasons and in the test's module, and that the page is
what would be written now.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import rows

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "cases.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marked:
    """A test with a mark."""

    path: str
    """Of its module, below ``tests``."""
    name: str
    mark: str
    """``row`` or ``report``."""
    of: int | str
    codes: tuple[str, ...]

    @property
    def shown(self) -> str:
        """How the page names it."""
        return f"{self.path.removesuffix('.py')}::{self.name}"


def marked() -> tuple[Marked, ...]:
    """Every test with a mark, in the order of paths and lines."""
    found: list[Marked] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "from rows import" in text:
            found += _in_module(path.relative_to(TESTS).as_posix(), ast.parse(text))
    return tuple(found)


def _in_module(path: str, tree: ast.Module) -> Iterator[Marked]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in reversed(node.decorator_list):
            match mark:
                case ast.Call(func=ast.Name(id="row" | "report" as kind), args=arguments):
                    of, *codes = (ast.literal_eval(item) for item in arguments)
                    yield Marked(path=path, name=node.name, mark=kind, of=of, codes=tuple(codes))


def page() -> str:
    """The page."""
    tests: Mapping[tuple[str, int | str], list[Marked]] = collections.defaultdict(list)
    for item in marked():
        tests[item.mark, item.of].append(item)
    lines = [
        "# What the verifier answers, case by case",
        "",
        "<!-- written by `python tests/casetable.py`; do not edit -->",
        "",
        "Each row is a kind of input, and a family of inputs in the tests named beside it, made by code; the reason codes are those",
        "that the tests ask for ([reason codes](reason-codes.md)). Nothing but ACCEPT ever installs, starts or promotes anything; the exit",
        "codes are REJECT 1, MISSING 3, UNCHECKED 4, CONFIG 5, INPUT 6. Tests are paths below `tests/`. Beside these, the fuzzer",
        "changes accepted inputs in every way that it knows (`nox -s fuzz`).",
        "",
        "| # | input | answer | reason codes | tests |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, row in rows.rows().items():
        note = f" {row.note}" if row.note else ""
        found = tests["row", number]
        lines.append(
            f"| {number} | {row.input} | {'; '.join(row.answer)}.{note} | {_codes(found)} | {_names(found)} |"
        )
    lines += [
        "",
        "## What went wrong elsewhere",
        "",
        "Public reports about other verifiers and clients, in our own words, and what is right instead.",
        "",
        "| report | what happened | what is right | reason codes | tests |",
        "| --- | --- | --- | --- | --- |",
    ]
    for ident, report in rows.reports().items():
        found = tests["report", ident]
        lines.append(f"| {ident} | {report.happened} | {report.right} | {_codes(found)} | {_names(found)} |")
    return "\n".join(lines) + "\n"


def _codes(found: list[Marked]) -> str:
    return ", ".join(f"`{code}`" for code in sorted({code for item in found for code in item.codes}))


def _names(found: list[Marked]) -> str:
    """By module, so that a path stands once."""
    modules: dict[str, list[str]] = {}
    for item in found:
        modules.setdefault(item.path.removesuffix(".py"), []).append(item.name)
    return "; ".join(
        f"`{path}`: {', '.join(f'`{name}`' for name in names)}" for path, names in modules.items()
    )


def main() -> int:
    """Write the page, or say whether it is up to date."""
    text = page()
    same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
    if not same and "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if same or "--check" not in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
