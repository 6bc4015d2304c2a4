"""The evidence store: what is kept is given again byte for byte, and whatever is torn, changed or open to others is refused."""

from __future__ import annotations

import concurrent.futures
import json
import os
from pathlib import Path

import pytest

from pulling import evidence
from wheelmark import digests
from wheelmark.deploy.store import EvidenceStore, ImageEvidence, default_store
from wheelmark.errors import ConfigError, RejectedError, StateError


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    made = EvidenceStore(tmp_path / "store", write=True)
    made.make()
    return made


@pytest.fixture
def kept(store: EvidenceStore, tmp_path: Path) -> ImageEvidence:
    made = evidence(tmp_path / "image")
    store.keep(made)
    return made


def refused(store: EvidenceStore, sha256: str) -> str:
    with pytest.raises(RejectedError) as caught:
        store.find(sha256)
    return caught.value.reason


def test_what_was_kept_is_found_again(store: EvidenceStore, kept: ImageEvidence) -> None:
    assert EvidenceStore(store.directory).find(kept.sha256) == kept
    assert store.images() == (kept.sha256,)
    assert store.find("0" * 64) is None
    assert store.find("../../etc/passwd") is None


def test_it_is_nobody_elses(store: EvidenceStore, kept: ImageEvidence) -> None:
    assert store.directory.stat().st_mode & 0o777 == 0o700
    for path in store.directory.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0


def test_a_shared_one_of_ones_own_can_be_read_by_others_and_no_more(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    store = EvidenceStore(place, write=True)
    made = evidence(tmp_path / "image")
    store.keep(made)
    assert (place / "images" / made.sha256).stat().st_mode & 0o777 == 0o644
    assert store.find(made.sha256) == made


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_one_that_others_can_write_in_is_refused(store: EvidenceStore, mode: int) -> None:
    store.directory.chmod(mode)
    for write in (False, True):
        with pytest.raises(ConfigError) as caught:
            EvidenceStore(store.directory, write=write)
        assert caught.value.reason == "store"


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        EvidenceStore(tmp_path / "absent")
    assert caught.value.reason == "store"
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other" / "store.json").write_text('{"schema":"https://wheelmark.dev/image-evidence/v9"}')
    with pytest.raises(ConfigError) as caught:
        EvidenceStore(tmp_path / "other", write=True)
    assert caught.value.reason == "store"


@pytest.mark.parametrize("position", [0, 70, -3])
def test_a_record_with_one_byte_changed(store: EvidenceStore, kept: ImageEvidence, position: int) -> None:
    path = store.directory / "images" / kept.sha256
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert refused(store, kept.sha256) == "store-changed"


def test_a_record_that_was_cut_off(store: EvidenceStore, kept: ImageEvidence) -> None:
    path = store.directory / "images" / kept.sha256
    path.write_bytes(path.read_bytes()[:-40])
    assert refused(store, kept.sha256) == "store-changed"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("schema", "v0"),
        ("manifest", "1" * 64),
        ("config", "../config"),
        ("bundles", [1]),
        ("bundles", "x"),
        ("indexes", 7),
        ("more", True),
    ],
)
def test_a_record_that_says_something_else_under_a_right_sum(
    store: EvidenceStore, kept: ImageEvidence, member: str, value: object
) -> None:
    path = store.directory / "images" / kept.sha256
    record = json.loads(path.read_bytes().partition(b"\n")[2])
    body = digests.canonical_json({**record, member: value})
    path.write_bytes(digests.sha256(body).encode() + b"\n" + body)
    assert refused(store, kept.sha256) == "store-changed"


def test_a_record_under_another_images_name(store: EvidenceStore, kept: ImageEvidence) -> None:
    folder = store.directory / "images"
    (folder / ("1" * 64)).write_bytes((folder / kept.sha256).read_bytes())
    assert refused(store, "1" * 64) == "store-changed"


@pytest.mark.parametrize("which", ["manifest", "config", "index", "bundle"])
@pytest.mark.parametrize("how", ["changed", "gone", "link"])
def test_every_document_is_hashed_when_it_is_read(
    store: EvidenceStore, kept: ImageEvidence, which: str, how: str
) -> None:
    sha256 = {
        "manifest": kept.sha256,
        "config": digests.sha256(kept.config),
        "index": next(iter(kept.indexes)),
        "bundle": next(iter(kept.bundles)),
    }[which]
    path = store.directory / "blobs/sha256" / sha256
    if how == "changed":
        path.write_bytes(path.read_bytes() + b" ")
    else:
        moved = path.rename(store.directory / "moved")
        if how == "link":
            path.symlink_to(moved)
    assert refused(store, kept.sha256) == "store-changed"


