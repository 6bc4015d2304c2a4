"""Where two images differ: the document's member, or the layer, the path in it, and the field."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wheelmark import strictjson
from wheelmark.oci import types
from wheelmark.oci.layer import walk_layer
from wheelmark.oci.layout import Layout
from wheelmark.oci.types import Descriptor, ImageManifest


def differences(first: Path, first_sha256: str, second: Path, second_sha256: str) -> tuple[str, ...]:
    """What differs between two images; never empty where their digests do.

    Args:
        first: Layout of one.
        first_sha256: Digest of its manifest.
        second: Layout of the other.
        second_sha256: Digest of its manifest.

    Raises:
        InputError: A layout, a document or a layer cannot be read.
    """
    one, other = Layout(first), Layout(second)
    ours, theirs = _manifest(one, first_sha256), _manifest(other, second_sha256)
    found = [f"manifest: {text}" for text in _members(_document(ours), _document(theirs))]
    found += [
        f"configuration: {text}"
        for text in _members(_configuration(one, ours), _configuration(other, theirs))
    ]
    for number, pair in enumerate(itertools.zip_longest(ours.layers, theirs.layers)):
        mine, yours = pair
        if mine is None or yours is None:
            found.append(f"layer {number}: only in the {'first' if mine else 'second'} build")
        elif mine != yours:
            found += [f"layer {number}: {text}" for text in _layers(one, mine, other, yours)]
    if not found and first_sha256 != second_sha256:
        found.append("the manifest's form")
    return tuple(found)


def _manifest(layout: Layout, sha256: str) -> ImageManifest:
    return layout.read_manifest(layout.resolve(f"sha256:{sha256}").descriptor)


def _document(manifest: ImageManifest) -> dict[str, Any]:
    """What of a manifest is not said better by what it refers to."""
    return {"annotations": dict(manifest.annotations), "artifactType": manifest.artifact_type}


def _configuration(layout: Layout, manifest: ImageManifest) -> dict[str, Any]:
    data = layout.document(manifest.config, limit=types.CONFIG_LIMIT)
    return strictjson.load_object(data, what="configuration")


def _members(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key != "diff_ids":
                yield from _members(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    elif one != other:
        yield f"{path}: {one!r:.100} and {other!r:.100}"


def _layers(one: Layout, mine: Descriptor, other: Layout, yours: Descriptor) -> Iterator[str]:
    ours, theirs = _entries(one, mine), _entries(other, yours)
    same = True
    for path in sorted({*ours, *theirs}):
        a, b = ours.get(path), theirs.get(path)
        if a is None or b is None:
            yield f"{path}: only in the {'first' if a else 'second'} build"
            same = False
            continue
        for field in a:
            if a[field] != b[field]:
                yield f"{path}: {field} {str(a[field])[:80]} and {str(b[field])[:80]}"
                same = False
    if same:
        order = list(ours) != list(theirs)
        yield "the order of its entries" if order else "the archive's form or its compression"


def _entries(layout: Layout, descriptor: Descriptor) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    with layout.open_blob(descriptor) as blob:
        for entry, contents in walk_layer(blob, descriptor.media_type):
            digest = hashlib.sha256()
            for chunk in contents.chunks():
                digest.update(chunk)
            fields = dataclasses.asdict(entry) | {"sha256": digest.hexdigest()}
            found[fields.pop("path")] = fields
    return found
