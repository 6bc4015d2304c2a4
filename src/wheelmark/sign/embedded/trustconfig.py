"""The trusted root of an embedded domain, and the client configuration that points a signer at it.

Formats: sigstore protobuf-specs ``sigstore_trustroot.proto``: ``TrustedRoot`` 0.1, ``SigningConfig`` 0.2 and
``ClientTrustConfig`` 0.1, in protobuf JSON. The root never holds the loopback address, which changes with every
run: its bytes change only when the domain is rotated, so an operator can name them by digest.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from wheelmark import digests
from wheelmark.sign.embedded import keys
from wheelmark.sign.embedded.authority import ORGANIZATION
from wheelmark.sign.embedded.tlog import log_id

HOST = "embedded.invalid"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """From when to when a generation of keys was in use, in UTC; ``end`` is ``None`` while it is."""

    start: dt.datetime
    end: dt.datetime | None = None

    def as_json(self) -> dict[str, str]:
        """A protobuf ``TimeRange``."""
        times = {"start": self.start, "end": self.end}
        return {name: _time(time) for name, time in times.items() if time is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicMaterial:
    """What verifiers need of one generation."""

    number: int
    window: Window
    authority: x509.Certificate
    ct_log: ec.EllipticCurvePublicKey
    log: ed25519.Ed25519PublicKey
    timestamping: tuple[x509.Certificate, x509.Certificate]
    """The certificate that timestamps are signed under, and its issuer."""

    @property
    def origin(self) -> str:
        """Name of the transparency log: the host of its base URL (sigstore-js compares them)."""
        return f"log-{self.number}.{HOST}"


def trusted_root(generations: tuple[PublicMaterial, ...]) -> bytes:
    """Canonical JSON of the trusted root over all generations, oldest first."""
    return digests.canonical_json(_trusted_root(generations))


def client_trust_config(generations: tuple[PublicMaterial, ...], url: str) -> bytes:
    """Canonical JSON of the configuration for signing with the newest generation.

    Args:
        generations: Oldest first.
        url: Where the services listen, without a path.
    """
    window = generations[-1].window.as_json()

    def service(path: str, version: int) -> list[dict[str, Any]]:
        return [{"url": url + path, "majorApiVersion": version, "validFor": window, "operator": ORGANIZATION}]

    return digests.canonical_json(
        {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": _trusted_root(generations),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": service("", 1),
                "oidcUrls": service("", 1),
                "rekorTlogUrls": service("", 2),
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": service("/api/v1/timestamp", 1),
                "tsaConfig": {"selector": "ANY"},
            },
        }
    )


def _trusted_root(generations: tuple[PublicMaterial, ...]) -> dict[str, Any]:
    return {
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [
            _log(item, item.origin, item.log, "PKIX_ED25519", log_id(item.origin, item.log))
            for item in generations
        ],
        "certificateAuthorities": [
            _authority(item, f"https://ca-{item.number}.{HOST}", item.authority) for item in generations
        ],
        "ctlogs": [
            _log(
                item,
                f"ct-{item.number}.{HOST}",
                item.ct_log,
                "PKIX_ECDSA_P256_SHA_256",
                keys.key_hash(item.ct_log),
            )
            for item in generations
        ],
        "timestampAuthorities": [
            _authority(item, f"https://tsa-{item.number}.{HOST}", *item.timestamping) for item in generations
        ],
    }


def _log(
    item: PublicMaterial, host: str, key: keys.PublicKey, details: str, identifier: bytes
) -> dict[str, Any]:
    return {
        "baseUrl": f"https://{host}",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": keys.base64_text(keys.public_der(key)),
            "keyDetails": details,
            "validFor": item.window.as_json(),
        },
        "logId": {"keyId": keys.base64_text(identifier)},
    }


def _authority(item: PublicMaterial, uri: str, *chain: x509.Certificate) -> dict[str, Any]:
    return {
        "subject": {"organization": ORGANIZATION, "commonName": _common_name(chain[-1].subject)},
        "uri": uri,
        "certChain": {
            "certificates": [
                {"rawBytes": keys.base64_text(certificate.public_bytes(Encoding.DER))}
                for certificate in chain
            ]
        },
        "validFor": item.window.as_json(),
    }


def _common_name(name: x509.Name) -> str:
    return str(name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def _time(time: dt.datetime) -> str:
    return time.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
