"""The Merkle tree against RFC 6962's own recursive definition and known roots."""

from __future__ import annotations

import hashlib

import pytest

from wheelmark.errors import InputError
from wheelmark.sign.embedded.merkle import MerkleTree

# Leaves and roots of the reference tests of Certificate Transparency (merkletree tests, "TestInputs").
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tree_hash(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, 2.1, word for word."""
    if len(leaves) <= 1:
        return sha(b"\x00" + leaves[0]) if leaves else sha(b"")
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha(b"\x01" + tree_hash(leaves[:k]) + tree_hash(leaves[k:]))


def audit_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of RFC 6962, 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    if index < k:
        return [*audit_path(index, leaves[:k]), tree_hash(leaves[k:])]
    return [*audit_path(index - k, leaves[k:]), tree_hash(leaves[:k])]


def test_known_roots() -> None:
    tree = MerkleTree()
    assert tree.root().hex() == ROOTS[0]
    for leaf, root in zip(LEAVES, ROOTS[1:], strict=True):
        tree.append(leaf)
        assert tree.root().hex() == root


def test_roots_and_proofs_are_those_of_the_definition() -> None:
    tree, leaves = MerkleTree(), []
    for count in range(1, 68):
        leaf = count.to_bytes(2, "big") * (count % 5)
        leaves.append(leaf)
        assert tree.append(leaf) == count - 1
        assert tree.size == count
        assert tree.root() == tree_hash(leaves)
        for index in range(count):
            assert tree.proof(index) == audit_path(index, leaves)


@pytest.mark.parametrize("index", [-1, 3])
def test_there_is_no_proof_of_what_is_not_there(index: int) -> None:
    tree = MerkleTree()
    for leaf in LEAVES[:3]:
        tree.append(leaf)
    with pytest.raises(InputError) as caught:
        tree.proof(index)
    assert caught.value.reason == "merkle-index"
