"""The compressor of layers: gzip in members of a fixed size, each by a pinned libdeflate.

A registry and a puller of any age read gzip. zlib's output differs between its builds, so the compressor is a locked
package (``deflate``), whose output does not depend on the CPU. It compresses one buffer at a time: so the archive is cut
every ``MEMBER`` bytes, and each piece is a gzip member of its own (RFC 1952, section 2.2: a file is a series of members). Memory
is then the same whatever a layer's size, and members are made side by side. docs/decisions/0014-layers.md has
the figures.
"""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import deflate

MEMBER = 4 << 20
"""Uncompressed bytes of a member; part of the format: another size is another digest."""
LEVEL = 6
_MOST_WORKERS = 8


def identity() -> str:
    """What makes the compressed bytes what they are, besides the input."""
    return f"deflate {importlib.metadata.version('deflate')} level {LEVEL} member {MEMBER}"


def compress(pieces: Iterable[bytes], write: Callable[[bytes], object], *, workers: int = 0) -> None:
    """Compress a stream; the bytes do not depend on how it is cut into pieces, nor on the number of workers.

    Args:
        pieces: The stream.
        write: Called with the compressed bytes, in order.
        workers: Threads; 0: one for each CPU.
    """
    count = workers or min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    waiting: deque[concurrent.futures.Future[bytes]] = deque()
    with concurrent.futures.ThreadPoolExecutor(max_workers=count) as pool:
        for member in _members(pieces):
            waiting.append(pool.submit(_member, member))
            if len(waiting) > count:
                write(waiting.popleft().result())
        for made in waiting:
            write(made.result())


def _member(data: bytes) -> bytes:
    return bytes(deflate.gzip_compress(data, LEVEL))


def _members(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= MEMBER:
            yield bytes(held[:MEMBER])
            del held[:MEMBER]
    if held:
        yield bytes(held)
