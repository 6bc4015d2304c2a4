"""Managed keys: public keys of signers who have no certificate, read from the PEM files that a policy names.

A key is trusted for signatures under one root: that root's logs have to hold the entry, and its timestamp
authorities (or its log's promise) say when.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from wheelmark.errors import ConfigError
from wheelmark.trust.roots import PublicKey

_SMALLEST_RSA = 2048
_CURVES = {"secp256r1", "secp384r1", "secp521r1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManagedKey:
    """One key, and the root under which it counts."""

    root: str
    """Name of the root."""
    key_id: str
    """sha256 of the key's SubjectPublicKeyInfo, hexadecimal."""
    key: PublicKey

    @property
    def hint(self) -> str:
        """What bundles call it."""
        return hint_of(self.key_id)


def hint_of(key_id: str) -> str:
    """What Sigstore's clients call a key in a bundle: its sha256 in base64."""
    return base64.b64encode(bytes.fromhex(key_id)).decode()


def read_key(pem: bytes, *, root: str, what: str) -> ManagedKey:
    """The public key in a PEM file.

    Args:
        pem: The file's bytes.
        root: Name of the root under which it counts.
        what: How messages name the file.

    Raises:
        ConfigError: No PEM public key, or of a kind that is not taken (``key-shape``).
    """
    try:
        key = load_pem_public_key(pem)
    except Exception as error:  # cryptography raises ValueError, UnsupportedAlgorithm and classes of its own
        raise ConfigError(f"{what} is no PEM public key: {error}", reason="key-shape") from error
    if (
        not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey)
        or (isinstance(key, rsa.RSAPublicKey) and key.key_size < _SMALLEST_RSA)
        or (isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name not in _CURVES)
    ):
        raise ConfigError(
            f"{what} holds a {type(key).__name__} that is not taken",
            fix=f"use ECDSA on P-256, P-384 or P-521, Ed25519, or RSA of at least {_SMALLEST_RSA} bits",
            reason="key-shape",
        )
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return ManagedKey(root=root, key_id=hashlib.sha256(encoded).hexdigest(), key=key)
