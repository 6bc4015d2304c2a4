"""The image that a container is of, read from the engine's own storage (containers-storage: podman, CRI-O, buildah).

Nothing is asked of the engine, and nothing that the container says counts: no name, no annotation. What is read is bound
together by digests, so that records that contradict each other are a refusal:

1. the container's id -> its record (``containers.json``; ``volatile-containers.json`` of containers run with ``--rm``),
2. -> the image's id -> its record (``images.json``), which lists manifests by digest: their bytes are hashed,
3. -> a manifest that names the image's id as its configuration's digest: the configuration's bytes are hashed,
4. the container's own layer stands on layers (``layers.json``) whose uncompressed digests are the configuration's
   ``rootfs.diff_ids``, and on no other; the root in the bundle's ``config.json`` is that layer, and no mount hides it.

What the engine unpacked is not hashed again: it did so when it unpacked (see ``docs/deploying-images.md``).
Source: github.com/containers/storage, ``containers.go``, ``images.go``, ``layers.go``, of versions 1.43 to 1.57.
"""

from __future__ import annotations

import base64
import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from wheelmark import digests, strictjson
from wheelmark.deploy.hookoutput import check_output
from wheelmark.errors import InputError, RejectedError
from wheelmark.oci import types
from wheelmark.plainfiles import read_bounded

_ID = re.compile("[0-9a-f]{64}")
_DRIVER = re.compile(r"([a-z0-9]+)-containers")
_PLAIN = re.compile(r"[.0-9a-z]*")
_RECORDS = strictjson.Limits(size=256 << 20, depth=16, items=1_000_000, string=16 << 20)
_SPEC = strictjson.Limits(size=16 << 20, depth=32, items=100_000, string=4 << 20)
_MANIFEST = "manifest-"
_MAX_MANIFESTS = 100
"""Of one image: one for each digest under which it was pulled."""
_MAX_PARENTS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineImage:
    """An image as the engine keeps it."""

    image_id: str
    """sha256 of its configuration."""
    manifests: Mapping[str, bytes]
    """sha256 -> bytes, hashed, of each manifest under which it was pulled."""
    recorded: tuple[str, ...]
    """sha256 of every manifest and index that the engine remembers it by."""
    config: bytes
    """Hashed."""
    names: tuple[str, ...]
    """For messages only."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return (self.names or (f"image {self.image_id[:12]}",))[0][:200]


def image_of_container(container: str, bundle: Path, *, storage: Sequence[Path] = ()) -> EngineImage:
    """The image that a container is of.

    Args:
        container: Its id, as the runtime was given it.
        bundle: Its bundle directory.
        storage: Storage roots, where the only ones that count are not the one that the bundle lies in.

    Raises:
        RejectedError: The container is of no image (``hook-no-image``), or the engine's records contradict each other
            (``hook-storage``).
        InputError: A record cannot be read.
    """
    driver, root = _driver_and_root(bundle)
    if not _ID.fullmatch(container) or not driver:
        _no_image(container, f"its bundle {bundle} lies in no containers-storage")
    if not storage and bundle.parts[-2] != container:
        _no_image(container, f"its bundle {bundle} is another container's")
    folders = [_Storage(place, driver) for place in (storage or (root,))]
    places = [place / driver for place in (storage or (root,))]
    for folder in folders:
        if (record := folder.container(container)) is not None:
            break
    else:
        _no_image(
            container,
            "the engine's storage does not know it: it was started with a root file system of its own",
        )
    image = record.get("image")
    if not isinstance(image, str) or not _ID.fullmatch(image):
        _no_image(container, "its record names no image")
    for place in folders:
        if (entry := place.image(image)) is not None:
            found = place.read_image(image, entry)
            break
    else:
        _contradiction(f"the image {image[:12]} of container {container[:12]} is in no record")
    layer = record.get("layer")
    if not isinstance(layer, str) or not _ID.fullmatch(layer):
        _contradiction(f"container {container[:12]} has no layer")
    _check_layers(folders, layer, found)
    _check_spec(bundle, layer, places)
    return found


def _driver_and_root(bundle: Path) -> tuple[str, Path]:
    """Storage driver and root of ``ROOT/DRIVER-containers/ID/userdata``; an empty driver for another path."""
    if not bundle.is_absolute() or ".." in bundle.parts or len(bundle.parents) < 3:  # noqa: PLR2004 - as in the path
        return "", bundle
    match = _DRIVER.fullmatch(bundle.parents[1].name)
    return (match[1] if match else ""), bundle.parents[2]


class _Storage:
    """One storage root with one driver."""

    def __init__(self, root: Path, driver: str) -> None:
        self._containers = root / f"{driver}-containers"
        self._images = root / f"{driver}-images"
        self._layers = root / f"{driver}-layers"

    def container(self, container: str) -> Mapping[str, Any] | None:
        """The record of a container."""
        for name in ("containers.json", "volatile-containers.json"):
            for record in _records(self._containers / name):
                if record.get("id") == container:
                    return record
        return None

    def image(self, image: str) -> Mapping[str, Any] | None:
        """The record of an image."""
        return next(
            (item for item in _records(self._images / "images.json") if item.get("id") == image), None
        )

    def layers(self) -> Iterator[Mapping[str, Any]]:
        """Records of all layers."""
        for name in ("layers.json", "volatile-layers.json"):
            yield from _records(self._layers / name)

    def read_image(self, image: str, entry: Mapping[str, Any]) -> EngineImage:
        """Manifests and configuration of an image, their digests checked."""
        names = _texts(entry.get("big-data-names"))
        recorded = {key.removeprefix(_MANIFEST) for key in names if key.startswith(_MANIFEST)}
        recorded |= {digest} if isinstance(digest := entry.get("digest"), str) else set()
        hexes = sorted(types.read_digest(item, "a recorded digest") for item in recorded)
        if len(hexes) > _MAX_MANIFESTS:
            _contradiction(f"image {image[:12]} has {len(hexes)} manifests")
        manifests: dict[str, bytes] = {}
        for sha256 in hexes:
            key = f"{_MANIFEST}sha256:{sha256}"
            data = self._big_data(image, key if key in names else "manifest", types.DOCUMENT_LIMIT)
            if digests.sha256(data) != sha256:
                _contradiction(f"image {image[:12]} has other bytes for its manifest sha256:{sha256}")
            if _configuration(data) == image:
                manifests[sha256] = data
        if not manifests:
            _contradiction(f"no manifest of image {image[:12]} names it as its configuration")
        config = self._big_data(image, f"sha256:{image}", types.CONFIG_LIMIT)
        if digests.sha256(config) != image:
            _contradiction(f"image {image[:12]} has another configuration than its id says")
        return EngineImage(
            image_id=image,
            manifests=manifests,
            recorded=tuple(hexes),
            config=config,
            names=tuple(_texts(entry.get("names"))),
        )

    def _big_data(self, image: str, key: str, limit: int) -> bytes:
        name = key if _PLAIN.fullmatch(key) else f"={base64.b64encode(key.encode()).decode()}"
        return read_bounded(self._images / image / name, limit)


def _check_layers(folders: Sequence[_Storage], layer: str, image: EngineImage) -> None:
    """The container's layer stands on exactly the layers that the image's configuration names."""
    known = {
        item["id"]: item for place in folders for item in place.layers() if isinstance(item.get("id"), str)
    }
    found: list[str] = []
    at = known.get(layer, {}).get("parent", "")
    while at:
        if len(found) > _MAX_PARENTS or at not in known:
            _contradiction(f"a layer below {layer[:12]} is in no record")
        found.append(str(known[at].get("diff-digest", "")))
        at = known[at].get("parent", "")
    expected = [f"sha256:{item}" for item in types.read_config(image.config).diff_ids]
    if layer not in known or found[::-1] != expected:
        _contradiction(f"the container's layer {layer[:12]} does not stand on the layers of {image.label}")


def _check_spec(bundle: Path, layer: str, places: Sequence[Path]) -> None:
    """What the runtime is told to make the root is that layer, in the engine's own folders, and nothing is put over it."""
    spec = strictjson.load_object(
        read_bounded(bundle / "config.json", _SPEC.size), what="the bundle's config.json", limits=_SPEC
    )
    root = spec.get("root")
    path = root.get("path") if isinstance(root, dict) else None
    if not isinstance(path, str) or not _is_of_layer(path, layer, places):
        _contradiction(f"the bundle's root {str(path)[:200]!r} is not the container's layer")
    mounts = spec.get("mounts") or []
    if not isinstance(mounts, list) or not all(isinstance(item, dict) for item in mounts):
        _contradiction("the mounts of the bundle are no list of mounts")
    for item in mounts:
        place = item.get("destination")
        if not isinstance(place, str) or posixpath.normpath(f"/{place}").lstrip("/") == "":
            _contradiction(f"a mount at {str(place)[:200]!r} would hide the image")
    annotations = spec.get("annotations") or {}
    if not isinstance(annotations, dict):
        _contradiction("the annotations of the bundle are no object")
    check_output(annotations)


