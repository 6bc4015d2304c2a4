"""An OpenID Connect issuer on loopback, as Fulcio asks one: discovery document and keys; tokens are minted here.

Format: OpenID Connect Discovery 1.0, section 4; RFC 7517 (JWK Set).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from instances.serving import Answer, served_json

_LIFETIME = 600


class Issuer:
    """Mints RS256 tokens, as every client and Fulcio read them."""

    def __init__(self) -> None:
        self.url = ""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def mint(self, subject: str, claims: Mapping[str, Any] | None = None) -> str:
        now = int(time.time())
        payload = {
            "sub": subject,
            "aud": "sigstore",
            "iss": self.url,
            "iat": now,
            "nbf": now,
            "exp": now + _LIFETIME,
            **(claims or {}),
        }
        return jwt.encode(payload, self._key, algorithm="RS256", headers={"kid": "one"})

    def public_key(self) -> rsa.RSAPublicKey:
        return self._key.public_key()

    def answer(self, path: str, _body: bytes) -> Answer:
        if path == "/.well-known/openid-configuration":
            return Answer(
                body={
                    "issuer": self.url,
                    "jwks_uri": f"{self.url}/keys",
                    "authorization_endpoint": f"{self.url}/auth",
                    "token_endpoint": f"{self.url}/token",
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            )
        if path == "/keys":
            key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
            return Answer(body={"keys": [{**key, "kid": "one", "use": "sig", "alg": "RS256"}]})
        return Answer(status=404, body={"error": "not found"})


@contextlib.contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that can be asked."""
    issuer = Issuer()
    with served_json(issuer.answer) as url:
        issuer.url = url
        yield issuer
