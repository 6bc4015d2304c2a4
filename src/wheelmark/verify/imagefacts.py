"""What a container image's bytes say: from its manifest to the last byte of each layer. An edge: it reads a layout.

Each blob is read by digest and size and hashed to its end; each layer, uncompressed, has to be the one that the
configuration names (``rootfs.diff_ids``), and to unpack inside its tree; platform and target have to agree.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from wheelmark.binaries.kernelobjects import Problem
from wheelmark.errors import InputError
from wheelmark.oci import layer as layers
from wheelmark.oci import types
from wheelmark.oci.layer import LayerFacts
from wheelmark.oci.layout import Found, Layout
from wheelmark.oci.types import Descriptor, ImageConfig, ImageManifest, Platform
from wheelmark.targets import known_ids
from wheelmark.verify.artifact import ArtifactFacts

_ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
"""Ours -> Go's."""


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

    @property
    def runs_as(self) -> str:
        """The platform."""
        return str(self.platform or "")

    @property
    def is_image(self) -> bool:
        """It is."""
        return True

    @property
    def is_stand_in(self) -> bool:
        """Whether its label says that it is not to be released; an image without the label is somebody else's, and does not."""
        return self.labels.get(types.RELEASABLE_LABEL, "true") != "true"


def examine_image(
    layout: Layout, found: Found, *, known: MutableMapping[str, LayerFacts] | None = None
) -> ImageFacts:
    """Read an image whole and find what is wrong with its bytes.

    Args:
        layout: Where it lies.
        found: Its manifest.
        known: Layers of this layout that were read before, by media type and digest; added to. Several images share one.
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
        read = _read_layers(layout, manifest, {} if known is None else known)
    except InputError as error:
        return dataclasses.replace(facts, problems=(Problem(reason=error.reason, text=error.what),))
    problems = (*_compare_layers(config, read), *_compare_platform(facts, descriptor, config.platform))
    return dataclasses.replace(facts, layers=read, problems=problems)


def _configuration(layout: Layout, manifest: ImageManifest) -> ImageConfig:
    if manifest.config.media_type != types.CONFIG:
        text = f"its configuration is of media type {manifest.config.media_type[:100]!r}: no image"
        raise InputError(text, reason="image-manifest")
    return types.read_config(layout.document(manifest.config, limit=types.CONFIG_LIMIT))


def _layer_key(item: Descriptor) -> str:
    return f"{item.media_type} {item.size} {item.sha256}"


def _read_layers(
    layout: Layout, manifest: ImageManifest, known: MutableMapping[str, LayerFacts]
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
