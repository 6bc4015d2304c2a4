"""Images in a release directory: every byte of the layout is listed, derived, or a bundle's; and each attack on that."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import imaging
import releasing
from forging import Forge
from releasing import Draft, evidence_for, image_part, part
from wheelmark import digests
from wheelmark.errors import Exit
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.manifest import Kind, NotBuilt, ReleaseManifest
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.verify import verify_image, verify_release
from wheelmark.verify.policy import Kind as RuleKind
from wheelmark.verify.policy import Policy
from wheelmark.verify.verdict import Accepted, Report

CPU, GPU = "cpu-x86_64", "cuda-sm90"


def drafted() -> Draft:
    """Two wheels with an image each; the images share their first layer."""
    return Draft(
        parts=[part(), part(GPU, "sm90")],
        images=[image_part(CPU), image_part(GPU, **{types.RELEASABLE_LABEL: "false"})],
    )


def written(made: Draft, forge: Forge, folder: Path) -> Path:
    return made.write(folder / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture(scope="module")
def good(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(drafted(), forge, tmp_path_factory.mktemp("good"))


@pytest.fixture
def dist(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "dist"))


def refusals(report: Report) -> set[tuple[str, str]]:
    return {(item.subject, item.reason) for item in report.verdicts if not isinstance(item, Accepted)}


def manifest_of(dist: Path) -> ReleaseManifest:
    return ReleaseManifest.from_bytes((dist / "release.json").read_bytes())


def entry(dist: Path, target: str) -> str:
    return next(item.path for item in manifest_of(dist).of_kind(Kind.IMAGE) if item.target == target)


def turned(path: Path) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def listed(dist: Path, change: Callable[[list[Descriptor]], list[Descriptor]]) -> None:
    """Change the layout's list, in its one form."""
    layout = Layout(dist / "images")
    LayoutWriter(dist / "images").finish(change(list(layout.index.manifests)))


def test_images_are_accepted_beside_their_wheels(good: Path, policy: Policy, now: dt.datetime) -> None:
    report = verify_release(good, policy, now=now)
    assert report.exit_code is Exit.OK, refusals(report)
    assert {item.subject for item in report.verdicts} >= {f"images/{CPU}", f"images/{GPU}"}
    (verdict,) = [item for item in report.verdicts if item.subject == f"images/{GPU}"]
    assert isinstance(verdict, Accepted)
    assert set(verdict.evidence) == set(releasing.IMAGE_GATES)
    assert any("stand-in" in note for note in verdict.notes)


def test_one_of_them_alone_is_accepted_with_what_is_attached(
    good: Path, policy: Policy, now: dt.datetime
) -> None:
    assert verify_image(good / "images", policy, now=now, reference=CPU).accepted


def test_a_byte_turned_in_any_file_of_the_layout(dist: Path, policy: Policy, now: dt.datetime) -> None:
    for name in digests.tree_files(dist / "images"):
        path = dist / "images" / name
        data = path.read_bytes()
        turned(path)
        report = verify_release(dist, policy, now=now)
        assert report.exit_code in {Exit.REJECTED, Exit.INPUT}, name
        path.write_bytes(data)
    assert verify_release(dist, policy, now=now).accepted


def test_a_file_of_the_layout_taken_away(dist: Path, policy: Policy, now: dt.datetime) -> None:
    for name in digests.tree_files(dist / "images"):
        path = dist / "images" / name
        data = path.read_bytes()
        path.unlink()
        assert not verify_release(dist, policy, now=now).accepted, name
        path.write_bytes(data)