def test_forgetting_one_leaves_the_others_whole(
    store: EvidenceStore, kept: ImageEvidence, tmp_path: Path
) -> None:
    other = evidence(tmp_path / "other", "cpu-aarch64")
    store.keep(other)
    assert store.forget(kept.sha256)
    assert store.find(kept.sha256) is None
    assert store.find(other.sha256) == other
    assert not (store.directory / "blobs/sha256" / kept.sha256).exists()
    assert not store.forget(kept.sha256)
    assert not store.forget("../images")


def test_pulls_at_the_same_time_lose_nothing(store: EvidenceStore, tmp_path: Path) -> None:
    made = [evidence(tmp_path / f"image{index}", bundle=b"%d" % index) for index in range(8)]

    def work(item: ImageEvidence) -> ImageEvidence | None:
        own = EvidenceStore(store.directory, write=True)
        own.keep(item)
        return own.find(item.sha256)

    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(work, made))
    assert all(item is not None for item in found)  # the last bundle wins; none is torn
    last = store.find(made[0].sha256)
    assert last in made


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not run: no /dev/full")
def test_a_place_that_cannot_be_written_is_an_error_with_a_reason(
    store: EvidenceStore, tmp_path: Path
) -> None:
    (store.directory / "lock").unlink(missing_ok=True)
    (store.directory / "lock").symlink_to("/dev/full")
    with pytest.raises(StateError) as caught:
        store.keep(evidence(tmp_path / "image"))
    assert caught.value.reason == "store-write"


def test_the_default_is_the_systems_for_root_and_ones_own_for_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "state"))
    own = tmp_path / "state" / "images"
    assert default_store() == (Path("/var/lib/wheelmark/images") if os.geteuid() == 0 else own)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_store() == own


@pytest.mark.parametrize("data", [b"", b"\xff\n{", b"{}", b"\n" * 100])
def test_a_record_that_is_none(store: EvidenceStore, kept: ImageEvidence, data: bytes) -> None:
    (store.directory / "images" / kept.sha256).write_bytes(data)
    assert refused(store, kept.sha256) == "store-changed"


def unusable(place: Path, *, write: bool = True) -> str:
    """Why a folder cannot be a store; nothing in it or around it was touched."""
    around = next(folder for folder in place.parents if folder.is_dir())
    before = {path: path.lstat().st_mtime_ns for path in (around, *around.rglob("*"))}
    with pytest.raises(ConfigError) as caught:
        EvidenceStore(place, write=write)
    assert caught.value.reason == "store"
    assert {path: path.lstat().st_mtime_ns for path in (around, *around.rglob("*"))} == before
    return str(caught.value)


def test_a_folder_with_something_else_in_it_never_becomes_one(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir(mode=0o700)
    (place / "letter.txt").write_text("dear")
    said = unusable(place)
    assert "has no store.json, and is not empty (letter.txt lies in it)" in said
    assert "empty or not there yet" in said


def test_an_empty_folder_becomes_one_and_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    place.chmod(0o755)
    store = EvidenceStore(place, write=True)
    assert not list(place.iterdir())
    assert store.images() == ()
    previous = os.umask(0o077)
    try:
        store.make()
    finally:
        os.umask(previous)
    assert place.stat().st_mode & 0o777 == 0o755
    assert (place / "blobs" / "sha256").stat().st_mode & 0o777 == 0o755
    assert EvidenceStore(place).images() == ()


def test_a_writer_that_was_killed_leaves_nothing_that_stays(tmp_path: Path) -> None:
    """Before the mark was written, and after: the next writer goes on, and clears away."""
    place = tmp_path / "store"
    place.mkdir(mode=0o700)
    for _ in range(2):
        (place / "lock").touch()
        (place / ".writing-abc").write_bytes(b"half")
        EvidenceStore(place, write=True).make()
        assert {path.name for path in place.iterdir()} == {"lock", "store.json", "images", "blobs"}


def test_links_files_and_sticky_folders_are_none(store: EvidenceStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.directory)
    for write in (False, True):
        assert f"name the folder itself: {store.directory}" in unusable(tmp_path / "link", write=write)
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    assert "symbolic link" in unusable(tmp_path / "dangling")
    (tmp_path / "file").touch()
    assert "no folder" in unusable(tmp_path / "file")
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    assert "others can write in it (mode 1777)" in unusable(tmp_path / "sticky")


def test_a_folder_that_others_could_put_another_in_place_of(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    assert "chmod go-w" in unusable(tmp_path / "open" / "store")
    (tmp_path / "open" / "store").mkdir(mode=0o700)
    assert "chmod go-w" in unusable(tmp_path / "open" / "store")


@pytest.mark.parametrize("mark", ["oci-layout", "release.json"])
def test_it_cannot_lie_in_a_layout_or_a_release(tmp_path: Path, mark: str) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / mark).write_text("{}")
    assert f"{tmp_path}/dist, where nothing else may be" in unusable(tmp_path / "dist" / "a" / "store")
    (tmp_path / "dist" / "empty").mkdir()
    assert f"{tmp_path}/dist, where nothing else may be" in unusable(tmp_path / "dist" / "empty")
