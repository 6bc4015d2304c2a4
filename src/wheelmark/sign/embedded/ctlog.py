"""The certificate transparency log: every certificate is logged, and carries the log's signed timestamp.

Formats: RFC 6962, sections 3.2 (signed certificate timestamp, for a precertificate), 3.3 (SCT list in a
certificate) and 3.4 (leaf of the tree).
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from wheelmark.sign.embedded import keys
from wheelmark.sign.embedded.storage import Records

SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_VERSION_1 = 0
_CERTIFICATE_TIMESTAMP = 0
_TIMESTAMPED_ENTRY = 0
_PRECERTIFICATE = 1
_SHA256_ECDSA = b"\x04\x03"  # RFC 5246, 7.4.1.4.1: hash sha256(4), signature ecdsa(3)


class CertificateLog:
    """Logs precertificates in a file and signs for having done so."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, path: Path) -> None:
        self._key = key
        self._records = Records(path)

    def close(self) -> None:
        """Release the file."""
        self._records.close()

    def promise(self, precertificate: bytes, issuer: keys.PublicKey) -> x509.UnrecognizedExtension:
        """Log a certificate and return the extension that says so.

        Args:
            precertificate: The TBSCertificate in DER, as it is without the SCT list.
            issuer: The public key that signs the certificate.
        """
        milliseconds = time.time_ns() // 1_000_000
        entry = keys.key_hash(issuer) + len(precertificate).to_bytes(3, "big") + precertificate
        body = struct.pack("!QH", milliseconds, _PRECERTIFICATE) + entry + b"\x00\x00"
        with self._records.exclusively():
            self._records.append(struct.pack("!BB", _VERSION_1, _TIMESTAMPED_ENTRY) + body)
        signed = struct.pack("!BB", _VERSION_1, _CERTIFICATE_TIMESTAMP) + body
        signature = self._key.sign(signed, ec.ECDSA(hashes.SHA256()))
        timestamp = (
            struct.pack("!B32sQH", _VERSION_1, keys.key_hash(self._key.public_key()), milliseconds, 0)
            + _SHA256_ECDSA
            + struct.pack("!H", len(signature))
            + signature
        )
        listed = struct.pack("!HH", len(timestamp) + 2, len(timestamp)) + timestamp
        return x509.UnrecognizedExtension(SCT_LIST, _octet_string(listed))


def _octet_string(data: bytes) -> bytes:
    """DER OCTET STRING (X.690, 8.7) of fewer than 256 bytes, which one SCT always is."""
    short = len(data) < 0x80  # noqa: PLR2004 - X.690, 8.1.3.4: the longest length in the short form
    return bytes([0x04, len(data)] if short else [0x04, 0x81, len(data)]) + data
