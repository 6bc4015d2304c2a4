"""The project that docs/your-project.md shows is one: its files are read by what would read them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from wheelmark.build.kernels import declared_variants
from wheelmark.config import load_declaration
from wheelmark.sign import embedded
from wheelmark.verify import load_policy

PAGE = Path(__file__).parents[3] / "docs" / "your-project.md"


def blocks(language: str) -> list[str]:
    """The page's code blocks of one language, in order."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_files_on_the_page_are_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, project, policy = blocks("toml")
    for source in blocks("python"):
        ast.parse(source)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.toml").write_text(kernels, encoding="utf-8")
    (tmp_path / "wheelmark.toml").write_text(project, encoding="utf-8")
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    declaration = load_declaration(tmp_path / "wheelmark.toml")
    (row,) = declaration.targets
    sources = [tmp_path / declaration.project.source / path for path in declaration.kernels.declarations]
    assert [len(names) for names in declared_variants(sources, row.target).values()] == [2]
    assert set(row.gates) >= {"abi", "coverage", "size", "repeat", "correctness"}
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "state"))
    embedded.create()
    (requirement,) = load_policy(tmp_path / "policy.toml").requirements
    assert set(requirement.gates) == set(row.gates)
    own = load_declaration(PAGE.parents[1] / "wheelmark.toml")
    assert declaration.locks == own.locks
