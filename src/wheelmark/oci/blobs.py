"""Blobs of a registry, as streams in both directions that outlive a broken connection.

Source: OCI distribution specification 1.1, "Pulling blobs" and "Pushing blobs" (monolithic, in chunks, mounted).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import urllib.parse
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Protocol, Self

from wheelmark.errors import InputError, RegistryError, WheelmarkError
from wheelmark.oci.transport import BROKEN, Answer, Transport
from wheelmark.oci.types import Descriptor

CHUNK = 8 << 20
"""Bytes of an upload that are sent at once: held in memory, and sent again where a connection breaks."""
_MAX_CHUNK = 64 << 20
_BLOCK = 1 << 18
_PROGRESS = 1 << 20
"""Bytes after which an exchange that broke counts as one that goes on."""
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/(?:[0-9]{1,18}|\*)")
_UPLOADED = re.compile(r"(?:bytes=)?0-([0-9]{1,18})")


class ByteSource(Protocol):
    """A blob's bytes, hashed as they are read: of a layout, or of a registry."""

    def __enter__(self) -> Self:
        """Open."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""

    def check(self) -> None:
        """Read what is left, and compare the digest."""


class RemoteBlob:
    """A blob of a registry, hashed as it is read, gone on with by ``Range`` where a connection broke.

    Args:
        transport: The registry.
        repository: Where the blob is.
        descriptor: Its digest and size.
    """

    def __init__(self, transport: Transport, repository: str, descriptor: Descriptor) -> None:
        self._transport = transport
        self._repository = repository
        self._descriptor = descriptor
        self._open = contextlib.ExitStack()
        self._answer: Answer | None = None
        self._digest = hashlib.sha256()
        self._count = 0
        self._skip = 0
        self._failures = 0
        self._failed_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, and at most one more than there should be; none at the end.

        Raises:
            RegistryError: It is not there, or the connection breaks again and again.
            InputError: It comes too slowly (``registry-limit``).
        """
        while True:
            try:
                data = self._some(min(size, self._descriptor.size + 1 - self._count))
            except BROKEN as error:
                self._broke(error)
                continue
            if not data and self._count < self._descriptor.size:
                self._broke(EOFError("the answer ends too early"))
                continue
            self._digest.update(data)
            self._count += len(data)
            return data

    def check(self) -> None:
        """Read what is left, and compare.

        Raises:
            RegistryError: Another digest or size (``registry-digest``).
        """
        while self.read(_BLOCK):
            pass
        if (self._count, self._digest.hexdigest()) != (self._descriptor.size, self._descriptor.sha256):
            raise RegistryError(
                f"{self._transport.host} gives other bytes than the {self._descriptor.size:,} of {self._descriptor.digest}",
                cause="the registry, or something between, is broken or lies",
                reason="registry-digest",
            )

    def _some(self, size: int) -> bytes:
        answer = self._answer or self._begin()
        while self._skip:
            data = answer.read(min(self._skip, _BLOCK))
            if not data:
                raise EOFError
            self._skip -= len(data)
        return answer.read(size) if size else b""

    def _begin(self) -> Answer:
        headers = {"Range": f"bytes={self._count}-"} if self._count else {}
        answer = self._open.enter_context(
            self._transport.request(
                "GET",
                blob_path(self._repository, self._descriptor),
                scopes=(scope(self._repository),),
                headers=headers,
                expected=frozenset({200, 206, 404}),
            )
        )
        if answer.status == 404:  # noqa: PLR2004
            raise RegistryError(
                f"{self._transport.host}/{self._repository} has no blob {self._descriptor.digest}",
                reason="registry-missing",
            )
        self._skip = self._count
        if answer.status == 206:  # noqa: PLR2004
            found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != self._count:
                raise RegistryError(
                    f"{self._transport.host} answers with another part of {self._descriptor.digest} than was asked for"
                )
            self._skip = 0
        self._answer = answer
        return answer

    def _broke(self, error: BaseException) -> None:
        self._close()
        if self._count - self._failed_at >= _PROGRESS:
            self._failures = 0
        self._failed_at = self._count
        self._failures += 1
        if self._failures >= self._transport.patience.attempts:
            raise self._transport.unreachable(error) from None
        self._transport.wait(self._failures)

    def _close(self) -> None:
        self._answer = None
        self._open.close()


