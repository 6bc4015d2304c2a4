"""Scripts for a registry that misbehaves: what it answers, to which requests, how often."""

from __future__ import annotations

from collections.abc import Callable

from registry import Handler, Registry, digest_of
from wheelmark.oci import types
from wheelmark.oci.blobs import CHUNK
from wheelmark.oci.reference import Reference
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish.places import LayoutSource

NAME = "team/app"
LARGE = (2 * CHUNK) + 12_345
"""Goes in three parts."""
Script = Callable[[Handler], bool]


class Waits(list[float]):
    """Seconds that a client waited; none pass."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def first(times: int, condition: Callable[[Handler], bool], answer: Callable[[Handler], None]) -> Script:
    """Answer the first requests that fit in a way of one's own; the rest go through."""
    left = [times]

    def script(handler: Handler) -> bool:
        if left[0] and condition(handler):
            left[0] -= 1
            answer(handler)
            return True
        return False

    return script


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.read_body()
        handler.answer(code, body, headers=headers)

    return answer


def cut(handler: Handler) -> None:
    """Close in the middle of whatever it is."""
    handler.close_connection = True
    handler.connection.close()


def is_method(*methods: str) -> Callable[[Handler], bool]:
    return lambda handler: handler.command in methods


def put_manifest(
    server: Registry, data: bytes, *, tag: str = "v", media_type: str = types.MANIFEST
) -> Reference:
    server.manifests[NAME, digest_of(data)] = (media_type, data)
    server.tags[NAME, tag] = digest_of(data)
    return Reference(host=server.host, repository=NAME, tag=tag)


EMPTY = Descriptor(media_type=types.EMPTY, sha256=digest_of(b"{}").removeprefix("sha256:"), size=2)
MANIFEST = ImageManifest(config=EMPTY, layers=(EMPTY,)).as_bytes()


def some(source: LayoutSource, blob: Descriptor) -> bytes:
    with source.layout.open_blob(blob) as opened:
        return b"".join(iter(lambda: opened.read(1 << 20), b""))