def test_layer_configuration_and_manifest_have_their_reasons(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    manifest = types.read_manifest((dist / entry(dist, CPU)).read_bytes())
    for item in (manifest.config, manifest.layers[1]):
        path = dist / "images/blobs/sha256" / item.sha256
        data = path.read_bytes()
        turned(path)
        found = refusals(verify_release(dist, policy, now=now))
        assert (f"images/blobs/sha256/{item.sha256}", "file-digest") in found
        assert (f"images/{CPU}", "image-blob") in found
        path.write_bytes(data)
    turned(dist / entry(dist, CPU))
    assert (entry(dist, CPU), "file-digest") in refusals(verify_release(dist, policy, now=now))


@pytest.mark.parametrize(
    "name",
    [f"images/blobs/sha256/{'0' * 64}", "images/extra.json", "images/blobs/other", "images/.images.lock"],
)
def test_an_extra_file_in_the_layout(dist: Path, policy: Policy, now: dt.datetime, name: str) -> None:
    (dist / name).write_bytes(b"x")
    assert refusals(verify_release(dist, policy, now=now)) == {(name, "unaccounted-file")}


def test_a_referrer_that_is_no_bundle_of_the_release(
    dist: Path, policy: Policy, now: dt.datetime, forge: Forge
) -> None:
    """By the very signer of the release, about the very image: and yet not of this release."""
    image = next(
        item
        for item in Layout(dist / "images").index.manifests
        if item.digest.endswith(Path(entry(dist, CPU)).name)
    )
    writer = LayoutWriter(dist / "images")
    bundle = writer.attach(
        image,
        forge.sign(imaging.provenance(image.sha256)),
        predicate_type="https://slsa.dev/provenance/v1",
        created=imaging.CREATED,
    )
    tag = types.fallback_tag(image.sha256)

    def change(items: list[Descriptor]) -> list[Descriptor]:
        kept = [item for item in items if item.annotations[types.REFERENCE] != tag]
        return [*kept, writer.fallback(image, [bundle])]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_a_bundle_attached_to_the_other_image(dist: Path, policy: Policy, now: dt.datetime) -> None:
    layout = Layout(dist / "images")
    tags = {item.annotations[types.REFERENCE]: item for item in layout.index.manifests}
    mine, other = (tags[types.fallback_tag(Path(entry(dist, target)).name)] for target in (CPU, GPU))

    def change(items: list[Descriptor]) -> list[Descriptor]:
        swapped = {mine.sha256: other, other.sha256: mine}
        return [
            dataclasses.replace(swapped[item.sha256], annotations=item.annotations)
            if item.sha256 in swapped
            else item
            for item in items
        ]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_list_says_another_target(dist: Path, policy: Policy, now: dt.datetime) -> None:
    def change(items: list[Descriptor]) -> list[Descriptor]:
        other = {CPU: GPU, GPU: CPU}
        return [
            dataclasses.replace(
                item,
                annotations={
                    types.REFERENCE: other.get(
                        item.annotations[types.REFERENCE], item.annotations[types.REFERENCE]
                    )
                },
            )
            for item in items
        ]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_list_lacks_an_image(dist: Path, policy: Policy, now: dt.datetime) -> None:
    listed(dist, lambda items: [item for item in items if item.annotations[types.REFERENCE] != CPU])
    assert (entry(dist, CPU), "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_list_names_an_image_twice(dist: Path, policy: Policy, now: dt.datetime) -> None:
    def change(items: list[Descriptor]) -> list[Descriptor]:
        return [*items, next(item for item in items if item.is_manifest)]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_list_names_an_index_that_is_not_there(dist: Path, policy: Policy, now: dt.datetime) -> None:
    absent = Descriptor(media_type=types.INDEX, sha256="1" * 64, size=2, annotations={types.REFERENCE: "all"})
    listed(dist, lambda items: [*items, absent])
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_index_of_referrers_says_more(dist: Path, policy: Policy, now: dt.datetime) -> None:
    layout, writer = Layout(dist / "images"), LayoutWriter(dist / "images")

    def change(items: list[Descriptor]) -> list[Descriptor]:
        tags = [item for item in items if types.is_fallback_tag(item.annotations[types.REFERENCE])]
        assert tags
        index = dataclasses.replace(layout.read_index(tags[0]), annotations={"more": "x"})
        more = writer.add(index.as_bytes(), types.INDEX, annotations=dict(tags[0].annotations))
        return [more if item is tags[0] else item for item in items]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))


