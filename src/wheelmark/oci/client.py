"""One registry of images, read and written by digest; what it says is never believed where bytes can be hashed.

Source: OCI distribution specification 1.1. A blob's upload that broke is gone on with from where the registry says it
is; a download that broke, from where it broke (``Range``). Documents and blobs are hashed as they come.

Reasons besides those of ``transport``: ``registry-digest`` (other bytes than their digest says, or a registry that
contradicts itself), ``registry-missing`` (no such image, manifest or blob).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import NoReturn

from wheelmark.errors import RegistryError
from wheelmark.oci import types
from wheelmark.oci.auth import Credentials
from wheelmark.oci.blobs import ByteSource, RemoteBlob, Upload, blob_path, scope
from wheelmark.oci.reference import Reference
from wheelmark.oci.transport import Patience, Transport
from wheelmark.oci.types import Descriptor

_ACCEPT = f"{types.MANIFEST}, {types.INDEX}"
ABSENT = "*absent*"
"""In place of an ``ETag``: the tag is not to be there yet."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """A manifest or an index, as it was found."""

    data: bytes
    descriptor: Descriptor
    etag: str
    """The registry's word for this state of the tag; empty where it has none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a registry answered to a manifest."""

    descriptor: Descriptor
    knows_referrers: bool
    """It has a ``subject``, and the registry itself says that it lists it there (``OCI-Subject``)."""


