"""Image layouts: folders on disk that hold images by digest, read strictly and written whole.

Source: OCI image specification 1.1 (``image-layout.md``); what refers to an image by the specification of 1.1
(``subject``) and by the fallback tag of the distribution specification (an index tagged ``sha256-<hex>``).

A layout holds ``oci-layout``, ``index.json`` and ``blobs/sha256/<hex>``, as plain files, and nothing else: a blob that
nothing refers to is refused. A manifest that an index lists may be absent (a copy for one platform); what a manifest
that is there lists may not.

=====================  ==================================================================
reason                 what was found
=====================  ==================================================================
``image-layout``       not a layout of version 1.0.0
``image-unaccounted``  a file that the format does not know or nothing refers to, a link
``image-missing``      a blob that a manifest lists is not there
``image-blob``         a blob has another digest or size than what refers to it says
``image-reference``    no image of that name, or more than one
``input-limit``        too many files, too many or too large documents
=====================  ==================================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from wheelmark import digests, strictjson
from wheelmark.errors import InputError, StateError
from wheelmark.manifest import IMAGES
from wheelmark.oci import types
from wheelmark.oci.reference import is_tag
from wheelmark.oci.types import Descriptor, ImageIndex, ImageManifest
from wheelmark.plainfiles import read_start

MARK = "oci-layout"
INDEX = "index.json"
VERSION = b'{"imageLayoutVersion":"1.0.0"}'
MAX_REFERRERS = 1000
"""Of one image: each may be a bundle that has to be verified."""
MAX_FILES = 100_000
_MAX_DOCUMENTS = 10_000
_MAX_DOCUMENT_BYTES = 256 << 20
"""Of all indexes and manifests of a layout together."""
_KEPT = 16 << 20
"""Bytes of documents kept in memory, so that they are not read twice."""
BLOBS = "blobs/sha256"
UNFINISHED = ".writing-"
"""How names of files begin that are being written."""
_FALLBACK = re.compile(r"sha256-[0-9a-f]{64}")
_BLOCK = 1 << 18
_SHOWN = 20
"""Images that a message names."""


class Blob:
    """A blob's bytes, hashed as they are read; ``check`` says whether they were what the descriptor says."""

    def __init__(self, descriptor: Descriptor, handle: int) -> None:
        self._descriptor = descriptor
        self._handle = handle
        self._digest = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, and at most one more than there should be; none at the end."""
        try:
            data = os.read(self._handle, min(size, self._descriptor.size + 1 - self._size))
        except OSError as error:
            raise InputError(
                f"cannot read blob {self._descriptor.digest}: {error.strerror}", reason="unreadable"
            ) from error
        self._digest.update(data)
        self._size += len(data)
        return data

    def check(self) -> None:
        """Read what is left, and compare.

        Raises:
            InputError: Another digest or size (``image-blob``).
        """
        while self.read(_BLOCK):
            pass
        if (self._size, self._digest.hexdigest()) != (self._descriptor.size, self._descriptor.sha256):
            raise InputError(
                f"blob {self._descriptor.digest} has not the {self._descriptor.size:,} bytes of that digest",
                reason="image-blob",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """An image or index, and what led to it."""

    descriptor: Descriptor
    indexes: tuple[str, ...] = ()
    """sha256 of the indexes through which it was reached, outermost first: they hold it by digest."""


class Layout:
    """A layout directory that was opened.

    Args:
        path: The directory.

    Raises:
        InputError: See the module's table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not _is_mark(self._small(MARK, types.DOCUMENT_LIMIT)):
            raise InputError(f"{path} is no OCI image layout of version 1.0.0", reason="image-layout")
        self.index = types.read_index(self._small(INDEX, types.DOCUMENT_LIMIT), what=INDEX)
        self._documents: dict[str, bytes] = {}
        self._kept = 0
        self._referring: dict[str, list[tuple[Descriptor, ImageManifest]]] | None = None

    def _small(self, name: str, limit: int) -> bytes:
        with os.fdopen(self._open(name), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise InputError(f"{name} holds {size:,} bytes; the limit is {limit:,}", reason="input-limit")
            return read_start(stream, self.path / name, limit)

    def _open(self, name: str) -> int:
        path = self.path / name
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            code = "image-missing" if name.startswith(BLOBS) else "image-layout"
            inner = self.path / IMAGES
            fix = f"of a release directory, name its layout: oci:{inner}" if (inner / MARK).is_file() else ""
            raise InputError(f"{self.path} has no {name}", fix=fix, reason=code) from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise InputError(f"{path} is no plain file", reason="unreadable")
        return handle

    def holds(self, descriptor: Descriptor) -> bool:
        """Whether the blob is there."""
        return os.path.lexists(self.path / BLOBS / descriptor.sha256)

    def open_blob(self, descriptor: Descriptor) -> Blob:
        """A blob's bytes as a stream; the caller ends with ``check``.

        Raises:
            InputError: It is not there, or no plain file.
        """
        return Blob(descriptor, self._open(f"{BLOBS}/{descriptor.sha256}"))

    def document(self, descriptor: Descriptor, *, limit: int = types.DOCUMENT_LIMIT) -> bytes:
        """The bytes of a small blob, its digest and size checked.

        Raises:
            InputError: Over the limit, not there, or other bytes.
        """
        if descriptor.size > limit:
            raise InputError(
                f"blob {descriptor.digest} is said to hold {descriptor.size:,} bytes; the limit is {limit:,}",
                reason="input-limit",
            )
        known = self._documents.get(descriptor.sha256)
        if known is not None and len(known) == descriptor.size:
            return known
        with self.open_blob(descriptor) as blob:
            data = b"".join(iter(lambda: blob.read(_BLOCK), b""))
            blob.check()
        if self._kept + len(data) <= _KEPT:
            self._kept += len(data)
            self._documents[descriptor.sha256] = data
        return data

    def read_index(self, descriptor: Descriptor) -> ImageIndex:
        """The index that a descriptor refers to."""
        return types.read_index(self.document(descriptor), what=f"index {descriptor.digest}")

    def read_manifest(self, descriptor: Descriptor) -> ImageManifest:
        """The manifest that a descriptor refers to."""
        return types.read_manifest(self.document(descriptor), what=f"manifest {descriptor.digest}")

    def walk(self) -> Iterator[Found]:
        """Every index and manifest that is reached from ``index.json`` and is there, each once for each way to it.

        Raises:
            InputError: A document is malformed, or there are too many.
        """
        waiting = [Found(descriptor=item) for item in reversed(self.index.manifests)]
        count = size = 0
        while waiting:
            found = waiting.pop()
            if not (found.descriptor.is_index or found.descriptor.is_manifest):
                raise InputError(
                    f"an index lists {found.descriptor.digest} of media type {found.descriptor.media_type[:100]!r}",
                    reason="image-manifest",
                )
            if not self.holds(found.descriptor):
                continue
            count, size = count + 1, size + found.descriptor.size
            if count > _MAX_DOCUMENTS or size > _MAX_DOCUMENT_BYTES or len(found.indexes) > types.MAX_NESTING:
                raise InputError(
                    f"{self.path} holds more indexes and manifests than are read", reason="input-limit"
                )
            yield found
            if found.descriptor.is_index:
                indexes = (*found.indexes, found.descriptor.sha256)
                inner = self.read_index(found.descriptor).manifests
                waiting += [Found(descriptor=item, indexes=indexes) for item in reversed(inner)]

    def resolve(self, reference: str = "") -> Found:
        """The image or index that is asked for.

        Args:
            reference: A digest (``sha256:…``), a tag in ``index.json``, both (``TAG@sha256:…``: they have to agree),
                or empty for the only image of the layout.

        Raises:
            InputError: None, several, or a tag that leads to another digest (``image-reference``).
        """
        tag, at, digest = reference.partition("@")
        if at and tag and digest:
            named = self.resolve(tag)
            if named.descriptor.sha256 != types.read_digest(digest, "reference"):
                raise InputError(
                    f"the tag {tag[:100]} of {self.path} leads to {named.descriptor.digest}, and not to {digest}",
                    cause="the tag was moved, or the digest is another image's",
                    fix="name one of the two",
                    reason="image-reference",
                )
            return named
        tops = [item for item in self.index.manifests if not _is_fallback(item)]
        if reference.startswith("sha256:"):
            wanted = types.read_digest(reference, "reference")
            found = [item for item in self.walk() if item.descriptor.sha256 == wanted]
            # One image may be reached in several ways; each of them holds it by its digest.
            indexes = tuple(dict.fromkeys(sha256 for item in found for sha256 in item.indexes))
            found = [dataclasses.replace(item, indexes=indexes) for item in found[:1]]
        elif reference:
            found = [
                Found(descriptor=item) for item in tops if item.annotations.get(types.REFERENCE) == reference
            ]
        else:
            found = [Found(descriptor=item) for item in tops if not self._is_attached(item)]
        if len({item.descriptor.sha256 for item in found}) != 1:
            held = [item for item in tops if not item.artifact_type]
            tags = [item.annotations.get(types.REFERENCE, "") for item in held]
            names = [tag if is_tag(tag) else item.digest for tag, item in zip(tags, held, strict=True)]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            asked = f"{reference[:100]!r}" if reference else "one image"
            raise InputError(
                f"{self.path} holds not exactly {asked}; it has {', '.join(names[:_SHOWN]) or 'none'}{more}",
                fix="name one of them: oci:PATH:TAG or oci:PATH@sha256:…" if names else "",
                reason="image-reference",
            )
        if not self.holds(found[0].descriptor):
            raise InputError(
                f"{self.path} lists {found[0].descriptor.digest} and does not hold it", reason="image-missing"
            )
        return found[0]

    def _is_attached(self, item: Descriptor) -> bool:
        return item.is_manifest and self.holds(item) and self.read_manifest(item).subject is not None

    def referrers(self, sha256: Sequence[str]) -> tuple[tuple[Descriptor, ImageManifest], ...]:
        """Manifests whose ``subject`` is one of these digests, from wherever the layout lists them.

        The entries of fallback indexes are not believed: each manifest is read.

        Raises:
            InputError: A manifest is malformed, or there are too many (``input-limit``).
        """
        if self._referring is None:
            self._referring = self._find_referring()
        found = {
            item.sha256: (item, manifest)
            for subject in dict.fromkeys(sha256)
            for item, manifest in self._referring.get(subject, ())
        }
        if len(found) > MAX_REFERRERS:
            raise InputError(f"more than {MAX_REFERRERS:,} referrers of one image", reason="input-limit")
        return tuple(found[key] for key in sorted(found))

    def _find_referring(self) -> dict[str, list[tuple[Descriptor, ImageManifest]]]:
        """sha256 of a subject -> what refers to it. Every manifest is read once, however many images ask."""
        found: dict[str, list[tuple[Descriptor, ImageManifest]]] = {}
        seen: set[str] = set()
        for item in self.walk():
            if item.descriptor.is_manifest and item.descriptor.sha256 not in seen:
                seen.add(item.descriptor.sha256)
                manifest = self.read_manifest(item.descriptor)
                if manifest.subject is not None:
                    found.setdefault(manifest.subject.sha256, []).append((item.descriptor, manifest))
        return found

    def check_files(self) -> frozenset[str]:
        """Account for every file; blobs themselves are not read, only indexes and manifests.

        Returns:
            sha256 of every blob that is referred to and there.

        Raises:
            InputError: See the module's table.
        """
        wanted: dict[str, Descriptor] = {}
        for found in self.walk():
            wanted[found.descriptor.sha256] = found.descriptor
            if found.descriptor.is_manifest:
                manifest = self.read_manifest(found.descriptor)
                for item in (manifest.config, *manifest.layers):
                    wanted[item.sha256] = item
                    if not self.holds(item):
                        raise InputError(
                            f"{item.digest}, of manifest {found.descriptor.digest}, is not there",
                            reason="image-missing",
                        )
        names = digests.tree_files(self.path)
        if len(names) > MAX_FILES:
            raise InputError(f"{self.path} holds {len(names):,} files", reason="input-limit")
        for name in names:
            folder, _, file = name.rpartition("/")
            if name not in {MARK, INDEX} and (folder != BLOBS or file not in wanted):
                raise InputError(f"nothing refers to {name} of {self.path}", reason="image-unaccounted")
            if not stat.S_ISREG((self.path / name).lstat().st_mode):
                raise InputError(f"{name} of {self.path} is no plain file", reason="image-unaccounted")
        return frozenset(wanted)


def _is_mark(data: bytes) -> bool:
    value = strictjson.load_object(data, what=MARK)
    return value.get("imageLayoutVersion") == "1.0.0"


def _is_fallback(item: Descriptor) -> bool:
    return _FALLBACK.fullmatch(item.annotations.get(types.REFERENCE, "")) is not None


class LayoutWriter:
    """Writes a layout: blobs first, the index last, so that a layout that can be opened is whole.

    The same contents give the same bytes. A directory that is there is added to; blobs that are there are kept.

    Args:
        path: The directory, made where absent.

    Raises:
        StateError: It cannot be written (``image-write``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            (path / BLOBS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritten(path, error) from error

    def add(self, data: bytes, media_type: str, **more: object) -> Descriptor:
        """Keep a blob.

        Args:
            data: Its bytes.
            media_type: What they are.
            more: Further fields of the descriptor.
        """
        made = types.descriptor_of(data, media_type, **more)
        self._write(f"{BLOBS}/{made.sha256}", data)
        return made

    def add_file(self, path: Path, descriptor: Descriptor) -> Descriptor:
        """Keep a blob that lies in a file, as a hard link where the file system has it.

        Args:
            path: The file, whose digest the caller has just computed.
            descriptor: Of it.
        """
        name = self.path / BLOBS / descriptor.sha256
        try:
            if name.is_file() and not name.is_symlink() and digests.sha256_file(name) == descriptor.sha256:
                return descriptor
            with tempfile.TemporaryDirectory(dir=self.path, prefix=".writing-") as folder:
                temporary = Path(folder) / descriptor.sha256
                try:
                    os.link(path, temporary)
                except OSError:
                    shutil.copyfile(path, temporary)
                    temporary.chmod(0o644)
                temporary.replace(name)
        except OSError as error:
            raise _unwritten(name, error) from error
        return descriptor

    def finish(self, manifests: Sequence[Descriptor]) -> None:
        """Write ``oci-layout`` and, last, ``index.json`` with these images."""
        self._write(MARK, VERSION)
        self._write(INDEX, ImageIndex(manifests=tuple(manifests)).as_bytes())

    def attach(self, subject: Descriptor, bundle: bytes, *, predicate_type: str, created: str) -> Descriptor:
        """Keep a Sigstore bundle as an artifact that refers to an image; see ``fallback`` for how it is found.

        Args:
            subject: The image or index.
            bundle: The bundle's bytes.
            predicate_type: Of the statement in it.
            created: RFC 3339; part of the bytes. Empty: not said.
        """
        manifest = ImageManifest(
            config=self.add(b"{}", types.EMPTY),
            layers=(self.add(bundle, types.BUNDLE),),
            artifact_type=types.BUNDLE,
            subject=dataclasses.replace(subject, annotations={}, platform=None),
            annotations={
                "dev.sigstore.bundle.content": "dsse-envelope",
                "dev.sigstore.bundle.predicateType": predicate_type,
                **({"org.opencontainers.image.created": created} if created else {}),
            },
        )
        return self.add(
            manifest.as_bytes(),
            types.MANIFEST,
            artifact_type=types.BUNDLE,
            annotations=dict(manifest.annotations),
        )

    def fallback(self, subject: Descriptor, referrers: Sequence[Descriptor]) -> Descriptor:
        """The index that lists what refers to an image, under the tag by which clients find it without the API."""
        index = ImageIndex(manifests=tuple(sorted(referrers, key=lambda item: item.sha256)))
        return self.add(
            index.as_bytes(), types.INDEX, annotations={types.REFERENCE: types.fallback_tag(subject.sha256)}
        )

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        try:
            if name.startswith(BLOBS) and path.is_file() and digests.sha256_file(path) == path.name:
                return
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=UNFINISHED)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(temporary).chmod(0o644)
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> StateError:
    return StateError(
        f"cannot write {path}: {error.strerror}",
        fix="free some space, or name a folder that can be written",
        reason="image-write",
    )
