"""Sums in lanes: the same whatever thread adds them, and of every byte once."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

import wheelmaking
from wheelmaking import Entry, wheel_entries, zip_bytes
from wheelmark import digests
from wheelmark.binaries import archive, hashing
from wheelmark.binaries import wheel as wheels
from wheelmark.binaries.archive import BytesSource
from wheelmark.binaries.hashing import HashedSource, Lane, Lanes
from wheelmark.binaries.wheel import read_wheel
from wheelmark.errors import InputError


def test_a_lane_adds_in_order_on_its_own_thread() -> None:
    blocks = [os.urandom(200_000), b"small", b"", os.urandom(300_000), os.urandom(150_000)]
    threads: list[int] = []
    digest = hashlib.sha256()

    def update(block: bytes) -> None:
        threads.append(threading.get_ident())
        digest.update(block)

    with Lanes(threads=True) as lanes:
        assert lanes.executor("a") is lanes.executor("a")
        assert lanes.executor("a") is not lanes.executor("b")
        lane = Lane(update, lanes.executor("a"))
        for block in blocks:
            lane.feed(block)
        lane.settle()
    assert digest.hexdigest() == digests.sha256(b"".join(blocks))
    own = threading.get_ident()
    assert [thread == own for thread in threads] == [False, True, True, False, False]


def test_what_goes_wrong_in_a_lane_is_not_lost() -> None:
    def fail(_block: bytes) -> None:
        raise MemoryError

    with Lanes(threads=True) as lanes:
        lane = Lane(fail, lanes.executor("a"))
        lane.feed(bytes(1 << 20))
        with pytest.raises(MemoryError):
            lane.settle()


def test_every_byte_is_hashed_once_whatever_is_read() -> None:
    data = os.urandom(3 << 20)
    for reads in ([], [(0, 100), (50, 100), (10, 5)], [(2 << 20, 1 << 20), (0, 10)], [(5, 1 << 30), (9, 9)]):
        source = HashedSource(BytesSource(data))
        for offset, size in reads:
            assert source.read(offset, size) == data[offset : offset + size]
        assert source.finish() == digests.sha256(data)
    assert Lanes(threads=False).executor("a") is None


class Shrinking:
    """A source that ends before it said that it would: a file that was cut meanwhile."""

    size = 100

    def read(self, offset: int, size: int) -> bytes:
        return bytes(50)[offset : offset + size]


def test_a_source_that_ends_early_ends() -> None:
    assert HashedSource(Shrinking()).finish() == digests.sha256(bytes(50))


@pytest.mark.parametrize("deflate", [False, True])
def test_threads_see_what_one_thread_sees(monkeypatch: pytest.MonkeyPatch, *, deflate: bool) -> None:
    monkeypatch.setattr(wheels, "_WORTH_THREADS", 1)
    monkeypatch.setattr(hashing, "_WORTH", 1)
    monkeypatch.setattr(archive, "_CHUNK", 1 << 16)
    files = {f"demo_kernels/{number}.bin": os.urandom(200_000) for number in range(3)}
    entries = wheel_entries(files)
    data = zip_bytes([Entry(name=item.name, data=item.data, deflate=deflate) for item in entries])
    one, many = (read_wheel(data, name=wheelmaking.NAME, threads=threads) for threads in (False, True))
    assert one.files == many.files
    assert one.sha256 == many.sha256 == digests.sha256(data)
    at = data.index(files["demo_kernels/1.bin"][:16]) if not deflate else len(data) // 2
    spoiled = wheelmaking.patched(data, at, bytes([data[at] ^ 1]))
    with pytest.raises(InputError) as caught:
        read_wheel(spoiled, name=wheelmaking.NAME, threads=True)
    assert caught.value.reason == "wheel-zip"
    with pytest.raises(InputError) as caught:
        read_wheel(spoiled, name=wheelmaking.NAME, threads=True, checksums=False)
    assert caught.value.reason in {"wheel-record", "wheel-zip"}
