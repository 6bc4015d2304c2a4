"""The running services of one embedded domain."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from wheelmark.sign.embedded import server, trustconfig
from wheelmark.sign.embedded.authority import CertificateAuthority
from wheelmark.sign.embedded.ctlog import CertificateLog
from wheelmark.sign.embedded.domain import EmbeddedDomain
from wheelmark.sign.embedded.oidc import TokenIssuer
from wheelmark.sign.embedded.tlog import TransparencyLog
from wheelmark.sign.embedded.tsa import TimestampAuthority


class Instance:
    """Certificate authority, logs and timestamp authority of a domain's newest generation.

    Args:
        domain: Loaded under a lock that is held as long as this instance lives.
    """

    def __init__(self, domain: EmbeddedDomain) -> None:
        folder, public, keys = domain.current.folder, domain.current.public, domain.current.keys()
        self.domain = domain
        self._tokens = TokenIssuer(keys.tokens, domain.issuer)
        self._ct_log = CertificateLog(keys.ct_log, folder / "ct.records")
        self._log = TransparencyLog(
            origin=public.origin,
            key=keys.log,
            authority=public.authority,
            path=folder / "log.records",
        )
        self._authority = CertificateAuthority(
            key=keys.authority, certificate=public.authority, tokens=self._tokens, log=self._ct_log
        )
        self._timestamps = TimestampAuthority(keys.timestamping, public.timestamping[0])

    def close(self) -> None:
        """Release the files."""
        self._log.close()
        self._ct_log.close()

    def mint(self, identity: str, claims: Mapping[str, Any] | None = None) -> str:
        """An identity token that the certificate authority takes."""
        return self._tokens.mint(identity, claims)

    def certify(self, token: str, request: Any) -> dict[str, Any]:
        """A signing certificate (``CertificateAuthority.issue``)."""
        return self._authority.issue(token, request)

    def log(self, request: Any) -> dict[str, Any]:
        """A logged entry (``TransparencyLog.add``)."""
        return self._log.add(request)

    def name_key(self, key: ec.EllipticCurvePublicKey) -> None:
        """Let the log take what a managed key signs, which has no certificate (``TransparencyLog.name_key``)."""
        self._log.name_key(key)

    def timestamp(self, request: bytes) -> bytes:
        """A signed time (``TimestampAuthority.answer``)."""
        return self._timestamps.answer(request)

    @contextlib.contextmanager
    def serving(self) -> Iterator[bytes]:
        """Listen on loopback; hands over the ``ClientTrustConfig`` that points a client here."""
        with server.serving(self) as url:
            yield trustconfig.client_trust_config(self.domain.public(), url)
