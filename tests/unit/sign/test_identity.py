"""Identity tokens from the surroundings, and the names that certificates give them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from wheelmark.errors import SignError
from wheelmark.sign import Domain, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE, Identity, ambient_token, certified, parse_token

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
AMBIENT = (
    TOKEN_VARIABLE,
    "GITHUB_ACTIONS",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
)


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    # Which cloud this is, is found out from the machine's product name; there is no network here to ask.
    monkeypatch.setattr("id.detect_credential", lambda _audience: None)


def token(**claims: Any) -> str:
    now = int(time.time())
    value: dict[str, Any] = {
        "iss": "https://issuer.invalid",
        "sub": "me",
        "aud": "sigstore",
        "iat": now,
        "exp": now + 60,
    }
    value |= claims
    return jwt.encode({name: claim for name, claim in value.items() if claim is not None}, KEY, "RS256")


def test_no_identity_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(SignError) as caught:
        ambient_token()
    assert caught.value.reason == "no-identity"
    assert "id-token: write" in caught.value.fix
    assert TOKEN_VARIABLE in caught.value.fix


@pytest.mark.parametrize("domain", [Domain.PUBLIC, Domain.FILE])
def test_no_domain_falls_back_to_another(domain: Domain, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}", encoding="utf-8")
    with pytest.raises(SignError) as caught, open_signer(domain, config=config):
        pass
    assert caught.value.reason == "no-identity"


def test_a_missing_configuration_is_said_before_a_missing_identity() -> None:
    with pytest.raises(SignError) as caught, open_signer(Domain.FILE):
        pass
    assert caught.value.reason == "sign-config"


def test_the_variable_gives_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token())
    assert parse_token(ambient_token()).identity == "me"


def test_a_job_that_may_not_ask_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(SignError) as caught:
        ambient_token()
    assert caught.value.reason == "no-identity"
    assert "id-token: write" in caught.value.fix


@pytest.mark.parametrize(
    "text", ["", "a.b.c", token(exp=int(time.time()) - 60), token(aud="other"), token(iss=None)]
)
def test_a_bad_token_is_refused_and_never_quoted(text: str) -> None:
    with pytest.raises(SignError) as caught:
        parse_token(text)
    assert caught.value.reason == "bad-identity"
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, Identity(name="me", issuer="https://issuer.invalid")),
        (
            {
                "iss": "https://token.actions.githubusercontent.com",
                "job_workflow_ref": "acme/widget/.github/workflows/r.yml@refs/tags/v1",
            },
            Identity(
                name="https://github.com/acme/widget/.github/workflows/r.yml@refs/tags/v1",
                issuer="https://token.actions.githubusercontent.com",
            ),
        ),
        (
            {"iss": "https://gitlab.com", "ci_config_ref_uri": "gitlab.com/a/b//.gitlab-ci.yml@refs/heads/x"},
            Identity(name="https://gitlab.com/a/b//.gitlab-ci.yml@refs/heads/x", issuer="https://gitlab.com"),
        ),
        (
            {"iss": "https://accounts.google.com", "email": "a@example.org", "email_verified": True},
            Identity(name="a@example.org", issuer="https://accounts.google.com"),
        ),
    ],
)
def test_the_name_that_a_certificate_gives(claims: dict[str, Any], expected: Identity) -> None:
    assert certified(parse_token(token(**claims))) == expected


def test_a_workflow_token_without_its_workflow_is_refused() -> None:
    found = parse_token(token(iss="https://token.actions.githubusercontent.com"))
    with pytest.raises(SignError) as caught:
        certified(found)
    assert caught.value.reason == "bad-identity"
