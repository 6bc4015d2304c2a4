"""Who signs: identity tokens from this process's surroundings, and the name that a certificate gives them.

A token is a secret: it is never logged, and no error quotes it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jwt
from sigstore.oidc import IdentityError, IdentityToken, detect_credential

from wheelmark.errors import SignError

TOKEN_VARIABLE = "SIGSTORE_ID_TOKEN"  # noqa: S105 - the name that cosign reads too, not a token
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """The name and the issuer that a certificate has to carry."""

    name: str
    """Subject alternative name: an address, or the URI of a workflow or workload."""
    issuer: str


def ambient_token() -> str:
    """The identity token that the CI service or ``SIGSTORE_ID_TOKEN`` gives.

    Raises:
        SignError: There is none (reason ``no-identity``).
    """
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    try:
        token = detect_credential()
    except IdentityError as error:
        raise SignError(
            f"the CI service gives no identity token: {error}",
            cause="the job may not ask for one",
            fix="on GitHub give the job `permissions: id-token: write`",
            reason="no-identity",
        ) from error
    if token is None:
        raise SignError(
            "signing needs an identity, and there is none here",
            cause="this does not run in a CI service that vouches for its jobs",
            fix=f"run in CI with `permissions: id-token: write`, put an identity token into {TOKEN_VARIABLE}, "
            "or sign in the embedded domain",
            reason="no-identity",
        )
    return token


def parse_token(token: str) -> IdentityToken:
    """A token that is good now, for Sigstore.

    Raises:
        SignError: Malformed, expired or for another audience (reason ``bad-identity``).
    """
    try:
        return IdentityToken(token)
    except IdentityError as error:
        raise SignError(
            f"the identity token cannot be used: {error}",
            cause="it has expired, or it was issued for another audience than sigstore",
            reason="bad-identity",
        ) from error


def certified(token: IdentityToken) -> Identity:
    """The identity that Fulcio writes into the certificate for ``token``.

    Source: fulcio ``docs/oidc.md``. A workflow is certified under its own URI and not under the token's
    subject.

    Raises:
        SignError: The claim that names the workflow is absent (reason ``bad-identity``).
    """
    # The certificate authority checks the signature; here the token only says what to expect.
    claims = jwt.decode(str(token), options={"verify_signature": False})
    if token.issuer == _GITHUB_ISSUER or "job_workflow_ref" in claims:
        return Identity(name=f"https://github.com/{_claim(claims, 'job_workflow_ref')}", issuer=token.issuer)
    if "ci_config_ref_uri" in claims:
        return Identity(name=f"https://{_claim(claims, 'ci_config_ref_uri')}", issuer=token.issuer)
    return Identity(name=token.identity, issuer=token.federated_issuer)


def _claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise SignError(
            f"the identity token has no claim {name!r}, which its certificate is named after",
            reason="bad-identity",
        )
    return value
