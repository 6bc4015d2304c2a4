"""Verifiers that other people wrote: OpenSSL for timestamps, sigstore's JavaScript implementation for bundles.

Where a tool is not on this machine the test says "not run"; in CI that is a failure.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from presence import not_run
from wheelmark.attest.statement import Statement, Subject
from wheelmark.sign import embedded, open_signer
from wheelmark.trust.state import embedded_root_path

JAVASCRIPT = Path(__file__).parent / "javascript"
ARTIFACT = b"the bytes of a wheel"


def tool(name: str) -> str:
    found = shutil.which(name)
    return found or not_run(f"{name} is not installed")


@pytest.fixture
def bundle(state: Path) -> bytes:
    statement = Statement(
        subjects=(Subject(name="demo.whl", sha256=hashlib.sha256(ARTIFACT).hexdigest()),),
        predicate_type="https://slsa.dev/provenance/v1",
        predicate={"a": 1},
    )
    with open_signer(state=state) as signer:
        signer.sign(statement.as_bytes())
        return signer.sign(statement.as_bytes())


class TestOpenSSL:
    @staticmethod
    def _verify(state: Path, bundle: bytes, message: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
        value = json.loads(bundle)["verificationMaterial"]
        token = value["timestampVerificationData"]["rfc3161Timestamps"][0]["signedTimestamp"]
        (folder / "response.tsr").write_bytes(base64.b64decode(token))
        (folder / "message").write_bytes(message)
        certificate, root = embedded.show(state).current.public.timestamping
        (folder / "root.pem").write_bytes(root.public_bytes(Encoding.PEM))
        (folder / "tsa.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        command = [tool("openssl"), "ts", "-verify", "-in", "response.tsr", "-data", "message"]
        command += ["-CAfile", "root.pem", "-untrusted", "tsa.pem"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    @staticmethod
    def _signature(bundle: bytes) -> bytes:
        return base64.b64decode(json.loads(bundle)["dsseEnvelope"]["signatures"][0]["sig"])

    def test_it_accepts_the_timestamp_of_a_bundle(self, bundle: bytes, state: Path, tmp_path: Path) -> None:
        done = self._verify(state, bundle, self._signature(bundle), tmp_path)
        assert "Verification: OK" in done.stdout + done.stderr
        assert done.returncode == 0

    def test_it_refuses_another_message(self, bundle: bytes, state: Path, tmp_path: Path) -> None:
        done = self._verify(state, bundle, self._signature(bundle) + b"!", tmp_path)
        assert done.returncode != 0
        assert "imprint mismatch" in done.stderr

    def test_it_refuses_another_authority(self, bundle: bytes, other: Path, tmp_path: Path) -> None:
        done = self._verify(other, bundle, self._signature(bundle), tmp_path)
        assert done.returncode != 0


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the verifier and the packages of its lock."""
    npm = tool("npm")
    tool("node")
    folder = tmp_path_factory.mktemp("javascript")
    for path in JAVASCRIPT.iterdir():
        shutil.copy(path, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        not_run("the npm registry does not answer")
    if done.returncode:
        if "EINTEGRITY" in done.stderr:
            pytest.fail(done.stderr)
        not_run(f"npm ci failed: {done.stderr.strip()[-300:]}")
    return folder


class TestJavaScript:
    @staticmethod
    def _verify(
        javascript: Path,
        folder: Path,
        *,
        root: Path,
        bundle: bytes,
        artifact: bytes = ARTIFACT,
        identity: str = embedded.RELEASE_IDENTITY,
        issuer: str = embedded.ISSUER,
    ) -> str:
        (folder / "bundle.json").write_bytes(bundle)
        (folder / "artifact").write_bytes(artifact)
        arguments = [str(root), str(folder / "bundle.json"), str(folder / "artifact"), identity, issuer]
        command = [tool("node"), str(javascript / "verify.js"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == int(not done.stdout.startswith("accepted")), done.stderr
        return done.stdout.strip()

    def test_it_accepts_our_bundle(
        self, javascript: Path, bundle: bytes, state: Path, tmp_path: Path
    ) -> None:
        root = embedded_root_path(state)
        assert self._verify(javascript, tmp_path, root=root, bundle=bundle) == "accepted"
        embedded.rotate(state)
        assert self._verify(javascript, tmp_path, root=root, bundle=bundle) == "accepted"

    def test_it_refuses_a_wrong_artifact(
        self, javascript: Path, bundle: bytes, state: Path, tmp_path: Path
    ) -> None:
        root = embedded_root_path(state)
        answer = self._verify(javascript, tmp_path, root=root, bundle=bundle, artifact=ARTIFACT + b"!")
        assert answer == "refused: Error: no subject has the digest of the artifact"
        value = json.loads(bundle)
        payload = json.loads(base64.b64decode(value["dsseEnvelope"]["payload"]))
        payload["subject"][0]["digest"]["sha256"] = hashlib.sha256(ARTIFACT + b"!").hexdigest()
        value["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
        forged = json.dumps(value).encode()
        answer = self._verify(javascript, tmp_path, root=root, bundle=forged, artifact=ARTIFACT + b"!")
        assert answer.startswith(("refused: TLOG_BODY_ERROR", "refused: SIGNATURE_ERROR"))

    def test_it_refuses_another_identity(
        self, javascript: Path, bundle: bytes, state: Path, tmp_path: Path
    ) -> None:
        root, good = embedded_root_path(state), (embedded.RELEASE_IDENTITY, embedded.ISSUER)
        for identity, issuer in ((good[0] + "x", good[1]), (good[0], "https://issuer.invalid")):
            answer = self._verify(
                javascript, tmp_path, root=root, bundle=bundle, identity=identity, issuer=issuer
            )
            assert answer.startswith("refused: UNTRUSTED_SIGNER_ERROR")

    def test_it_refuses_another_root(
        self, javascript: Path, bundle: bytes, other: Path, tmp_path: Path
    ) -> None:
        answer = self._verify(javascript, tmp_path, root=embedded_root_path(other), bundle=bundle)
        assert answer.startswith("refused: ")
