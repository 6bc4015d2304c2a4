"""Images: rows 19, 22 and 23, and every refusal that an image's bytes can end in."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import imaging
from forging import Forge
from imaging import AMD64, ARM64, CREATED, Draft, Entry, provenance, statement, tar
from rows import row
from wheelmark.attest.predicates import PROVENANCE, SBOM
from wheelmark.attest.statement import Subject
from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.oci import layer, types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.sign import embedded
from wheelmark.verify import verify, verify_image
from wheelmark.verify.artifact import Asked
from wheelmark.verify.policy import Kind, Policy, Predicate
from wheelmark.verify.verdict import Accepted, Report


@pytest.fixture
def rules(policy: Policy) -> Policy:
    """A policy that asks for provenance of images."""
    first = next(rule for rule in policy.requirements if rule.kind is Kind.WHEEL)
    image = dataclasses.replace(first, kind=Kind.IMAGE, targets=("*",), predicates=(Predicate.PROVENANCE,))
    kept = tuple(rule for rule in policy.requirements if rule.kind is not Kind.IMAGE)
    return dataclasses.replace(policy, requirements=(*kept, image))


@pytest.fixture(scope="module")
def made(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "image"
    imaging.layout(path, forge.sign)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "image"))


def reasons(report: Report) -> set[str]:
    assert not report.accepted
    return set(report.reasons())


def drafted(path: Path, forge: Forge, draft: Draft) -> Path:
    imaging.layout(path, forge.sign, draft)
    return path


def blob(path: Path, descriptor: Descriptor) -> Path:
    return path / "blobs/sha256" / descriptor.sha256


def test_an_image_is_accepted_by_digest_by_tag_and_as_the_only_one(
    path: Path, rules: Policy, now: dt.datetime
) -> None:
    image = Layout(path).resolve().descriptor
    for reference in ("", "v1", image.digest, f"v1@{image.digest}"):
        report = verify(path, rules, now=now, reference=reference, target="cpu-x86_64")
        assert report.accepted, report.as_table()
    (verdict,) = report.verdicts
    assert isinstance(verdict, Accepted)
    assert verdict.sha256 == image.sha256
    assert verdict.predicates == (PROVENANCE,)
    assert report.steps


@row(24)
def test_a_copy_under_another_name_is_accepted(path: Path, rules: Policy, now: dt.datetime) -> None:
    other = Path(shutil.copytree(path, path.with_name("elsewhere")))
    index = json.loads((other / "index.json").read_bytes())
    index["manifests"][0]["annotations"] = {types.REFERENCE: "prod"}
    (other / "index.json").write_text(json.dumps(index), encoding="utf-8")
    assert verify_image(other, rules, now=now, reference="prod").accepted


@pytest.mark.parametrize("compress", [True, False])
def test_layers_may_be_compressed_or_not(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, *, compress: bool
) -> None:
    path = drafted(tmp_path / "image", forge, Draft(compress=compress))
    assert verify_image(path, rules, now=now).accepted


def test_without_a_bundle_it_is_missing(tmp_path: Path, rules: Policy, now: dt.datetime) -> None:
    writer = LayoutWriter(tmp_path / "image")
    writer.finish([Draft().write(writer)])
    report = verify_image(tmp_path / "image", rules, now=now)
    assert reasons(report) == {"no-bundle"}
    assert report.exit_code is Exit.MISSING


def test_bundles_may_be_given_and_have_to_be_about_it(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer)
    writer.finish([image])
    given = tmp_path / "bundle.json"
    given.write_bytes(forge.sign(provenance(image.sha256, name="anything/at-all")))
    assert verify_image(tmp_path / "image", rules, now=now, bundles=[given]).accepted
    given.write_bytes(forge.sign(provenance("0" * 64)))
    report = verify_image(tmp_path / "image", rules, now=now, bundles=[given])
    assert reasons(report) == {"subject-digest", "predicate-missing"}
    assert report.exit_code is Exit.REJECTED


def test_an_attached_bundle_has_to_be_about_it_and_of_a_signer_that_counts(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    for name, sign, expected in (
        ("other", lambda _data: forge.sign(provenance("0" * 64)), "subject-digest"),
        ("stranger", lambda data: forge.sign(data, embedded.RELEASE_IDENTITY + "x"), "signer-identity"),
        ("junk", lambda _data: b"{}", "bundle-shape"),
        ("bare", lambda _data: json.dumps(forge.message(b"x")).encode(), "message-digest"),
    ):
        imaging.layout(tmp_path / name, sign)
        assert expected in reasons(verify_image(tmp_path / name, rules, now=now)), name


def two(path: Path, forge: Forge, *, attest: str) -> tuple[Descriptor, Descriptor, Descriptor]:
    """An index of two platforms, attested as a whole, and a third image that the index does not hold."""
    writer = LayoutWriter(path)
    first = Draft().write(writer, platform=AMD64)
    second = Draft(target="cpu-aarch64", platform=ARM64).write(writer, platform=ARM64)
    other = Draft(layers=[tar(Entry(name="evil"))]).write(writer, tag="other")
    listed = ImageIndex(manifests=(first, second)).as_bytes()
    index = writer.add(listed, types.INDEX, annotations={types.REFERENCE: "v1"})
    subject = index if attest == "index" else other
    signed = forge.sign(provenance(subject.sha256 if attest == "index" else index.sha256))
    bundle = writer.attach(subject, signed, predicate_type=PROVENANCE, created=CREATED)
    writer.finish([index, other, writer.fallback(subject, [bundle])])
    return index, first, other


# Row 23.
@row(23)
def test_an_attested_index_covers_what_it_holds_by_digest(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    index, first, other = two(tmp_path / "image", forge, attest="index")
    whole = verify_image(tmp_path / "image", rules, now=now, reference="v1")
    assert whole.accepted, whole.as_table()
    assert len(whole.verdicts) == 2
    assert verify_image(
        tmp_path / "image", rules, now=now, reference=index.digest, target="cpu-aarch64"
    ).accepted
    linked = verify_image(tmp_path / "image", rules, now=now, reference=first.digest)
    assert linked.accepted, linked.as_table()
    assert reasons(verify_image(tmp_path / "image", rules, now=now, reference=other.digest)) == {"no-bundle"}


@row(23)
def test_a_bundle_of_an_index_does_not_cover_another_image(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    _index, _first, other = two(tmp_path / "image", forge, attest="other")
    report = verify_image(tmp_path / "image", rules, now=now, reference=other.digest)
    assert reasons(report) == {"subject-digest", "predicate-missing"}


def test_an_sbom_has_to_be_about_the_image(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    rule = dataclasses.replace(rules.requirements[-1], predicates=(Predicate.SBOM,))
    asking = dataclasses.replace(rules, requirements=(*rules.requirements[:-1], rule))
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer)
    writer.finish([image])
    given = tmp_path / "bundle.json"

    def found(component: Any) -> Report:
        document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": component}}
        subject = [Subject(name="x", sha256=image.sha256)]
        given.write_bytes(forge.sign(statement(subject, SBOM, document)))
        return verify_image(tmp_path / "image", asking, now=now, bundles=[given])

    def hashed(*values: str) -> dict[str, Any]:
        return {"hashes": [{"alg": "SHA-256", "content": value} for value in values]}

    right = found(hashed(image.sha256))
    assert right.accepted, right.as_table()
    for component in (hashed("0" * 64), hashed(), hashed(image.sha256, "0" * 64), {}, None, {"hashes": 1}):
        assert reasons(found(component)) == {"sbom-subject"}, component


# Row 19.
def test_another_target_than_asked_for_is_refused(
    path: Path, tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    assert reasons(verify_image(path, rules, now=now, target="cpu-aarch64")) == {"image-target"}
    two(tmp_path / "two", forge, attest="index")
    assert reasons(verify_image(tmp_path / "two", rules, now=now, reference="v1", target="cuda-sm90")) == {
        "image-target"
    }


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (Draft(target="cpu-aarch64"), "image-platform"),
        (Draft(target="cuda-sm90", platform=dataclasses.replace(AMD64, os="windows")), "image-platform"),
        (
            Draft(target="cuda-sm90", platform=dataclasses.replace(AMD64, architecture="s390x")),
            "image-platform",
        ),
        (Draft(target="cuda-sm1"), "image-target"),
        (Draft(change_config=lambda value: value["rootfs"]["diff_ids"].reverse()), "image-diff-id"),
        (Draft(change_config=lambda value: value["rootfs"]["diff_ids"].pop()), "image-diff-id"),
        (Draft(change_config=lambda value: value.pop("rootfs")), "image-manifest"),
        (Draft(change_manifest=lambda value: value["config"].update(mediaType="x/y")), "image-manifest"),
        (
            Draft(change_manifest=lambda value: value["layers"][0].update(mediaType=types.LAYER_ZSTD)),
            "image-compression",
        ),
        (Draft(change_manifest=lambda value: value["layers"][0].update(size=5)), "image-blob"),
        (Draft(layers=[tar(Entry(name="../etc/passwd"))]), "image-path"),
        (Draft(layers=[b"no tar"]), "image-layer"),
    ],
)
def test_what_is_wrong_with_its_bytes_is_refused(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, draft: Draft, expected: str
) -> None:
    path = drafted(
        tmp_path / "image", forge, dataclasses.replace(draft, compress=draft.layers[0] != b"no tar")
    )
    report = verify_image(path, rules, now=now)
    assert reasons(report) == {expected}
    code = Exit.UNCHECKED if expected == "image-compression" else Exit.REJECTED
    assert report.exit_code is code


def test_gpu_images_run_on_either_cpu_and_labels_may_be_absent(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    for name, draft in (
        ("gpu", Draft(target="cuda-sm90", platform=ARM64)),
        ("none", Draft(target="")),
    ):
        assert verify_image(drafted(tmp_path / name, forge, draft), rules, now=now).accepted
    assert reasons(verify_image(tmp_path / "none", rules, now=now, target="cuda-sm90")) == {"image-target"}


def test_an_index_that_says_another_platform_is_refused(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer, platform=ARM64)
    index = writer.add(ImageIndex(manifests=(image,)).as_bytes(), types.INDEX)
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([index, bundle])
    assert reasons(verify_image(tmp_path / "image", rules, now=now)) == {"image-platform", "image-index"}


def test_an_index_that_nobody_signed_over_a_signed_image(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    """Its author chose the image, and left another out; the image by its own digest is what it always was."""
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer, platform=AMD64)
    index = writer.add(ImageIndex(manifests=(image,)).as_bytes(), types.INDEX)
    signed = forge.sign(provenance(image.sha256))
    bundle = writer.attach(image, signed, predicate_type=PROVENANCE, created=CREATED)
    writer.finish([index, bundle])
    report = verify_image(tmp_path / "image", rules, now=now)
    assert (reasons(report), report.exit_code) == ({"image-index"}, Exit.MISSING)
    assert verify_image(tmp_path / "image", rules, now=now, reference=image.digest).accepted
    asked = Asked(index=index.sha256)
    by_way = verify_image(tmp_path / "image", rules, now=now, reference=image.digest, asked=asked)
    assert reasons(by_way) == {"image-index"}


@pytest.mark.parametrize(
    ("tag", "fits"), [("cpu-x86_64", True), ("1.0-cpu-x86_64", True), ("cuda-sm90", False), ("1.0", True)]
)
def test_a_name_that_speaks_of_a_target(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime, tag: str, *, fits: bool
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer, tag=tag)
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([image, bundle])
    report = verify_image(tmp_path / "image", rules, now=now, reference=tag)
    with_digest = verify_image(tmp_path / "image", rules, now=now, reference=f"{tag}@{image.digest}")
    assert (with_digest.reasons(), with_digest.accepted) == (report.reasons(), report.accepted)
    if not fits:
        assert reasons(report) == {"image-target"}
    else:
        assert report.accepted
        assert "(cpu-x86_64, linux/amd64)" in report.as_table()


def test_a_byte_turned_in_any_blob_is_refused(path: Path, rules: Policy, now: dt.datetime) -> None:
    image = Layout(path).resolve().descriptor
    for file in sorted((path / "blobs/sha256").iterdir()):
        data = file.read_bytes()
        if data == b"{}":
            continue  # the empty configuration of the bundle's manifest: nothing is read from it
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        found = verify_image(path, rules, now=now, reference=image.digest)
        assert "image-blob" in reasons(found), file.name
        file.write_bytes(data)
    assert verify_image(path, rules, now=now).accepted


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda value: value["layers"].append(value["layers"][0]), "image-manifest"),
        (lambda value: value["layers"][0].update(mediaType="x/y"), "image-manifest"),
        (lambda value: value["layers"][0].update(size=1 << 40), "input-limit"),
    ],
)
def test_an_attached_artifact_that_is_no_bundle_is_refused(
    tmp_path: Path,
    forge: Forge,
    rules: Policy,
    now: dt.datetime,
    change: Callable[[dict[str, Any]], object],
    expected: str,
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer)
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    value = json.loads(blob(tmp_path / "image", bundle).read_bytes())
    change(value)
    blob(tmp_path / "image", bundle).unlink()
    writer.finish([image, writer.add(json.dumps(value).encode(), types.MANIFEST)])
    assert expected in reasons(verify_image(tmp_path / "image", rules, now=now))


def test_other_attached_artifacts_are_let_be(
    tmp_path: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer)
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    value = json.loads(blob(tmp_path / "image", bundle).read_bytes())
    value["artifactType"] = "application/vnd.example.readme"
    writer.finish([image, bundle, writer.add(json.dumps(value).encode(), types.MANIFEST)])
    assert verify_image(tmp_path / "image", rules, now=now).accepted


def test_what_is_not_accounted_for_is_refused(path: Path, rules: Policy, now: dt.datetime) -> None:
    (path / "evil").write_bytes(b"")
    assert reasons(verify_image(path, rules, now=now)) == {"image-unaccounted"}


def test_an_image_that_is_not_there_is_an_input_error(path: Path, rules: Policy, now: dt.datetime) -> None:
    with pytest.raises(InputError) as caught:
        verify_image(path, rules, now=now, reference="v2")
    assert caught.value.reason == "image-reference"
    with pytest.raises(InputError, match=r"the tag v1 .* leads to sha256:") as caught:
        verify_image(path, rules, now=now, reference=f"v1@sha256:{'0' * 64}")
    assert (caught.value.reason, caught.value.exit_code) == ("image-reference", Exit.INPUT)


def test_a_policy_without_images_or_among_them_is_a_configuration_error(
    path: Path, policy: Policy, rules: Policy, now: dt.datetime
) -> None:
    none = dataclasses.replace(
        policy, requirements=tuple(rule for rule in policy.requirements if rule.kind is not Kind.IMAGE)
    )
    with pytest.raises(ConfigError) as caught:
        verify_image(path, none, now=now)
    assert caught.value.reason == "policy-no-rule"
    with pytest.raises(ConfigError) as caught:
        verify_image(path, dataclasses.replace(rules, source=str(path / "policy.toml")), now=now)
    assert caught.value.reason == "policy-inside"


def test_a_channel_has_its_own_requirement(path: Path, rules: Policy, now: dt.datetime) -> None:
    with pytest.raises(ConfigError) as caught:
        verify_image(path, rules, now=now, channel="prod")
    assert caught.value.reason == "policy-no-rule"


def test_an_index_of_hundreds_of_images_is_refused(
    tmp_path: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelmark.verify.image.MAX_IMAGES", 3)
    writer = LayoutWriter(tmp_path / "image")
    made = [Draft(labels={"number": str(number)}).write(writer) for number in range(4)]
    writer.finish([writer.add(ImageIndex(manifests=tuple(made)).as_bytes(), types.INDEX)])
    assert reasons(verify_image(tmp_path / "image", rules, now=now)) == {"input-limit"}


def test_a_layer_is_read_once_however_often_it_stands_there(
    tmp_path: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file that says ten thousand times that it is a large layer."""
    count = 0
    real = layer.read_layer

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        return real(*args)

    monkeypatch.setattr(layer, "read_layer", counted)
    writer = LayoutWriter(tmp_path / "image")
    same = [tar(Entry(name="a", data=b"x"))] * 5
    made = [Draft(layers=same, labels={"number": str(number)}).write(writer) for number in range(3)]
    writer.finish([writer.add(ImageIndex(manifests=tuple(made)).as_bytes(), types.INDEX)])
    assert reasons(verify_image(tmp_path / "image", rules, now=now)) == {"no-bundle"}
    assert count == 1
