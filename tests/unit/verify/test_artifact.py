"""Rows 26 to 30 through the verifier: what is wrong with a wheel's bytes is a problem with its reason."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from rows import row
from wheelmaking import (
    FOLDER,
    NAME,
    Entry,
    gpu_files,
    manifest,
    variant,
    wheel_bytes,
    wheel_entries,
    zip_bytes,
)
from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.plainfiles import open_plain, read_bounded
from wheelmark.verify import artifact
from wheelmark.verify.artifact import LazyFiles, examine_wheel

FILES = {"demo_kernels/__init__.py": b""}


def reasons(tmp_path: Path, data: bytes, name: str = NAME) -> list[str]:
    path = tmp_path / name
    path.write_bytes(data)
    found = examine_wheel(path, subject=name)
    assert found.sha256 == digests.sha256(data)
    assert found.size == len(data)
    return [problem.reason for problem in found.problems]


def with_entry(entry: Entry, *, at: int | None = None) -> bytes:
    entries = wheel_entries(FILES)
    entries.insert(len(entries) if at is None else at, entry)
    return zip_bytes(entries)


def test_a_good_wheel_has_no_problem(tmp_path: Path) -> None:
    assert reasons(tmp_path, wheel_bytes(FILES)) == []
    path = tmp_path / NAME
    path.write_bytes(wheel_bytes(gpu_files("sm90")))
    found = examine_wheel(path, subject="x")
    assert found.problems == ()
    assert str(found.kernels.target if found.kernels else "") == "cuda-sm90"
    assert set(found.kernel_files) == {"manifest.json", variant("sm90").object.file}
    assert found.distribution == "demo-kernels"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # 26
        (with_entry(Entry(name="../evil.py", data=b"x")), "wheel-path"),
        (with_entry(Entry(name="/etc/evil", data=b"x")), "wheel-path"),
        (with_entry(Entry(name="demo_kernels/../../evil", data=b"x")), "wheel-path"),
        (with_entry(Entry(name="demo_kernels\\evil", data=b"x")), "wheel-path"),
        (
            with_entry(Entry(name="demo_kernels/link", data=b"/etc/passwd", mode=wheelmaking.LINK)),
            "wheel-link",
        ),
        (with_entry(Entry(name="demo_kernels/dev", mode=wheelmaking.DEVICE)), "wheel-link"),
        # 27
        (with_entry(Entry(name="evil.pth", data=b"import os\n")), "wheel-unlisted"),
        (with_entry(Entry(name="demo_kernels/extra.py", data=b"x")), "wheel-unlisted"),
        (wheel_bytes(FILES, record=b"demo_kernels-1.0+cpu.dist-info/RECORD,,\n"), "wheel-unlisted"),
        (
            wheel_bytes(
                FILES,
                record=b"ghost.py,sha256=" + b"A" * 43 + b",0\ndemo_kernels-1.0+cpu.dist-info/RECORD,,\n",
            ),
            "wheel-missing",
        ),
        (zip_bytes(wheel_entries(FILES)[:-1]), "wheel-missing"),
        # 28
        (with_entry(Entry(name="demo_kernels/__init__.py", data=b"evil")), "wheel-duplicate"),
        (with_entry(Entry(name="demo_kernels/__INIT__.py", data=b"evil")), "wheel-duplicate"),
        (zip_bytes(wheel_entries(FILES), prefix=b"#!/bin/sh\n"), "wheel-zip"),
        (wheel_bytes(FILES) + b"junk", "wheel-zip"),
        # 29
        (
            wheel_bytes(FILES, metadata=b"Metadata-Version: 2.4\nName: other\nVersion: 1.0+cpu\n"),
            "wheel-name",
        ),
        (
            wheel_bytes(FILES, metadata=b"Metadata-Version: 2.4\nName: demo-kernels\nVersion: 2.0\n"),
            "wheel-name",
        ),
        (
            wheel_bytes(FILES, wheel=b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"),
            "wheel-tags",
        ),
        (b"", "wheel-zip"),
        (b"not a zip", "wheel-zip"),
    ],
)
def test_bad_bytes_are_a_problem(tmp_path: Path, data: bytes, expected: str) -> None:
    assert reasons(tmp_path, data) == [expected]


def test_other_record_hash_is_a_problem(tmp_path: Path) -> None:
    entries = wheel_entries(FILES)
    entries[0] = dataclasses.replace(entries[0], data=b"changed")
    assert reasons(tmp_path, zip_bytes(entries)) == ["wheel-record"]


@pytest.mark.parametrize("name", ["demo_kernels.whl", "other-1.0+cpu-py3-none-any.whl", "x.whl"])
def test_other_file_name_is_a_problem(tmp_path: Path, name: str) -> None:
    assert reasons(tmp_path, wheel_bytes(FILES), name) == ["wheel-name"]


# 30
def spoil_missing(files: dict[str, bytes]) -> None:
    del files[f"{FOLDER}/{variant('sm90').object.file}"]


def spoil_unlisted(files: dict[str, bytes]) -> None:
    files[f"{FOLDER}/extra.cubin"] = wheelmaking.code_object("sm90")


def spoil_elsewhere(files: dict[str, bytes]) -> None:
    files["demo_kernels/hidden.cubin"] = wheelmaking.code_object("sm90")


def spoil_second_manifest(files: dict[str, bytes]) -> None:
    files["other/code_objects/manifest.json"] = files[f"{FOLDER}/manifest.json"]


def spoil_bytes(files: dict[str, bytes]) -> None:
    name = f"{FOLDER}/{variant('sm90').object.file}"
    files[name] = files[name][:-1] + b"\xff"


def spoil_arch(files: dict[str, bytes]) -> None:
    files[f"{FOLDER}/{variant('sm90').object.file}"] = wheelmaking.code_object("sm80")


def spoil_empty(files: dict[str, bytes]) -> None:
    files[f"{FOLDER}/{variant('sm90').object.file}"] = b""


def spoil_manifest(files: dict[str, bytes]) -> None:
    files[f"{FOLDER}/manifest.json"] = b"{}"


def spoil_no_manifest(files: dict[str, bytes]) -> None:
    del files[f"{FOLDER}/manifest.json"]


@row(30, "object-unlisted", "object-missing")
@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (spoil_missing, "object-missing"),
        (spoil_unlisted, "object-unlisted"),
        (spoil_elsewhere, "object-unlisted"),
        (spoil_second_manifest, "object-unlisted"),
        (spoil_bytes, "object-digest"),
        (spoil_arch, "object-digest"),
        (spoil_empty, "object-empty"),
        (spoil_manifest, "kernel-manifest"),
        (spoil_no_manifest, "kernel-manifest-missing"),
    ],
)
def test_code_objects_and_manifest_have_to_agree(
    tmp_path: Path, spoil: Callable[[dict[str, bytes]], None], expected: str
) -> None:
    files = gpu_files("sm90")
    spoil(files)
    assert expected in reasons(tmp_path, wheel_bytes(files))


def test_object_of_another_arch_under_its_own_digest_is_a_problem(tmp_path: Path) -> None:
    files = gpu_files("sm90")
    sample = wheelmaking.code_object("sm80")
    files[f"{FOLDER}/manifest.json"] = manifest("sm90", [variant("sm90", data=sample)]).as_bytes()
    files[f"{FOLDER}/{variant('sm90').object.file}"] = sample
    assert "object-arch" in reasons(tmp_path, wheel_bytes(files))


# 44
@row(44, "library")
@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), KeyError("x"), RecursionError()])
def test_whatever_a_reader_raises_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_arguments: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(artifact, "read_wheel", fail)
    assert reasons(tmp_path, wheel_bytes(FILES)) == ["library"]


def test_an_interrupt_is_no_problem_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact, "read_wheel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reasons(tmp_path, wheel_bytes(FILES))


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    for name in ("pipe", "link", "absent", "."):
        with pytest.raises(InputError) as caught:
            open_plain(tmp_path / name)
        assert caught.value.reason == "unreadable"


def test_reading_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_bounded(tmp_path / "f", 5) == b"12345"
    with pytest.raises(InputError) as caught:
        read_bounded(tmp_path / "f", 4)
    assert caught.value.reason == "json-too-large"


def test_files_are_read_when_they_are_asked_for() -> None:
    asked: list[str] = []

    def read(name: str) -> bytes:
        asked.append(name)
        return name.encode()

    files = LazyFiles({"b", "a"}, read)
    assert (list(files), len(files), "a" in files, "c" in files, asked) == (["a", "b"], 2, True, False, [])
    assert files["b"] == b"b"


HOW_MUCH = """
import sys
from pathlib import Path
from wheelmark.verify.artifact import examine_wheel
found = examine_wheel(Path(sys.argv[1]), subject="x")
assert not found.problems, found.problems
status = Path("/proc/self/status").read_text()  # getrusage would say the parent's peak, where that is higher
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024, found.sha256)
"""


@pytest.mark.parametrize("deflate", [False, True])
def test_memory_does_not_grow_with_the_wheel(tmp_path: Path, *, deflate: bool) -> None:
    """A wheel of 48 MB, none of it holes, in a process of its own: its peak is that of a small one."""
    noise = os.urandom(1 << 20) * 12
    peaks: list[int] = []
    for folder, files in (
        ("small", {}),
        ("large", {f"demo_kernels/{index}.bin": noise for index in range(4)}),
    ):
        entries = wheel_entries({**FILES, **files})
        path = tmp_path / folder / NAME
        path.parent.mkdir()
        path.write_bytes(zip_bytes([dataclasses.replace(entry, deflate=deflate) for entry in entries]))
        done = subprocess.run(
            [sys.executable, "-c", HOW_MUCH, str(path)], capture_output=True, text=True, check=True
        )
        peak, sha256 = done.stdout.split()
        assert sha256 == digests.sha256_file(path)
        peaks.append(int(peak))
        path.unlink()
    assert peaks[1] < peaks[0] + 20


def test_what_is_no_wheel_image_or_kernel_pack_has_no_target() -> None:
    assert artifact.ArtifactFacts(path="x", name="x", sha256="0" * 64, size=1).target == ""


def test_a_code_object_over_the_limit_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "LARGEST_OBJECT", 10)
    assert reasons(tmp_path, wheel_bytes(gpu_files("sm90"))) == ["wheel-limit"]


def test_a_members_checksum_says_no_more_than_its_digest_in_record(tmp_path: Path) -> None:
    """CRC-32 is not computed where RECORD's sha256 is compared; of RECORD itself it is."""

    def with_wrong_sum(end: str) -> bytes:
        entries = wheel_entries(FILES)
        return zip_bytes(
            [dataclasses.replace(item, crc=1 if item.name.endswith(end) else None) for item in entries]
        )

    assert reasons(tmp_path, with_wrong_sum("__init__.py")) == []
    for name in ("RECORD", "METADATA", "WHEEL"):
        assert reasons(tmp_path, with_wrong_sum(name)) == ["wheel-zip"]
