"""The list of a layout on disk: images by tag, what refers to them by fallback index, and no blob besides.

``index.json`` is written last, so that a reader sees the list of before or the new one, each whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import InputError, StateError
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, INDEX, MAX_REFERRERS, UNFINISHED, Layout, LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex


def update_listing(
    path: Path, *, images: Sequence[Descriptor] = (), referrers: Mapping[str, Sequence[Descriptor]]
) -> None:
    """Add images and referrers, whose blobs are there already, to a layout's list; make the layout where it is none.

    An image takes its tag from one that had it. A referrer that is listed already stays as it is. Then blobs that
    nothing refers to are removed: fallback indexes of before, and what killed runs left. One writer at a time.

    Args:
        path: The layout directory.
        images: Images or indexes, with their tags (``org.opencontainers.image.ref.name``).
        referrers: sha256 of an image, index or referrer -> manifests that refer to it.

    Raises:
        InputError: The layout that is there is malformed; too many referrers of one image (``input-limit``).
        StateError: It cannot be written (``image-write``).
    """
    writer = LayoutWriter(path)
    listed = Layout(path).index.manifests if (path / INDEX).exists() else ()
    tags = {item.annotations.get(types.REFERENCE) for item in images} - {None}
    same = {(item.sha256, item.annotations.get(types.REFERENCE)) for item in images}
    fallback = {types.fallback_tag(sha256): sha256 for sha256 in referrers}
    kept: list[Descriptor] = []
    known: dict[str, dict[str, Descriptor]] = {sha256: {} for sha256 in referrers}
    for item in listed:
        tag = item.annotations.get(types.REFERENCE)
        if tag in fallback:
            for entry in Layout(path).read_index(item).manifests:
                known[fallback[tag]][entry.sha256] = entry
        elif tag not in tags and (item.sha256, tag) not in same:
            kept.append(item)
    made: list[Descriptor] = []
    for sha256, items in referrers.items():
        found = {**{item.sha256: item for item in items}, **known[sha256]}
        if len(found) > MAX_REFERRERS:
            raise InputError(f"more than {MAX_REFERRERS:,} referrers of one image", reason="input-limit")
        if found:
            index = ImageIndex(manifests=tuple(found[key] for key in sorted(found)))
            tag = types.fallback_tag(sha256)
            made.append(writer.add(index.as_bytes(), types.INDEX, annotations={types.REFERENCE: tag}))
    writer.finish([*kept, *images, *made])
    _prune(path)


def _prune(path: Path) -> None:
    layout = Layout(path)
    wanted = {item.sha256 for item in layout.index.manifests}
    for found in layout.walk():
        if found.descriptor.is_index:
            wanted |= {item.sha256 for item in layout.read_index(found.descriptor).manifests}
        else:
            manifest = layout.read_manifest(found.descriptor)
            wanted |= {item.sha256 for item in (manifest.config, *manifest.layers)}
    for name in digests.tree_files(path):
        folder, _, file = name.rpartition("/")
        unfinished = any(part.startswith(UNFINISHED) for part in Path(name).parts)
        if (folder == BLOBS and file not in wanted) or unfinished:
            try:
                (path / name).unlink()
            except OSError as error:
                raise StateError(
                    f"cannot remove {path / name}: {error.strerror}", reason="image-write"
                ) from error
