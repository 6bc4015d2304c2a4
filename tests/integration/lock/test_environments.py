"""Environments made by the real uv, and by the real pip, from wheels that the tests make."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packages import make_wheel
from wheelmark import digests
from wheelmark.errors import LockError
from wheelmark.lock import Environment, Pin, locked_environment
from wheelmark.packages import installer
from wheelmark.packages.pins import render_pins


@pytest.fixture(params=["uv", "pip"])
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The only place that packages come from; each test runs with uv and with pip alone."""
    folder = tmp_path / "wheels"
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    if request.param == "pip":
        monkeypatch.setattr(installer, "find_uv", lambda: None)
    else:
        assert installer.find_uv() is not None
    return folder


def pin(wheel: Path) -> Pin:
    name, version, *_rest = wheel.name.split("-")
    return Pin(name=name, version=version, hashes=(digests.sha256_file(wheel),))


def lock(path: Path, *pins: Pin) -> Path:
    path.write_bytes(render_pins(pins))
    return path


def versions(environment: Environment, *modules: str) -> str:
    code = f"import {', '.join(modules)}; print({', '.join(f'{module}.VERSION' for module in modules)})"
    command = [str(environment.python), "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_holds_the_lock_and_the_given_wheel(wheels: Path, tmp_path: Path) -> None:
    base, top = make_wheel(wheels, "base", "1.0"), make_wheel(wheels, "top", "2.0", ["base>=1"])
    ours = make_wheel(tmp_path / "dist", "ours", "0.1+sm90", ["top<3"])
    place = lock(tmp_path / "runtime.txt", pin(base), pin(top))
    lines: list[str] = []
    environment = locked_environment([place], cache=tmp_path / "cache", wheels=[ours], progress=lines.append)
    assert versions(environment, "base", "top", "ours") == "1.0 2.0 0.1+sm90"
    assert lines == ["making the environment of runtime.txt (2 packages)"]
    again = locked_environment([place], cache=tmp_path / "cache", wheels=[ours], progress=lines.append)
    assert again == environment
    assert len(lines) == 1
    alone = locked_environment([place], cache=tmp_path / "cache")
    assert alone.key != environment.key


def test_other_bytes_are_refused_and_nothing_counts_as_made(wheels: Path, tmp_path: Path) -> None:
    base = make_wheel(wheels, "base", "1.0")
    place = lock(tmp_path / "runtime.txt", pin(base))
    make_wheel(wheels, "base", "1.0", body="VERSION = 'changed'\n")
    for _attempt in range(2):
        with pytest.raises(LockError) as refusal:
            locked_environment([place], cache=tmp_path / "cache")
        assert refusal.value.reason == "lock-hash"
        assert refusal.value.what.startswith("base of runtime.txt")
        assert [path.name for path in (tmp_path / "cache" / "envs").iterdir() if path.is_dir()] == []


def test_a_package_that_is_nowhere_is_named(wheels: Path, tmp_path: Path) -> None:
    base = make_wheel(wheels, "base", "1.0")
    place = lock(tmp_path / "runtime.txt", pin(base), Pin(name="absent", version="3", hashes=("a" * 64,)))
    with pytest.raises(LockError) as refusal:
        locked_environment([place], cache=tmp_path / "cache")
    assert refusal.value.reason == "lock-unavailable"
    assert "absent of runtime.txt" in refusal.value.what


@pytest.mark.parametrize(
    ("requires", "words"), [("missing", "ours needs missing"), ("base>=2", "ours needs base>=2")]
)
def test_a_requirement_outside_the_lock_stops_here(
    wheels: Path, tmp_path: Path, requires: str, words: str
) -> None:
    make_wheel(wheels, "missing", "1.0")
    base = make_wheel(wheels, "base", "1.0")
    ours = make_wheel(tmp_path / "dist", "ours", "0.1", [requires, "other ; extra == 'x'"])
    place = lock(tmp_path / "runtime.txt", pin(base))
    with pytest.raises(LockError) as refusal:
        locked_environment([place], cache=tmp_path / "cache", wheels=[ours])
    assert refusal.value.reason == "lock-open"
    assert words in refusal.value.what
    assert "runtime.txt" in refusal.value.what


def test_a_changed_or_half_made_environment_is_made_again(wheels: Path, tmp_path: Path) -> None:
    place = lock(tmp_path / "runtime.txt", pin(make_wheel(wheels, "base", "1.0")))
    lines: list[str] = []

    def make() -> Environment:
        return locked_environment([place], cache=tmp_path / "cache", progress=lines.append)

    environment = make()
    stranger = environment.site_packages / "stranger-1.dist-info"
    stranger.mkdir()
    make()
    assert not stranger.exists()
    (environment.root / "wheelmark-environment.json").unlink()
    (environment.site_packages / "base.py").unlink()
    make()
    assert versions(environment, "base") == "1.0"
    environment.python.unlink()
    make()
    assert versions(environment, "base") == "1.0"
    assert len(lines) == 4


def test_two_at_once_make_one(wheels: Path, tmp_path: Path) -> None:
    place = lock(tmp_path / "runtime.txt", pin(make_wheel(wheels, "base", "1.0")))
    lines: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(
                lambda _n: locked_environment([place], cache=tmp_path / "cache", progress=lines.append),
                range(4),
            )
        )
    assert len(set(made)) == 1
    assert len(lines) == 1
    assert versions(made[0], "base") == "1.0"


def test_the_environment_has_nothing_of_the_one_that_made_it(wheels: Path, tmp_path: Path) -> None:
    place = lock(tmp_path / "runtime.txt", pin(make_wheel(wheels, "base", "1.0")))
    environment = locked_environment([place], cache=tmp_path / "cache")
    code = "import importlib.metadata as m; print(sorted(d.name for d in m.distributions()))"
    done = subprocess.run(
        [str(environment.python), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['base']"
    assert Path(sys.prefix) not in environment.root.parents
