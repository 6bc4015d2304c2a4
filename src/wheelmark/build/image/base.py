"""A base image by digest: its layers stay as they are, below ours; its configuration gives the environment and the history."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wheelmark import strictjson
from wheelmark.build.image.document import BaseImage
from wheelmark.build.image.layers import BuiltLayer
from wheelmark.errors import BuildError, StateError
from wheelmark.oci import types
from wheelmark.oci.layer import read_layer
from wheelmark.oci.layout import Layout
from wheelmark.oci.types import Descriptor, Platform


def read_base(
    layout: Path, reference: str, *, platform: Platform, cache: Path
) -> tuple[BaseImage, tuple[BuiltLayer, ...]]:
    """Read a base image whole, and keep its layers with ours.

    Args:
        layout: The layout that holds it.
        reference: ``registry/repository@sha256:…`` of one platform's manifest.
        platform: What our image is for.
        cache: The pipeline's cache.

    Raises:
        InputError: It is not there, or its bytes are not what its documents say.
        BuildError: It is for another platform, or no image of gzip layers (``image-base``).
        StateError: The cache cannot be written (``image-write``).
    """
    opened = Layout(layout)
    found = opened.resolve(reference.partition("@")[2])
    if not found.descriptor.is_manifest:
        raise BuildError(
            f"base image {reference} is an index",
            fix="name the digest of one platform's manifest",
            reason="image-base",
        )
    manifest = opened.read_manifest(found.descriptor)
    data = opened.document(manifest.config, limit=types.CONFIG_LIMIT)
    config = types.read_config(data)
    value = strictjson.load_object(data, what="configuration of the base image")
    if (config.platform.os, config.platform.architecture) != (platform.os, platform.architecture):
        raise BuildError(
            f"base image {reference} is for {config.platform}, the target for {platform}", reason="image-base"
        )
    if any(item.media_type != types.LAYER_GZIP for item in manifest.layers):
        raise BuildError(f"base image {reference} has layers that are not gzip", reason="image-base")
    layers = tuple(
        _keep(opened, item, f"base-{number}", cache) for number, item in enumerate(manifest.layers, start=1)
    )
    if config.diff_ids != tuple(layer.diff_id.removeprefix("sha256:") for layer in layers):
        raise BuildError(
            f"base image {reference}: its layers are not those that its configuration names",
            reason="image-base",
        )
    inside = value.get("config") or {}
    env = inside.get("Env") or []
    history = value.get("history") or []
    return (
        BaseImage(
            reference=reference,
            diff_ids=tuple(layer.diff_id for layer in layers),
            history=tuple(item for item in history if isinstance(item, dict)),
            env=tuple(item for item in env if isinstance(item, str)),
            variant=config.platform.variant,
        ),
        layers,
    )


def _keep(opened: Layout, item: Descriptor, name: str, cache: Path) -> BuiltLayer:
    """Copy a layer into the cache while it is read and checked."""
    room = cache / "images" / "blobs"
    try:
        room.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=room, prefix=".making-") as copy, opened.open_blob(item) as blob:

            class Tee:
                """Gives the blob's bytes on, and keeps them."""

                def read(self, size: int, /) -> bytes:
                    data = blob.read(size)
                    copy.write(data)
                    return data

            facts = read_layer(Tee(), item.media_type)
            blob.check()
            copy.flush()
            path = room / item.sha256
            Path(copy.name).chmod(0o644)
            path.unlink(missing_ok=True)  # what lies there may have been damaged since
            os.link(copy.name, path)
    except OSError as error:
        raise StateError(f"cannot write into {room}: {error.strerror}", reason="image-write") from error
    return BuiltLayer(
        name=name,
        digest=item.digest,
        diff_id=f"sha256:{facts.diff_id}",
        size=item.size,
        uncompressed=facts.uncompressed,
        key=item.sha256,
        cached=False,
        path=path,
    )
