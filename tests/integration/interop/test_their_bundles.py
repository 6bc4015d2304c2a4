"""Bundles that other people's clients sign in the embedded domain, judged by everybody, Wheelmark among them.

Only here are services of the embedded domain used by anybody but the signer; the token that a client shows is minted
in this process.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from clients import Client
from instances.table import Table
from instances.verifiers import ARTIFACT, CLIENTS, PREDICATE_TYPE, Asking, Question
from wheelmark.sign import embedded
from wheelmark.trust.keys import read_key
from wheelmark.trust.roots import read_root
from wheelmark.trust.state import embedded_root_path
from wheelmark.verify.facts import Examiner

SECTION = "Bundles signed by others in the embedded domain"
BY_CERTIFICATE = ("cosign: artifact", "cosign: statement", "sigstore-go: artifact", "sigstore-go: statement")
BY_KEY = ("cosign, managed key: artifact", "cosign, managed key: statement")


class Signing:
    """Has clients sign with a running embedded instance."""

    def __init__(self, folder: Path, programs: Mapping[str, Client], instance: embedded.Instance) -> None:
        self.folder = folder
        self._programs = programs
        self._instance = instance
        (folder / "artifact").write_bytes(ARTIFACT)
        (folder / "predicate.json").write_text('{"a": 1}')
        digest = hashlib.sha256(ARTIFACT).hexdigest()
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "artifact", "digest": {"sha256": digest}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {"a": 1},
        }
        (folder / "statement.json").write_text(json.dumps(statement))

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs[program].path), *arguments]
        environment = {**os.environ, "HOME": str(self.folder), "COSIGN_PASSWORD": ""}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cosign(self, *, statement: bool, key: bool = False) -> bytes:
        token = self._instance.mint(embedded.RELEASE_IDENTITY)
        by = ["--key", "cosign.key"] if key else ["--identity-token", token]
        where = ["--signing-config", "signing.json", "--trusted-root", "root.json", "--bundle", "made.json"]
        about = ["--predicate", "predicate.json", "--type", PREDICATE_TYPE] if statement else []
        self.run(
            "cosign", "attest-blob" if statement else "sign-blob", *where, *by, *about, "--yes", "artifact"
        )
        return (self.folder / "made.json").read_bytes()

    def sigstore_go(self, *, statement: bool) -> bytes:
        token = self._instance.mint(embedded.RELEASE_IDENTITY)
        where = ["-signing-config", "signing.json", "-trusted-root", "root.json"]
        what = ["-in-toto", "statement.json"] if statement else ["artifact"]
        said = self.run("sigstore-go-signing", *where, "-id-token", token, "-rekor", "-tsa", *what)
        # It prints its key first.
        return said[said.index("\n{") + 1 :].encode()

    def make_key(self) -> bytes:
        self.run("cosign", "generate-key-pair")
        pem = (self.folder / "cosign.pub").read_bytes()
        public = load_pem_public_key(pem)
        assert isinstance(public, ec.EllipticCurvePublicKey)
        self._instance.name_key(public)
        return pem


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A domain of this module's own, whose log is empty."""
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture(scope="module")
def signed(
    home: Path, programs: dict[str, Client], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Question]:
    """One question for each bundle: each client's artifacts and statements, with certificate and with a key."""
    folder = tmp_path_factory.mktemp("signing")
    with embedded.open_instance(home) as instance, instance.serving() as config:
        value = json.loads(config)
        root = json.dumps(value["trustedRoot"]).encode()
        (folder / "root.json").write_bytes(root)
        (folder / "signing.json").write_text(json.dumps(value["signingConfig"]))
        signing = Signing(folder, programs, instance)
        asked = Question(
            bundle=signing.cosign(statement=False),
            root=root,
            identity=embedded.RELEASE_IDENTITY,
            issuer=embedded.ISSUER,
        )
        made = {"first": asked}
        for name, bundle in (
            ("cosign: artifact", signing.cosign(statement=False)),
            ("cosign: statement", signing.cosign(statement=True)),
            ("sigstore-go: artifact", signing.sigstore_go(statement=False)),
            ("sigstore-go: statement", signing.sigstore_go(statement=True)),
        ):
            made[name] = dataclasses.replace(asked, bundle=bundle)
        key = signing.make_key()
        for name, statement in zip(BY_KEY, (False, True), strict=True):
            bundle = signing.cosign(statement=statement, key=True)
            made[name] = Question(bundle=bundle, root=root, key=key)
        return made


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", BY_CERTIFICATE)
def test_signed_with_a_certificate(
    name: str, client: str, signed: dict[str, Question], asking: Asking, table: Table
) -> None:
    asked = signed[name]
    said = asking.ask(client, asked)
    assert said.accepted, said.text
    table.add(SECTION, name, client, "accepts")
    for wrong in (
        dataclasses.replace(asked, artifact=ARTIFACT + b"!"),
        dataclasses.replace(asked, identity=embedded.RELEASE_IDENTITY + "x"),
        dataclasses.replace(asked, issuer="https://issuer.invalid"),
    ):
        assert not asking.ask(client, wrong).accepted


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "sigstore-python"])
@pytest.mark.parametrize("name", BY_KEY)
def test_signed_with_a_managed_key(
    name: str, client: str, signed: dict[str, Question], asking: Asking, table: Table
) -> None:
    """sigstore-python verifies certificates alone."""
    asked = signed[name]
    said = asking.ask(client, asked)
    assert said.accepted, said.text
    table.add(SECTION, name, client, "accepts")
    table.add(SECTION, name, "sigstore-python", "cannot be asked")
    other = dataclasses.replace(asked, artifact=ARTIFACT + b"!")
    assert not asking.ask(client, other).accepted
    asking.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "x.pem"])
    asking.run(["openssl", "ec", "-in", "x.pem", "-pubout", "-out", "x.pub"])
    stranger = (asking.folder / "x.pub").read_bytes()
    assert stranger.startswith(b"-----BEGIN PUBLIC KEY")
    wrong = dataclasses.replace(asked, key=stranger)
    assert not asking.ask(client, wrong).accepted


