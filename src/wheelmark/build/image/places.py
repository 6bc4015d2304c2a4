"""A layout that several images share: one entry a target, an index over platforms, and nothing that no entry leads to."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelmark.errors import BuildError, StateError
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, INDEX, Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex


def put(layout: Path, made: Descriptor) -> None:
    """Give an image or index its place in ``index.json``, by its name; what had that name goes, and what referred to it.

    Args:
        layout: The layout; its blobs are there already.
        made: With its name as annotation.

    Raises:
        StateError: The layout cannot be written (``image-write``).
        InputError: It is malformed.
    """
    name = made.annotations[types.REFERENCE]
    try:
        with _held(layout):
            others = [item for item in entries(layout) if item.annotations.get(types.REFERENCE) != name]
            kept = sorted(
                [*others, made], key=lambda item: (item.annotations.get(types.REFERENCE, ""), item.sha256)
            )
            writer = LayoutWriter(layout)
            writer.finish(kept)
            alive = _without_orphans(layout, kept)
            if alive != kept:
                writer.finish(alive)
            _prune(layout)
    except OSError as error:
        raise StateError(f"cannot write {layout}: {error.strerror}", reason="image-write") from error


@contextlib.contextmanager
def _held(layout: Path) -> Iterator[None]:
    """Hold the folder itself: a file for that would be one more in the layout, or beside it in the release."""
    handle = os.open(layout, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def entries(layout: Path) -> tuple[Descriptor, ...]:
    """The entries of a layout's index; none where there is no layout yet."""
    return Layout(layout).index.manifests if (layout / INDEX).is_file() else ()


def build_index(layout: Path, name: str, targets: Sequence[str]) -> Descriptor:
    """An index over images of several platforms, so that one name fits every machine.

    It is releasable where each of its images is.

    Args:
        layout: The layout that holds them.
        name: The index's name there, for instance ``cpu``.
        targets: The images' names, in the index's order.

    Raises:
        BuildError: An image is not there, or two are for one platform (``image-index``).
        StateError: The layout cannot be written.
    """
    opened = Layout(layout)
    known = {item.annotations.get(types.REFERENCE, ""): item for item in opened.index.manifests}
    absent = [target for target in targets if target not in known or not known[target].is_manifest]
    chosen = [known[target] for target in targets if target not in absent]
    platforms = {str(item.platform) for item in chosen}
    if absent or not chosen or len(platforms) != len(chosen):
        raise BuildError(
            f"no index {name} over {', '.join(targets) or 'nothing'}",
            cause=f"no image of {absent[0]}" if absent else "two images are for one platform",
            reason="image-index",
        )
    noted = [opened.read_manifest(item).annotations for item in chosen]
    first = noted[0]
    shared = {
        key: text
        for key, text in first.items()
        if key.startswith("org.opencontainers.image.") and all(other.get(key) == text for other in noted)
    }
    releasable = all(item.get(types.RELEASABLE_LABEL) == "true" for item in noted)
    index = ImageIndex(
        manifests=tuple(dataclasses.replace(item, annotations={}) for item in chosen),
        annotations={**shared, types.RELEASABLE_LABEL: "true" if releasable else "false"},
    )
    made = LayoutWriter(layout).add(index.as_bytes(), types.INDEX, annotations={types.REFERENCE: name})
    put(layout, made)
    return made


def _without_orphans(layout: Path, kept: Sequence[Descriptor]) -> list[Descriptor]:
    """The entries without indexes over images that are gone, and without what refers to what is gone."""
    opened = Layout(layout)
    images = {item.sha256 for item in kept if item.is_manifest and not _subject(opened, item)}
    indexes = {
        item.sha256
        for item in kept
        if item.is_index
        and not item.annotations.get(types.REFERENCE, "").startswith("sha256-")
        and all(inner.sha256 in images for inner in opened.read_index(item).manifests)
    }
    alive = images | indexes
    return [item for item in kept if item.sha256 in alive or _attached_to(opened, item) in alive]


def _attached_to(opened: Layout, item: Descriptor) -> str:
    name = item.annotations.get(types.REFERENCE, "")
    return name.removeprefix("sha256-") if item.is_index else _subject(opened, item)


def _subject(opened: Layout, item: Descriptor) -> str:
    subject = opened.read_manifest(item).subject if item.is_manifest else None
    return subject.sha256 if subject is not None else ""


def _prune(layout: Path) -> None:
    """Remove blobs that nothing leads to."""
    opened = Layout(layout)
    wanted: set[str] = set()
    for found in opened.walk():
        wanted.add(found.descriptor.sha256)
        if found.descriptor.is_manifest:
            manifest = opened.read_manifest(found.descriptor)
            wanted |= {item.sha256 for item in (manifest.config, *manifest.layers)}
    for path in (layout / BLOBS).iterdir():
        if path.name not in wanted:
            path.unlink()
