"""A certificate transparency log on loopback that answers Fulcio's one call.

Format: RFC 6962, sections 3.2 (what is signed) and 4.2 (``add-pre-chain``). Nothing is kept: Fulcio and the
verifiers look at the signed timestamp alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import time
from collections.abc import Iterator

from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from instances.serving import Answer, served_json

_POISON = "1.3.6.1.4.1.11129.2.4.3"

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def key_hash(key: object) -> bytes:
    """sha256 of a public key's SubjectPublicKeyInfo."""
    assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize()


class CtLog:
    """Signs certificate timestamps with an ECDSA or an RSA key."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def promise(self, tbs: bytes, issuer: object) -> tuple[int, bytes]:
        """Milliseconds and ``digitally-signed`` over a precertificate's TBSCertificate."""
        milliseconds = time.time_ns() // 1_000_000
        entry = key_hash(issuer) + len(tbs).to_bytes(3, "big") + tbs
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + b"\x00\x00"
        if isinstance(self.key, rsa.RSAPrivateKey):
            signature, algorithm = self.key.sign(signed, padding.PKCS1v15(), hashes.SHA256()), b"\x04\x01"
        else:
            signature, algorithm = self.key.sign(signed, ec.ECDSA(hashes.SHA256())), b"\x04\x03"
        return milliseconds, algorithm + struct.pack("!H", len(signature)) + signature

    def listed(self, tbs: bytes, issuer: object) -> bytes:
        """The ``SignedCertificateTimestampList`` for a certificate."""
        milliseconds, signature = self.promise(tbs, issuer)
        head = struct.pack("!B32sQH", 0, key_hash(self.key.public_key()), milliseconds, 0)
        timestamp = head + signature
        return struct.pack("!HH", len(timestamp) + 2, len(timestamp)) + timestamp

    def answer(self, path: str, body: bytes) -> Answer:
        if not path.endswith("/ct/v1/add-pre-chain"):
            return Answer(status=404, body={"error": path})
        chain = [base64.b64decode(item) for item in json.loads(body)["chain"]]
        issuer = x509.load_der_x509_certificate(chain[1]).public_key()
        milliseconds, signature = self.promise(_without_poison(chain[0]), issuer)
        identifier = key_hash(self.key.public_key())
        return Answer(
            body={
                "sct_version": 0,
                "id": base64.b64encode(identifier).decode(),
                "timestamp": milliseconds,
                "extensions": "",
                "signature": base64.b64encode(signature).decode(),
            }
        )


def _without_poison(precertificate: bytes) -> bytes:
    """TBSCertificate of the certificate to be: what is signed has no poison extension (RFC 6962, 3.2)."""
    tbs = asn1_x509.Certificate.load(precertificate)["tbs_certificate"]
    kept = [item for item in tbs["extensions"] if item["extn_id"].dotted != _POISON]
    tbs["extensions"] = asn1_x509.Extensions(kept)
    data: bytes = tbs.dump(force=True)
    return data


@contextlib.contextmanager
def logging_certificates(key: Key) -> Iterator[tuple[CtLog, str]]:
    """A log that can be asked, and its address (with a path, as real ones have)."""
    log = CtLog(key)
    with served_json(log.answer) as url:
        yield log, f"{url}/test"
