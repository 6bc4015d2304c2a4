"""One container image in an OCI layout directory, verified by digest: from the index to the last byte of each layer.

1. The image that is asked for is found by digest, by tag, or as the only one; every file of the layout is accounted for.
2. Index, manifest, configuration and layers are read by digest and size, each one hashed to its end.
3. Each layer, uncompressed, is the one that the configuration names (``rootfs.diff_ids``), and unpacks inside its tree.
4. Platform and target agree: the index's word, the configuration's, the label ``dev.wheelmark.target``.
5. Bundles: those given, and those attached (artifacts whose ``subject`` is the manifest, or an index that holds it by
   digest), each read by digest. Names are not compared: an image copied to another registry has another name.
6. An index that was asked for has to be signed itself, and a name that speaks of a target to lead to an image for it.
7. The requirement for its target. A statement about an index is about the manifests that the index holds by digest,
   and about no other, whatever tag leads there.

Of an SBOM of an image it is compared that its ``metadata.component`` has the manifest's digest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.layer import LayerFacts
from wheelmark.oci.layout import Found, Layout
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.targets import named_by
from wheelmark.verify import alone
from wheelmark.verify.artifact import Asked
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.imagefacts import ImageFacts, examine_image
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.verdict import Report, Step, Verdict, refusal

MAX_IMAGES = 256
"""Under one index: each is read whole, and may have many bundles."""


def verify_one_image(
    path: Path,
    policy: Policy,
    *,
    circumstances: Circumstances,
    bundles: Sequence[Path] = (),
    cache: FactsCache | None = None,
    reference: str = "",
    target: str = "",
    asked: Asked | None = None,
) -> Report:
    """Verify an image, or every image of a multi-platform index.

    Args:
        path: The OCI layout directory.
        policy: Whom to trust and what to ask for.
        circumstances: The clock, the channel, and what this machine has seen.
        bundles: Further bundles; each has to be about this image.
        reference: Digest or tag of the image or index in the layout, or both (``TAG@DIGEST``); empty for the only one.
        target: The target that the image has to be for; of an index only images for it are looked at. Empty: all.
        cache: Facts of bundles from earlier runs.
        asked: What the image was asked for by, where that was elsewhere (a registry); not given, ``reference`` says it.

    Raises:
        InputError: This is no layout, or holds no such image.
        ConfigError: The policy has no requirement for images of a target.
    """
    layout = Layout(path)
    verdicts: list[Verdict] = []
    steps: list[Step] = []
    try:
        found = layout.resolve(reference)
        layout.check_files()
        images = list(_images(layout, found))
    except InputError as error:
        if error.reason == "image-reference":
            raise
        return _report(path, policy, [refusal(path.name, error.reason, error.what)])
    asked = asked or Asked(
        index=found.descriptor.sha256 if found.descriptor.is_index else "",
        target=named_by(reference.partition("@")[0]),
    )
    known: dict[str, LayerFacts] = {}
    examined = [examine_image(layout, item, known=known) for item in images]
    wanted = [item for item in examined if not target or item.target == target or len(examined) == 1]
    if not wanted:
        text = f"{found.descriptor.digest} lists no image for {target or 'any target'}"
        verdicts.append(refusal(path.name, "image-target", text))
    examiner = Examiner(policy.roots, policy.keys, cache=cache)
    for image in wanted:
        if target and image.target != target:
            said = image.labels.get(types.TARGET_LABEL, "")[:100] or "no target"
            text = f"its label says {said}; {target} was asked for"
            verdicts.append(refusal(image.path, "image-target", text))
            continue
        sources = [*alone.files(bundles, meant=True), *_attached(layout, image)]
        judged = alone.judge_alone(
            dataclasses.replace(image, asked=asked),
            Kind.IMAGE,
            alone.examine_sources(sources, examiner),
            policy,
            examiner=examiner,
            circumstances=circumstances,
        )
        verdicts += judged.verdicts
        steps += judged.steps
    return _report(path, policy, verdicts, steps)


def _report(path: Path, policy: Policy, verdicts: Sequence[Verdict], steps: Sequence[Step] = ()) -> Report:
    return Report(path=str(path), policy=policy.source, verdicts=tuple(verdicts), steps=tuple(steps))


def _images(layout: Layout, found: Found) -> Iterator[Found]:
    """The manifests under what was asked for, each with the indexes that hold it by digest."""
    if not found.descriptor.is_index:
        yield found
        return
    below = [
        item
        for item in layout.walk()
        if item.descriptor.is_manifest and found.descriptor.sha256 in item.indexes
    ]
    distinct = dict.fromkeys(item.descriptor.sha256 for item in below)
    if len(distinct) > MAX_IMAGES:
        text = f"{found.descriptor.digest} lists {len(distinct):,} images; the limit is {MAX_IMAGES:,}"
        raise InputError(text, reason="input-limit")
    for sha256 in distinct:
        ways = [item for item in below if item.descriptor.sha256 == sha256]
        indexes = dict.fromkeys(index for item in ways for index in item.indexes)
        yield dataclasses.replace(ways[0], indexes=tuple(indexes))


def _attached(layout: Layout, image: ImageFacts) -> Iterator[alone.Source]:
    """Bundles that refer to the image, or to an index that holds it."""
    for descriptor, manifest in layout.referrers([image.sha256, *image.linked_from]):
        if manifest.kind == types.BUNDLE:
            yield alone.Source(
                name=descriptor.digest,
                read=lambda descriptor=descriptor, manifest=manifest: _bundle(layout, descriptor, manifest),  # type: ignore[misc]
                meant=True,
            )


def _bundle(layout: Layout, descriptor: Descriptor, manifest: ImageManifest) -> bytes:
    if [item.media_type for item in manifest.layers] != [types.BUNDLE]:
        raise InputError(f"{descriptor.digest} holds not one bundle", reason="image-manifest")
    return layout.document(manifest.layers[0], limit=LIMITS.size)
