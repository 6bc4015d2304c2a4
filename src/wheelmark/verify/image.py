"""One container image in an OCI layout directory, verified by digest: from the index to the last byte of each layer.

1. The image that is asked for is found by digest, by tag, or as the only one; every file of the layout is accounted for.
2. Index, manifest, configuration and layers are read by digest and size, each one hashed to its end.
3. Each layer, uncompressed, is the one that the configuration names (``rootfs.diff_ids``), and unpacks inside its tree.
4. Platform and target agree: the index's word, the configuration's, the label ``dev.wheelmark.target``.
5. Bundles: those given, and those attached (artifacts whose ``subject`` is the manifest, or an index that holds it by
   digest), each read by digest. Names are not compared: an image copied to another registry has another name.
6. The requirement for its target. A statement about an index is about the manifests that the index holds by digest,
   and about no other, whatever tag leads there.

Of an SBOM of an image it is compared that its ``metadata.component`` has the manifest's digest.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wheelmark.binaries.kernelobjects import Problem
from wheelmark.errors import InputError
from wheelmark.oci import layer as layers
from wheelmark.oci import types
from wheelmark.oci.layer import LayerFacts
from wheelmark.oci.layout import Found, Layout
from wheelmark.oci.types import Descriptor, ImageConfig, ImageManifest, Platform
from wheelmark.targets import known_ids
from wheelmark.verify import alone
from wheelmark.verify.artifact import ArtifactFacts
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.verdict import Report, Step, Verdict, refusal

_ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
"""Ours -> Go's."""
MAX_IMAGES = 256
"""Under one index: each is read whole, and may have many bundles."""
_LayerKey = tuple[str, int, str]
"""sha256, size and media type, as a manifest names a layer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFacts(ArtifactFacts):
    """What an image's bytes say; ``sha256`` is its manifest's digest, ``name`` is empty, ``files`` are its blobs."""

    platform: Platform | None = None
    """As the configuration says; ``None`` where it could not be read."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    layers: tuple[LayerFacts, ...] = ()
    config_sha256: str = ""

    @property
    def target(self) -> str:
        """Id of the target that its label names; empty where that is none that is known."""
        found = self.labels.get(types.TARGET_LABEL, "")
        return found if found in known_ids() else ""


def verify_one_image(
    path: Path,
    policy: Policy,
    *,
    circumstances: Circumstances,
    bundles: Sequence[Path] = (),
    cache: FactsCache | None = None,
    reference: str = "",
    target: str = "",
) -> Report:
    """Verify an image, or every image of a multi-platform index.

    Args:
        path: The OCI layout directory.
        policy: Whom to trust and what to ask for.
        circumstances: The clock, the channel, and what this machine has seen.
        bundles: Further bundles; each has to be about this image.
        reference: Digest or tag of the image or index in the layout; empty for the only one.
        target: The target that the image has to be for; of an index only images for it are looked at. Empty: all.
        cache: Facts of bundles from earlier runs.

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
    read: dict[_LayerKey, LayerFacts] = {}
    examined = [examine_image(layout, item, read=read) for item in images]
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
            image,
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


def examine_image(
    layout: Layout, found: Found, *, read: dict[_LayerKey, LayerFacts] | None = None
) -> ImageFacts:
    """Read an image whole and find what is wrong with its bytes.

    Args:
        layout: Where it lies.
        found: Its manifest.
        read: Layers of this layout that were read before; it is added to.
    """
    descriptor = found.descriptor
    facts = ImageFacts(
        path=f"{layout.path.name}@{descriptor.digest}",
        name="",
        sha256=descriptor.sha256,
        size=descriptor.size,
        linked_from=found.indexes,
    )
    try:
        manifest = layout.read_manifest(descriptor)
        config = _configuration(layout, manifest)
        blobs = {item.digest: item.sha256 for item in (manifest.config, *manifest.layers)}
        facts = dataclasses.replace(
            facts,
            platform=config.platform,
            labels=config.labels,
            files=blobs,
            config_sha256=manifest.config.sha256,
            version=config.labels.get("org.opencontainers.image.version", ""),
        )
        own = _read_layers(layout, manifest, {} if read is None else read)
    except InputError as error:
        return dataclasses.replace(facts, problems=(Problem(reason=error.reason, text=error.what),))
    problems = (*_compare_layers(config, own), *_compare_platform(facts, descriptor, config.platform))
    return dataclasses.replace(facts, layers=own, problems=problems)


def _configuration(layout: Layout, manifest: ImageManifest) -> ImageConfig:
    if manifest.config.media_type != types.CONFIG:
        text = f"its configuration is of media type {manifest.config.media_type[:100]!r}: no image"
        raise InputError(text, reason="image-manifest")
    return types.read_config(layout.document(manifest.config, limit=types.CONFIG_LIMIT))


def _layer_key(item: Descriptor) -> _LayerKey:
    return item.sha256, item.size, item.media_type


def _read_layers(
    layout: Layout, manifest: ImageManifest, known: dict[_LayerKey, LayerFacts]
) -> tuple[LayerFacts, ...]:
    """Each layer's facts. One that stands there several times, or in several images, is read once."""

    def read(item: Descriptor) -> LayerFacts:
        with layout.open_blob(item) as blob:
            try:
                facts = layers.read_layer(blob, item.media_type)
            except InputError as error:
                if error.reason in {"image-layer", "image-path"}:
                    blob.check()  # what was damaged on the way is said to be that
                raise
            blob.check()
            return facts

    wanted = {_layer_key(item): item for item in manifest.layers if _layer_key(item) not in known}
    workers = max(1, min(len(wanted), os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(max_workers=workers) as pool:
        known.update(zip(wanted, pool.map(read, wanted.values()), strict=True))
    return tuple(known[_layer_key(item)] for item in manifest.layers)


def _compare_layers(config: ImageConfig, read: Sequence[LayerFacts]) -> Iterator[Problem]:
    if config.diff_ids != tuple(item.diff_id for item in read):
        yield Problem(
            reason="image-diff-id",
            text="the layers, uncompressed, are not those that the configuration names, in this order",
        )


def _compare_platform(facts: ImageFacts, descriptor: Descriptor, platform: Platform) -> Iterator[Problem]:
    if descriptor.platform not in {None, platform}:
        text = f"an index says {descriptor.platform}, the configuration {platform}"
        yield Problem(reason="image-platform", text=text)
    if types.TARGET_LABEL in facts.labels and not facts.target:
        text = f"its label names the target {facts.labels[types.TARGET_LABEL][:100]!r}, which is not known"
        yield Problem(reason="image-target", text=text)
    backend, _, arch = facts.target.partition("-")
    expected = {_ARCHITECTURES[arch]} if backend == "cpu" else set(_ARCHITECTURES.values())
    if facts.target and (platform.os != "linux" or platform.architecture not in expected):
        text = f"an image for {platform} under target {facts.target}"
        yield Problem(reason="image-platform", text=text)


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
