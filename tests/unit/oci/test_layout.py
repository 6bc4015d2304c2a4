"""Layout directories: written whole and always alike; read strictly, each refusal with its reason."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

import imaging
from rows import row
from wheelmark import digests
from wheelmark.errors import InputError, StateError
from wheelmark.oci import layout as layouts
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex


def unsigned(statement: bytes) -> bytes:
    """In place of a bundle: a layout does not look into it."""
    return statement


@pytest.fixture
def path(tmp_path: Path) -> Path:
    imaging.layout(tmp_path / "image", unsigned)
    return tmp_path / "image"


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value.reason


def rewritten(path: Path, change: Callable[[list[dict[str, object]]], object]) -> None:
    index = json.loads((path / "index.json").read_bytes())
    change(index["manifests"])
    (path / "index.json").write_text(json.dumps(index), encoding="utf-8")


def test_the_same_contents_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    imaging.layout(tmp_path / "again", unsigned)
    imaging.layout(tmp_path / "again", unsigned)  # over what is there
    assert digests.sha256_tree(path) == digests.sha256_tree(tmp_path / "again")
    assert (path / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'


def test_an_image_is_found_by_digest_by_tag_and_as_the_only_one(path: Path) -> None:
    layout = Layout(path)
    only = layout.resolve()
    assert layout.resolve("v1").descriptor == only.descriptor
    assert layout.resolve(only.descriptor.digest).descriptor.sha256 == only.descriptor.sha256
    assert only.indexes == ()
    ((attached, manifest),) = layout.referrers([only.descriptor.sha256])
    assert manifest.kind == types.BUNDLE
    # The fallback index lists it; one way to it is through that index.
    assert layout.resolve(attached.digest).indexes
    held = layout.check_files()
    assert {path.name for path in (path / "blobs/sha256").iterdir()} == held


def test_referrers_are_found_in_the_index_too(tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = imaging.Draft().write(writer)
    bundle = writer.attach(image, b"bundle", predicate_type="p", created=imaging.CREATED)
    writer.finish([image, bundle, bundle])
    layout = Layout(tmp_path / "image")
    assert layout.resolve().descriptor.sha256 == image.sha256
    assert [item.sha256 for item, _ in layout.referrers([image.sha256])] == [bundle.sha256]
    assert layout.referrers(["0" * 64]) == ()


@pytest.mark.parametrize("reference", ["v2", "sha256:" + "0" * 64])
def test_an_image_that_is_not_there_is_not_found(path: Path, reference: str) -> None:
    assert reason(lambda: Layout(path).resolve(reference)) == "image-reference"


def test_references_are_read_strictly_and_have_to_be_clear(path: Path) -> None:
    assert reason(lambda: Layout(path).resolve("sha256:x")) == "image-digest"
    writer = LayoutWriter(path)
    first = imaging.Draft().write(writer, tag="a")
    second = imaging.Draft(target="cpu-aarch64", platform=imaging.ARM64).write(writer, tag="a")
    writer.finish([first, second])
    assert reason(lambda: Layout(path).resolve()) == "image-reference"
    assert reason(lambda: Layout(path).resolve("a")) == "image-reference"
    writer.finish([])
    assert reason(lambda: Layout(path).resolve()) == "image-reference"


def test_a_tag_and_a_digest_have_to_agree(path: Path) -> None:
    layout = Layout(path)
    image = layout.resolve().descriptor
    assert layout.resolve(f"v1@{image.digest}").descriptor == image
    with pytest.raises(InputError, match=f"leads to {image.digest}, and not to sha256:{'0' * 64}") as caught:
        layout.resolve(f"v1@sha256:{'0' * 64}")
    assert caught.value.reason == "image-reference"
    ((attached, _manifest),) = layout.referrers([image.sha256])
    assert reason(lambda: layout.resolve(f"v1@{attached.digest}")) == "image-reference"
    assert reason(lambda: layout.resolve(f"v2@{image.digest}")) == "image-reference"
    assert reason(lambda: layout.resolve("v1@sha256:x")) == "image-digest"
    for half in ("v1@", f"@{image.digest}", f"v1@{image.digest}@{image.digest}", "@"):
        assert reason(lambda half=half: layout.resolve(half)) in {"image-reference", "image-digest"}, half  # type: ignore[misc]


def test_a_manifest_may_be_absent_and_what_it_lists_may_not(path: Path) -> None:
    layout = Layout(path)
    image = layout.resolve().descriptor
    manifest = layout.read_manifest(image)
    (path / "blobs/sha256" / manifest.layers[0].sha256).unlink()
    assert reason(Layout(path).check_files) == "image-missing"
    (path / "blobs/sha256" / image.sha256).unlink()
    assert reason(Layout(path).resolve) == "image-missing"
    assert reason(lambda: Layout(path).resolve(image.digest)) == "image-reference"
    assert reason(lambda: Layout(path).document(image)) == "image-missing"


@pytest.mark.parametrize(
    ("name", "data"),
    [("oci-layout", b'{"imageLayoutVersion": "2.0.0"}'), ("oci-layout", None), ("index.json", None)],
)
def test_what_is_no_layout_is_refused(path: Path, name: str, data: bytes | None) -> None:
    (path / name).unlink()
    if data is not None:
        (path / name).write_bytes(data)
    assert reason(lambda: Layout(path)) == "image-layout"


def test_links_and_special_files_are_refused(path: Path, tmp_path: Path) -> None:
    (path / "index.json").rename(tmp_path / "elsewhere")
    (path / "index.json").symlink_to(tmp_path / "elsewhere")
    assert reason(lambda: Layout(path)) == "unreadable"
    (path / "index.json").unlink()
    os.mkfifo(path / "index.json")
    assert reason(lambda: Layout(path)) == "unreadable"
    (path / "index.json").unlink()
    (tmp_path / "elsewhere").rename(path / "index.json")
    blob = (
        path / "blobs/sha256" / Layout(path).read_manifest(Layout(path).resolve().descriptor).layers[0].sha256
    )
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    assert reason(Layout(path).check_files) == "image-unaccounted"


@pytest.mark.parametrize("name", ["evil", "blobs/x", "blobs/sha256/" + "0" * 64, "blobs/sha512/x", ".hidden"])
def test_a_file_that_nothing_refers_to_is_refused(path: Path, name: str) -> None:
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(b"x")
    assert reason(Layout(path).check_files) == "image-unaccounted"


def test_other_bytes_under_a_digest_are_refused(path: Path) -> None:
    image = Layout(path).resolve().descriptor
    blob = path / "blobs/sha256" / image.sha256
    data = blob.read_bytes()
    for changed in (data + b" ", data[:-1], data[:-1] + b" ", b""):
        blob.write_bytes(changed)
        assert reason(lambda: Layout(path).document(image)) == "image-blob"
    blob.write_bytes(data)
    layout = Layout(path)
    assert layout.document(image) == layout.document(image) == data
    assert reason(lambda: layout.document(dataclasses.replace(image, size=image.size + 1))) == "image-blob"


def test_a_blob_that_fails_while_it_is_read_is_refused() -> None:
    descriptor = Descriptor(media_type="x", sha256="0" * 64, size=5)
    with layouts.Blob(descriptor, os.open("/proc/self/mem", os.O_RDONLY)) as blob:
        assert reason(blob.check) == "unreadable"


def test_a_blob_is_checked_to_its_end_however_little_was_read(path: Path) -> None:
    layout = Layout(path)
    layer = layout.read_manifest(layout.resolve().descriptor).layers[0]
    with layout.open_blob(layer) as blob:
        blob.read(1)
        blob.check()


def test_an_index_may_list_manifests_and_indexes_only(path: Path) -> None:
    rewritten(path, lambda manifests: manifests[0].update(mediaType="application/x"))
    assert reason(lambda: list(Layout(path).walk())) == "image-manifest"


# Row 22.
def test_documents_over_the_limit_are_refused_before_they_are_read(path: Path) -> None:
    with (path / "index.json").open("wb") as stream:
        stream.truncate(200 << 20)
    assert reason(lambda: Layout(path)) == "input-limit"


@row(22, "input-limit")
def test_a_hundred_thousand_referrers_are_refused(path: Path) -> None:
    item = Descriptor(media_type=types.MANIFEST, sha256="0" * 64, size=2)
    listed = ImageIndex(manifests=(item,) * 100_000).as_bytes()
    (path / "index.json").write_bytes(listed)
    assert reason(lambda: Layout(path)) == "input-limit"


@row(22, "input-limit")
def test_one_referrer_more_than_are_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = imaging.Draft().write(writer)
    bundles = [
        writer.attach(image, b"%d" % number, predicate_type="p", created=imaging.CREATED)
        for number in range(4)
    ]
    writer.finish([image, writer.fallback(image, bundles)])
    monkeypatch.setattr(layouts, "MAX_REFERRERS", 4)
    assert len(Layout(tmp_path / "image").referrers([image.sha256])) == 4
    monkeypatch.setattr(layouts, "MAX_REFERRERS", 3)
    assert reason(lambda: Layout(tmp_path / "image").referrers([image.sha256])) == "input-limit"
    monkeypatch.setattr(layouts, "_MAX_DOCUMENTS", 5)
    assert reason(lambda: list(Layout(tmp_path / "image").walk())) == "input-limit"
    monkeypatch.setattr(layouts, "MAX_FILES", 5)
    monkeypatch.setattr(layouts, "_MAX_DOCUMENTS", 50)
    assert reason(Layout(tmp_path / "image").check_files) == "input-limit"


def test_a_document_that_is_said_to_be_huge_is_not_read(path: Path) -> None:
    image = Layout(path).resolve().descriptor
    assert reason(lambda: Layout(path).document(image, limit=image.size - 1)) == "input-limit"


@row(22)
def test_indexes_within_indexes_end(tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "image")
    inner = imaging.Draft().write(writer)
    for _ in range(6):
        inner = writer.add(ImageIndex(manifests=(inner,)).as_bytes(), types.INDEX)
    writer.finish([inner])
    assert reason(lambda: list(Layout(tmp_path / "image").walk())) == "input-limit"


def test_documents_that_do_not_fit_in_memory_are_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "_KEPT", 0)
    layout = Layout(path)
    assert layout.document(layout.resolve().descriptor) == layout.document(layout.resolve().descriptor)


def test_what_cannot_be_written_is_said_and_nothing_half_written_stays(tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "image")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(StateError) as caught:
            writer.add(b"x" * 1000, "y")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.reason == "image-write"
    assert digests.tree_files(tmp_path / "image") == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateError):
        LayoutWriter(tmp_path / "file")


def test_a_spoiled_blob_is_written_again(path: Path) -> None:
    data = b"some bytes"
    made = LayoutWriter(path).add(data, "x")
    blob = path / "blobs/sha256" / made.sha256
    blob.write_bytes(b"spoiled")
    LayoutWriter(path).add(data, "x")
    assert blob.read_bytes() == data
