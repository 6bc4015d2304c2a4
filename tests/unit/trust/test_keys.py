"""Managed keys: which PEM files are taken, and what a key is called."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from wheelmark.errors import ConfigError
from wheelmark.trust.keys import hint_of, read_key

P256 = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.mark.parametrize(
    "key",
    [
        P256,
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
)
def test_a_key_is_called_by_the_digest_of_its_encoding(key: Any) -> None:
    made = read_key(pem(key), root="public", what="key.pub")
    encoded = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert made.key_id == hashlib.sha256(encoded).hexdigest()
    assert made.hint == hint_of(made.key_id) == base64.b64encode(hashlib.sha256(encoded).digest()).decode()
    assert made.root == "public"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"key",
        pem(P256)[:-40],
        P256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        P256.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        pem(rsa.generate_private_key(65537, 1024)),  # noqa: S505 - too short is what is tested
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(dsa.generate_private_key(2048)),
        pem(ed448.Ed448PrivateKey.generate()),
    ],
    ids=["empty", "a word", "cut off", "private", "DER", "RSA 1024", "secp256k1", "DSA", "Ed448"],
)
def test_what_is_no_key_that_is_taken(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"key\.pub") as caught:
        read_key(data, root="public", what="key.pub")
    assert caught.value.reason == "key-shape"
