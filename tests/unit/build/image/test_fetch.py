"""Wheels of a lock for another platform than this one's, through the real pip, from a folder and without any index."""

from __future__ import annotations

from pathlib import Path

import pytest

import wheelmaking as make
from wheelmark import digests
from wheelmark.build.image import fetch_wheels
from wheelmark.config import HostArch
from wheelmark.errors import CommandError, LockError, StateError
from wheelmark.packages import installer

NAMES = (
    "pure-1.0-py3-none-any.whl",
    "native-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "native-1.0-cp311-cp311-manylinux_2_28_aarch64.whl",
    "native-1.0-cp312-cp312-manylinux_2_28_aarch64.whl",
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels, the only place that pip knows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(make.wheel_bytes({"x.py": name.encode()}, name))
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def lock(folder: Path, **pins: tuple[str, ...]) -> Path:
    """A lock of these packages by the files' digests; a name's ``_`` begins its marker's choice."""
    path = folder / "lock.txt"
    lines = []
    for name, files in pins.items():
        hashes = " ".join(f"--hash=sha256:{digests.sha256_file(folder / 'shop' / file)}" for file in files)
        lines.append(f"{name}==1.0 {hashes}\n")
    path.write_text("".join(lines))
    return path


def fetch(tmp_path: Path, path: Path, host: HostArch, **more: object) -> list[str]:
    found = fetch_wheels(path, pool=tmp_path / "pool", python_version="3.11", host=host, **more)  # type: ignore[arg-type]
    assert all(digests.sha256_file(item) == item.parent.name for item in found)
    return [item.name for item in found]


def test_each_platform_gets_its_own(tmp_path: Path, shop: Path) -> None:
    path = lock(tmp_path, native=NAMES[1:], pure=NAMES[:1])
    assert fetch(tmp_path, path, HostArch.X86_64) == [NAMES[1], NAMES[0]]
    assert fetch(tmp_path, path, HostArch.AARCH64) == [NAMES[2], NAMES[0]]
    assert fetch(tmp_path, path, HostArch.AARCH64, without=("native",)) == [NAMES[0]]
    assert sorted(item.name for item in (tmp_path / "pool").iterdir()) == sorted(
        digests.sha256_file(shop / name) for name in NAMES[:3]
    )


def test_a_full_pool_needs_nothing(tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lock(tmp_path, native=NAMES[1:], pure=NAMES[:1])
    first = fetch(tmp_path, path, HostArch.X86_64)

    def never(*_args: object, **_more: object) -> str:
        raise AssertionError

    monkeypatch.setattr(installer, "run_pip", never)
    assert fetch(tmp_path, path, HostArch.X86_64) == first


def test_a_damaged_wheel_of_the_pool_is_fetched_again(tmp_path: Path, shop: Path) -> None:
    path = lock(tmp_path, pure=NAMES[:1])
    fetch(tmp_path, path, HostArch.X86_64)
    (kept,) = (tmp_path / "pool").glob("*/*.whl")
    kept.write_bytes(b"damaged")
    assert fetch(tmp_path, path, HostArch.X86_64) == [NAMES[0]]


def test_markers_are_about_the_image(tmp_path: Path, shop: Path) -> None:
    path = tmp_path / "lock.txt"
    digest = digests.sha256_file(shop / NAMES[0])
    for marker, there in (
        ("platform_machine == 'aarch64'", True),
        ("platform_machine == 'x86_64'", False),
        ("python_version >= '3.12'", False),
        ("sys_platform == 'linux' and python_full_version >= '3.11'", True),
    ):
        path.write_text(f"pure==1.0 ; {marker} --hash=sha256:{digest}\n")
        assert fetch(tmp_path, path, HostArch.AARCH64) == ([NAMES[0]] if there else [])


def test_what_has_no_wheel_for_the_platform_is_named(tmp_path: Path, shop: Path) -> None:
    path = lock(tmp_path, native=NAMES[1:2], pure=NAMES[:1])
    (shop / NAMES[2]).unlink()
    with pytest.raises(LockError, match=r"lock.txt: there is no wheel of native 1.0 for aarch64") as caught:
        fetch(tmp_path, path, HostArch.AARCH64)
    assert caught.value.reason == "lock-unavailable"
    assert "stand_in" in caught.value.fix


def test_other_bytes_than_the_locked_ones(tmp_path: Path, shop: Path) -> None:
    path = lock(tmp_path, pure=NAMES[:1])
    (shop / NAMES[0]).write_bytes(make.wheel_bytes({"x.py": b"other"}, NAMES[0]))
    with pytest.raises(LockError) as caught:
        fetch(tmp_path, path, HostArch.X86_64)
    assert caught.value.reason == "lock-hash"


def test_a_pool_that_cannot_be_written(tmp_path: Path, shop: Path) -> None:
    path = lock(tmp_path, pure=NAMES[:1])
    (tmp_path / "pool").write_bytes(b"a file")
    with pytest.raises(StateError) as caught:
        fetch(tmp_path, path, HostArch.X86_64)
    assert caught.value.reason == "image-write"


def test_what_is_not_understood_stays_pips_error(
    tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "absent"))
    with pytest.raises(CommandError):
        fetch(tmp_path, lock(tmp_path, pure=NAMES[:1]), HostArch.X86_64)
