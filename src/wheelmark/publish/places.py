"""Where images lie, as one thing: a repository of a registry, or an image layout on disk; to read from and to write to.

Whatever is written was hashed on its way; what a reader finds (a tag, an entry of ``index.json``) is written last.
"""

from __future__ import annotations

import contextlib
import enum
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from wheelmark import digests
from wheelmark.errors import InputError, StateError
from wheelmark.oci import types
from wheelmark.oci.blobs import ByteSource
from wheelmark.oci.client import Registry
from wheelmark.oci.layout import BLOBS, INDEX, MARK, UNFINISHED, Layout
from wheelmark.oci.reference import Reference
from wheelmark.oci.referrers import list_by_tag, referrers
from wheelmark.oci.types import Descriptor
from wheelmark.publish.listing import update_listing

_BLOCK = 1 << 18


class Action(enum.Enum):
    """What was done to have something where it is wanted."""

    UPLOADED = "uploaded"
    MOUNTED = "mounted"
    """Taken from another repository of the registry, without sending it."""
    PRESENT = "present"
    """It was there."""


class Source(Protocol):
    """Where images are read from."""

    def resolve(self, asked: str) -> Descriptor:
        """What a tag or a digest stands for; its annotations may hold a tag."""

    def document(self, descriptor: Descriptor) -> bytes:
        """The bytes of a manifest or an index, of that digest."""

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """A blob's bytes, from their beginning."""

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """What is said to refer to a manifest."""


class Target(Protocol):
    """Where images are written to."""

    def take_blob(self, descriptor: Descriptor, source: Callable[[], ByteSource]) -> Action:
        """Have a blob there."""

    def take_document(self, descriptor: Descriptor, data: bytes) -> Action:
        """Have a manifest or an index there, under its digest."""

    def take_referrers(self, found: Mapping[str, Sequence[tuple[Descriptor, bytes]]]) -> Mapping[str, Action]:
        """Have what refers to manifests there, and listed so that it is found; sha256 -> what was done."""

    def tag(self, descriptor: Descriptor, data: bytes, tags: Sequence[str]) -> Mapping[str, Action]:
        """Give names to an image that is there whole."""

    def finish(self) -> None:
        """Make what was taken visible, where that is one step for everything."""


class RegistryPlace:
    """A repository of a registry.

    Args:
        registry: The registry.
        repository: The repository.
        mount_from: Another repository of the same registry that may have the blobs already.
    """

    def __init__(self, registry: Registry, repository: str, *, mount_from: str = "") -> None:
        self._registry = registry
        self._repository = repository
        self._mount_from = mount_from

    def _at(self, *, tag: str = "", digest: str = "") -> Reference:
        return Reference(host=self._registry.host, repository=self._repository, tag=tag, digest=digest)

    def resolve(self, asked: str) -> Descriptor:
        """As of ``Source``."""
        if not asked:
            raise InputError(
                f"{self._at()} names a repository, and no image of it",
                fix="add :TAG or @sha256:…",
                reason="registry-reference",
            )
        by_digest = asked.startswith("sha256:")
        return self._registry.resolve(self._at(digest=asked) if by_digest else self._at(tag=asked))

    def document(self, descriptor: Descriptor) -> bytes:
        """As of ``Source``."""
        data, made = self._registry.document(self._at(digest=descriptor.digest))
        if (made.size, made.media_type) != (descriptor.size, descriptor.media_type):
            raise InputError(
                f"{descriptor.digest} has not the size and media type that an index says",
                reason="image-manifest",
            )
        return data

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """As of ``Source``."""
        return self._registry.open_blob(self._repository, descriptor)

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """As of ``Source``."""
        return referrers(self._registry, self._repository, sha256)

    def take_blob(self, descriptor: Descriptor, source: Callable[[], ByteSource]) -> Action:
        """As of ``Target``."""
        if self._registry.holds_blob(self._repository, descriptor):
            return Action.PRESENT
        mounted = self._registry.push_blob(self._repository, descriptor, source, mount_from=self._mount_from)
        return Action.MOUNTED if mounted else Action.UPLOADED

    def take_document(self, descriptor: Descriptor, data: bytes) -> Action:
        """As of ``Target``."""
        if self._registry.holds_manifest(self._at(digest=descriptor.digest)):
            return Action.PRESENT
        self._registry.push_manifest(self._at(), data, descriptor.media_type)
        return Action.UPLOADED

    def take_referrers(self, found: Mapping[str, Sequence[tuple[Descriptor, bytes]]]) -> Mapping[str, Action]:
        """As of ``Target``; those that the registry does not list by itself are listed by the fallback tag."""
        done: dict[str, Action] = {}
        unlisted: dict[str, list[Descriptor]] = {}
        for subject, items in found.items():
            listed = {item.sha256 for item in self.referrers(subject)}
            for item, data in items:
                if item.sha256 in listed and self._registry.holds_manifest(self._at(digest=item.digest)):
                    done[item.sha256] = Action.PRESENT
                    continue
                receipt = self._registry.push_manifest(self._at(), data, item.media_type)
                done[item.sha256] = Action.UPLOADED
                if not receipt.knows_referrers:
                    unlisted.setdefault(subject, []).append(item)
        list_by_tag(self._registry, self._repository, unlisted)
        return done

    def tag(self, descriptor: Descriptor, data: bytes, tags: Sequence[str]) -> Mapping[str, Action]:
        """As of ``Target``."""
        done: dict[str, Action] = {}
        for tag in tags:
            there = self._registry.find(self._at(tag=tag))
            done[tag] = Action.PRESENT
            if there is None or there.descriptor.digest != descriptor.digest:
                self._registry.push_manifest(self._at(tag=tag), data, descriptor.media_type)
                done[tag] = Action.UPLOADED
        return done

    def finish(self) -> None:
        """Nothing: each tag was a step of its own."""