def test_the_list_in_another_form(dist: Path, policy: Policy, now: dt.datetime) -> None:
    path = dist / "images" / "index.json"
    path.write_bytes(json.dumps(json.loads(path.read_bytes()), indent=1).encode())
    assert refusals(verify_release(dist, policy, now=now)) == {("images/index.json", "image-derived")}
    shutil.copy(dist / "images" / "oci-layout", path)
    assert ("images/index.json", "image-manifest") in refusals(verify_release(dist, policy, now=now))


def test_the_mark_in_another_form(dist: Path, policy: Policy, now: dt.datetime) -> None:
    (dist / "images" / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0","more":1}')
    assert refusals(verify_release(dist, policy, now=now)) == {("images/oci-layout", "image-derived")}


@pytest.mark.parametrize(
    "said", [{}, {types.RELEASABLE_LABEL: "true"}, {"org.opencontainers.image.title": "x"}]
)
def test_an_index_over_the_images(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path, said: dict[str, str]
) -> None:
    """Of images of the release alone, and it says nothing that they do not."""
    made = drafted()
    made.index = said
    dist = written(made, forge, tmp_path)
    expected = {("images/index.json", "image-derived")} if said else set()
    assert refusals(verify_release(dist, policy, now=now)) == expected
    if not said:
        assert verify_image(dist / "images", policy, now=now, reference="all").accepted


@pytest.mark.parametrize("name", ["all", "cpu-x86_64", "1.0-cuda-sm90"])
def test_an_index_that_the_release_does_not_list(
    dist: Path, policy: Policy, now: dt.datetime, name: str
) -> None:
    """Which image a platform gets is said by an index: one that nobody signed is somebody else's choice."""
    writer = LayoutWriter(dist / "images")

    def change(items: list[Descriptor]) -> list[Descriptor]:
        images = [dataclasses.replace(item, annotations={}) for item in items if item.is_manifest]
        data = ImageIndex(manifests=(images[0],)).as_bytes()
        return [*items, writer.add(data, types.INDEX, annotations={types.REFERENCE: name})]

    listed(dist, change)
    found = refusals(verify_release(dist, policy, now=now))
    assert ("images/index.json", "image-derived") in found
    index = next(
        item
        for item in Layout(dist / "images").index.manifests
        if item.annotations[types.REFERENCE] == name and item.is_index
    )
    report = verify_image(dist / "images", policy, now=now, reference=index.digest)
    assert {item.reason for item in report.verdicts if not isinstance(item, Accepted)} == {"image-index"}
    assert report.exit_code is Exit.MISSING


def test_an_index_under_the_name_of_a_target(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = drafted()
    made.index = {}
    dist = written(made, forge, tmp_path)

    def change(items: list[Descriptor]) -> list[Descriptor]:
        renamed = {types.REFERENCE: "release-cuda-sm90"}
        return [
            dataclasses.replace(item, annotations=renamed)
            if item.annotations[types.REFERENCE] == "all"
            else item
            for item in items
        ]

    listed(dist, change)
    assert ("images/index.json", "image-derived") in refusals(verify_release(dist, policy, now=now))
    found = verify_image(dist / "images", policy, now=now, reference="release-cuda-sm90")
    assert "image-target" in {item.reason for item in found.verdicts if not isinstance(item, Accepted)}


def test_an_index_over_an_image_that_is_not_of_the_release(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    writer = LayoutWriter(dist / "images")
    stranger = imaging.Draft(layers=[imaging.tar(imaging.Entry(name="evil", data=b"x"))]).write(writer)
    index = ImageIndex(manifests=(stranger,))
    made = writer.add(index.as_bytes(), types.INDEX, annotations={types.REFERENCE: "all"})
    listed(dist, lambda items: [*items, made])
    found = refusals(verify_release(dist, policy, now=now))
    assert ("images/index.json", "image-derived") in found
    assert (f"images/blobs/sha256/{stranger.sha256}", "unaccounted-file") in found


def test_an_image_of_another_target(forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    made = drafted()
    made.images[0].draft.target = GPU
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert found == {(f"images/{CPU}", "image-target")}


def test_an_image_of_another_version(forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    made = drafted()
    made.images[0].draft.labels["org.opencontainers.image.version"] = "0.2.0"
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert found == {(f"images/{CPU}", "image-target")}


def test_an_image_for_another_cpu(forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    made = drafted()
    made.images[0].draft.platform = imaging.ARM64
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert found == {(f"images/{CPU}", "image-platform")}


def test_a_stand_in_where_the_policy_asks_for_the_real_thing(
    good: Path, policy: Policy, now: dt.datetime
) -> None:
    strict = dataclasses.replace(
        policy,
        requirements=tuple(dataclasses.replace(rule, allow_stand_in=False) for rule in policy.requirements),
    )
    assert refusals(verify_release(good, strict, now=now)) == {(f"images/{GPU}", "image-stand-in")}
    alone = verify_image(good / "images", strict, now=now, reference=GPU)
    assert {reason for _subject, reason in refusals(alone)} == {"image-stand-in"}
    assert verify_image(good / "images", strict, now=now, reference=CPU).accepted


def test_gates_of_images_are_asked_of_images(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = drafted()

    def without(target: str, sha256: str) -> list[Evidence]:
        return [evidence_for(gate, target, sha256) for gate in releasing.IMAGE_GATES[1:]]

    def failed(target: str, sha256: str) -> list[Evidence]:
        changes = {"verdict": Verdict.FAILED, "level": Level.STATIC, "reason": "contents-shell"}
        return [
            *without(target, sha256)[1:],
            evidence_for("image-audit", target, sha256),
            evidence_for("image-contents", target, sha256, **changes),
        ]

    made.images[0].evidence, made.images[1].evidence = without, failed
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert found == {(f"images/{CPU}", "gate-missing"), (f"images/{GPU}", "gate-failed")}


def test_an_image_without_a_wheel_and_one_that_is_said_to_be_absent(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = drafted()
    made.not_built = (NotBuilt(target=f"images/{CPU}", reason="no source", fix="add one"),)
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert ("release.json", "release-target") in found
    made = drafted()
    made.parts = made.parts[:1]
    found = refusals(verify_release(written(made, forge, tmp_path / "other"), policy, now=now))
    assert ("release.json", "release-target") in found


def test_a_release_that_lacks_an_image_is_partial(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = drafted()
    made.images = made.images[1:]
    made.not_built = (NotBuilt(target=f"images/{CPU}", reason="no source", fix="add one"),)
    dist = written(made, forge, tmp_path)
    report = verify_release(dist, policy, now=now)
    assert report.accepted
    assert f"partial: lacks images/{CPU}" in report.as_table()
    strict = dataclasses.replace(
        policy,
        requirements=tuple(
            dataclasses.replace(rule, allow_partial=False) if rule.kind is RuleKind.RELEASE else rule
            for rule in policy.requirements
        ),
    )
    assert ("release.json", "partial") in refusals(verify_release(dist, strict, now=now))


def test_a_part_that_no_image_holds(forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    made = drafted()
    data = b"nobody's"
    path = f"images/blobs/sha256/{digests.sha256(data)}"
    made.extra_entries[path] = (Kind.IMAGE_PART, data)
    made.images = made.images[:1]
    made.parts = made.parts[:1]
    made.images[0].attached = lambda _name: False
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert found == {(path, "image-unaccounted")}


def test_a_blob_under_another_name(forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    made = drafted()
    made.extra_entries[f"images/blobs/sha256/{'1' * 64}"] = (Kind.IMAGE_PART, b"x")
    made.images[0].attached = made.images[1].attached = lambda _name: False
    found = refusals(verify_release(written(made, forge, tmp_path), policy, now=now))
    assert (f"images/blobs/sha256/{'1' * 64}", "image-blob") in found
