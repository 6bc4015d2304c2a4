"""Dependencies come from the release's lock, by hash, and what is there is not changed unasked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploying import Shop, demo, say, site_of, swap_after_verification
from packages import make_wheel
from wheelmark import digests
from wheelmark.errors import LockError, StateError
from wheelmark.manifest import Kind
from wheelmark.packages import installer

BOTH = pytest.mark.parametrize("program", ["uv", "pip"])


def with_dependency(shop: Shop, folder: Path) -> tuple[Path, Path]:
    """A release whose wheel needs a package, and the folder that the package is in."""
    shelf = folder / "shelf"
    needed = make_wheel(shelf, "small-need", "1.0")
    lock = f"small-need==1.0 \\\n    --hash=sha256:{digests.sha256_file(needed)}\n".encode()
    return shop.release(
        folder, demo(requires=["small-need>=1"], build="cpu"), **{"runtime-cpu": (Kind.LOCK, lock)}
    ), shelf


def only(monkeypatch: pytest.MonkeyPatch, shelf: Path) -> None:
    """Packages are looked for in one folder."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def put(python: Path, shelf: Path, *wanted: str) -> None:
    """Somebody installs packages of a folder."""
    uv = installer.find_uv()
    assert uv is not None
    command = [str(uv), "pip", "install", "--python", str(python), "--no-index", "--find-links", str(shelf)]
    subprocess.run([*command, *wanted], check=True, capture_output=True)


@BOTH
def test_dependencies_come_from_the_lock(
    shop: Shop, python: Path, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist, shelf = with_dependency(shop, tmp_path)
    only(monkeypatch, shelf)
    lock = dist / "locks" / "runtime-cpu.txt"
    expected = digests.sha256_file(lock)
    swap_after_verification(
        monkeypatch, lambda: lock.write_text("evil==1.0 --hash=sha256:" + "0" * 64) and None
    )
    done = shop.install(dist, python, program=program, dependencies=True)
    assert done.receipt is not None
    assert done.receipt.lock_sha256 == expected
    assert "install small-need 1.0" in done.plan
    assert say(python, "import small_need; print(small_need.VERSION)") == "1.0"


@BOTH
def test_a_dependency_that_fails_changes_nothing_of_the_wheel_and_a_rerun_finishes(
    shop: Shop, python: Path, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist, shelf = with_dependency(shop, tmp_path)
    only(monkeypatch, tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LockError) as absent:
        shop.install(dist, python, program=program, dependencies=True)
    assert absent.value.reason == "lock-unavailable"
    assert "run the same command again" in absent.value.fix
    other = make_wheel(tmp_path / "other", "small-need", "1.0", body="VERSION = 'other bytes'\n")
    only(monkeypatch, other.parent)
    with pytest.raises(LockError) as changed:
        shop.install(dist, python, program=program, dependencies=True)
    assert changed.value.reason in {"lock-hash", "lock-unavailable"}
    assert list(site_of(python).iterdir()) == []
    only(monkeypatch, shelf)
    assert shop.install(dist, python, program=program, dependencies=True).receipt is not None


def test_what_is_needed_has_to_be_there_and_is_not_changed_unasked(
    shop: Shop, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist, shelf = with_dependency(shop, tmp_path)
    only(monkeypatch, shelf)
    with pytest.raises(LockError) as caught:
        shop.install(dist, python, dependencies=False)
    assert caught.value.reason == "lock-open"
    make_wheel(shelf, "small-need", "2.0")
    put(python, shelf, "small-need==2.0")
    with pytest.raises(StateError) as conflict:
        shop.install(dist, python, dependencies=True)
    assert conflict.value.reason == "dependency-conflict"
    assert "small-need 2.0 (lock: 1.0)" in conflict.value.what
    assert shop.install(dist, python, dependencies=False).receipt is not None
    assert say(python, "import small_need; print(small_need.VERSION)") == "2.0"
    done = shop.install(dist, python, dependencies=True, replace=True)
    assert "change small-need 2.0 to 1.0" in done.plan
    assert say(python, "import small_need; print(small_need.VERSION)") == "1.0"


@BOTH
def test_what_came_with_the_environment_is_changed_and_said(
    shop: Shop, python: Path, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    locked = make_wheel(shelf, "setuptools", "84.2.1")
    make_wheel(shelf, "setuptools", "65.5.0")
    make_wheel(shelf, "pip", "24.0", requires=["setuptools"])
    lock = f"setuptools==84.2.1 \\\n    --hash=sha256:{digests.sha256_file(locked)}\n".encode()
    dist = shop.release(
        tmp_path, demo(requires=["setuptools"], build="cpu"), **{"runtime-cpu": (Kind.LOCK, lock)}
    )
    only(monkeypatch, shelf)
    put(python, shelf, "setuptools==65.5.0", "pip==24.0")  # as ensurepip does; one seed may require another
    said = "change setuptools 65.5.0 to 84.2.1 (came with the environment)"
    assert said in shop.install(dist, python, program=program, dependencies=True, dry_run=True).plan
    done = shop.install(dist, python, program=program, dependencies=True)
    assert said in done.plan
    assert done.receipt is not None
    assert say(python, "import setuptools; print(setuptools.VERSION)") == "84.2.1"


@pytest.mark.parametrize(
    "requirement",
    ["setuptools<70", "Setuptools; python_version > '3'", "setuptools; extra == 'dev'", "setuptools (oh no"],
)
def test_a_setuptools_that_something_requires_is_a_conflict(
    shop: Shop, python: Path, requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    locked = make_wheel(shelf, "setuptools", "84.2.1")
    make_wheel(shelf, "setuptools", "65.5.0")
    lock = f"setuptools==84.2.1 \\\n    --hash=sha256:{digests.sha256_file(locked)}\n".encode()
    dist = shop.release(
        tmp_path, demo(requires=["setuptools"], build="cpu"), **{"runtime-cpu": (Kind.LOCK, lock)}
    )
    only(monkeypatch, shelf)
    put(python, shelf, "setuptools==65.5.0")
    info = site_of(python) / "somebody-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: somebody\nVersion: 1\nRequires-Dist: {requirement}\n", encoding="utf-8"
    )
    with pytest.raises(StateError) as caught:
        shop.install(dist, python, dependencies=True)
    assert caught.value.reason == "dependency-conflict"
    assert "setuptools 65.5.0 (lock: 84.2.1)" in caught.value.what


def test_a_release_that_names_no_lock(shop: Shop, good: Path, python: Path) -> None:
    with pytest.raises(StateError) as caught:
        shop.install(good, python, dependencies=True)
    assert caught.value.reason == "lock-unknown"


def test_an_installer_that_installs_something_else_is_found_out(
    shop: Shop, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist, shelf = with_dependency(shop, tmp_path)
    only(monkeypatch, shelf)
    monkeypatch.setattr(installer, "install", lambda *_args, **_kwargs: "uv")
    with pytest.raises(LockError) as caught:
        shop.install(dist, python, dependencies=True)
    assert caught.value.reason == "lock-mismatch"
