"""A timestamp authority that sends its chain. Apart from the others: two of these servers cannot run at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from clients import Client
from instances.real import Shape, running
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import SignError
from wheelmark.sign import Domain, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE

EMAIL = {"email": "release@private.example", "email_verified": True}
STATEMENT = Statement(
    subjects=(Subject(name="artifact", sha256="ab" * 32),),
    predicate_type="https://slsa.dev/provenance/v1",
    predicate={"a": 1},
).as_bytes()


def test_a_timestamp_authority_that_sends_its_chain_has_to_send_der(
    servers: Path, programs: dict[str, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timestamp-authority does not sort the certificates of its answer, as DER wants a set sorted."""
    with running(servers, tmp_path, Shape(chain_in_response=True, timestamps_between=2)) as services:
        config = services.configure(str(programs["cosign"].path))
        monkeypatch.setenv(TOKEN_VARIABLE, services.issuer.mint("me", EMAIL))
        chain = x509.load_pem_x509_certificates((tmp_path / "tsa.crt.pem").read_bytes())
        sent = [certificate.public_bytes(Encoding.DER) for certificate in chain]
        with open_signer(Domain.FILE, config=config) as signer:
            if sent == sorted(sent):  # by chance
                signer.sign(STATEMENT)
                return
            with pytest.raises(SignError) as caught:
                signer.sign(STATEMENT)
    assert caught.value.reason == "no-timestamp"
    assert "--include-chain-in-response" in caught.value.cause
