"""The file domain: who signs is what the instance certifies, and what it refuses is told in its own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import SignError
from wheelmark.sign import Domain, embedded, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE

STATEMENT = Statement(
    subjects=(Subject(name="artifact", sha256="ab" * 32),),
    predicate_type="https://example.org/claim/v1",
    predicate={"a": 1},
).as_bytes()


def test_a_refused_token_is_told_in_the_services_words(
    state: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.json"
    with embedded.open_instance(other) as stranger, embedded.open_instance(state) as instance:
        monkeypatch.setenv(TOKEN_VARIABLE, stranger.mint("me"))
        with instance.serving() as made:
            config.write_bytes(made)
            with open_signer(Domain.FILE, config=config) as signer, pytest.raises(SignError) as caught:
                signer.sign(STATEMENT)
    assert caught.value.reason == "sign"
    assert "identity token refused: Signature verification failed" in caught.value.what


def test_the_identity_is_the_certificates_and_known_before_anything_is_signed(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token has a workflow's claim that this instance does not name anybody after."""
    config = tmp_path / "config.json"
    with embedded.open_instance(state) as instance, instance.serving() as made:
        config.write_bytes(made)
        claims = {"ci_config_ref_uri": "gitlab.example/a/b//.gitlab-ci.yml@refs/heads/x"}
        monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("https://private.example/builder", claims))
        with open_signer(Domain.FILE, config=config) as signer:
            assert (signer.identity, signer.issuer) == ("https://private.example/builder", embedded.ISSUER)
            signer.sign(STATEMENT)
            assert signer.certificates == 1


@pytest.mark.parametrize("member", ["tsaConfig", "rekorTlogConfig"])
def test_an_empty_selection_is_as_good_as_none(
    member: str, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cosign writes one where an instance has no such service."""
    config = tmp_path / "config.json"
    with embedded.open_instance(state) as instance, instance.serving() as made:
        value: Any = json.loads(made)
        value["signingConfig"][member] = {}
        config.write_bytes(digests.canonical_json(value))
        monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("me@private.example"))
        with open_signer(Domain.FILE, config=config) as signer:
            signer.sign(STATEMENT)


def test_a_log_without_promises_needs_a_timestamp_authority(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.json"
    with embedded.open_instance(state) as instance, instance.serving() as made:
        value: Any = json.loads(made)
        value["signingConfig"].update(tsaUrls=[], tsaConfig={})
        config.write_bytes(digests.canonical_json(value))
        monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("me@private.example"))
        with open_signer(Domain.FILE, config=config) as signer, pytest.raises(SignError) as caught:
            signer.sign(STATEMENT)
    assert caught.value.reason == "no-timestamp"
    assert "tsaUrls" in caught.value.fix
    assert "names no timestamp authority" in caught.value.cause