class _LostError(Exception):
    """The registry does not know the upload any more."""


@dataclasses.dataclass(kw_only=True)
class _Session:
    """An upload under way."""

    location: str
    chunk: int


class Upload:
    """One blob on its way into a registry. Nothing is finished before the bytes were compared with their digest.

    Args:
        transport: The registry.
        repository: Where to.
        descriptor: Digest and size.
        source: Opens the bytes, from their beginning, as often as it takes.
    """

    def __init__(
        self, transport: Transport, repository: str, descriptor: Descriptor, source: Callable[[], ByteSource]
    ) -> None:
        self._transport = transport
        self._repository = repository
        self._descriptor = descriptor
        self._source = source

    def run(self, mount_from: str = "") -> bool:
        """Mount it or send it; whether it was mounted."""
        for attempt in range(1, self._transport.patience.attempts + 1):
            session = self._begin(mount_from)
            if session is None:
                return True
            mount_from = ""
            try:
                self._send(session)
            except _LostError:
                if self._is_there():
                    return False
                if attempt < self._transport.patience.attempts:
                    self._transport.wait(attempt)
            except WheelmarkError:
                self._abandon(session)
                raise
            else:
                return False
        raise RegistryError(
            f"{self._transport.host} loses each upload of {self._descriptor.digest}",
            cause="several servers answer there, and know nothing of each other's uploads",
            reason="registry-unreachable",
        )

    def _begin(self, mount_from: str) -> _Session | None:
        address = f"/v2/{self._repository}/blobs/uploads/"
        scopes = (scope(self._repository, push=True),)
        if mount_from:
            query = urllib.parse.urlencode({"mount": self._descriptor.digest, "from": mount_from})
            with (
                contextlib.suppress(RegistryError),  # a mount is a favour: without it the blob is sent
                self._transport.request(
                    "POST",
                    f"{address}?{query}",
                    scopes=(*scopes, scope(mount_from)),
                    expected=frozenset({201, 202}),
                ) as answer,
            ):
                if answer.status == 201:  # noqa: PLR2004
                    return None
                return self._session(answer)
        with self._transport.request("POST", address, scopes=scopes, expected=frozenset({202})) as answer:
            return self._session(answer)

    def _session(self, answer: Answer) -> _Session:
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        chunk = max(CHUNK, int(least)) if re.fullmatch(r"[0-9]{1,12}", least) else CHUNK
        if chunk > _MAX_CHUNK:
            raise InputError(
                f"{self._transport.host} takes no parts of less than {chunk:,} bytes", reason="registry-limit"
            )
        return _Session(location=self._location(answer), chunk=chunk)

    def _location(self, answer: Answer) -> str:
        found = answer.headers.get("Location", "")
        if not found:
            self._wrong("an upload without saying where it goes on")
        return urllib.parse.urljoin(answer.url, found)

    def _send(self, session: _Session) -> None:
        source = self._source()
        with contextlib.ExitStack() as stack:
            stack.enter_context(source)
            if self._descriptor.size <= session.chunk:
                data = _exactly(source, self._descriptor.size)
                source.check()
                self._finish(session, data)
                return
            position = failures = failed_at = 0
            pending = b""
            while position < self._descriptor.size:
                pending = pending or _exactly(source, session.chunk)
                if not pending:
                    source.check()  # too short, which it says
                done = self._patch(session, position, pending)
                if done is None:
                    failures = 1 if position - failed_at >= _PROGRESS else failures + 1
                    failed_at = position
                    if failures >= self._transport.patience.attempts:
                        raise self._transport.unreachable(ConnectionResetError())
                    self._transport.wait(failures)
                    done = self._ask(session)
                if not 0 <= done <= position + len(pending):
                    self._wrong(f"that it has {done:,} bytes of an upload, which is more than were sent")
                if done >= position:
                    pending = pending[done - position :]
                else:  # it forgot what it had taken: from there again
                    stack.close()
                    source = stack.enter_context(self._source())
                    pending = b""
                    _skip(source, done)
                position = done
            source.check()
        self._finish(session, b"")

    def _patch(self, session: _Session, position: int, data: bytes) -> int | None:
        """Send a part; how much the registry has after it, ``None``: it has to be asked."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Range": f"{position}-{position + len(data) - 1}",
        }
        try:
            with self._transport.request(
                "PATCH",
                session.location,
                scopes=(scope(self._repository, push=True),),
                headers=headers,
                body=data,
                expected=frozenset({202, 404, 416}),
                again=False,
            ) as answer:
                if answer.status == 404:  # noqa: PLR2004
                    raise _LostError
                if answer.status == 416:  # noqa: PLR2004
                    return None
                session.location = self._location(answer)
                return self._reached(answer, position + len(data))
        except RegistryError as error:
            if error.reason != "registry-unreachable":
                raise
            return None

    def _ask(self, session: _Session) -> int:
        """How much of the upload the registry has."""
        with self._transport.request(
            "GET",
            session.location,
            scopes=(scope(self._repository, push=True),),
            expected=frozenset({202, 204, 404}),
        ) as answer:
            if answer.status == 404:  # noqa: PLR2004
                raise _LostError
            if "Location" in answer.headers:
                session.location = self._location(answer)
            return self._reached(answer, 0)

    def _reached(self, answer: Answer, unsaid: int) -> int:
        found = _UPLOADED.fullmatch(answer.headers.get("Range", "").strip())
        if found is None:
            return unsaid
        # "0-0" is one byte, and from many registries none at all.
        return int(found[1]) + 1 if int(found[1]) else 0

    def _finish(self, session: _Session, data: bytes) -> None:
        where = urllib.parse.urlsplit(session.location)
        query = f"{where.query}&" if where.query else ""
        url = where._replace(
            query=query + urllib.parse.urlencode({"digest": self._descriptor.digest})
        ).geturl()
        try:
            with self._transport.request(
                "PUT",
                url,
                scopes=(scope(self._repository, push=True),),
                headers={"Content-Type": "application/octet-stream"},
                body=data,
                expected=frozenset({201, 404}),
                again=False,
            ) as answer:
                if answer.status == 404:  # noqa: PLR2004
                    raise _LostError
                said = answer.headers.get("Docker-Content-Digest", "")
        except RegistryError as error:
            if error.reason != "registry-unreachable":
                raise
            raise _LostError from None
        if said not in {"", self._descriptor.digest}:
            self._wrong(f"that {self._descriptor.digest} was taken as {said[:100]}", "registry-digest")

    def _is_there(self) -> bool:
        with self._transport.request(
            "HEAD",
            blob_path(self._repository, self._descriptor),
            scopes=(scope(self._repository, push=True),),
            expected=frozenset({200, 404}),
        ) as answer:
            return answer.status == 200  # noqa: PLR2004

    def _abandon(self, session: _Session) -> None:
        with (
            contextlib.suppress(WheelmarkError),
            self._transport.request(
                "DELETE",
                session.location,
                scopes=(scope(self._repository, push=True),),
                expected=frozenset({204}),
                again=False,
            ),
        ):
            pass

    def _wrong(self, what: str, reason: str = "registry-answer") -> NoReturn:
        raise RegistryError(f"{self._transport.host} answers {what}", reason=reason)


def blob_path(repository: str, descriptor: Descriptor) -> str:
    """Where a blob is."""
    return f"/v2/{repository}/blobs/{descriptor.digest}"


def scope(repository: str, *, push: bool = False) -> str:
    """What a token has to allow."""
    return f"repository:{repository}:{'pull,push' if push else 'pull'}"


def _exactly(source: ByteSource, size: int) -> bytes:
    """``size`` bytes, or all there are."""
    found = bytearray()
    while len(found) < size and (data := source.read(min(_BLOCK, size - len(found)))):
        found += data
    return bytes(found)


def _skip(source: ByteSource, size: int) -> None:
    while size and (data := source.read(min(_BLOCK, size))):
        size -= len(data)
