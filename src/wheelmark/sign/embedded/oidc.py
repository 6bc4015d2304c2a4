"""Identity tokens of the embedded domain: minted in this process only, never over HTTP.

Whoever can read the token key can be any identity of the domain; that is all that an embedded signature proves
about its signer. Format: OpenID Connect Core 1.0, section 2 (ID Token), signed with RS256 (RFC 7518, 3.3).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from wheelmark.errors import InputError

ISSUER = "https://embedded.invalid/oidc"
RELEASE_IDENTITY = "https://embedded.invalid/wheelmark/release"
_RUNNER_IDENTITY = "https://embedded.invalid/wheelmark/runner/"
AUDIENCE = "sigstore"
LIFETIME = 600
"""Seconds that a token is good for: as long as the certificate that it is turned into."""


def runner_identity(name: str) -> str:
    """The identity under which a test runner called ``name`` signs its evidence.

    Raises:
        InputError: ``name`` is not made of lowercase letters, digits and hyphens (reason ``runner-name``).
    """
    if not name or not name.isascii() or not name.replace("-", "").isalnum() or name != name.lower():
        raise InputError(
            f"{name[:80]!r} is no runner name",
            fix="use lowercase letters, digits and -",
            reason="runner-name",
        )
    return _RUNNER_IDENTITY + name


class TokenIssuer:
    """Mints and checks the identity tokens of one issuer."""

    def __init__(self, key: rsa.RSAPrivateKey, issuer: str) -> None:
        self._key = key
        self.issuer = issuer

    def mint(self, identity: str, claims: Mapping[str, Any] | None = None) -> str:
        """A token for ``identity``, good from now on for ``LIFETIME`` seconds.

        Args:
            identity: The subject.
            claims: More claims, such as those of a CI service.
        """
        now = int(time.time())
        payload = {
            **(claims or {}),
            "iss": self.issuer,
            "sub": identity,
            "aud": AUDIENCE,
            "iat": now,
            "nbf": now,
            "exp": now + LIFETIME,
        }
        return jwt.encode(payload, self._key, algorithm="RS256", headers={"kid": "embedded"})

    def check(self, token: str) -> Mapping[str, Any]:
        """The claims of a token of this issuer that is good now.

        Raises:
            InputError: Another issuer's, expired, for another audience, or tampered with (reason ``token``).
        """
        try:
            return jwt.decode(
                token,
                self._key.public_key(),
                algorithms=["RS256"],
                audience=AUDIENCE,
                issuer=self.issuer,
                options={"require": ["aud", "sub", "iat", "exp", "iss"]},
            )
        except jwt.PyJWTError as error:
            raise InputError(f"identity token refused: {error}", reason="token") from error
