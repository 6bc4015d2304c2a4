"""Keys of every kind that is taken: what a log calls them, and what they sign."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, padding, rsa, utils

from wheelmark.attest.dsse import PAYLOAD_TYPE
from wheelmark.errors import RejectedError
from wheelmark.verify.bundle import Envelope, MessageSignature
from wheelmark.verify.signature import signed, signing_key

RSA = rsa.generate_private_key(65537, 2048)
ED25519 = ed25519.Ed25519PrivateKey.generate()
CURVES: list[tuple[Any, hashes.HashAlgorithm]] = [
    (ec.SECP256R1(), hashes.SHA256()),
    (ec.SECP384R1(), hashes.SHA384()),
    (ec.SECP521R1(), hashes.SHA512()),
]
ARTIFACT = hashlib.sha256(b"artifact").digest()


def envelope(signature: bytes = b"s", payload: bytes = b"{}") -> Envelope:
    return Envelope(payload_type=PAYLOAD_TYPE, payload=payload, signature=signature, keyid="")


@pytest.mark.parametrize(
    ("key", "details", "digest"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "PKIX_ECDSA_P256_SHA_256", "SHA2_256"),
        (ec.generate_private_key(ec.SECP384R1()), "PKIX_ECDSA_P384_SHA_384", "SHA2_384"),
        (ec.generate_private_key(ec.SECP521R1()), "PKIX_ECDSA_P521_SHA_512", "SHA2_512"),
        (RSA, "PKIX_RSA_PKCS1V15_2048_SHA256", "SHA2_256"),
        (ED25519, "PKIX_ED25519", "SHA2_512"),
    ],
)
def test_keys_have_the_names_that_a_log_gives_them(key: Any, details: str, digest: str) -> None:
    made = signing_key(key.public_key())
    assert (made.details, made.digest) == (details, digest)
    assert made.key_id == hashlib.sha256(made.der).hexdigest()


def test_other_keys_are_refused() -> None:
    for key in (ec.generate_private_key(ec.SECP256K1()), dsa.generate_private_key(2048)):
        with pytest.raises(RejectedError) as caught:
            signing_key(key.public_key())
        assert caught.value.reason == "certificate-key"


@pytest.mark.parametrize(("curve", "function"), CURVES)
def test_ecdsa(curve: Any, function: hashes.HashAlgorithm) -> None:
    private = ec.generate_private_key(curve)
    key = signing_key(private.public_key())
    good = private.sign(envelope().pae(), ec.ECDSA(function))
    assert signed(key, envelope(good), None)
    assert not signed(key, envelope(good, b"[]"), None)
    assert not signed(key, envelope(b"junk"), None)
    message = private.sign(ARTIFACT, ec.ECDSA(utils.Prehashed(hashes.SHA256())))
    assert signed(key, MessageSignature(digest=None, signature=message), ARTIFACT)
    assert not signed(key, MessageSignature(digest=None, signature=message), b"\0" * 32)


def test_rsa() -> None:
    key = signing_key(RSA.public_key())
    good = RSA.sign(envelope().pae(), padding.PKCS1v15(), hashes.SHA256())
    assert signed(key, envelope(good), None)
    assert not signed(key, envelope(good, b"[]"), None)
    message = RSA.sign(ARTIFACT, padding.PKCS1v15(), utils.Prehashed(hashes.SHA256()))
    assert signed(key, MessageSignature(digest=None, signature=message), ARTIFACT)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    assert not signed(key, envelope(RSA.sign(envelope().pae(), pss, hashes.SHA256())), None)


def test_ed25519_signs_statements_and_no_digests() -> None:
    key = signing_key(ED25519.public_key())
    good = ED25519.sign(envelope().pae())
    assert signed(key, envelope(good), None)
    assert not signed(key, envelope(good, b"[]"), None)
    with pytest.raises(RejectedError) as caught:
        signed(key, MessageSignature(digest=None, signature=ED25519.sign(b"artifact")), ARTIFACT)
    assert caught.value.reason == "certificate-key"
