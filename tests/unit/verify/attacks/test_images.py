"""Rows 19 and 22 to 24 for images: what is deployed is found by digest, whatever a name or a tag says."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from pathlib import Path

import pytest

import imaging
from asking import Expect, ask
from forging import Forge
from imaging import AMD64, ARM64, CREATED, Draft, Entry, provenance, tar
from rows import row
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.verify import verify_image
from wheelmark.verify.policy import Kind, Policy, Predicate
from wheelmark.verify.verdict import Accepted


@pytest.fixture
def rules(policy: Policy) -> Policy:
    """A policy that asks for provenance of images."""
    first = next(rule for rule in policy.requirements if rule.kind is Kind.WHEEL)
    image = dataclasses.replace(first, kind=Kind.IMAGE, targets=("*",), predicates=(Predicate.PROVENANCE,))
    kept = tuple(rule for rule in policy.requirements if rule.kind is not Kind.IMAGE)
    return dataclasses.replace(policy, requirements=(*kept, image))


def drafts() -> tuple[Draft, Draft, Draft]:
    """For each of two CPUs, and one that somebody else made for the first."""
    return (
        Draft(),
        Draft(target="cpu-aarch64", platform=ARM64),
        Draft(layers=[tar(Entry(name="app", data=b"evil"))]),
    )


def index_of(writer: LayoutWriter, *images: Descriptor, tag: str = "v1") -> Descriptor:
    made = ImageIndex(manifests=images).as_bytes()
    return writer.add(made, types.INDEX, annotations={types.REFERENCE: tag} if tag else {})


@row(23, "no-bundle", "subject-digest")
@pytest.mark.parametrize("about", ["index", "other image"])
def test_an_image_that_the_attested_index_does_not_hold(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, about: str
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    amd, arm, evil = drafts()
    held = [amd.write(writer, platform=AMD64), arm.write(writer, platform=ARM64)]
    index = index_of(writer, *held)
    stranger = evil.write(writer, tag="evil", platform=AMD64)
    subject = index if about == "index" else held[0]
    # Attached to the stranger: nothing signs what a bundle is attached to.
    bundle = writer.attach(
        stranger, forge.sign(provenance(subject.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([index, stranger, writer.fallback(stranger, [bundle])])
    answer = ask(lambda: verify_image(tmp_path / "image", rules, now=now, reference=stranger.digest))
    expect(answer, "subject-digest", also=("no-bundle", "predicate-missing"))


@row(23)
@pytest.mark.parametrize("target", ["cpu-x86_64", "cpu-aarch64"])
def test_what_an_attested_index_holds_by_digest(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, target: str
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    amd, arm, _ = drafts()
    index = index_of(writer, amd.write(writer, platform=AMD64), arm.write(writer, platform=ARM64))
    bundle = writer.attach(
        index, forge.sign(provenance(index.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([index, writer.fallback(index, [bundle])])
    expect.accepted(ask(lambda: verify_image(tmp_path / "image", rules, now=now, target=target)))


@row(19, "image-target")
@pytest.mark.parametrize("target", ["cpu-aarch64", "cuda-sm90", "rocm-gfx942"])
def test_the_right_image_for_another_target(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, target: str
) -> None:
    imaging.layout(tmp_path / "image", forge.sign)
    answer = ask(lambda: verify_image(tmp_path / "image", rules, now=now, target=target))
    expect(answer, "image-target")


@row(19, "image-platform")
@pytest.mark.parametrize("platform", [ARM64, dataclasses.replace(AMD64, os="windows")])
def test_an_image_of_another_platform_than_its_label(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, platform: types.Platform
) -> None:
    imaging.layout(tmp_path / "image", forge.sign, Draft(platform=platform))
    expect(ask(lambda: verify_image(tmp_path / "image", rules, now=now)), "image-platform")


# Row 22.
@row(22, "input-limit", "json-too-large", "json-too-long")
@pytest.mark.parametrize("count", [20_000, 100_000])
def test_attached_artifacts_without_end(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, count: int
) -> None:
    path = tmp_path / "image"
    imaging.layout(path, forge.sign)
    index = json.loads((path / "index.json").read_bytes())
    image = {key: value for key, value in index["manifests"][0].items() if key != "annotations"}
    more = [
        {
            **image,
            "digest": f"sha256:{number:064x}",
            "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        }
        for number in range(count)
    ]
    index["manifests"] += more
    (path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    answer = ask(lambda: verify_image(path, rules, now=now, reference="v1"))
    assert len(answer.reasons) == 1
    (code,) = answer.reasons
    assert code in {"input-limit", "json-too-large", "json-too-long"}
    expect(answer, code)


@row(22, "input-limit")
@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
def test_an_index_that_never_ends(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect, name: str
) -> None:
    path = tmp_path / "image"
    imaging.layout(path, forge.sign)
    os.truncate(path / name, 1 << 42)
    expect(ask(lambda: verify_image(path, rules, now=now)), "input-limit")


# Row 24.
@row(24, "no-bundle")
def test_a_tag_that_was_moved(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, expect: Expect
) -> None:
    """A report names the digest that was verified: it leads to the same bytes wherever the tag leads now."""
    writer = LayoutWriter(tmp_path / "image")
    image, evil = Draft().write(writer, tag="v1"), drafts()[2].write(writer, tag="other")
    signed = forge.sign(provenance(image.sha256))
    bundle = writer.attach(image, signed, predicate_type=PROVENANCE, created=CREATED)
    writer.finish([image, evil, writer.fallback(image, [bundle])])
    path = tmp_path / "image"
    (verdict,) = verify_image(path, rules, now=now, reference="v1").verdicts
    assert isinstance(verdict, Accepted)
    assert verdict.sha256 == image.sha256
    index = json.loads((path / "index.json").read_bytes())
    tags = {"v1": "old", "other": "v1"}
    for item in index["manifests"]:
        name = item.get("annotations", {}).get(types.REFERENCE)
        if name in tags:
            item["annotations"][types.REFERENCE] = tags[name]
    (path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    assert Layout(path).resolve("v1").descriptor.sha256 == evil.sha256
    expect(ask(lambda: verify_image(path, rules, now=now, reference="v1")), "no-bundle")
    (again,) = verify_image(path, rules, now=now, reference=f"sha256:{verdict.sha256}").verdicts
    assert isinstance(again, Accepted)
    assert again.sha256 == verdict.sha256
