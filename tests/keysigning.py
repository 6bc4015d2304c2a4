"""Bundles signed with bare keys, and a log in process that takes them: Rekor v1 or v2, with keys of its own.

The log's entries stand alone in trees of one leaf; the timestamp authority is the forge's own.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import MEDIA_TYPE, Forge, Json, b64
from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE, pre_authentication_encoding
from wheelmark.sign.embedded import tlog
from wheelmark.trust.keys import ManagedKey, read_key
from wheelmark.trust.roots import Root
from wheelmark.verify.signature import SigningKey, signing_key
from wheelmark.verify.twins import smaller_twin

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
HOST = "log.example"


def pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def managed(key: PrivateKey, root: str = "embedded") -> ManagedKey:
    return read_key(pem(key), root=root, what="a test's key")


def sign(key: PrivateKey, data: bytes, *, digest: bytes | None = None) -> bytes:
    """Over ``data``, or over the sha256 of an artifact."""
    function: Any = signing_key(key.public_key()).function
    if digest is not None:
        data, function = digest, utils.Prehashed(hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(data, ec.ECDSA(function))
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), function)
    return key.sign(data)


class KeyLog:
    """A log whose root is the forge's with this log beside.

    Args:
        forge: Its domain.
        version: 1 (ECDSA, promises a time) or 2 (Ed25519).
    """

    def __init__(self, forge: Forge, version: int) -> None:
        self.forge = forge
        self.version = version
        self.first = ec.generate_private_key(ec.SECP256R1())
        self.second = ed25519.Ed25519PrivateKey.generate()
        key = self.first if version == 1 else self.second
        self.spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.log_id = (
            hashlib.sha256(self.spki).digest()
            if version == 1
            else tlog.log_id(HOST, self.second.public_key())
        )

    def root(self, **options: Any) -> Root:
        def add(document: Json) -> None:
            details = "PKIX_ECDSA_P256_SHA_256" if self.version == 1 else "PKIX_ED25519"
            document["tlogs"].append(
                {
                    "baseUrl": f"https://{HOST}",
                    "hashAlgorithm": "SHA2_256",
                    "logId": {"keyId": b64(self.log_id)},
                    "publicKey": {
                        "keyDetails": details,
                        "rawBytes": b64(self.spki),
                        "validFor": {"start": "2020-01-01T00:00:00Z"},
                    },
                }
            )

        return self.forge.root(change=add, **options)

    def statement(self, key: PrivateKey, payload: bytes, *, kind: str = "", **options: Any) -> Json:
        """A bundle over a statement.

        Args:
            key: Signs.
            payload: The statement.
            kind: Of the log entry: ``dsse`` or ``intoto`` in the first version, ``hashedrekord`` in the second.
            options: For ``_bundle``.
        """
        pae = pre_authentication_encoding(PAYLOAD_TYPE, payload)
        signature = smaller_twin(key.public_key(), sign(key, pae))
        content = {
            "dsseEnvelope": {
                "payload": b64(payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": b64(signature)}],
            }
        }
        signer = signing_key(key.public_key())
        if self.version == 2:
            spec = self._second(signer, hashlib.new(signer.function.name, pae).digest(), signature)
            return self._bundle(key, signature, content, "hashedrekord", "0.0.2", spec, **options)
        payload_hash = {"algorithm": "sha256", "value": digests.sha256(payload)}
        if kind == "intoto":
            logged = {"publicKey": b64(pem(key)), "sig": b64(b64(signature).encode())}
            envelope = {
                "payload": b64(b64(payload).encode()),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [logged],
            }
            spec = {"content": {"envelope": envelope, "hash": payload_hash, "payloadHash": payload_hash}}
            return self._bundle(key, signature, content, "intoto", "0.0.2", spec, **options)
        verifier = {"signature": b64(signature), "verifier": b64(pem(key))}
        spec = {"envelopeHash": payload_hash, "payloadHash": payload_hash, "signatures": [verifier]}
        return self._bundle(key, signature, content, "dsse", "0.0.1", spec, **options)

    def message(self, key: PrivateKey, artifact: bytes, **options: Any) -> Json:
        """A bundle over an artifact's digest."""
        digest = hashlib.sha256(artifact).digest()
        signature = smaller_twin(key.public_key(), sign(key, artifact, digest=digest))
        content = {
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(digest)},
                "signature": b64(signature),
            }
        }
        if self.version == 2:
            spec = self._second(signing_key(key.public_key()), digest, signature)
            return self._bundle(key, signature, content, "hashedrekord", "0.0.2", spec, **options)
        spec = {
            "data": {"hash": {"algorithm": "sha256", "value": digest.hex()}},
            "signature": {"content": b64(signature), "publicKey": {"content": b64(pem(key))}},
        }
        return self._bundle(key, signature, content, "hashedrekord", "0.0.1", spec, **options)

    def _second(self, signer: SigningKey, digest: bytes, signature: bytes) -> Json:
        return {
            "hashedRekordV002": {
                "data": {"algorithm": signer.digest, "digest": b64(digest)},
                "signature": {
                    "content": b64(signature),
                    "verifier": {"keyDetails": signer.details, "publicKey": {"rawBytes": b64(signer.der)}},
                },
            }
        }

    def _bundle(
        self,
        key: PrivateKey,
        signature: bytes,
        content: Json,
        kind: str,
        version: str,
        spec: Json,
        *,
        promised: bool = True,
        stamped: bool = True,
        hint: str | None = None,
    ) -> Json:
        body = digests.canonical_json({"apiVersion": version, "kind": kind, "spec": spec})
        entry: Json = {
            "logIndex": "7" if self.version == 1 and promised else "0",
            "logId": {"keyId": b64(self.log_id)},
            "kindVersion": {"kind": kind, "version": version},
            "inclusionProof": self._proof(body),
            "canonicalizedBody": b64(body),
        }
        if self.version == 1 and promised:
            time = int(dt.datetime.now(dt.UTC).timestamp())
            promise = {
                "body": b64(body),
                "integratedTime": time,
                "logID": self.log_id.hex(),
                "logIndex": 7,
            }
            entry["integratedTime"] = str(time)
            entry["inclusionPromise"] = {
                "signedEntryTimestamp": b64(self._ecdsa(digests.canonical_json(promise)))
            }
        stamps = [{"signedTimestamp": self.forge.timestamp(signature)}] if stamped else []
        material: Json = {
            "publicKey": {"hint": managed(key).hint if hint is None else hint},
            "tlogEntries": [entry],
        }
        if stamps:
            material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
        return {"mediaType": MEDIA_TYPE, "verificationMaterial": material, **content}

    def _proof(self, body: bytes) -> Json:
        root = b64(hashlib.sha256(b"\0" + body).digest())
        origin = f"{HOST} - 1" if self.version == 1 else HOST
        note = f"{origin}\n1\n{root}\n"
        signed = self._ecdsa(note.encode()) if self.version == 1 else self.second.sign(note.encode())
        line = f"\u2014 {HOST} {b64(self.log_id[:4] + signed)}\n"
        return {
            "logIndex": "0",
            "rootHash": root,
            "treeSize": "1",
            "hashes": [],
            "checkpoint": {"envelope": f"{note}\n{line}"},
        }

    def _ecdsa(self, data: bytes) -> bytes:
        return smaller_twin(self.first.public_key(), self.first.sign(data, ec.ECDSA(hashes.SHA256())))
