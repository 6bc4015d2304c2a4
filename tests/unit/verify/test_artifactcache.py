"""What wheels' bytes said is kept: never believed of other bytes, never needed, and nothing that is wrong is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from wheelmaking import NAME, gpu_files, wheel_bytes
from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError
from wheelmark.verify import artifactcache
from wheelmark.verify.artifact import WheelFacts, examine_wheel
from wheelmark.verify.artifactcache import ArtifactCache


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(wheel_bytes(gpu_files("sm90")))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every wheel that was looked into, and not only hashed."""
    found: list[Path] = []

    def counting(path: Path, *, subject: str, threads: bool) -> WheelFacts:
        found.append(path)
        return examine_wheel(path, subject=subject, threads=threads)

    monkeypatch.setattr(artifactcache, "examine_wheel", counting)
    return found


def entries(folder: Path) -> set[str]:
    return {path.suffix for path in folder.iterdir()}


def test_the_same_bytes_are_looked_into_once(wheel: Path, folder: Path, looked: list[Path]) -> None:
    first = ArtifactCache(folder).examine(wheel, subject="wheels/a")
    again = ArtifactCache(folder).examine(wheel, subject="wheels/b")
    assert looked == [wheel]
    assert again == examine_wheel(wheel, subject="wheels/b")
    assert (first.path, again.path) == ("wheels/a", "wheels/b")
    assert again.kernels is not None
    assert entries(folder) == {".wheel", ".hint"}


def test_a_wheel_without_kernels_is_kept_too(wheel: Path, folder: Path, looked: list[Path]) -> None:
    wheel.write_bytes(wheel_bytes({"demo_kernels/__init__.py": b""}))
    found = [ArtifactCache(folder).examine(wheel, subject="a") for _ in range(2)]
    assert found[0] == found[1]
    assert len(looked) == 1


def test_other_bytes_of_the_same_name_and_size_are_looked_into(
    wheel: Path, folder: Path, looked: list[Path]
) -> None:
    ArtifactCache(folder).examine(wheel, subject="a")
    data = wheel.read_bytes()
    wheel.write_bytes(wheelmaking.patched(data, len(data) // 2, bytes([data[len(data) // 2] ^ 1])))
    found = ArtifactCache(folder).examine(wheel, subject="a")
    assert found.problems
    assert found.sha256 == digests.sha256_file(wheel)
    ArtifactCache(folder).examine(wheel, subject="a")
    assert len(looked) == 3  # what has a problem is not kept


def test_another_name_is_looked_into(wheel: Path, folder: Path, looked: list[Path]) -> None:
    ArtifactCache(folder).examine(wheel, subject="a")
    other = wheel.rename(wheel.with_name(NAME.replace("+cpu", "+gpu")))
    assert [item.reason for item in ArtifactCache(folder).examine(other, subject="a").problems] == [
        "wheel-name"
    ]
    assert len(looked) == 2


def spoil(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def spoiled(entry: bytes) -> bytes:
        value = json.loads(entry.partition(b"\n")[2])
        change(value)
        body = json.dumps(value).encode()
        return digests.sha256(body).encode() + b"\n" + body

    return spoiled


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".wheel", lambda data: data[:-10]),
        (".wheel", lambda _data: b""),
        (".wheel", lambda _data: b"\xff\n"),
        (".wheel", spoil(lambda value: value.pop("files"))),
        (".wheel", spoil(lambda value: value.update(kernels="{}"))),
        (".wheel", spoil(lambda value: value.update(platforms=1))),
        (".wheel", spoil(lambda value: value.update(sha256="0" * 64))),
        (".hint", lambda _data: b"\xff"),
        (".hint", lambda _data: b"0" * 64),
    ],
)
def test_a_spoiled_entry_is_as_good_as_none(
    wheel: Path, folder: Path, looked: list[Path], suffix: str, change: Callable[[bytes], bytes]
) -> None:
    ArtifactCache(folder).examine(wheel, subject="a")
    (path,) = folder.glob(f"*{suffix}")
    path.write_bytes(change(path.read_bytes()))
    assert ArtifactCache(folder).examine(wheel, subject="a") == examine_wheel(wheel, subject="a")
    assert len(looked) == 2
    ArtifactCache(folder).examine(wheel, subject="a")
    assert len(looked) == 2  # mended


def test_without_room_it_is_looked_into_again(
    wheel: Path, folder: Path, looked: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArtifactCache(folder)
    for target in [folder / cache._entry(NAME, digests.sha256_file(wheel)).name]:
        target.mkdir()  # a folder stands where the entry belongs
    cache.examine(wheel, subject="a")
    cache.examine(wheel, subject="a")
    assert len(looked) == 2
    assert not list(folder.glob(".new-*"))
    monkeypatch.setattr(artifactcache, "_LIMITS", strictjson.Limits(size=10))
    cache.examine(wheel, subject="a")
    assert len(looked) == 3


def test_a_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        ArtifactCache(folder)
    assert caught.value.reason == "state-permissions"