class LayoutSource:
    """An image layout on disk, to read from."""

    def __init__(self, path: Path) -> None:
        self.layout = Layout(path)
        self._referrers: dict[str, dict[str, Descriptor]] | None = None

    def resolve(self, asked: str) -> Descriptor:
        """As of ``Source``; nothing asked for: the only image."""
        return self.layout.resolve(asked).descriptor

    def document(self, descriptor: Descriptor) -> bytes:
        """As of ``Source``."""
        return self.layout.document(descriptor)

    def open_blob(self, descriptor: Descriptor) -> ByteSource:
        """As of ``Source``."""
        return self.layout.open_blob(descriptor)

    def referrers(self, sha256: str) -> tuple[Descriptor, ...]:
        """As of ``Source``: every manifest or index of the layout with that subject, wherever it is listed."""
        if self._referrers is None:
            self._referrers = {}
            for item in (found.descriptor for found in self.layout.walk()):
                read = self.layout.read_index if item.is_index else self.layout.read_manifest
                subject = read(item).subject
                if subject is not None:
                    self._referrers.setdefault(subject.sha256, {})[item.sha256] = item
        return tuple(self._referrers.get(sha256, {}).values())


class LayoutTarget:
    """An image layout on disk, to write to; made where there is none. It is whole or as before, whatever happens.

    Raises:
        InputError: A folder that holds something else (``image-layout``).
        StateError: It cannot be written (``image-write``).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._images: list[Descriptor] = []
        self._referrers: dict[str, list[Descriptor]] = {}
        try:
            names = {item.name for item in path.iterdir()} if path.exists() else set()
            if INDEX not in names and any(
                name not in {"blobs", MARK} and not name.startswith(UNFINISHED) for name in names
            ):
                raise InputError(f"{path} holds something else than images", reason="image-layout")
            if INDEX in names:
                Layout(path)
            (path / BLOBS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritten(path, error) from error

    def take_blob(self, descriptor: Descriptor, source: Callable[[], ByteSource]) -> Action:
        """As of ``Target``."""
        path = self._path / BLOBS / descriptor.sha256
        try:
            if path.is_file() and not path.is_symlink() and digests.sha256_file(path) == descriptor.sha256:
                return Action.PRESENT
            handle, temporary = tempfile.mkstemp(dir=self._path, prefix=UNFINISHED)
            try:
                with os.fdopen(handle, "wb") as stream, source() as blob:
                    while data := blob.read(_BLOCK):
                        stream.write(data)
                    blob.check()
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(temporary).chmod(0o644)
                Path(temporary).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise _unwritten(path, error) from error
        return Action.UPLOADED

    def take_document(self, descriptor: Descriptor, data: bytes) -> Action:
        """As of ``Target``."""
        return self.take_blob(descriptor, lambda: _Bytes(data))

    def take_referrers(self, found: Mapping[str, Sequence[tuple[Descriptor, bytes]]]) -> Mapping[str, Action]:
        """As of ``Target``; listed with ``finish``."""
        done = {
            item.sha256: self.take_document(item, data) for items in found.values() for item, data in items
        }
        for subject, items in found.items():
            self._referrers.setdefault(subject, []).extend(item for item, _ in items)
        return done

    def tag(self, descriptor: Descriptor, data: bytes, tags: Sequence[str]) -> Mapping[str, Action]:
        """As of ``Target``; visible with ``finish``."""
        del data
        listed = Layout(self._path).index.manifests if (self._path / INDEX).exists() else ()
        there = {(item.sha256, item.annotations.get(types.REFERENCE, "")) for item in listed}
        done: dict[str, Action] = {}
        for tag in tags or ("",):
            named = {types.REFERENCE: tag} if tag else {}
            self._images.append(
                Descriptor(
                    media_type=descriptor.media_type,
                    sha256=descriptor.sha256,
                    size=descriptor.size,
                    annotations=named,
                    platform=descriptor.platform,
                )
            )
            if tag:
                done[tag] = Action.PRESENT if (descriptor.sha256, tag) in there else Action.UPLOADED
        return done

    def finish(self) -> None:
        """As of ``Target``: the list of images and the fallback indexes."""
        update_listing(self._path, images=self._images, referrers=self._referrers)


class _Bytes:
    """Bytes in memory as a ``ByteSource``; their digest was computed from them."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def read(self, size: int, /) -> bytes:
        data, self._left = self._left[:size], self._left[size:]
        return data

    def check(self) -> None:
        pass


def _unwritten(path: Path, error: OSError) -> StateError:
    return StateError(
        f"cannot write {path}: {error.strerror}",
        fix="free some space, or name a folder that can be written",
        reason="image-write",
    )
