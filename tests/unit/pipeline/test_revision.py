"""What counts as an uncommitted change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from presence import need_program
from wheelmark.pipeline.revision import read_revision


@pytest.fixture(autouse=True)
def _git_is_there() -> None:
    need_program("git")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one committed file and no ``.gitignore``."""
    root = tmp_path.resolve()
    (root / "wheelmark.toml").write_text("schema = 1\n", encoding="utf-8")
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    return root


def test_what_a_run_writes_is_no_change(tree: Path) -> None:
    outputs = [tree / "dist", tree / ".dist.state", tree / "cache [x]", tree.parent / "elsewhere"]
    for folder in outputs[:3]:
        folder.mkdir()
        (folder / "file").write_text("written by a run\n", encoding="utf-8")
    assert len(read_revision(tree).changed) == 3
    assert read_revision(tree, outputs=outputs).changed == ()
    assert not read_revision(tree, outputs=outputs).is_snapshot


def test_everything_else_is(tree: Path) -> None:
    (tree / "distant.py").write_text("new\n", encoding="utf-8")
    (tree / "wheelmark.toml").write_text("schema = 2\n", encoding="utf-8")
    found = read_revision(tree, outputs=[tree / "dist", tree])
    assert sorted(found.changed) == ["distant.py", "wheelmark.toml"]
