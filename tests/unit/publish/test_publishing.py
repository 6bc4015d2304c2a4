"""What is refused before any registry is spoken to, and copies between layouts, which need none."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from forging import Forge
from imaging import Draft
from publishing import Images, make_images
from wheelmark import manifest
from wheelmark.cli import main
from wheelmark.errors import InputError, RegistryError, StateError
from wheelmark.manifest import Entry, Kind, ReleaseManifest
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.reference import LayoutReference, parse_reference
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish import copy, publish
from wheelmark.publish.publishing import _named
from wheelmark.publish.transfer import Carried

NOWHERE = parse_reference("127.0.0.1:1/team/app")
"""Whoever gets so far as to ask it has refused nothing."""


@pytest.fixture(scope="session")
def made(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Images:
    return make_images(tmp_path_factory.mktemp("made") / "images", forge, size=1000)


@pytest.fixture
def images(made: Images, tmp_path: Path) -> Images:
    return dataclasses.replace(made, path=Path(shutil.copytree(made.path, tmp_path / "dist" / "images")))


def files(path: Path) -> dict[str, bytes]:
    return {str(item.relative_to(path)): item.read_bytes() for item in path.rglob("*") if item.is_file()}


def to(path: Path, **more: str) -> LayoutReference:
    return LayoutReference(path=path, **more)


# Copies


def test_an_index_is_copied_with_all_that_refers_to_any_of_it(images: Images, tmp_path: Path) -> None:
    done = copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    layout = Layout(tmp_path / "out")
    assert layout.resolve("cpu").descriptor.sha256 == images.index.sha256
    assert layout.check_files()
    before = Layout(images.path)
    for item in images.all:
        assert {found.sha256 for found, _ in layout.referrers([item.sha256])} == {
            found.sha256 for found, _ in before.referrers([item.sha256])
        }
    assert done.digest == images.index.digest
    assert done.carried.sent() > 0


def test_again_changes_nothing(images: Images, tmp_path: Path) -> None:
    copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    before = files(tmp_path / "out")
    assert copy(to(images.path, tag="cpu"), to(tmp_path / "out")).carried.sent() == 0
    assert files(tmp_path / "out") == before


def test_there_and_back_is_the_same(images: Images, tmp_path: Path) -> None:
    copy(to(images.path, tag="cpu-x86_64"), to(tmp_path / "one", tag="a"))
    copy(to(tmp_path / "one"), to(tmp_path / "two", tag="a"))
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_second_image_lies_beside_the_first(images: Images, tmp_path: Path) -> None:
    for name in ("cpu-x86_64", "cpu-aarch64"):
        copy(to(images.path, tag=name), to(tmp_path / "out"))
    layout = Layout(tmp_path / "out")
    assert layout.check_files()
    assert {layout.resolve(name).descriptor.sha256 for name in ("cpu-x86_64", "cpu-aarch64")} == {
        item.sha256 for item in images.images
    }


def test_by_digest_and_without_a_name(images: Images, tmp_path: Path) -> None:
    digest = images.images[0].digest
    copy(to(images.path, digest=digest), to(tmp_path / "out", digest=digest))
    assert Layout(tmp_path / "out").resolve().descriptor.digest == digest
    with pytest.raises(InputError) as caught:
        copy(to(images.path, tag="cpu"), to(tmp_path / "out", digest=digest))
    assert caught.value.reason == "registry-reference"


def test_a_damaged_blob_is_not_copied_and_nothing_is_seen(images: Images, tmp_path: Path) -> None:
    layout = Layout(images.path)
    blob = layout.read_manifest(images.images[0]).layers[1]
    path = images.path / "blobs" / "sha256" / blob.sha256
    right = path.read_bytes()
    path.write_bytes(right[:-1] + b"?")
    with pytest.raises(InputError) as caught:
        copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    assert caught.value.reason == "image-blob"
    assert not (tmp_path / "out" / "index.json").exists()
    path.write_bytes(right)
    copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    assert Layout(tmp_path / "out").check_files()


def test_a_damaged_blob_at_the_destination_is_written_anew(images: Images, tmp_path: Path) -> None:
    copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    before = files(tmp_path / "out")
    blob = Layout(images.path).read_manifest(images.images[0]).layers[1]
    (tmp_path / "out" / "blobs" / "sha256" / blob.sha256).write_bytes(b"damaged")
    assert copy(to(images.path, tag="cpu"), to(tmp_path / "out")).carried.sent() == blob.size
    assert files(tmp_path / "out") == before


def test_a_folder_of_something_else_is_left_alone(images: Images, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("mine")
    with pytest.raises(InputError) as caught:
        copy(to(images.path, tag="cpu"), to(tmp_path / "out"))
    assert caught.value.reason == "image-layout"
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["letter.txt"]


def test_a_folder_that_cannot_be_made(images: Images, tmp_path: Path) -> None:

    (tmp_path / "file").write_text("")
    with pytest.raises(StateError) as caught:
        copy(to(images.path, tag="cpu"), to(tmp_path / "file" / "out"))
    assert caught.value.reason == "image-write"


def chain(path: Path, length: int) -> Descriptor:
    """An image with referrers of referrers."""
    writer = LayoutWriter(path)
    image = Draft().write(writer, tag="v")
    empty = writer.add(b"{}", types.EMPTY)
    listed, subject = [image], image
    for _ in range(length):
        plain = dataclasses.replace(subject, annotations={})
        data = ImageManifest(config=empty, layers=(empty,), subject=plain, artifact_type="x/y").as_bytes()
        subject = writer.add(data, types.MANIFEST)
        listed.append(writer.fallback(plain, [subject]))
    writer.finish(listed)
    return image


def test_referrers_of_referrers_to_a_limit(tmp_path: Path) -> None:
    chain(tmp_path / "four", 4)
    copy(to(tmp_path / "four", tag="v"), to(tmp_path / "out"))
    assert len(list(Layout(tmp_path / "out").walk())) == len(list(Layout(tmp_path / "four").walk()))
    chain(tmp_path / "five", 5)
    with pytest.raises(InputError) as caught:
        copy(to(tmp_path / "five", tag="v"), to(tmp_path / "other"))
    assert caught.value.reason == "input-limit"


# Publishing


def release(
    images: Images,
    *,
    snapshot: bool = False,
    leave_out: bool = False,
    targets: tuple[str, str] = ("cpu-x86_64", "cpu-aarch64"),
    index: bool = True,
) -> None:
    """A ``release.json`` beside the layout."""
    (over, entries) = (images.index, [])
    if index:
        path = f"images/blobs/sha256/{over.sha256}"
        entries = [Entry(path=path, kind=Kind.IMAGE_PART, sha256=over.sha256, size=over.size)]
    entries = [
        Entry(
            path=f"images/blobs/sha256/{item.sha256}",
            kind=Kind.IMAGE,
            sha256=item.sha256,
            size=item.size,
            target=target,
        )
        for item, target in zip(images.images, targets, strict=True)
    ] + entries
    value = ReleaseManifest(
        project="p",
        version="1",
        targets=("cpu-aarch64", "cpu-x86_64"),
        not_built=(),
        snapshot=snapshot,
        entries=tuple(entries[leave_out:]),
        levels={},
    )
    (images.path.parent / manifest.NAME).write_bytes(value.as_bytes())


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError) as caught:
        publish(tmp_path / "empty", NOWHERE)
    assert caught.value.reason == "state"


def test_an_image_that_the_release_does_not_list(images: Images) -> None:
    release(images, leave_out=True)
    with pytest.raises(StateError) as caught:
        publish(images.path.parent, NOWHERE)
    assert caught.value.reason == "publish-unlisted"


def test_an_index_that_the_release_does_not_list(images: Images) -> None:
    release(images, index=False)
    with pytest.raises(StateError, match=f"the index {images.index.digest}") as caught:
        publish(images.path.parent, NOWHERE)
    assert caught.value.reason == "publish-unlisted"


def test_names_of_the_layout_and_of_the_release_agree(images: Images) -> None:
    release(images)
    with pytest.raises(RegistryError):
        publish(images.path.parent, NOWHERE)
    release(images, targets=("cpu-aarch64", "cpu-x86_64"))
    with pytest.raises(
        StateError, match=r"the layout names .* cpu-aarch64, and release.json cpu-x86_64"
    ) as caught:
        publish(images.path.parent, NOWHERE)
    assert caught.value.reason == "publish-unlisted"
    release(images, targets=("cpu-x86_64", "cuda-sm90"))
    with pytest.raises(StateError, match=r"and release.json cuda-sm90"):
        publish(images.path.parent, NOWHERE, names=["cpu-aarch64"], tags=["1.0"])


def test_a_snapshot_is_published_as_one_or_not_at_all(images: Images) -> None:
    release(images, snapshot=True)
    with pytest.raises(StateError, match="snapshot") as caught:
        publish(images.path.parent, NOWHERE)
    assert caught.value.reason == "publish-not-releasable"


def test_an_image_that_is_marked(tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "images")
    labels = {types.RELEASABLE_LABEL: "false", types.REASON_LABEL: "stand-in dependencies"}
    writer.finish([Draft(labels=labels).write(writer, tag="cpu-x86_64")])
    with pytest.raises(StateError, match="stand-in dependencies") as caught:
        publish(tmp_path / "images", NOWHERE)
    assert caught.value.reason == "publish-not-releasable"


@pytest.mark.parametrize("tag", ["a b", "sha256-" + "0" * 64, "x" * 129])
def test_what_is_no_tag(images: Images, tag: str) -> None:
    with pytest.raises(InputError) as caught:
        publish(images.path, NOWHERE, tags=[tag])
    assert caught.value.reason == "registry-reference"


def test_an_image_that_is_not_there(images: Images) -> None:
    with pytest.raises(InputError, match="it has cpu, cpu-aarch64, cpu-x86_64") as caught:
        publish(images.path, NOWHERE, names=["cuda-sm90"])
    assert caught.value.reason == "image-reference"


def test_another_digest_than_the_layout_s(images: Images) -> None:
    with pytest.raises(InputError) as caught:
        publish(images.path, NOWHERE.at(digest=f"sha256:{'0' * 64}"), names=["cpu"])
    assert caught.value.reason == "registry-reference"


def test_names_at_the_destination(images: Images) -> None:
    index, first = (dataclasses.replace(item) for item in (images.index, images.images[0]))
    assert [item.tags for item in _named([index, first], ["1.0", "latest"])] == [
        ("1.0", "latest"),
        ("1.0-cpu-x86_64", "latest-cpu-x86_64"),
    ]
    assert [item.tags for item in _named([index, first], [])] == [("cpu",), ("cpu-x86_64",)]
    assert [item.tags for item in _named([first], ["1.0"])] == [("1.0",)]
    assert [item.tags for item in _named(images.images, ["1.0"])] == [
        ("1.0-cpu-x86_64",),
        ("1.0-cpu-aarch64",),
    ]


# The command line


def test_copy_on_the_command_line(images: Images, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["copy", f"oci:{images.path}:cpu", f"oci:{tmp_path}/out:v1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert f"oci:{tmp_path}/out:v1  {images.index.digest}" in out
    assert main([*arguments, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["digest"] == images.index.digest
    assert value["carried"]["bytes_sent"] == 0
    assert {row["action"] for row in value["carried"]["rows"]} == {"present"}


def test_a_refusal_on_the_command_line(images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    release(images, snapshot=True)
    assert main(["publish", str(NOWHERE), "--from", str(images.path.parent), "--json"]) == 14
    assert json.loads(capsys.readouterr().out)["reason"] == "publish-not-releasable"
    with pytest.raises(SystemExit) as caught:
        main(["publish", str(NOWHERE), "--jobs", "0"])
    assert caught.value.code == 2


def test_nothing_carried_is_nothing_sent() -> None:
    assert Carried(rows=(), tags={}).sent() == 0
