"""What may be published: signed, and under names that do not lie; copies whose names contradict each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from forging import Forge
from imaging import CREATED, Draft, provenance
from publishing import make_images
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.cli import main
from wheelmark.errors import InputError, RegistryError, StateError
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.reference import LayoutReference, parse_reference
from wheelmark.oci.types import ImageIndex
from wheelmark.publish import copy, publish

NOWHERE = parse_reference("127.0.0.1:1/team/app")
"""Whoever gets so far as to ask it has refused nothing."""


def refused(path: Path, **options: object) -> str:
    with pytest.raises(StateError) as caught:
        publish(path, NOWHERE, **options)  # type: ignore[arg-type]
    return caught.value.reason


def test_what_nobody_signed(tmp_path: Path, forge: Forge) -> None:
    writer = LayoutWriter(tmp_path)
    image = Draft().write(writer, tag="one")
    writer.finish([image])
    assert refused(tmp_path) == "publish-unsigned"
    assert main(["publish", str(NOWHERE), "--from", str(tmp_path)]) == 14
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([image, bundle])
    with pytest.raises(RegistryError):
        publish(tmp_path, NOWHERE)


def test_an_image_that_is_signed_through_its_index(tmp_path: Path, forge: Forge) -> None:
    writer = LayoutWriter(tmp_path)
    image = Draft().write(writer, tag="one")
    held = dataclasses.replace(image, annotations={})
    index = writer.add(
        ImageIndex(manifests=(held,)).as_bytes(), types.INDEX, annotations={types.REFERENCE: "all"}
    )
    writer.finish([image, index])
    assert refused(tmp_path) == "publish-unsigned"
    signed = forge.sign(provenance(index.sha256))
    bundle = writer.attach(index, signed, predicate_type=PROVENANCE, created=CREATED)
    writer.finish([image, index, bundle])
    with pytest.raises(RegistryError):
        publish(tmp_path, NOWHERE)


@pytest.mark.parametrize("tag", ["cuda-sm90", "1.0-cuda-sm90"])
def test_a_tag_of_another_target(tmp_path: Path, forge: Forge, tag: str) -> None:
    made = make_images(tmp_path / "images", forge, size=1000)
    assert refused(made.path, tags=[tag], names=["cpu-x86_64"]) == "publish-name"
    with pytest.raises(RegistryError):
        publish(made.path, NOWHERE, tags=["1.0-cpu-x86_64"], names=["cpu-x86_64"])
    assert refused(made.path, tags=[tag], names=["cpu"]) == "publish-name"


@pytest.mark.parametrize("option", ["--tag", "--image", "--from", "--policy", "--mount-from"])
def test_a_value_that_is_empty(option: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["publish", str(NOWHERE), option, ""])
    assert caught.value.code == 2


def test_a_copy_whose_names_contradict_each_other(tmp_path: Path, forge: Forge) -> None:
    made = make_images(tmp_path / "images", forge, size=1000)
    first, second = made.images
    right = LayoutReference(path=made.path, tag="cpu-x86_64", digest=first.digest)
    assert copy(right, LayoutReference(path=tmp_path / "out")).digest == first.digest
    wrong = LayoutReference(path=made.path, tag="cpu-x86_64", digest=second.digest)
    with pytest.raises(InputError, match=first.digest):
        copy(wrong, LayoutReference(path=tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_a_copy_to_where_no_image_goes(tmp_path: Path, forge: Forge) -> None:
    made = make_images(tmp_path / "images", forge, size=1000)
    source = LayoutReference(path=made.path, tag="cpu")
    (tmp_path / "link").symlink_to(made.path)
    for place in (made.path, tmp_path / "link", made.path / ".." / "images"):
        with pytest.raises(InputError, match="is the layout"):
            copy(source, LayoutReference(path=place))
    with pytest.raises(InputError, match="list what refers"):
        copy(source, LayoutReference(path=tmp_path / "out", tag=f"sha256-{'0' * 64}"))
    assert not (tmp_path / "out").exists()