class Registry:
    """A registry; safe to use from several threads. Arguments as of ``transport.Transport``."""

    def __init__(
        self,
        host: str,
        *,
        plain_http: bool = False,
        find: Callable[[str], Credentials | None] | None = None,
        patience: Patience | None = None,
        cancel: threading.Event | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.host = host
        self.transport = Transport(
            host, plain_http=plain_http, find=find, patience=patience, cancel=cancel, sleep=sleep
        )

    def resolve(self, reference: Reference) -> Descriptor:
        """What a tag or a digest stands for now. Fetch ``manifest`` by the digest that is given back.

        Raises:
            RegistryError: It is not there (``registry-missing``), or what the module and ``transport`` say.
        """
        return self.document(reference)[1]

    def manifest(self, reference: Reference) -> bytes:
        """The bytes of a manifest or an index, of the digest that was asked for.

        Raises:
            RegistryError: Other bytes (``registry-digest``), no such one (``registry-missing``), another kind.
            InputError: Over 4 MiB (``registry-limit``).
        """
        return self.document(reference)[0]

    def document(self, reference: Reference) -> tuple[bytes, Descriptor]:
        """The bytes of a manifest or an index, and its descriptor, made from them.

        Raises:
            RegistryError, InputError: As ``manifest``.
        """
        found = self.find(reference)
        if found is None:
            raise RegistryError(
                f"{self.host} has no {reference}",
                cause="it was never pushed there, or this user may not see it",
                reason="registry-missing",
            )
        return found.data, found.descriptor

    def find(self, reference: Reference) -> Found | None:
        """As ``document``; ``None`` where there is no such one."""
        answer, data = self.transport.whole(
            manifest_path(reference),
            limit=types.DOCUMENT_LIMIT,
            scopes=(scope(reference.repository),),
            headers={"Accept": _ACCEPT},
            expected=frozenset({200, 404}),
        )
        if answer.status == 404:  # noqa: PLR2004
            return None
        made = types.descriptor_of(data, answer.media_type)
        said = answer.headers.get("Docker-Content-Digest", "")
        if made.digest != (reference.digest or made.digest) or said not in {"", made.digest}:
            self._lies(
                reference.digest or str(reference), f"the bytes of {made.digest}, called {said[:100]!r},"
            )
        if not (made.is_index or made.is_manifest):
            raise RegistryError(
                f"{reference} is of media type {made.media_type[:100]!r}",
                cause="it is no OCI image; images of Docker's own types are not read, as converting changes the digest",
            )
        return Found(data=data, descriptor=made, etag=answer.headers.get("ETag", ""))

    def holds_manifest(self, reference: Reference) -> bool:
        """Whether a digest, or a tag, is there."""
        with self.transport.request(
            "HEAD",
            manifest_path(reference),
            scopes=(scope(reference.repository),),
            headers={"Accept": _ACCEPT},
            expected=frozenset({200, 404}),
        ) as answer:
            if answer.status == 404:  # noqa: PLR2004
                return False
            said = answer.headers.get("Docker-Content-Digest", "")
        if reference.digest and said not in {"", reference.digest}:
            self._lies(reference.digest, said)
        return True

    def holds_blob(self, repository: str, descriptor: Descriptor) -> bool:
        """Whether a blob is there, with its size.

        Raises:
            RegistryError: It says that it has it with another size or digest (``registry-digest``).
        """
        with self.transport.request(
            "HEAD",
            blob_path(repository, descriptor),
            scopes=(scope(repository),),
            expected=frozenset({200, 404}),
        ) as answer:
            if answer.status == 404:  # noqa: PLR2004
                return False
            said = answer.headers.get("Docker-Content-Digest", "")
            size = answer.headers.get("Content-Length", "")
        if said not in {"", descriptor.digest}:
            self._lies(descriptor.digest, said)
        if size.isdecimal() and int(size) != descriptor.size:
            self._lies(descriptor.digest, f"a blob of {int(size):,} bytes instead of {descriptor.size:,}")
        return True

    def open_blob(self, repository: str, descriptor: Descriptor) -> RemoteBlob:
        """A blob's bytes as a stream; the caller ends with ``check``."""
        return RemoteBlob(self.transport, repository, descriptor)

    def push_blob(
        self,
        repository: str,
        descriptor: Descriptor,
        source: Callable[[], ByteSource],
        *,
        mount_from: str = "",
    ) -> bool:
        """Send a blob; resumable, and of a blob that is not what its digest says nothing is finished.

        Args:
            repository: Where to.
            descriptor: Digest and size.
            source: Opens the bytes; asked again where an upload has to begin anew.
            mount_from: A repository of this registry that may have it.

        Returns:
            Whether it was mounted from there, and nothing was sent.

        Raises:
            RegistryError, InputError: As ``transport``; what ``source`` says of its bytes.
        """
        return Upload(self.transport, repository, descriptor, source).run(mount_from)

    def push_manifest(
        self, reference: Reference, data: bytes, media_type: str, *, if_match: str = ""
    ) -> Receipt:
        """Put a manifest or an index under a digest or a tag.

        Args:
            reference: Where; with a tag, that tag is set.
            data: Its bytes.
            media_type: What they are.
            if_match: The ``ETag`` that the tag has to have still, or ``ABSENT``.

        Raises:
            RegistryError: Refused; taken under another digest (``registry-digest``); changed in between
                (``registry-conflict``, where the registry heeds it).
        """
        made = types.descriptor_of(data, media_type)
        headers = {"Content-Type": media_type}
        if if_match:
            headers |= {"If-None-Match": "*"} if if_match == ABSENT else {"If-Match": if_match}
        with self.transport.request(
            "PUT",
            manifest_path(reference.at(tag=reference.tag, digest="" if reference.tag else made.digest)),
            scopes=(scope(reference.repository, push=True),),
            headers=headers,
            body=data,
            expected=frozenset({201, 412}),
        ) as answer:
            if answer.status == 412:  # noqa: PLR2004
                raise RegistryError(
                    f"{reference} was changed by somebody else meanwhile", reason="registry-conflict"
                )
            said = answer.headers.get("Docker-Content-Digest", "")
            if said not in {"", made.digest}:
                self._lies(made.digest, said)
            return Receipt(descriptor=made, knows_referrers="OCI-Subject" in answer.headers)

    def _lies(self, wanted: str, said: str) -> NoReturn:
        raise RegistryError(
            f"{self.host} answers {said[:100]} where {wanted} was meant",
            cause="the registry, or something between, is broken or lies",
            reason="registry-digest",
        )


def manifest_path(reference: Reference) -> str:
    """Where a manifest is."""
    return f"/v2/{reference.repository}/manifests/{reference.asked}"
