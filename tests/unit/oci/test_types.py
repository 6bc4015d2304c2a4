"""Documents of images: what is read, what is written, and each refusal with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.types import Descriptor, ImageIndex, ImageManifest, Platform

HEX = "ab" * 32
LAYER: dict[str, Any] = {"mediaType": types.LAYER, "digest": f"sha256:{HEX}", "size": 3}


def manifest(**more: Any) -> dict[str, Any]:
    config = {"mediaType": types.CONFIG, "digest": f"sha256:{HEX}", "size": 2}
    return {
        "schemaVersion": 2,
        "mediaType": types.MANIFEST,
        "config": config,
        "layers": [dict(LAYER)],
        **more,
    }


def index(**more: Any) -> dict[str, Any]:
    item = {"mediaType": types.MANIFEST, "digest": f"sha256:{HEX}", "size": 2}
    return {"schemaVersion": 2, "mediaType": types.INDEX, "manifests": [item], **more}


def config(**more: Any) -> dict[str, Any]:
    return {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{HEX}"]},
        **more,
    }


def reason(read: Callable[[bytes], object], value: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(value if isinstance(value, bytes) else json.dumps(value).encode())
    return caught.value.reason


def test_what_is_written_is_read_back() -> None:
    subject = Descriptor(media_type=types.MANIFEST, sha256=HEX, size=5)
    layer = Descriptor(
        media_type=types.LAYER,
        sha256=HEX,
        size=7,
        annotations={"a": "b"},
        artifact_type="application/x",
        platform=Platform(os="linux", architecture="arm64", variant="v8"),
    )
    made = ImageManifest(
        config=subject, layers=(layer,), annotations={"k": "v"}, artifact_type=types.BUNDLE, subject=subject
    )
    assert types.read_manifest(made.as_bytes()) == made
    assert made.kind == types.BUNDLE
    assert str(layer.platform) == "linux/arm64/v8"
    many = ImageIndex(manifests=(subject, layer), artifact_type="x", subject=subject, annotations={"k": "v"})
    assert types.read_index(many.as_bytes()) == many
    bare = ImageManifest(config=subject, layers=())
    assert types.read_manifest(bare.as_bytes()) == bare
    assert bare.kind == types.MANIFEST


def test_unknown_members_and_an_absent_media_type_are_read() -> None:
    value = manifest(extra={"a": 1}, annotations=None)
    del value["mediaType"]
    assert types.read_manifest(json.dumps(value).encode()).annotations == {}
    found = types.read_config(json.dumps(config(variant="v8", config={"Labels": {"a": "b"}})).encode())
    assert found.platform.variant == "v8"
    assert found.labels == {"a": "b"}
    assert types.read_config(json.dumps(config()).encode()).labels == {}
    assert types.descriptor_of(b"x", "t").sha256 == digests.sha256(b"x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (manifest(schemaVersion=1), "image-manifest"),
        (manifest(mediaType="application/vnd.docker.distribution.manifest.v2+json"), "image-manifest"),
        (manifest(mediaType=types.INDEX), "image-manifest"),
        (manifest(manifests=[]), "image-manifest"),
        (manifest(layers=None), "image-manifest"),
        (manifest(layers=[1]), "image-manifest"),
        (manifest(config=None), "image-manifest"),
        (manifest(subject=1), "image-manifest"),
        (manifest(annotations={"a": 1}), "image-manifest"),
        (manifest(annotations=[]), "image-manifest"),
        (manifest(artifactType=1), "image-manifest"),
        (manifest(layers=[{**LAYER, "size": -1}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "size": True}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "size": 1 << 60}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "mediaType": ""}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "platform": "linux"}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "platform": {"os": "linux"}}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "digest": 1}]), "image-manifest"),
        (manifest(layers=[{**LAYER, "digest": f"sha512:{HEX}{HEX}"}]), "image-digest"),
        (manifest(layers=[{**LAYER, "digest": f"sha256:{HEX.upper()}"}]), "image-digest"),
        (manifest(layers=[{**LAYER, "digest": HEX}]), "image-digest"),
        (manifest(layers=[LAYER] * (types.MAX_DESCRIPTORS + 1)), "input-limit"),
        (b'{"schemaVersion": 2, "schemaVersion": 2}', "json-duplicate-key"),
        (b"[" * 100, "json-too-deep"),
        (b" " * (types.DOCUMENT_LIMIT + 1), "json-too-large"),
        (b"[]", "json-type"),
    ],
)
def test_malformed_manifests_are_refused(value: Any, expected: str) -> None:
    assert reason(types.read_manifest, value) == expected


@pytest.mark.parametrize("member", ["config", "layers"])
def test_an_index_that_is_a_manifest_too_is_refused(member: str) -> None:
    assert reason(types.read_index, index(**{member: []})) == "image-manifest"
    assert types.read_index(json.dumps(index()).encode()).manifests[0].is_manifest


@pytest.mark.parametrize(
    "value",
    [
        config(rootfs={"type": "windows", "diff_ids": []}),
        config(rootfs=None),
        config(os=""),
        config(config=[]),
        config(config={"Labels": {"a": None}}),
        config(rootfs={"type": "layers"}),
    ],
)
def test_malformed_configurations_are_refused(value: Any) -> None:
    assert reason(types.read_config, value) == "image-manifest"
