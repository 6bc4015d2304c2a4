"""Locks resolved by the real uv from a real index on loopback."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages import make_wheel, serve_index
from wheelmark.config import Declaration, load_declaration
from wheelmark.errors import LockError
from wheelmark.lock import LockState, lock_files, read_pins

ROOT = Path(__file__).parents[3]
CUDA = "nvidia-cublas==13.0 ; platform_system == 'Linux'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    declaration: Declaration
    wheels: Path
    asked: list[str]

    def pins(self, name: str) -> dict[str, str]:
        return {pin.name: pin.version for pin in read_pins(self.declaration.root / "lockfiles" / name)}

    def data(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.declaration.root / "lockfiles").iterdir()}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "torch", "2.13.0", ["filelock", CUDA, "triton==3.7.1 ; platform_system == 'Linux'"])
    make_wheel(wheels, "nvidia-cublas", "13.0", ["cuda-pathfinder"])
    make_wheel(wheels, "cuda-pathfinder", "1.0")
    make_wheel(wheels, "triton", "3.7.1")
    make_wheel(wheels, "filelock", "4.0", ["only-arm ; platform_machine == 'aarch64'"])
    make_wheel(wheels, "only-arm", "1.0")
    make_wheel(wheels, "numpy", "2.4.0")
    project = tmp_path / "project"
    project.mkdir()
    (project / "wheelmark.toml").write_bytes((ROOT / "wheelmark.toml").read_bytes())
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "not-asked"))
    with serve_index(wheels) as (url, asked):
        monkeypatch.setenv("PIP_INDEX_URL", url)
        yield Place(declaration=load_declaration(project / "wheelmark.toml"), wheels=wheels, asked=asked)


def test_each_lock_holds_its_closure_and_nothing_is_downloaded(place: Place) -> None:
    results = lock_files(place.declaration)
    assert {result.state for result in results} == {LockState.WRITTEN}
    pure = {"filelock": "4.0", "numpy": "2.4.0"}
    cuda = {"nvidia-cublas": "13.0", "cuda-pathfinder": "1.0", "triton": "3.7.1"}
    assert place.pins("runtime-cpu.txt") == {**pure, "torch": "2.13.0+cpu", "only-arm": "1.0"}
    assert place.pins("runtime-default.txt") == {**pure, "torch": "2.13.0", **cuda}
    assert place.pins("runtime-rocm.txt") == pure
    assert place.pins("build.txt") == {**pure, "torch": "2.13.0+cpu", "triton": "3.7.1"}
    (arm,) = (
        p for p in read_pins(place.declaration.root / "lockfiles/runtime-cpu.txt") if p.name == "only-arm"
    )
    assert arm.marker == 'platform_machine == "aarch64"'
    assert [path for path in place.asked if path.endswith(".whl")] == []
    assert any(path.endswith(".whl.metadata") for path in place.asked)


def test_a_second_run_writes_the_same_bytes_and_newer_versions_wait_for_upgrade(place: Place) -> None:
    lock_files(place.declaration)
    first = place.data()
    make_wheel(place.wheels, "numpy", "2.5.0")
    make_wheel(place.wheels, "only-arm", "1.1")
    assert {result.state for result in lock_files(place.declaration)} == {LockState.UNCHANGED}
    assert place.data() == first
    lock_files(place.declaration, upgrade=True)
    assert place.pins("runtime-cpu.txt")["numpy"] == "2.5.0"
    assert place.pins("runtime-cpu.txt")["only-arm"] == "1.1"
    assert {result.state for result in lock_files(place.declaration, check=True)} == {LockState.UNCHANGED}


def test_nothing_of_this_machine_is_written(place: Place, tmp_path: Path) -> None:
    lock_files(place.declaration)
    for data in place.data().values():
        assert str(tmp_path).encode() not in data
        assert b"127.0.0.1" not in data
        assert b"://" not in data


def test_a_hash_changed_by_hand_is_not_kept(place: Place) -> None:
    lock_files(place.declaration)
    first = place.data()
    path = place.declaration.root / "lockfiles" / "runtime-rocm.txt"
    path.write_bytes(first["runtime-rocm.txt"].replace(read_pins(path)[0].hashes[0].encode(), b"0" * 64))
    lock_files(place.declaration)
    assert place.data() == first


def test_a_version_that_the_index_does_not_have_has_no_solution(place: Place) -> None:
    locks = dataclasses.replace(place.declaration.locks, triton="9.9.9")
    with pytest.raises(LockError) as refusal:
        lock_files(dataclasses.replace(place.declaration, locks=locks))
    assert refusal.value.reason == "lock-unsolvable"
    assert "build.txt" in refusal.value.what
    assert "triton" in refusal.value.what