def test_facts_of_a_managed_key_name_no_identity(signed: dict[str, Question]) -> None:
    asked = signed[BY_KEY[1]]
    root = read_root(asked.root, name="theirs", issuers=(), level="", canonical=False)
    key = read_key(asked.key, root="theirs", what="key")
    facts = Examiner([root], [key]).examine(asked.bundle)
    assert (facts.identity, facts.issuer, facts.key_id) == ("", "", key.key_id)
    assert len(facts.times) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_entry_of_a_log_has_no_index_in_what_cosign_writes(
    client: str, signed: dict[str, Question], asking: Asking, table: Table
) -> None:
    entry = json.loads(signed["first"].bundle)["verificationMaterial"]["tlogEntries"][0]
    assert "logIndex" not in entry
    said = asking.ask(client, signed["first"])
    expected = client != "sigstore-python"
    assert said.accepted == expected, said.text
    table.add(SECTION, "cosign: artifact, a log's first entry", client, "accepts" if expected else "refuses")


def test_statements_of_cosign_are_of_the_older_type(signed: dict[str, Question]) -> None:
    for name in ("cosign: statement", "cosign, managed key: statement"):
        envelope = json.loads(signed[name].bundle)["dsseEnvelope"]
        assert (
            json.loads(base64.b64decode(envelope["payload"]))["_type"] == "https://in-toto.io/Statement/v0.1"
        )


def test_the_root_that_signers_are_given_is_the_one_to_import(
    home: Path, signed: dict[str, Question]
) -> None:
    assert json.loads(embedded_root_path(home).read_bytes()) == json.loads(signed["first"].root)
