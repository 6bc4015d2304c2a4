"""Fulcio, rekor-tiles and timestamp-authority themselves, on loopback: everybody signs there, and everybody verifies.

``nox -s servers`` builds them (``build.py``) and names their folder in ``WHEELMARK_SERVERS``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from clients import Client
from instances.config import Services
from instances.real import Shape, running
from instances.verifiers import ARTIFACT, CLIENTS, PREDICATE_TYPE, Asking, Question
from wheelmark.attest.statement import Statement, Subject
from wheelmark.sign import Domain, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE

EMAIL = {"email": "release@private.example", "email_verified": True}
WORKFLOW = "acme/widget/.github/workflows/release.yml@refs/tags/v1"
GITHUB = {
    "job_workflow_ref": WORKFLOW,
    "job_workflow_sha": "b" * 40,
    "sha": "a" * 40,
    "event_name": "push",
    "repository": "acme/widget",
    "repository_id": "1",
    "repository_owner": "acme",
    "repository_owner_id": "2",
    "repository_visibility": "private",
    "workflow": "release",
    "workflow_ref": WORKFLOW,
    "workflow_sha": "c" * 40,
    "ref": "refs/tags/v1",
    "runner_environment": "self-hosted",
    "run_id": "5",
    "run_attempt": "1",
}
KUBERNETES = {
    "kubernetes.io": {
        "namespace": "ci",
        "serviceaccount": {"name": "build"},
        "pod": {"name": "p", "uid": "1"},
    }
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance, a token's contents, and the identity that Fulcio makes of them."""

    shape: Shape = dataclasses.field(default_factory=Shape)
    subject: str = "me"
    claims: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(EMAIL))
    identity: str = "release@private.example"
    blind: tuple[str, ...] = ()
    """Clients that cannot verify this, as tested."""


INSTANCES = {
    "e-mail, ECDSA, intermediates": Instance(),
    "RSA authority and timestamps, ECDSA log": Instance(
        shape=Shape(authority="rsa", authority_between=0, timestamps="rsa", timestamps_between=2, log="p256")
    ),
    "RSA certificate log and log": Instance(shape=Shape(ct_log="rsa", log="rsa"), blind=("sigstore-js",)),
    "two intermediates, 201 for timestamps": Instance(
        shape=Shape(authority="p521", authority_between=2, created=True)
    ),
    "user name (otherName)": Instance(
        shape=Shape(issuer_type="username", issuer_settings={"SubjectDomain": "127.0.0.1"}),
        subject="builder",
        claims={},
        identity="builder!127.0.0.1",
        blind=("sigstore-python", "sigstore-js"),
    ),
    "Kubernetes": Instance(
        shape=Shape(issuer_type="kubernetes"),
        subject="system:serviceaccount:ci:build",
        claims=dict(KUBERNETES),
        identity="https://kubernetes.io/namespaces/ci/serviceaccounts/build",
    ),
    "workflow of a GitHub of one's own": Instance(
        shape=Shape(issuer_type="github-workflow"),
        subject="repo:acme/widget:ref:refs/tags/v1",
        claims=dict(GITHUB),
        identity=f"https://github.com/{WORKFLOW}",
    ),
}
STATEMENT = Statement(
    subjects=(Subject(name="artifact", sha256=hashlib.sha256(ARTIFACT).hexdigest()),),
    predicate_type=PREDICATE_TYPE,
    predicate={"a": 1},
).as_bytes()


@pytest.fixture(scope="module", params=INSTANCES)
def instance(
    request: pytest.FixtureRequest,
    servers: Path,
    programs: dict[str, Client],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Instance, Services]]:
    wanted = INSTANCES[request.param]
    with running(servers, tmp_path_factory.mktemp("instance"), wanted.shape) as services:
        services.configure(str(programs["cosign"].path))
        yield wanted, services


def test_wheelmark_signs_and_everybody_verifies(
    instance: tuple[Instance, Services], asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, services = instance
    monkeypatch.setenv(TOKEN_VARIABLE, services.issuer.mint(wanted.subject, wanted.claims))
    config = services.folder / "client_trust_config.json"
    with open_signer(Domain.FILE, config=config) as signer:
        assert (signer.identity, signer.issuer) == (wanted.identity, services.issuer.url)
        signer.sign(STATEMENT)
        asked = Question(
            bundle=signer.sign(STATEMENT),
            root=(services.folder / "trusted_root.json").read_bytes(),
            identity=wanted.identity,
            issuer=services.issuer.url,
        )
        artifact = dataclasses.replace(asked, bundle=signer.sign_artifact(ARTIFACT))
    for client in CLIENTS:
        for question in (asked, artifact):
            said = asking.ask(client, question)
            assert said.accepted == (client not in wanted.blind), f"{client}: {said.text}"
            wrong = dataclasses.replace(question, artifact=ARTIFACT + b"!")
            assert not asking.ask(client, wrong).accepted
            stranger = dataclasses.replace(question, identity=f"{wanted.identity}x")
            assert not asking.ask(client, stranger).accepted


@pytest.mark.parametrize("statement", [False, True])
@pytest.mark.parametrize("managed", [False, True])
def test_cosign_signs_and_we_verify(
    instance: tuple[Instance, Services],
    asking: Asking,
    programs: dict[str, Client],
    statement: bool,
    managed: bool,
) -> None:
    wanted, services = instance
    cosign, folder = str(programs["cosign"].path), services.folder
    (asking.folder / "artifact").write_bytes(ARTIFACT)
    (asking.folder / "predicate.json").write_text('{"a": 1}')
    where = [
        "--signing-config",
        f"{folder}/signing_config.json",
        "--trusted-root",
        f"{folder}/trusted_root.json",
    ]
    about = ["--predicate", "predicate.json", "--type", PREDICATE_TYPE] if statement else []
    by = ["--identity-token", services.issuer.mint(wanted.subject, wanted.claims)]
    if managed:
        assert asking.run([cosign, "generate-key-pair"]).accepted
        by = ["--key", "cosign.key"]
    command = [cosign, "attest-blob" if statement else "sign-blob", *where, *by, *about, "--yes"]
    said = asking.run([*command, "--bundle", "made.json", "artifact"])
    assert said.accepted, said.text
    question = Question(
        bundle=(asking.folder / "made.json").read_bytes(),
        root=(folder / "trusted_root.json").read_bytes(),
        identity="" if managed else wanted.identity,
        issuer="" if managed else services.issuer.url,
        key=(asking.folder / "cosign.pub").read_bytes() if managed else b"",
    )
    assert asking.ask("wheelmark", question).accepted
    assert not asking.ask("wheelmark", dataclasses.replace(question, artifact=ARTIFACT + b"!")).accepted
    if managed:
        other = ec.generate_private_key(ec.SECP256R1()).public_key()
        pem = other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        assert not asking.ask("wheelmark", dataclasses.replace(question, key=pem)).accepted
