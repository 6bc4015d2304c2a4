"""Bundles put into a layout: found by every reader, the same again, and nothing left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import forging
from forging import Forge
from imaging import AMD64, ARM64, Draft, provenance, statement
from wheelmark.attest.predicates import PROVENANCE, SBOM
from wheelmark.attest.statement import Subject
from wheelmark.errors import InputError, StateError
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.publish import attach
from wheelmark.publish.listing import update_listing


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def image(layout: Path) -> Descriptor:
    writer = LayoutWriter(layout)
    made = Draft().write(writer, tag="cpu-x86_64", platform=AMD64)
    writer.finish([made])
    return made


def test_a_bundle_refers_to_its_image_in_the_form_that_cosign_reads(
    layout: Path, image: Descriptor, forge: Forge
) -> None:
    bundle = forge.sign(provenance(image.sha256))
    made = attach(layout, image.digest, bundle)
    opened = Layout(layout)
    ((found, manifest),) = opened.referrers([image.sha256])
    assert found.sha256 == made.sha256
    assert opened.document(manifest.layers[0]) == bundle
    value = json.loads(opened.document(made))
    assert value["artifactType"] == value["layers"][0]["mediaType"] == types.BUNDLE
    assert value["config"]["mediaType"] == types.EMPTY
    assert value["subject"] == {"mediaType": types.MANIFEST, "digest": image.digest, "size": image.size}
    assert set(value["annotations"]) == {
        "dev.sigstore.bundle.content",
        "dev.sigstore.bundle.predicateType",
        "org.opencontainers.image.created",
    }
    fallback = opened.index.manifests[-1]
    assert fallback.annotations == {types.REFERENCE: f"sha256-{image.sha256}"}
    listed = opened.read_index(fallback).manifests
    assert [(item.sha256, item.artifact_type) for item in listed] == [(made.sha256, types.BUNDLE)]
    assert opened.resolve().descriptor.sha256 == image.sha256


def test_the_same_bundle_again_changes_no_byte(layout: Path, image: Descriptor, forge: Forge) -> None:
    bundle = forge.sign(provenance(image.sha256))
    first = attach(layout, image.digest, bundle)
    before = {path: path.read_bytes() for path in layout.rglob("*") if path.is_file()}
    assert attach(layout, image.digest, bundle) == first
    assert {path: path.read_bytes() for path in layout.rglob("*") if path.is_file()} == before


def test_several_bundles_lie_in_one_list_and_every_file_is_accounted_for(
    layout: Path, image: Descriptor, forge: Forge
) -> None:
    subjects = [Subject(name="images/cpu-x86_64", sha256=image.sha256)]
    made = {
        attach(layout, image.digest, forge.sign(provenance(image.sha256))).sha256,
        attach(layout, image.digest, forge.sign(statement(subjects, SBOM, {}))).sha256,
    }
    # What a killed run leaves: a blob that nothing lists, a file that was being written.
    LayoutWriter(layout).add(b"left over", types.LAYER)
    (layout / ".writing-1").write_bytes(b"half")
    made.add(attach(layout, image.digest, forge.sign(provenance(image.sha256, name="again"))).sha256)
    opened = Layout(layout)
    assert {found.sha256 for found, _ in opened.referrers([image.sha256])} == made
    assert opened.check_files()
    assert len(opened.index.manifests) == 2


def test_two_images_and_an_index_each_have_their_own_list(layout: Path, forge: Forge) -> None:
    writer = LayoutWriter(layout)
    images = [
        Draft().write(writer, tag="cpu-x86_64", platform=AMD64),
        Draft(target="cpu-aarch64", platform=ARM64).write(writer, tag="cpu-aarch64", platform=ARM64),
    ]
    index = ImageIndex(manifests=tuple(images)).as_bytes()
    images.append(writer.add(index, types.INDEX, annotations={types.REFERENCE: "v1"}))
    writer.finish(images)
    bundle = forge.sign(provenance(*(item.sha256 for item in images)))
    for item in images:
        attach(layout, item.digest, bundle)
    opened = Layout(layout)
    for item in images:
        ((_, manifest),) = opened.referrers([item.sha256])
        assert manifest.subject is not None
        assert (manifest.subject.media_type, manifest.subject.size) == (item.media_type, item.size)
    assert len({item.annotations[types.REFERENCE] for item in opened.index.manifests}) == 6
    assert opened.check_files()


def test_a_bundle_about_something_else_is_not_attached(layout: Path, image: Descriptor, forge: Forge) -> None:
    with pytest.raises(InputError) as caught:
        attach(layout, image.digest, forge.sign(provenance("0" * 64)))
    assert caught.value.reason == "image-subject"
    assert len(Layout(layout).index.manifests) == 1


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("dsseEnvelope", None, "envelope-fields"),
        ("mediaType", "text/plain", "bundle-media-type"),
        ("verificationMaterial.certificate.rawBytes", "AAAA", "certificate-malformed"),
        ("verificationMaterial.certificate.rawBytes", 7, "certificate-malformed"),
    ],
)
def test_what_is_no_bundle_with_a_statement_is_not_attached(
    layout: Path, image: Descriptor, forge: Forge, path: str, value: object, reason: str
) -> None:
    bundle = forging.changed(forge.dsse(provenance(image.sha256)), path, value)
    with pytest.raises(InputError) as caught:
        attach(layout, image.digest, forging.canonical(bundle))
    assert caught.value.reason == reason


def test_a_bundle_of_a_bare_key_says_no_time(layout: Path, image: Descriptor, forge: Forge) -> None:
    bundle = forge.dsse(provenance(image.sha256))
    material = bundle["verificationMaterial"]
    del material["certificate"]
    material["publicKey"] = {"hint": "k"}
    made = attach(layout, image.digest, forging.canonical(bundle))
    assert Layout(layout).read_manifest(made).annotations == {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": PROVENANCE,
    }


def test_an_image_that_is_not_there(layout: Path, image: Descriptor, forge: Forge) -> None:
    with pytest.raises(InputError) as caught:
        attach(layout, f"sha256:{'0' * 64}", forge.sign(provenance(image.sha256)))
    assert caught.value.reason == "image-reference"


def test_too_many_referrers_are_refused_before_the_list_is_written(layout: Path, image: Descriptor) -> None:
    before = (layout / "index.json").read_bytes()
    many = [Descriptor(media_type=types.MANIFEST, sha256=f"{n:064x}", size=1) for n in range(1001)]
    with pytest.raises(InputError) as caught:
        update_listing(layout, referrers={image.sha256: many})
    assert caught.value.reason == "input-limit"
    assert (layout / "index.json").read_bytes() == before


def test_a_tag_moves_to_the_image_that_takes_it(layout: Path, image: Descriptor) -> None:
    other = Draft(layers=[b"\0" * 1024]).write(LayoutWriter(layout), tag="cpu-x86_64")
    update_listing(layout, images=[other], referrers={})
    opened = Layout(layout)
    assert opened.resolve("cpu-x86_64").descriptor.sha256 == other.sha256
    assert not opened.holds(image)
    assert opened.check_files()


def test_a_folder_that_takes_no_blob(layout: Path, image: Descriptor, forge: Forge) -> None:
    blobs = layout / "blobs" / "sha256"
    blobs.rename(blobs.with_name("moved"))
    blobs.write_bytes(b"")
    with pytest.raises(StateError) as caught:
        LayoutWriter(layout)
    assert caught.value.reason == "image-write"
