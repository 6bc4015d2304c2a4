"""What the second build is given: every input that the first one had, wherever a recipe lies."""

from __future__ import annotations

from pathlib import Path

import pytest

import sample_project
from wheelmark.config import load_declaration
from wheelmark.config.recipe import load_recipe, project_recipes
from wheelmark.gates.repeat import copy_sources

ROOT = Path(__file__).parents[3]
BELOW = """\
schema = 1
[debian]
suite = "bookworm"
packages = ["libc6"]
[python]
version = "3.11"
executable = "/usr/bin/python3.11"
site = "/usr/lib/site"
[dependencies]
lock = "runtime-cpu.txt"
"""


@pytest.mark.parametrize(
    "place", ["demo.toml", "containers/demo.toml", "a/.b/demo.toml", "payload/demo.toml"]
)
def test_the_recipe_and_what_it_extends_are_there(tmp_path: Path, place: str) -> None:
    root, copy = tmp_path / "project", tmp_path / "copy"
    sample_project.make_project(root)
    path = root / "wheelmark.toml"
    row = 'target = "cpu-x86_64"'
    path.write_text(path.read_text().replace(row, f'{row}\nimage = "{place}"'))
    recipe = root / place
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text('schema = 1\nextends = "below.toml"\n')
    recipe.with_name("below.toml").write_text(BELOW)
    copy_sources(load_declaration(path), copy)
    declaration = load_declaration(copy / "wheelmark.toml")
    assert [file.name for file in project_recipes(declaration)] == ["below.toml", "demo.toml"]
    assert load_recipe(copy / place, root=copy).debian is not None


def test_this_repository_elsewhere(tmp_path: Path) -> None:
    first = load_declaration(ROOT / "wheelmark.toml")
    copy_sources(first, tmp_path / "copy")
    second = load_declaration(tmp_path / "copy" / "wheelmark.toml")
    names = [path.relative_to(ROOT) for path in project_recipes(first)]
    assert [path.relative_to(tmp_path / "copy") for path in project_recipes(second)] == names
    assert Path("containers/debian.toml") in names
    for row in second.targets:
        if row.image is not None:
            assert (
                tmp_path / "copy" / "lockfiles" / load_recipe(second.root / row.image).dependencies.lock
            ).is_file()
