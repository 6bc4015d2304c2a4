"""The record of a build: what was written is read, anything else is an error with its remedy; when a signature is no longer of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wheelmark.errors import StateError
from wheelmark.manifest import Entry, Kind, ReleaseManifest
from wheelmark.pipeline.building import no_longer_signed
from wheelmark.pipeline.buildrecord import Built, read_record
from wheelmark.release import ReleaseDirectory

SHA = "a" * 64
WHEEL = {
    "target": "cpu-x86_64", "path": "wheels/a.whl", "sha256": SHA, "size": 1, "sbom": "sbom/a.json", "lock": "locks/r.txt",
    "code_objects": ["kernels/a/m.json"], "left_out": [], "toolchain": SHA, "seconds": 1.5,
}  # fmt: skip
IMAGE = {
    "target": "cpu-x86_64", "path": "images/blobs/sha256/m", "sha256": SHA, "size": 2,
    "layers": [{"name": "system", "sha256": SHA, "size": 2, "cached": False}], "parts": ["images/blobs/sha256/l"],
    "sbom": "sbom/i.json", "lock": "locks/r.txt", "debian_lock": "locks/d.json", "wheel": "wheels/a.whl", "inputs": SHA,
    "stand_in": "", "seconds": 0.0, "resumed": False,
}  # fmt: skip
FILES = (
    "wheels/a.whl", "sbom/a.json", "locks/r.txt", "kernels/a/m.json", "images/blobs/sha256/m", "images/blobs/sha256/l",
    "sbom/i.json", "locks/d.json", "locks/build.txt",
)  # fmt: skip
ODD: tuple[Any, ...] = (None, [1], {})
GOOD: dict[str, Any] = {
    "wheels": [WHEEL], "images": [IMAGE], "not_built": [{"target": "x", "reason": "r", "fix": "f"}], "snapshot": False,
    "commit": "c", "inputs": {"wheelmark.toml": SHA}, "build_lock": "locks/build.txt", "files": dict.fromkeys(FILES, SHA),
}  # fmt: skip


def read(folder: Path, data: bytes) -> Built:
    path = folder / "build.json"
    path.write_bytes(data)
    return read_record(path, folder / "dist")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    built = read(tmp_path, json.dumps(GOOD).encode())
    assert json.loads(json.dumps(built.as_json())) == GOOD
    assert read(tmp_path, json.dumps(built.as_json()).encode()) == built


def test_nothing_was_built(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        read_record(tmp_path / "build.json", tmp_path / "dist")
    assert caught.value.reason == "not-built"


def _set(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(record: Any) -> None:
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(_set(key, value=value) for key in GOOD for value in (None, 1, [1], {"a": 1}, ["x"], {"a": "x"})),
        *(_set("wheels", 0, key, value=value) for key in WHEEL for value in ODD),
        *(_set("images", 0, key, value=value) for key in IMAGE for value in ODD),
        _set("images", 0, "layers", value=[{"name": "system"}]),
        _set("wheels", 0, "more", value=1),
        _set("more", value=1),
        _set("wheels", 0, "path", value="../a.whl"),
        _set("wheels", 0, "path", value="wheels/other.whl"),
        _set("files", "/etc/passwd", value=SHA),
        _set("files", "wheels/a.whl", value="A" * 64),
        _set("snapshot", value="no"),
        lambda record: record.pop("files"),
        lambda record: record["wheels"][0].pop("sbom"),
        lambda record: record["images"][0].pop("layers"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    record = copy.deepcopy(GOOD)
    change(record)
    with pytest.raises(StateError) as caught:
        read(tmp_path, json.dumps(record).encode())
    assert caught.value.reason == "build-record"
    assert "build.json" in caught.value.fix
    assert "nox -s build" in caught.value.fix


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b'{"wheels": [', b"\xff", b'{"a": 1, "a": 1}', b"[" * 5000]
)
def test_what_is_no_object_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StateError) as caught:
        read(tmp_path, data)
    assert caught.value.reason == "build-record"


def test_a_record_that_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "build.json").symlink_to(tmp_path / "absent")
    with pytest.raises(StateError) as caught:
        read_record(tmp_path / "build.json", tmp_path / "dist")
    assert caught.value.reason == "build-record"


def signed(root: Path, files: dict[str, str]) -> ReleaseDirectory:
    """A release directory with a manifest of these files and a bundle."""
    kinds = {"wheels/a.whl": Kind.WHEEL, "evidence/e.json": Kind.EVIDENCE}
    entries = [
        Entry(path=path, kind=kinds.get(path, Kind.LOCK), sha256=sha256, size=1)
        for path, sha256 in {**files, "evidence/e.json": SHA}.items()
    ]
    manifest = ReleaseManifest(
        project="demo",
        version="1",
        targets=("cpu-x86_64",),
        not_built=(),
        snapshot=False,
        entries=tuple(entries),
        levels={},
    )
    (root / "bundles").mkdir(parents=True)
    (root / "bundles" / "provenance.sigstore.json").write_bytes(b"{}")
    (root / "release.json").write_bytes(manifest.as_bytes())
    return ReleaseDirectory(root)


def test_a_build_over_a_signed_release(tmp_path: Path) -> None:
    built = read(tmp_path, json.dumps(GOOD).encode())
    same = dict.fromkeys(FILES, SHA)
    assert not no_longer_signed(signed(tmp_path / "same", same), built)
    assert no_longer_signed(signed(tmp_path / "other", {**same, "wheels/a.whl": "b" * 64}), built)
    assert no_longer_signed(signed(tmp_path / "more", {**same, "locks/gone.txt": SHA}), built)
    assert no_longer_signed(
        signed(tmp_path / "less", {key: SHA for key in FILES if key != "sbom/i.json"}), built
    )
    directory = signed(tmp_path / "malformed", same)
    directory.manifest_path.write_bytes(b"{}")
    assert no_longer_signed(directory, built)
    (directory.root / "bundles" / "provenance.sigstore.json").unlink()
    assert not no_longer_signed(directory, built)
    assert not no_longer_signed(ReleaseDirectory(tmp_path / "empty"), built)
