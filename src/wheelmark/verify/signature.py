"""The signature of a bundle, and the key that made it: a certificate's, or a managed key's.

Algorithms as Sigstore's clients use them (sigstore/architecture-docs, ``algorithm-registry.md``): ECDSA with
the hash of the curve, RSA PKCS #1 v1.5 with SHA-256, Ed25519 without a hash of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wheelmark.errors import RejectedError
from wheelmark.trust.roots import PublicKey
from wheelmark.verify.bundle import Envelope, MessageSignature

_CURVES: dict[str, tuple[str, str, hashes.HashAlgorithm]] = {
    "secp256r1": ("PKIX_ECDSA_P256_SHA_256", "SHA2_256", hashes.SHA256()),
    "secp384r1": ("PKIX_ECDSA_P384_SHA_384", "SHA2_384", hashes.SHA384()),
    "secp521r1": ("PKIX_ECDSA_P521_SHA_512", "SHA2_512", hashes.SHA512()),
}
_ED25519 = ("PKIX_ED25519", "SHA2_512", hashes.SHA512())


@dataclasses.dataclass(frozen=True, kw_only=True)
class SigningKey:
    """Who signed a bundle, as bytes: what a log entry has to name."""

    key: PublicKey
    details: str
    """``PublicKeyDetails`` of protobuf-specs."""
    digest: str
    """``HashAlgorithm`` of protobuf-specs that goes with it."""
    function: hashes.HashAlgorithm
    """That hash. Ed25519 (RFC 8032) applies it by itself."""
    certificate: x509.Certificate | None
    """``None`` for a managed key."""

    @property
    def der(self) -> bytes:
        """The certificate, or the key's SubjectPublicKeyInfo."""
        if self.certificate is not None:
            return self.certificate.public_bytes(Encoding.DER)
        return self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def key_id(self) -> str:
        """sha256 of the key's SubjectPublicKeyInfo, hexadecimal."""
        encoded = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(encoded).hexdigest()


def signing_key(found: object, certificate: x509.Certificate | None = None) -> SigningKey:
    """A public key with what Rekor calls it and the hash that goes with it.

    Args:
        found: A public key of ``cryptography``.
        certificate: The certificate that it is of, if any.

    Raises:
        RejectedError: A key of a kind not known here (``certificate-key``).
    """
    if isinstance(found, ec.EllipticCurvePublicKey) and found.curve.name in _CURVES:
        profile = _CURVES[found.curve.name]
    elif isinstance(found, rsa.RSAPublicKey):
        profile = (f"PKIX_RSA_PKCS1V15_{found.key_size}_SHA256", "SHA2_256", hashes.SHA256())
    elif isinstance(found, ed25519.Ed25519PublicKey):
        profile = _ED25519
    else:
        raise RejectedError(
            f"the signing key is a {type(found).__name__} that is not known here", reason="certificate-key"
        )
    details, digest, function = profile
    return SigningKey(key=found, details=details, digest=digest, function=function, certificate=certificate)


def signed(key: SigningKey, content: Envelope | MessageSignature, artifact: bytes | None) -> bool:
    """Whether the signature of ``content`` is the key's.

    Args:
        key: The key.
        content: What was signed, with its signature.
        artifact: sha256 of the artifact, for a message signature.

    Raises:
        RejectedError: An Ed25519 signature over an artifact, which only the artifact's bytes could show
            (``certificate-key``).
    """
    if isinstance(content, MessageSignature) and isinstance(key.key, ed25519.Ed25519PublicKey):
        raise RejectedError(
            "an Ed25519 signature over an artifact cannot be checked against its digest",
            cause="Ed25519 signs the artifact's bytes, not their hash",
            fix="sign a statement about the artifact, or use an ECDSA key",
            reason="certificate-key",
        )
    algorithm: hashes.HashAlgorithm | Prehashed
    if isinstance(content, Envelope):
        data, algorithm = content.pae(), key.function
    else:
        # Clients sign the artifact's sha256, whatever the curve.
        data, algorithm = artifact or b"", Prehashed(hashes.SHA256())
    try:
        if isinstance(key.key, ed25519.Ed25519PublicKey):
            key.key.verify(content.signature, data)
        elif isinstance(key.key, ec.EllipticCurvePublicKey):
            key.key.verify(content.signature, data, ec.ECDSA(algorithm))
        else:
            key.key.verify(content.signature, data, padding.PKCS1v15(), algorithm)
    except InvalidSignature:
        return False
    return True
