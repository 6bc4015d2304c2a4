"""Layers by content: made once, found by a key over everything that decides their bytes, hashed again before use.

A layer is kept under ``<cache>/images``: the blob under its own digest, and under its key a note that says which blob that
is. The key holds the inputs' digests, the compressor's identity and the digest of this room's own source: changed code never
finds an old layer. A blob whose bytes are no longer its name is made again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.build.image import compress
from wheelmark.build.image.tar import write_tar
from wheelmark.build.image.tree import Tree
from wheelmark.errors import InputError, StateError


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltLayer:
    """One layer of an image."""

    name: str
    """``system``, ``dependencies``, ``payload``; ``base-<n>`` for a layer of a base image."""
    digest: str
    """``sha256:…`` of the compressed bytes."""
    diff_id: str
    """``sha256:…`` of the tar archive."""
    size: int
    """Bytes, compressed."""
    uncompressed: int
    """Bytes of the tar archive; 0 where it was not looked into."""
    key: str
    """sha256 of all that decided it."""
    cached: bool
    """Whether it was found rather than made."""
    path: Path = dataclasses.field(compare=False)
    """The blob in the cache."""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What was found out while it was made (a JSON object)."""


def builder_identity() -> str:
    """sha256 over the code that decides a layer's bytes, with the compressor's identity."""
    return digests.sha256(f"{_source()}\n{compress.identity()}".encode())


@functools.cache
def _source() -> str:
    folder = Path(__file__).parent
    lines = [f"{path.name} {digests.sha256_file(path)}\n" for path in sorted(folder.glob("*.py"))]
    return digests.sha256("".join(lines).encode())


def make_layer(
    name: str,
    inputs: Mapping[str, Any],
    fill: Callable[[Tree], Mapping[str, Any]],
    *,
    cache: Path,
    progress: Callable[[str], None] = lambda _line: None,
) -> BuiltLayer:
    """A layer from its inputs, or the one that was made from them before.

    Args:
        name: What it is called.
        inputs: A JSON object that decides its bytes: digests and settings, never paths or times.
        fill: Puts everything into the tree; gives back notes (a JSON object), which are kept with the layer.
        cache: The pipeline's cache.
        progress: Called with a line for people when it has to be made.

    Raises:
        StateError: It cannot be written (``image-write``).
        BuildError: As ``fill`` or ``write_tar``.
    """
    key = digests.sha256(
        digests.canonical_json({"name": name, "inputs": dict(inputs), "builder": builder_identity()})
    )
    room = cache / "images"
    note = room / "keys" / key
    found = _found(name, key, note, room)
    if found is not None:
        return found
    progress(f"making the layer {name}")
    try:
        for folder in (room / "blobs", note.parent):
            folder.mkdir(parents=True, exist_ok=True)
        made = _make(name, key, fill, room)
        _write_note(made, note)
    except OSError as error:
        raise StateError(
            f"cannot write the layer {name} into {room}: {error.strerror}",
            fix="free some space, or name another cache",
            reason="image-write",
        ) from error
    return made


def _make(name: str, key: str, fill: Callable[[Tree], Mapping[str, Any]], room: Path) -> BuiltLayer:
    with Tree(name) as tree:
        notes = fill(tree)
        return _write(name, key, tree, notes, room)


def _write(name: str, key: str, tree: Tree, notes: Mapping[str, Any], room: Path) -> BuiltLayer:
    diff, stored, sizes = hashlib.sha256(), hashlib.sha256(), [0, 0]

    def plain() -> Iterator[bytes]:
        for piece in write_tar(tree):
            diff.update(piece)
            sizes[0] += len(piece)
            yield piece

    handle, temporary = tempfile.mkstemp(dir=room / "blobs", prefix=".making-")
    try:
        with os.fdopen(handle, "wb") as stream:

            def write(data: bytes) -> None:
                stored.update(data)
                sizes[1] += len(data)
                stream.write(data)

            compress.compress(plain(), write)
            stream.flush()
            os.fsync(stream.fileno())
        path = room / "blobs" / stored.hexdigest()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return BuiltLayer(
        name=name,
        digest=f"sha256:{stored.hexdigest()}",
        diff_id=f"sha256:{diff.hexdigest()}",
        size=sizes[1],
        uncompressed=sizes[0],
        key=key,
        cached=False,
        path=path,
        notes=notes,
    )


def _write_note(made: BuiltLayer, note: Path) -> None:
    value = {
        "digest": made.digest,
        "diff_id": made.diff_id,
        "size": made.size,
        "uncompressed": made.uncompressed,
        "notes": dict(made.notes),
    }
    partial = note.with_name(f"{note.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
    partial.replace(note)


def _found(name: str, key: str, note: Path, room: Path) -> BuiltLayer | None:
    """The layer that was kept under this key, if its bytes are still those."""
    try:
        value = strictjson.load_object(note.read_bytes(), what="note of a layer")
        path = room / "blobs" / value["digest"].removeprefix("sha256:")
        if path.is_symlink() or f"sha256:{digests.sha256_file(path)}" != value["digest"]:
            return None
        return BuiltLayer(
            name=name,
            digest=value["digest"],
            diff_id=value["diff_id"],
            size=value["size"],
            uncompressed=value["uncompressed"],
            key=key,
            cached=True,
            path=path,
            notes=value["notes"],
        )
    except (OSError, InputError, KeyError, AttributeError):
        return None
