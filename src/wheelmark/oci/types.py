"""The documents of OCI images: descriptors, indexes, manifests and configurations, read within bounds.

Source: OCI image specification 1.1 (``descriptor.md``, ``image-index.md``, ``manifest.md``, ``config.md``). Members
that the specification does not know are ignored, as it demands; the digest binds them. Stricter than it on purpose:
digests are sha256 only, and a document that could be read as an index and as a manifest is refused, whatever its
media type says (CVE-2021-41190).

Refusals: ``image-manifest`` (malformed), ``image-digest`` (an algorithm other than sha256), ``input-limit``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = f"{LAYER}+gzip"
LAYER_ZSTD = f"{LAYER}+zstd"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
REFERENCE = "org.opencontainers.image.ref.name"
"""Annotation in ``index.json``: the tag."""
RELEASABLE_LABEL = "dev.wheelmark.releasable"
"""Label: ``true``, or ``false`` where a stand-in lies in the image in place of its recipe's dependencies."""
TARGET_LABEL = "dev.wheelmark.target"
"""Label of an image's configuration: the Wheelmark target that it was built for (``cuda-sm90``)."""
REASON_LABEL = "dev.wheelmark.not-releasable-because"
"""Label beside a ``false``: why."""

DOCUMENT_LIMIT = 4 << 20
"""Bytes of an index or a manifest: what registries take (distribution specification, "Pushing Manifests")."""
CONFIG_LIMIT = 16 << 20
MAX_DESCRIPTORS = 10_000
"""Of one index, or layers of one manifest."""
MAX_NESTING = 4
"""Indexes within indexes."""
_LARGEST = (1 << 53) - 1
_SCHEMA_VERSION = 2

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Platform:
    """What an image runs on, in Go's words: ``linux``, ``amd64``."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descriptor:
    """A reference to bytes: what they are, their digest and size."""

    media_type: str
    sha256: str
    """Hexadecimal."""
    size: int
    """Bytes."""
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    artifact_type: str = ""
    platform: Platform | None = None

    @property
    def digest(self) -> str:
        """``sha256:<hex>``."""
        return f"sha256:{self.sha256}"

    @property
    def is_index(self) -> bool:
        """Whether it refers to an index."""
        return self.media_type == INDEX

    @property
    def is_manifest(self) -> bool:
        """Whether it refers to an image manifest, an artifact's too."""
        return self.media_type == MANIFEST

    def as_json(self) -> dict[str, Any]:
        """The JSON object."""
        value: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        if self.platform is not None:
            parts = dataclasses.asdict(self.platform)
            value["platform"] = {key: text for key, text in parts.items() if text}
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageIndex:
    """A list of manifests and further indexes: for several platforms, or of what refers to an image."""

    manifests: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    artifact_type: str = ""
    subject: Descriptor | None = None

    def as_bytes(self) -> bytes:
        """Canonical JSON."""
        return _document(
            INDEX,
            self.artifact_type,
            self.subject,
            self.annotations,
            {"manifests": [item.as_json() for item in self.manifests]},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageManifest:
    """One image or artifact: its configuration and its layers."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    artifact_type: str = ""
    subject: Descriptor | None = None
    """What it is attached to."""

    @property
    def kind(self) -> str:
        """The artifact type: its own member, else its configuration's media type (OCI 1.1, manifest.md)."""
        return self.artifact_type or self.config.media_type

    def as_bytes(self) -> bytes:
        """Canonical JSON."""
        return _document(
            MANIFEST,
            self.artifact_type,
            self.subject,
            self.annotations,
            {"config": self.config.as_json(), "layers": [item.as_json() for item in self.layers]},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What of an image's configuration decisions stand on."""

    platform: Platform
    diff_ids: tuple[str, ...]
    """sha256 of each layer, uncompressed."""
    labels: Mapping[str, str]


def read_index(data: bytes, *, what: str = "index") -> ImageIndex:
    """Read an image index.

    Raises:
        InputError: A ``json-…`` code of ``strictjson``, or one of the module's.
    """
    value = _load(data, what, INDEX, DOCUMENT_LIMIT)
    if "config" in value or "layers" in value:
        _refuse(f"{what} is an index and a manifest at once")
    return ImageIndex(
        manifests=_list(value, "manifests", what, _descriptor),
        annotations=_strings(value, "annotations", what),
        artifact_type=_text(value, "artifactType", what, absent=True),
        subject=_subject(value, what),
    )


def read_manifest(data: bytes, *, what: str = "manifest") -> ImageManifest:
    """Read an image manifest.

    Raises:
        InputError: As ``read_index``.
    """
    value = _load(data, what, MANIFEST, DOCUMENT_LIMIT)
    if "manifests" in value:
        _refuse(f"{what} is a manifest and an index at once")
    return ImageManifest(
        config=_descriptor(value.get("config"), f"{what}: config"),
        layers=_list(value, "layers", what, _descriptor),
        annotations=_strings(value, "annotations", what),
        artifact_type=_text(value, "artifactType", what, absent=True),
        subject=_subject(value, what),
    )


def read_config(data: bytes, *, what: str = "configuration") -> ImageConfig:
    """Read an image's configuration.

    Raises:
        InputError: As ``read_index``.
    """
    value = strictjson.load_object(data, what=what, limits=strictjson.Limits(size=CONFIG_LIMIT))
    rootfs = _object(value.get("rootfs"), f"{what}: rootfs")
    if rootfs.get("type") != "layers":
        _refuse(f"{what}: rootfs is of type {str(rootfs.get('type'))[:80]!r}")
    inner = value.get("config")
    return ImageConfig(
        platform=_platform(value, what),
        diff_ids=_list(rootfs, "diff_ids", what, read_digest),
        labels={} if inner is None else _strings(_object(inner, f"{what}: config"), "Labels", what),
    )


def read_digest(value: Any, what: str = "digest") -> str:
    """The hexadecimal part of ``sha256:<hex>``.

    Raises:
        InputError: Another algorithm (``image-digest``), or no digest.
    """
    if not isinstance(value, str):
        _refuse(f"{what}: a digest is no string")
    algorithm, _, text = value.partition(":")
    if algorithm != "sha256" or not digests.is_sha256(text):
        raise InputError(f"{what}: {value[:100]!r} is no sha256 digest", reason="image-digest")
    return text


def fallback_tag(sha256: str) -> str:
    """The tag under which a registry without the referrers API keeps the index of what refers to a digest."""
    return f"sha256-{sha256}"


def is_fallback_tag(tag: str) -> bool:
    """Whether a tag is such a one."""
    return tag.startswith("sha256-") and digests.is_sha256(tag.removeprefix("sha256-"))


def descriptor_of(data: bytes, media_type: str, **more: Any) -> Descriptor:
    """The descriptor of bytes at hand."""
    return Descriptor(media_type=media_type, sha256=digests.sha256(data), size=len(data), **more)


def _document(
    media_type: str,
    artifact_type: str,
    subject: Descriptor | None,
    annotations: Mapping[str, str],
    members: Mapping[str, Any],
) -> bytes:
    value = {"schemaVersion": _SCHEMA_VERSION, "mediaType": media_type, **members}
    if artifact_type:
        value["artifactType"] = artifact_type
    if subject is not None:
        value["subject"] = subject.as_json()
    if annotations:
        value["annotations"] = dict(annotations)
    return digests.canonical_json(value)


def _load(data: bytes, what: str, media_type: str, limit: int) -> dict[str, Any]:
    value = strictjson.load_object(
        data, what=what, limits=strictjson.Limits(size=limit, items=2 * MAX_DESCRIPTORS)
    )
    if value.get("schemaVersion") != _SCHEMA_VERSION:
        _refuse(f"{what}: schemaVersion is {str(value.get('schemaVersion'))[:80]}")
    # The member is not required (and old tools leave it out); the descriptor that led here says it then.
    if value.get("mediaType", media_type) != media_type:
        _refuse(f"{what} is of media type {str(value['mediaType'])[:100]!r}, and {media_type} was expected")
    return value


def _descriptor(value: Any, what: str) -> Descriptor:
    found = _object(value, what)
    size = found.get("size")
    if type(size) is not int or not 0 <= size <= _LARGEST:
        _refuse(f"{what}: size is no number of bytes")
    platform = found.get("platform")
    return Descriptor(
        media_type=_text(found, "mediaType", what),
        sha256=read_digest(found.get("digest"), what),
        size=size,
        annotations=_strings(found, "annotations", what),
        artifact_type=_text(found, "artifactType", what, absent=True),
        platform=None if platform is None else _platform(_object(platform, what), what),
    )


def _subject(value: Mapping[str, Any], what: str) -> Descriptor | None:
    return None if value.get("subject") is None else _descriptor(value["subject"], f"{what}: subject")


def _platform(value: Mapping[str, Any], what: str) -> Platform:
    return Platform(
        os=_text(value, "os", what),
        architecture=_text(value, "architecture", what),
        variant=_text(value, "variant", what, absent=True),
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{what} is no object")
    return value


def _list(
    value: Mapping[str, Any], name: str, what: str, read: Callable[[Any, str], _Item]
) -> tuple[_Item, ...]:
    items = value.get(name)
    if not isinstance(items, list):
        _refuse(f"{what}: {name} is no array")
    if len(items) > MAX_DESCRIPTORS:
        raise InputError(
            f"{what} lists {len(items):,} {name}; the limit is {MAX_DESCRIPTORS:,}", reason="input-limit"
        )
    return tuple(read(item, f"{what}: {name}[{index}]") for index, item in enumerate(items))


def _strings(value: Mapping[str, Any], name: str, what: str) -> dict[str, str]:
    member = value.get(name)
    if member is None:  # Go's encoders write null for an empty map
        return {}
    found = _object(member, f"{what}: {name}")
    if not all(isinstance(text, str) for text in found.values()):
        _refuse(f"{what}: {name} has a value that is no string")
    return found


def _text(value: Mapping[str, Any], name: str, what: str, *, absent: bool = False) -> str:
    text = value.get(name, "" if absent else None)
    if not isinstance(text, str) or (not text and not absent):
        _refuse(f"{what}: {name} is no text")
    return text


def _refuse(text: str) -> NoReturn:
    raise InputError(text, reason="image-manifest")
