"""Image recipes: the repository's own, what extends means, and every refusal."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

import sample_project
from wheelmark.config import load_declaration
from wheelmark.config.document import recipe_schema
from wheelmark.config.recipe import load_recipe, project_recipes
from wheelmark.errors import ConfigError

ROOT = Path(__file__).parents[3]
GOOD = """\
schema = 1
[debian]
suite = "bookworm"
packages = ["base-files"]
[python]
version = "3.11"
executable = "/usr/bin/python3.11"
site = "/usr/local/lib/python3.11/dist-packages"
[dependencies]
lock = "runtime-cpu.txt"
"""


def refusal(folder: Path, text: str) -> str:
    path = folder / "demo.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    return caught.value.reason


def test_recipes_of_this_repository_are_read() -> None:
    paths = [path for path in sorted((ROOT / "containers").glob("*-*.toml")) if path.name != "digests.toml"]
    assert {path.stem for path in paths} >= {"cpu-x86_64", "cpu-aarch64", "cuda-sm90", "rocm-gfx942"}
    schema = jsonschema_rs.Draft202012Validator(recipe_schema())
    for path in paths:
        recipe = load_recipe(path)
        assert recipe.debian is not None
        assert recipe.image.user == 65532
        assert (ROOT / "lockfiles" / recipe.dependencies.lock).is_file()
        schema.validate(tomllib.loads(path.read_text()))


def test_a_recipe_goes_over_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "below.toml").write_text(GOOD + '[image]\nuser = 7\nenv = ["A=1", "B=2"]\n')
    top = tmp_path / "top.toml"
    top.write_text('schema = 1\nextends = "below.toml"\n[image]\nenv = ["C=3"]\n')
    recipe = load_recipe(top)
    assert (recipe.image.user, recipe.image.env, recipe.path) == (7, ("C=3",), top)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "schema-version"),
        ("schema = 2\n", "schema-version"),
        ("schema = true\n", "schema-version"),
        ("schema =\n", "toml-syntax"),
        ('schema = 1\nextends = "../x.toml"\n', "recipe-extends"),
        ('schema = 1\nextends = "demo.toml"\n', "recipe-extends"),
        ("schema = 1\nextends = 1\n", "recipe-extends"),
        ('schema = 1\nextends = "absent.toml"\n', "unreadable"),
        ("schema = 1\n", "missing-key"),
        (GOOD + "unknown = 1\n", "unknown-key"),
        (GOOD.replace('["base-files"]', '"base-files"'), "wrong-type"),
        (GOOD.replace('["base-files"]', "[]"), "recipe-system"),
        (GOOD + f'[base]\nimage = "x@sha256:{"0" * 64}"\n', "recipe-system"),
        (
            GOOD.replace(
                '[debian]\nsuite = "bookworm"\npackages = ["base-files"]', '[base]\nimage = "x:latest"'
            ),
            "recipe-base",
        ),
        (GOOD + "[image]\nuser = 0\n", "recipe-user"),
        (GOOD + "[image]\nuser = -1\n", "recipe-user"),
        (GOOD + '[image]\nworking_dir = "home"\n', "recipe-path"),
        (GOOD + '[image]\nworking_dir = "/a/../b"\n', "recipe-path"),
        (GOOD + '[image]\nentrypoint = ["python3"]\n', "recipe-path"),
        (GOOD + '[image]\nhealthcheck = ["python3"]\n', "recipe-path"),
        (GOOD.replace("/usr/local/lib/python3.11/dist-packages", "/lib/python3"), "recipe-path"),
        (GOOD.replace("/usr/local/lib/python3.11/dist-packages", "/opt/site"), "recipe-path"),
        (GOOD.replace('"3.11"', '"3.11.2"'), "recipe-python"),
        (GOOD + '[image]\nenv = ["NOTHING"]\n', "recipe-setting"),
        (GOOD + '[image]\nenv = ["A=1", "A=2"]\n', "recipe-setting"),
        (GOOD + '[image]\nenv = ["A=\\u0000"]\n', "recipe-setting"),
        (GOOD + '[image]\nenv = ["A=1\\nB=2"]\n', "recipe-setting"),
        (GOOD + f'[image]\nenv = ["A={"x" * 5000}"]\n', "recipe-setting"),
        (GOOD + f"# {'x' * (1 << 20)}\n", "toml-syntax"),
        (GOOD + f"{'.'.join('a' * 20)} = 1\n", "toml-syntax"),
        ('schema = 1\nextends = ".."\n', "recipe-extends"),
        ('schema = 1\nextends = "a\\u0000.toml"\n', "recipe-extends"),
        (GOOD + '[image]\nenv = ["A B=1"]\n', "recipe-setting"),
        (GOOD + '[image]\nenv = ["1A=1"]\n', "recipe-setting"),
        (GOOD + '[image]\nlabels = ["a b=1"]\n', "recipe-setting"),
        (GOOD + f"[image]\ncmd = {['x'] * 1001}\n", "recipe-setting"),
        (GOOD + '[image]\nentrypoint = ["/usr/../bin/python3"]\n', "recipe-path"),
        (GOOD + '[image]\nhealthcheck = ["//usr/bin/python3"]\n', "recipe-path"),
        (GOOD + '[image]\nworking_dir = "//home"\n', "recipe-path"),
        (GOOD + "[image]\nuser = 2147483648\n", "recipe-user"),
        *(
            (GOOD.replace("packages =", f'{key} = ["ab", "ab"]\npackages ='), "recipe-setting")
            for key in ("suites", "components", "waived", "drop", "keep")
        ),
        (GOOD + 'stand_in_without = ["torch", "torch"]\n', "recipe-setting"),
        (GOOD.replace("packages =", 'suites = ["a b"]\npackages ='), "recipe-debian"),
        (GOOD.replace("packages =", 'components = ["../main"]\npackages ='), "recipe-debian"),
        (GOOD + f"x = {'[' * 5000}\n", "toml-syntax"),
        (GOOD + "[image]\nbudget = -1\n", "recipe-setting"),
        (GOOD + "[image]\nbudget = 99999999999999999999\n", "recipe-setting"),
        (GOOD.replace('["base-files"]', '["base-files", "base-files"]'), "recipe-setting"),
        (GOOD.replace('["base-files"]', '["--yes"]'), "recipe-debian"),
        (GOOD.replace('["base-files"]', '["a; rm"]'), "recipe-debian"),
        (GOOD.replace('"bookworm"', '"../x"'), "recipe-debian"),
        (GOOD.replace('lock = "', 'lock = "../'), "recipe-lock"),
        (GOOD.replace('lock = "', 'lock = "/etc/'), "recipe-lock"),
        (GOOD + '[image]\nlabels = ["=x"]\n', "recipe-setting"),
        (GOOD + '[image]\nlabels = ["dev.wheelmark.releasable=true"]\n', "recipe-setting"),
    ],
)
def test_recipes_that_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert refusal(tmp_path, text) == reason


def test_an_unknown_key_gets_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(GOOD + '[image]\nentry_point = ["/x"]\n')
    with pytest.raises(ConfigError, match="did you mean 'entrypoint'"):
        load_recipe(path)


def test_recipes_that_extend_one_another_are_named(tmp_path: Path) -> None:
    for name, below in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.toml").write_text(f'schema = 1\nextends = "{below}.toml"\n')
    with pytest.raises(ConfigError, match=r"a.toml → b.toml → c.toml → a.toml") as caught:
        load_recipe(tmp_path / "a.toml")
    assert caught.value.reason == "recipe-extends"


def test_a_chain_that_is_too_long(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"r{number}.toml").write_text(f'schema = 1\nextends = "r{number + 1}.toml"\n')
    (tmp_path / "r6.toml").write_text(GOOD)
    assert load_recipe(tmp_path / "r2.toml").python.version == "3.11"
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "r1.toml")
    assert caught.value.reason == "recipe-extends"


def test_a_recipe_is_a_plain_file(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(GOOD)
    (tmp_path / "link.toml").symlink_to("real.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "over.toml").write_text('schema = 1\nextends = "link.toml"\n')
    for name in ("link", "pipe", "folder", "over"):
        with pytest.raises(ConfigError) as caught:
            load_recipe(tmp_path / f"{name}.toml")
        assert caught.value.reason == "unreadable", name


def test_a_recipe_lies_in_the_project(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    sample_project.make_project(root)
    (outside / "demo.toml").write_text(GOOD)
    (root / "containers").symlink_to(outside)
    path = root / "wheelmark.toml"
    row = 'target = "cpu-x86_64"'
    path.write_text(path.read_text().replace(row, f'{row}\nimage = "containers/demo.toml"'))
    for read in (
        lambda: load_recipe(root / "containers" / "demo.toml", root=root),
        lambda: project_recipes(load_declaration(path)),
    ):
        with pytest.raises(ConfigError) as caught:
            read()
        assert caught.value.reason == "recipe-outside"
    (root / "containers").unlink()
    outside.rename(root / "containers")
    assert load_recipe(root / "containers" / "demo.toml", root=root).debian is not None
