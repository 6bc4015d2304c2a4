"""Several digests over bytes that are read once, each on a thread of its own where that pays.

hashlib and zlib let other threads run while they work. A wheel needs three sums of each stored byte: sha256 of the
whole file, sha256 and CRC of the member. In lanes they take the time of one where there are cores for them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

_WORTH = 128 << 10
"""Bytes below which handing a block to another thread costs more than it saves."""


class Source(Protocol):
    """Bytes that can be read at an offset."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``, fewer where the source ends."""
        ...


class Lane:
    """One sum, fed block after block; at most one block behind whoever feeds it.

    Args:
        update: Takes each block, in order.
        executor: A thread; without one the caller's own does the work.
    """

    def __init__(
        self, update: Callable[[bytes], object], executor: concurrent.futures.Executor | None = None
    ) -> None:
        self._update = update
        self._executor = executor
        self._waiting: concurrent.futures.Future[object] | None = None

    def feed(self, block: bytes) -> None:
        """Add a block."""
        self.settle()
        if self._executor is not None and len(block) >= _WORTH:
            self._waiting = self._executor.submit(self._update, block)
        else:
            self._update(block)

    def settle(self) -> None:
        """Wait until everything that was fed has been added."""
        if self._waiting is not None:
            self._waiting.result()
            self._waiting = None


class Lanes:
    """Threads for lanes, by name, as long as something is read; without any, lanes work where they are fed.

    Args:
        threads: Whether there are any.
    """

    def __init__(self, *, threads: bool) -> None:
        self._threads = threads
        self._executors: dict[str, concurrent.futures.Executor] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for executor in self._executors.values():
            executor.shutdown()

    def executor(self, name: str) -> concurrent.futures.Executor | None:
        """The thread of that name: lanes that are fed one after the other share it."""
        if not self._threads:
            return None
        if name not in self._executors:
            self._executors[name] = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        return self._executors[name]


class HashedSource:
    """A source that is hashed as it is read from front to back; what is jumped over is read and hashed too.

    Args:
        source: The bytes.
        executor: A thread for the hashing.
    """

    def __init__(self, source: Source, executor: concurrent.futures.Executor | None = None) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self._lane = Lane(self._digest.update, executor)
        self._hashed = 0
        self.size = source.size

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``."""
        self._pass(offset)
        data = self._source.read(offset, size)
        if offset <= self._hashed < offset + len(data):
            self._lane.feed(data[self._hashed - offset :])
            self._hashed = offset + len(data)
        return data

    def finish(self) -> str:
        """The sha256 of all bytes, once those to the end are read."""
        self._pass(self.size)
        self._lane.settle()
        return self._digest.hexdigest()

    def _pass(self, offset: int) -> None:
        while self._hashed < offset and (
            data := self._source.read(self._hashed, min(1 << 20, offset - self._hashed))
        ):
            self._lane.feed(data)
            self._hashed += len(data)
