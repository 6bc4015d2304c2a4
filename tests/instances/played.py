"""Private instances of other shapes than the embedded one, played in this process on loopback.

Certificate authority, Rekor of version 2 and timestamp authority are the embedded domain's code with other keys and
longer chains; the issuer, the certificate log and a Rekor of version 1 are this folder's.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import jwt
from asn1crypto import core
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from instances import pki
from instances.config import Log, Services
from instances.ctlog import CtLog, logging_certificates
from instances.oidc import Issuer, issuing
from instances.rekor1 import logging_entries
from wheelmark.sign.embedded import server
from wheelmark.sign.embedded.authority import CertificateAuthority
from wheelmark.sign.embedded.ctlog import SCT_LIST
from wheelmark.sign.embedded.tlog import TransparencyLog
from wheelmark.sign.embedded.tsa import TimestampAuthority


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """What kind of instance it is."""

    authority: str = "p384"
    authority_between: int = 0
    ct_log: str = "p256"
    timestamps: str | None = "p256"
    """Keys above the timestamp authority's own, which is ``p256``; ``None`` for no authority."""
    timestamps_between: int = 0
    origin: str = "log.private.invalid"
    """Of Rekor v2's checkpoints."""
    versions: tuple[int, ...] = (2,)
    """Of Rekor; the highest is used."""


class _Tokens:
    """Takes the issuer's tokens; Fulcio would ask it for its keys."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    def check(self, token: str) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            self._issuer.public_key(),
            algorithms=["RS256"],
            audience="sigstore",
            issuer=self._issuer.url,
        )
        return claims


class _Promises:
    """The certificate log as the certificate authority calls it."""

    def __init__(self, log: CtLog) -> None:
        self._log = log

    def promise(self, precertificate: bytes, issuer: object) -> x509.UnrecognizedExtension:
        listed = self._log.listed(precertificate, issuer)
        return x509.UnrecognizedExtension(SCT_LIST, core.OctetString(listed).dump())


class _Services:
    def __init__(
        self, authority: CertificateAuthority, chain: pki.Chain, log: TransparencyLog, timestamps: Any
    ) -> None:
        self._authority = authority
        self._above = [item.public_bytes(Encoding.PEM).decode() for item in chain.certificates[1:]]
        self._log = log
        self._timestamps = timestamps

    def certify(self, token: str, request: Any) -> dict[str, Any]:
        answer = self._authority.issue(token, request)
        answer["signedCertificateEmbeddedSct"]["chain"]["certificates"] += self._above
        return answer

    def log(self, request: Any) -> dict[str, Any]:
        return self._log.add(request)

    def timestamp(self, request: bytes) -> bytes:
        data: bytes = self._timestamps.answer(request)
        return data


@contextlib.contextmanager
def playing(folder: Path, shape: Shape) -> Iterator[Services]:
    """An instance of that shape."""
    with contextlib.ExitStack() as stack:
        issuer = stack.enter_context(issuing())
        ct_log, ct_url = stack.enter_context(logging_certificates(pki.make_key(shape.ct_log)))
        _write(folder / "ct.pub.pem", ct_log.key)
        chain = pki.authority(
            "fulcio", shape.authority, between=shape.authority_between, usage=ExtendedKeyUsageOID.CODE_SIGNING
        )
        (folder / "fulcio.crt.pem").write_bytes(chain.pem())
        authority = CertificateAuthority(
            key=cast("ec.EllipticCurvePrivateKey", chain.key),
            certificate=chain.certificates[0],
            tokens=cast("Any", _Tokens(issuer)),
            log=cast("Any", _Promises(ct_log)),
        )
        timestamps = None
        if shape.timestamps is not None:
            tsa = pki.timestamping(shape.timestamps, between=shape.timestamps_between, leaf="p256")
            (folder / "tsa.crt.pem").write_bytes(tsa.pem())
            timestamps = TimestampAuthority(cast("ec.EllipticCurvePrivateKey", tsa.key), tsa.certificates[0])
        log_key = ed25519.Ed25519PrivateKey.generate()
        _write(folder / "log2.pub.pem", log_key)
        log = TransparencyLog(
            origin=shape.origin, key=log_key, authority=chain.certificates[0], path=folder / "log.records"
        )
        stack.callback(log.close)
        url = stack.enter_context(server.serving(_Services(authority, chain, log, timestamps)))
        logs = []
        if 1 in shape.versions:
            key = cast("ec.EllipticCurvePrivateKey", pki.make_key("p256"))
            _write(folder / "log1.pub.pem", key)
            played, log_url = stack.enter_context(logging_entries(key))
            logs.append(Log(url=log_url, version=1, origin=played.host))
        if 2 in shape.versions:
            logs.append(Log(url=url, version=2, origin=shape.origin))
        yield Services(
            folder=folder,
            issuer=issuer,
            fulcio=url,
            logs=tuple(logs),
            timestamps=f"{url}/api/v1/timestamp" if timestamps else "",
            certificates=ct_url,
        )


def _write(path: Path, key: pki.Key | ed25519.Ed25519PrivateKey) -> None:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
