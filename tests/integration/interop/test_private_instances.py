"""Private instances of several shapes: Wheelmark signs in them by their ``ClientTrustConfig``, and everybody verifies.

The configuration files are those that cosign makes. The real servers are tried by ``nox -s servers``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from clients import Client
from instances.played import Shape, playing
from instances.table import Table
from instances.verifiers import ARTIFACT, CLIENTS, PREDICATE_TYPE, Asking, Question
from wheelmark import digests
from wheelmark.attest.statement import Statement, Subject
from wheelmark.sign import Domain, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE
from wheelmark.trust.roots import load_root
from wheelmark.verify.facts import Examiner

SECTION = "Bundles signed by Wheelmark in private instances"
RSA_LOG = "RSA certificate log"
PATH = "Rekor v2 whose checkpoints name a path"
CANNOT = {
    (RSA_LOG, "sigstore-js"): ("ERR_OSSL_ASN1_WRONG_TAG", "cannot read the root"),
    (PATH, "cosign"): ("note has no verifiable signatures", "cannot read the checkpoint"),
    (PATH, "sigstore-go"): ("note has no verifiable signatures", "cannot read the checkpoint"),
}
"""sigstore-js takes the RSA keys of logs for another encoding; Go's clients expect a log's bare host in its checkpoints."""
SHAPES = {
    "ECDSA throughout, Rekor v2": Shape(),
    "RSA authority with two intermediates, RSA above the timestamps": Shape(
        authority="rsa", authority_between=2, timestamps="rsa", timestamps_between=2
    ),
    PATH: Shape(origin="log.private.invalid/2026"),
    RSA_LOG: Shape(ct_log="rsa", authority_between=1),
    "P-521 authority with an intermediate, P-384 above the timestamps": Shape(
        authority="p521", authority_between=1, timestamps="p384", timestamps_between=1
    ),
    "Rekor v1 and a timestamp authority": Shape(versions=(1,), authority_between=1),
    "Rekor v1 alone: the log's promise says when": Shape(versions=(1,), timestamps=None),
    "Rekor v1 beside v2": Shape(versions=(1, 2)),
}
STATEMENT = Statement(
    subjects=(Subject(name="artifact", sha256=hashlib.sha256(ARTIFACT).hexdigest()),),
    predicate_type=PREDICATE_TYPE,
    predicate={"a": 1},
).as_bytes()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """Bundles of one instance."""

    config: Path
    statement: Question
    artifact: Question


@pytest.fixture(scope="module", params=SHAPES)
def made(
    request: pytest.FixtureRequest, programs: dict[str, Client], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Made]:
    folder = tmp_path_factory.mktemp("instance")
    with playing(folder, SHAPES[request.param]) as services, pytest.MonkeyPatch.context() as patch:
        config = services.configure(str(programs["cosign"].path))
        claims = {"email": "release@private.example", "email_verified": True}
        # The played authority names its certificates after the subject.
        patch.setenv(TOKEN_VARIABLE, services.issuer.mint("release@private.example", claims))
        with open_signer(Domain.FILE, config=config) as signer:
            signer.sign(STATEMENT)
            asked = Question(
                bundle=signer.sign(STATEMENT),
                root=(folder / "trusted_root.json").read_bytes(),
                identity=signer.identity,
                issuer=signer.issuer,
            )
            assert (signer.identity, signer.issuer) == ("release@private.example", services.issuer.url)
            artifact = dataclasses.replace(asked, bundle=signer.sign_artifact(ARTIFACT))
    return str(request.param), Made(config=config, statement=asked, artifact=artifact)


@pytest.mark.parametrize("client", CLIENTS)
def test_everybody_accepts_it_and_nothing_else(
    client: str, made: tuple[str, Made], asking: Asking, table: Table
) -> None:
    name, found = made
    cannot = CANNOT.get((name, client))
    for asked in (found.statement, found.artifact):
        said = asking.ask(client, asked)
        if cannot:
            assert not said.accepted
            assert cannot[0] in said.text
            table.add(SECTION, name, client, cannot[1])
            continue
        assert said.accepted, said.text
        for wrong in (
            dataclasses.replace(asked, artifact=ARTIFACT + b"!"),
            dataclasses.replace(asked, identity="somebody@private.example"),
            dataclasses.replace(asked, issuer="https://issuer.invalid"),
        ):
            assert not asking.ask(client, wrong).accepted
        table.add(SECTION, name, client, "accepts")


def test_the_configuration_itself_is_a_root_that_policies_can_name(made: tuple[str, Made]) -> None:
    _, found = made
    digest = digests.sha256_file(found.config)
    issuers = (found.statement.issuer,)
    root = load_root(found.config, name="private", sha256=digest, issuers=issuers, level="ours")
    facts = Examiner([root]).examine(found.statement.bundle)
    assert facts.identity == "release@private.example"
    assert facts.times
    promised = "inclusionPromise" in _entry(found.statement.bundle)
    assert promised == ("Rekor v1" in made[0] and "beside" not in made[0])


def _entry(bundle: bytes) -> Any:
    return json.loads(bundle)["verificationMaterial"]["tlogEntries"][0]
