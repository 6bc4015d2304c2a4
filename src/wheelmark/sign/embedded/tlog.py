"""The transparency log: Rekor v2's one call, add an entry and get it back with its proof of inclusion.

Formats: rekor-tiles ``api/proto/rekor/v2`` (request and ``TransparencyLogEntry``), entry kind hashedrekord
0.0.2 (a DSSE envelope is logged as the digest of its pre-authentication encoding); checkpoints as C2SP
``tlog-checkpoint`` in a C2SP ``signed-note`` with an Ed25519 key. Only certificates of this domain's own
authority are logged, and keys that this process named: the log is no notice board for other users of the machine.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import load_der_public_key

from wheelmark import digests
from wheelmark.attest.dsse import decode_base64
from wheelmark.errors import InputError
from wheelmark.sign.embedded import keys
from wheelmark.sign.embedded.merkle import MerkleTree
from wheelmark.sign.embedded.storage import Records

_KIND, _VERSION = "hashedrekord", "0.0.2"
_KEY_DETAILS = "PKIX_ECDSA_P256_SHA_256"
_ED25519_NOTE = b"\x01"  # C2SP signed-note: signature type of Ed25519


def log_id(origin: str, key: ed25519.Ed25519PublicKey) -> bytes:
    """``SHA-256(origin || LF || 0x01 || key)``, of which a note carries the first four bytes."""
    return hashlib.sha256(origin.encode() + b"\n" + _ED25519_NOTE + key.public_bytes_raw()).digest()


class TransparencyLog:
    """Entries in a file, their tree in memory.

    Args:
        origin: The log's name: the host of its base URL, without a scheme or a path.
        key: Signs checkpoints.
        authority: The certificate whose certificates may be logged.
        path: The file of entries.
    """

    def __init__(
        self, *, origin: str, key: ed25519.Ed25519PrivateKey, authority: x509.Certificate, path: Path
    ) -> None:
        self._origin = origin
        self._key = key
        self._authority = authority
        self._id = log_id(origin, key.public_key())
        self._records = Records(path)
        self._tree = MerkleTree()
        self._named: set[bytes] = set()

    def close(self) -> None:
        """Release the file."""
        self._records.close()

    def name_key(self, key: ec.EllipticCurvePublicKey) -> None:
        """Log what this key signs too, as long as this object lives."""
        self._named.add(keys.public_der(key))

    def add(self, request: Any) -> dict[str, Any]:
        """Check and log one entry; the answer is a ``TransparencyLogEntry`` in protobuf JSON.

        Raises:
            InputError: Not a hashedrekord request, or its signature is wrong (reason ``log-entry``).
        """
        body = self._check(request)
        with self._records.exclusively() as added:
            for record in added:
                self._tree.append(record)
            self._records.append(body)
            index = self._tree.append(body)
            size, root, path = self._tree.size, self._tree.root(), self._tree.proof(index)
        return {
            "logIndex": str(index),
            "logId": {"keyId": keys.base64_text(self._id)},
            "kindVersion": {"kind": _KIND, "version": _VERSION},
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": keys.base64_text(root),
                "treeSize": str(size),
                "hashes": [keys.base64_text(item) for item in path],
                "checkpoint": {"envelope": self._checkpoint(size, root)},
            },
            "canonicalizedBody": keys.base64_text(body),
        }

    def _check(self, request: Any) -> bytes:
        """The canonical body of the entry that ``request`` asks for."""
        try:
            asked = request["hashedRekordRequestV002"]
            digest = decode_base64(asked["digest"], what="digest")
            signature = decode_base64(asked["signature"]["content"], what="signature")
            verifier = asked["signature"]["verifier"]
            member, der = self._verifier(verifier)
            details = verifier["keyDetails"]
        except (KeyError, TypeError) as error:
            raise InputError(
                f"only hashedrekord 0.0.2 entries with a certificate or a named key are logged: no {error}",
                reason="log-entry",
            ) from error
        try:
            key = self._signing_key(member, der)
            if details != _KEY_DETAILS or not isinstance(key, ec.EllipticCurvePublicKey):
                raise InputError(f"key details {str(details)[:80]!r} are not logged", reason="log-entry")
            key.verify(signature, digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        except (ValueError, TypeError, InvalidSignature) as error:
            raise InputError(f"log entry does not verify: {error}", reason="log-entry") from error
        return digests.canonical_json(
            {
                "apiVersion": _VERSION,
                "kind": _KIND,
                "spec": {
                    "hashedRekordV002": {
                        "data": {"algorithm": "SHA2_256", "digest": keys.base64_text(digest)},
                        "signature": {
                            "content": keys.base64_text(signature),
                            "verifier": {
                                "keyDetails": _KEY_DETAILS,
                                member: {"rawBytes": keys.base64_text(der)},
                            },
                        },
                    }
                },
            }
        )

    @staticmethod
    def _verifier(verifier: Any) -> tuple[str, bytes]:
        """Which member of the request names the signer, and its DER."""
        member = "publicKey" if "publicKey" in verifier else "x509Certificate"
        return member, decode_base64(verifier[member]["rawBytes"], what=member)

    def _signing_key(self, member: str, der: bytes) -> object:
        if member == "x509Certificate":
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self._authority)
            return certificate.public_key()
        if der not in self._named:
            raise InputError("a key that nobody named here is not logged", reason="log-entry")
        return load_der_public_key(der)

    def _checkpoint(self, size: int, root: bytes) -> str:
        note = f"{self._origin}\n{size}\n{keys.base64_text(root)}\n"
        signature = self._id[:4] + self._key.sign(note.encode())
        return f"{note}\n\N{EM DASH} {self._origin} {keys.base64_text(signature)}\n"
