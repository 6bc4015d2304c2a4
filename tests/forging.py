"""Bundles made in process by the embedded instance, one step at a time, so that each step can be spoiled.

The certificate authority, logs and timestamp authority are the real ones of ``wheelmark.sign.embedded``; no
server and no client stand between.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from rfc3161_client import TimestampRequestBuilder

from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE, pre_authentication_encoding
from wheelmark.sign import embedded
from wheelmark.trust import state
from wheelmark.trust.roots import Root, read_root

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
Json = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Forge:
    """Makes bundles in one embedded domain.

    Args:
        home: State directory of the domain.
        instance: Its services.
    """

    def __init__(self, home: Path, instance: embedded.Instance) -> None:
        self.home = home
        self._instance = instance

    @property
    def root_bytes(self) -> bytes:
        return state.embedded_root_path(self.home).read_bytes()

    def root(
        self,
        *,
        name: str = "embedded",
        issuers: tuple[str, ...] = (embedded.ISSUER,),
        canonical: bool = True,
        second_opinion: bool = False,
        change: Callable[[Json], None] | None = None,
    ) -> Root:
        data = self.root_bytes
        if change is not None:
            document = json.loads(data)
            change(document)
            data = json.dumps(document).encode()
        return read_root(
            data,
            name=name,
            issuers=issuers,
            level="a test's own",
            canonical=canonical,
            second_opinion=second_opinion,
        )

    def certificate(
        self, identity: str = embedded.RELEASE_IDENTITY, claims: Mapping[str, Any] | None = None
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        token = self._instance.mint(identity, claims)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        proof = key.sign(identity.encode(), ec.ECDSA(hashes.SHA256()))
        request = {
            "publicKeyRequest": {
                "publicKey": {"algorithm": "ECDSA", "content": public},
                "proofOfPossession": b64(proof),
            }
        }
        chain = self._instance.certify(token, request)["signedCertificateEmbeddedSct"]["chain"]
        return key, x509.load_pem_x509_certificate(chain["certificates"][0].encode())

    def logged(self, certificate: x509.Certificate, digest: bytes, signature: bytes) -> Json:
        raw = b64(certificate.public_bytes(Encoding.DER))
        return self._instance.log(
            {
                "hashedRekordRequestV002": {
                    "digest": b64(digest),
                    "signature": {
                        "content": b64(signature),
                        "verifier": {
                            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                            "x509Certificate": {"rawBytes": raw},
                        },
                    },
                }
            }
        )

    def timestamp(self, signature: bytes, *, certificate: bool = True) -> str:
        request = TimestampRequestBuilder().data(signature).cert_request(cert_request=certificate).build()
        return b64(self._instance.timestamp(request.as_bytes()))

    def dsse(
        self,
        payload: bytes,
        *,
        identity: str = embedded.RELEASE_IDENTITY,
        claims: Mapping[str, Any] | None = None,
        payload_type: str = PAYLOAD_TYPE,
    ) -> Json:
        """A bundle over ``payload`` as a JSON object."""
        key, certificate = self.certificate(identity, claims)
        pae = pre_authentication_encoding(payload_type, payload)
        signature = key.sign(pae, ec.ECDSA(hashes.SHA256()))
        content = {
            "dsseEnvelope": {
                "payload": b64(payload),
                "payloadType": payload_type,
                "signatures": [{"sig": b64(signature)}],
            }
        }
        return self._bundle(certificate, bytes.fromhex(digests.sha256(pae)), signature, content)

    def message(self, artifact: bytes) -> Json:
        """A bundle with a signature over an artifact's digest."""
        key, certificate = self.certificate()
        digest = bytes.fromhex(digests.sha256(artifact))
        signature = key.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        content = {
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(digest)},
                "signature": b64(signature),
            }
        }
        return self._bundle(certificate, digest, signature, content)

    def sign(self, statement: bytes, identity: str = embedded.RELEASE_IDENTITY) -> bytes:
        """A canonical bundle over a statement."""
        return canonical(self.dsse(statement, identity=identity))

    def sign_payload(self, payload: bytes) -> bytes:
        """A canonical bundle over any bytes, called an in-toto statement."""
        return canonical(self.dsse(payload))

    def _bundle(self, certificate: x509.Certificate, digest: bytes, signature: bytes, content: Json) -> Json:
        return {
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self.logged(certificate, digest, signature)],
                "timestampVerificationData": {
                    "rfc3161Timestamps": [{"signedTimestamp": self.timestamp(signature)}]
                },
            },
            **content,
        }


@contextmanager
def forging(home: Path, *, issuer: str = embedded.ISSUER) -> Iterator[Forge]:
    """A new embedded domain in ``home``, and a forge in it."""
    embedded.create(home, issuer=issuer)
    with embedded.open_instance(home) as instance:
        yield Forge(home, instance)


def canonical(bundle: Json) -> bytes:
    return digests.canonical_json(bundle)


def changed(bundle: Json, path: str, value: Any) -> Json:
    """A copy with the member at ``path`` (dotted; numbers index lists) replaced; ``None`` removes it."""
    copied = copy.deepcopy(bundle)
    holder: Any = copied
    *outer, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    for step in outer:
        holder = holder[step]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    return copied


def found(bundle: Json, path: str) -> Any:
    holder: Any = bundle
    for step in path.split("."):
        holder = holder[int(step) if step.isdecimal() else step]
    return holder


def flipped(text: str, index: int = 0) -> str:
    """Base64 of the bytes in ``text`` with the lowest bit of one byte turned."""
    data = bytearray(base64.b64decode(text))
    data[index] ^= 1
    return b64(bytes(data))