def _is_of_layer(path: str, layer: str, places: Sequence[Path]) -> bool:
    """Whether a path is the layer's own (``DRIVER/LAYER/merged``, ``DRIVER/dir/LAYER``), below one of these."""
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    below = [Path(path).relative_to(place).parts for place in places if Path(path).is_relative_to(place)]
    return any(layer in parts for parts in below)


def _records(path: Path) -> list[Mapping[str, Any]]:
    """The objects of a JSON array; none where the file is absent."""
    if not path.exists():
        return []
    data = read_bounded(path, _RECORDS.size)
    value = strictjson.loads(data, what=path.name, limits=_RECORDS)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{path} is no list of records", reason="hook-storage")
    return value


def _configuration(manifest: bytes) -> str:
    """sha256 of the configuration that a manifest, OCI's or Docker's, names; empty for an index."""
    value = strictjson.load_object(
        manifest, what="a manifest", limits=strictjson.Limits(size=types.DOCUMENT_LIMIT)
    )
    config = value.get("config")
    if "manifests" in value or not isinstance(config, dict):
        return ""
    return types.read_digest(config.get("digest"), "a manifest's configuration")


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _no_image(container: str, why: str) -> NoReturn:
    raise RejectedError(
        f"container {container[:64]!r} is of no image: {why}",
        cause="podman run --rootfs, podman build, or a runtime that was called without an engine",
        fix="run it from an image that was pulled with wheelmark pull",
        reason="hook-no-image",
    )


def _contradiction(text: str) -> NoReturn:
    raise RejectedError(
        text,
        cause="the engine's storage is damaged or was changed, or is of a version that is not known here",
        fix="podman rmi the image and pull it again with wheelmark pull",
        reason="hook-storage",
    )
