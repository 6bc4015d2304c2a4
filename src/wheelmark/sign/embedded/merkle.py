"""The Merkle tree of RFC 6962 (section 2.1), grown leaf by leaf, with inclusion proofs.

Complete subtrees are kept by level, so a leaf costs O(1) hashes amortized, a root or a proof O(log n).
"""

from __future__ import annotations

import hashlib

from wheelmark.errors import InputError


def leaf_hash(data: bytes) -> bytes:
    """``SHA-256(0x00 || data)``."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """``SHA-256(0x01 || left || right)``."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class MerkleTree:
    """An append-only tree. ``root`` and ``proof`` are of the tree as it stands."""

    def __init__(self) -> None:
        self._levels: list[list[bytes]] = [[]]
        """``_levels[k][i]`` is the root over leaves ``i * 2**k`` up to ``(i + 1) * 2**k``, excluded."""

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._levels[0])

    def append(self, data: bytes) -> int:
        """Add one leaf and return its index."""
        index = self.size
        level, value = 0, leaf_hash(data)
        while True:
            if level == len(self._levels):
                self._levels.append([])
            nodes = self._levels[level]
            nodes.append(value)
            if len(nodes) % 2:
                return index
            value = node_hash(nodes[-2], nodes[-1])
            level += 1

    def root(self) -> bytes:
        """The Merkle tree hash; of an empty tree, the hash of nothing (RFC 6962, 2.1)."""
        return self._hash(0, self.size) if self.size else hashlib.sha256(b"").digest()

    def proof(self, index: int) -> list[bytes]:
        """The audit path of one leaf, from the leaf up (RFC 6962, 2.1.1).

        Raises:
            InputError: No such leaf.
        """
        if not 0 <= index < self.size:
            raise InputError(f"the tree has no leaf {index}", reason="merkle-index")
        low, high = 0, self.size
        path: list[bytes] = []
        while high - low > 1:
            middle = low + _split(high - low)
            if index < middle:
                path.append(self._hash(middle, high))
                high = middle
            else:
                path.append(self._hash(low, middle))
                low = middle
        return path[::-1]

    def _hash(self, low: int, high: int) -> bytes:
        size = high - low
        if size & (size - 1) == 0 and low % size == 0:
            return self._levels[size.bit_length() - 1][low // size]
        middle = low + _split(size)
        return node_hash(self._hash(low, middle), self._hash(middle, high))


def _split(size: int) -> int:
    """The largest power of two smaller than ``size`` (RFC 6962's k)."""
    return 1 << ((size - 1).bit_length() - 1)
