"""One question for every client: is this bundle by this identity, under this root, over this artifact?"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier
from sigstore.verify import policy as sigstore_policy

from clients import Client
from wheelmark.errors import WheelmarkError
from wheelmark.trust.keys import read_key
from wheelmark.trust.roots import read_root
from wheelmark.verify.facts import Examiner

PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
ARTIFACT = b"the bytes of a wheel"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What a client is asked."""

    bundle: bytes
    root: bytes
    artifact: bytes = ARTIFACT
    identity: str = ""
    issuer: str = ""
    key: bytes = b""
    """PEM of a managed key, instead of identity and issuer."""

    @property
    def is_statement(self) -> bool:
        return b'"dsseEnvelope"' in self.bundle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """A client's answer."""

    accepted: bool
    text: str
    """Its own words where it refused."""


class Asking:
    """The clients of this machine.

    Args:
        programs: From ``clients.clients``.
        javascript: A folder with ``verify.js`` and the packages of its lock.
        folder: For files that clients read; the caller's own.
    """

    def __init__(self, programs: Mapping[str, Client], javascript: Path, folder: Path) -> None:
        self._programs = programs
        self._javascript = javascript
        self.folder = folder

    def ask(self, client: str, question: Question) -> Said:
        """The answer of one client of ``CLIENTS``."""
        (self.folder / "bundle.json").write_bytes(question.bundle)
        (self.folder / "root.json").write_bytes(question.root)
        (self.folder / "artifact").write_bytes(question.artifact)
        (self.folder / "key.pem").write_bytes(question.key)
        return _ASK[client](self, question)

    def run(self, command: Sequence[str]) -> Said:
        environment = {**os.environ, "HOME": str(self.folder), "COSIGN_PASSWORD": ""}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        said = (done.stdout + done.stderr).strip()
        assert "panic:" not in said, said
        return Said(accepted=done.returncode == 0, text=said[-1000:])

    def cosign(self, question: Question) -> Said:
        by = (
            ["--key", "key.pem"]
            if question.key
            else _identity(question, "--certificate-identity", "--certificate-oidc-issuer")
        )
        command = "verify-blob-attestation" if question.is_statement else "verify-blob"
        kind = ["--type", PREDICATE_TYPE] if question.is_statement else []
        program = str(self._programs["cosign"].path)
        return self.run(
            [
                program,
                command,
                "--bundle",
                "bundle.json",
                "--trusted-root",
                "root.json",
                *kind,
                *by,
                "artifact",
            ]
        )

    def sigstore_go(self, question: Question) -> Said:
        by = (
            ["-publicKey", "key.pem"]
            if question.key
            else _identity(question, "-expectedSAN", "-expectedIssuer")
        )
        program = str(self._programs["sigstore-go-verification"].path)
        # A managed key has no certificate, so there is nothing that a certificate log could hold.
        more = ["-requireCTlog=false"] if question.key else []
        return self.run(
            [program, "-artifact", "artifact", "-trustedrootJSONpath", "root.json", *more, *by, "bundle.json"]
        )

    def javascript(self, question: Question) -> Said:
        arguments = ["root.json", "bundle.json", "artifact", question.identity, question.issuer]
        if question.key:
            arguments.append("key.pem")
        return self.run(["node", str(self._javascript / "verify.js"), *arguments])

    def python(self, question: Question) -> Said:
        try:
            bundle = Bundle.from_json(question.bundle)
            verifier = Verifier(trusted_root=TrustedRoot.from_file(str(self.folder / "root.json")))
            rule = sigstore_policy.Identity(identity=question.identity, issuer=question.issuer)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not question.is_statement:
                    verifier.verify_artifact(question.artifact, bundle, rule)
                    return Said(accepted=True, text="")
                _, payload = verifier.verify_dsse(bundle, rule)
        except Exception as error:  # noqa: BLE001 - it raises errors of several libraries; each is a refusal
            return Said(accepted=False, text=f"{type(error).__name__}: {error}")
        return _about(json.loads(payload)["subject"], question.artifact)

    def wheelmark(self, question: Question) -> Said:
        digest = hashlib.sha256(question.artifact).hexdigest()
        root = read_root(question.root, name="theirs", issuers=(question.issuer,), level="", canonical=False)
        keys = [read_key(question.key, root="theirs", what="key.pem")] if question.key else []
        try:
            facts = Examiner([root], keys).examine(
                question.bundle, artifact="" if question.is_statement else digest
            )
        except WheelmarkError as error:
            return Said(accepted=False, text=f"{error.reason}: {error.what}")
        expected = ("", "", keys[0].key_id) if keys else (question.identity, question.issuer, "")
        if (facts.identity, facts.issuer, facts.key_id) != expected:
            return Said(accepted=False, text=f"signer: {facts.identity} of {facts.issuer}")
        # No field may be left unsaid that a change could hide in.
        unsaid = set(facts.unauthenticated) & {"tlogEntries.logIndex"}
        if unsaid:
            return Said(accepted=False, text=f"unauthenticated: {', '.join(sorted(unsaid))}")
        if facts.statement is None:
            return Said(accepted=facts.artifact_sha256 == digest, text="another artifact")
        return Said(
            accepted=digest in {subject.sha256 for subject in facts.statement.subjects},
            text="no subject is the artifact",
        )


_ASK: Mapping[str, Callable[[Asking, Question], Said]] = {
    "cosign": Asking.cosign,
    "sigstore-go": Asking.sigstore_go,
    "sigstore-js": Asking.javascript,
    "sigstore-python": Asking.python,
    "wheelmark": Asking.wheelmark,
}
CLIENTS = tuple(_ASK)


def openssl(
    question: Question, chain: Sequence[bytes], folder: Path, *, message: bytes | None = None
) -> Said:
    """OpenSSL's answer about a bundle's timestamp alone.

    Args:
        question: The bundle.
        chain: PEM of the timestamp authority's certificates, the root last.
        folder: For files.
        message: What the timestamp has to be over; the bundle's signature where absent.
    """
    value = json.loads(question.bundle)
    token = value["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"][0]
    envelope = value.get("dsseEnvelope")
    signature = envelope["signatures"][0]["sig"] if envelope else value["messageSignature"]["signature"]
    (folder / "response.tsr").write_bytes(base64.b64decode(token["signedTimestamp"]))
    (folder / "message").write_bytes(base64.b64decode(signature) if message is None else message)
    (folder / "root.pem").write_bytes(chain[-1])
    (folder / "chain.pem").write_bytes(b"".join(chain[:-1]))
    command = ["openssl", "ts", "-verify", "-in", "response.tsr", "-data", "message"]
    done = subprocess.run(
        [*command, "-CAfile", "root.pem", "-untrusted", "chain.pem"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(accepted=done.returncode == 0, text=(done.stdout + done.stderr).strip()[-400:])


def _identity(question: Question, name: str, issuer: str) -> list[str]:
    return [name, question.identity, issuer, question.issuer]


def _about(subjects: Sequence[Mapping[str, Mapping[str, str]]], artifact: bytes) -> Said:
    digest = hashlib.sha256(artifact).hexdigest()
    found = any(subject["digest"].get("sha256") == digest for subject in subjects)
    return Said(accepted=found, text="" if found else "no subject is the artifact")
