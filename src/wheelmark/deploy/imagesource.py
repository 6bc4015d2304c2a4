"""Where an image is pulled from: a registry, or an image layout on disk. What a tag stands for is asked once."""

from __future__ import annotations

from typing import Protocol

from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.blobs import ByteSource
from wheelmark.oci.client import Registry
from wheelmark.oci.layout import Layout
from wheelmark.oci.reference import LayoutReference, Location, Reference
from wheelmark.oci.referrers import referrers
from wheelmark.oci.types import Descriptor

_BLOCK = 1 << 18


class ImageSource(Protocol):
    """A place with images; everything but ``resolve`` is by digest."""

    def resolve(self) -> Descriptor:
        """What the name stands for now."""
        ...

    def document(self, descriptor: Descriptor) -> bytes:
        """The bytes of an index or a manifest, its digest checked."""
        ...

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """A blob's bytes as a stream, hashed; the caller ends with ``check``."""
        ...

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """Manifests that are said to refer to an image or index."""
        ...

    def holders(self, sha256: str) -> tuple[Descriptor, ...]:
        """Indexes that are known to hold an image that was asked for by its own digest; a registry knows none."""
        ...


class LayoutSource:
    """An image layout on disk.

    Args:
        reference: The layout, and the image in it.

    Raises:
        InputError: It is no layout.
    """

    def __init__(self, reference: LayoutReference) -> None:
        self._layout = Layout(reference.path)
        self._asked = reference.asked

    def resolve(self) -> Descriptor:
        """The image or index that was asked for, or the only one."""
        return self._layout.resolve(self._asked).descriptor

    def document(self, descriptor: Descriptor) -> bytes:
        """As the protocol."""
        return self._layout.document(descriptor)

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """As the protocol."""
        return self._layout.open_blob(descriptor)

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """Those that the layout lists anywhere."""
        return tuple(descriptor for descriptor, _manifest in self._layout.referrers([sha256]))

    def holders(self, sha256: str) -> tuple[Descriptor, ...]:
        """The indexes through which ``index.json`` leads to it, outermost first."""
        held = set(self._layout.resolve(f"sha256:{sha256}").indexes)
        found = {item.descriptor.sha256: item.descriptor for item in self._layout.walk()}
        fallback = types.fallback_tag(sha256)
        return tuple(
            item
            for key, item in found.items()
            if key in held and item.annotations.get(types.REFERENCE) != fallback
        )


class RegistrySource:
    """An image in a registry.

    Args:
        reference: Its name.
        registry: The registry.
    """

    def __init__(self, reference: Reference, registry: Registry) -> None:
        self._reference = reference
        self._registry = registry

    def resolve(self) -> Descriptor:
        """What the tag, or the digest, stands for."""
        if not self._reference.asked:
            raise InputError(
                f"{self._reference} names no tag and no digest",
                fix="write HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:…",
                reason="registry-reference",
            )
        return self._registry.resolve(self._reference)

    def document(self, descriptor: Descriptor) -> bytes:
        """As the protocol."""
        data, made = self._registry.document(self._reference.at(digest=descriptor.digest))
        if (made.media_type, made.size) != (descriptor.media_type, descriptor.size):
            raise InputError(
                f"{descriptor.digest} is not of the type and size that an index says", reason="image-manifest"
            )
        return data

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """As the protocol."""
        return self._registry.open_blob(self._reference.repository, descriptor)

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """By the API, else by the fallback tag."""
        return referrers(self._registry, self._reference.repository, sha256)

    def holders(self, sha256: str) -> tuple[Descriptor, ...]:  # noqa: ARG002 - of the protocol
        """None: a registry lists no indexes by what they hold."""
        return ()


def open_source(location: Location, *, plain_http: bool = False) -> ImageSource:
    """The source that a name is in.

    Args:
        location: A name in a registry, or in a layout.
        plain_http: As of ``Registry``.
    """
    if isinstance(location, LayoutReference):
        return LayoutSource(location)
    return RegistrySource(location, Registry(location.host, plain_http=plain_http))


def read_small(source: ImageSource, descriptor: Descriptor, limit: int) -> bytes:
    """The bytes of a small blob, its digest checked.

    Raises:
        InputError: Over the limit (``input-limit``), or other bytes.
    """
    if descriptor.size > limit:
        raise InputError(
            f"blob {descriptor.digest} is said to hold {descriptor.size:,} bytes; the limit is {limit:,}",
            reason="input-limit",
        )
    with source.open_blob(descriptor) as blob:
        data = b"".join(iter(lambda: blob.read(_BLOCK), b""))
        blob.check()
    return data
