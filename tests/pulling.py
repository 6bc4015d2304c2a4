"""Images to pull: signed layouts and indexes, a policy that takes them, and engines that are scripts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import imaging
from forging import Forge
from imaging import CREATED, Draft, provenance
from wheelmark import digests
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.deploy.store import ImageEvidence
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex, Platform

POLICY = """schema = 1
development = true
[[root]]
name = "embedded"
source = "this-machine"
issuers = ["https://embedded.invalid/oidc"]
level = "a test's own"
[[signer]]
name = "release"
root = "embedded"
issuer = "https://embedded.invalid/oidc"
identity = "https://embedded.invalid/wheelmark/release"
[[require]]
kind = "image"
predicates = ["provenance"]
signers = ["release"]
"""


def write_policy(path: Path, *, text: str = POLICY) -> Path:
    """A policy that nobody else can write."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def several(path: Path, forge: Forge, *drafts: tuple[Draft, Platform]) -> tuple[Descriptor, list[Descriptor]]:
    """A layout with a signed index of several images."""
    writer = LayoutWriter(path)
    images = [draft.write(writer, platform=said) for draft, said in drafts]
    index = writer.add(
        ImageIndex(manifests=tuple(images)).as_bytes(), types.INDEX, annotations={types.REFERENCE: "v1"}
    )
    bundle = writer.attach(
        index, forge.sign(provenance(index.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([index, writer.fallback(index, [bundle])])
    return index, images


def large_image(path: Path, forge: Forge, *, size: int, note: str = "") -> Descriptor:
    """A signed layout of one image with a layer that does not compress and takes a while to copy."""
    data = random.Random(size).randbytes(size)
    layers = [
        imaging.tar(imaging.Entry(name="note", data=note.encode())),
        imaging.tar(imaging.Entry(name="large", data=data)),
    ]
    return imaging.layout(path, forge.sign, Draft(layers=layers, compress=False))


def engine_script(path: Path, body: str) -> Path:
    """An engine that is a shell script; it writes down what it was asked."""
    text = f'#!/bin/sh\necho "$*" >> {path}.asked\n{body}\n'
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def evidence(folder: Path, target: str = "cpu-x86_64", *, bundle: bytes = b"bundle") -> ImageEvidence:
    """What is kept of a small image in an index."""
    writer = LayoutWriter(folder)
    image = imaging.Draft(target=target).write(writer)
    index = ImageIndex(manifests=(image,)).as_bytes()
    manifest = (folder / BLOBS / image.sha256).read_bytes()
    config = json.loads(manifest)["config"]["digest"].removeprefix("sha256:")
    return ImageEvidence(
        sha256=image.sha256,
        manifest=manifest,
        config=(folder / BLOBS / config).read_bytes(),
        indexes={digests.sha256(index): index},
        bundles={digests.sha256(bundle): bundle},
        reference="oci:somewhere:v1",
        kept="2026-01-01T00:00:00+00:00",
    )
