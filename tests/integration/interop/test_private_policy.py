"""A whole release of a private instance, verified by ``wheelmark verify`` under a policy that names everything by digest.

Once signed by Wheelmark with a certificate of the instance, once by cosign with a managed key that the instance logged.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from clients import Client
from instances.config import Services
from instances.played import Shape, playing
from releasing import draft
from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.sign import Domain, embedded, open_signer
from wheelmark.sign.identity import TOKEN_VARIABLE
from wheelmark.trust.state import VARIABLE, embedded_root_path

IDENTITY = "release@private.example"
ROOT = """
schema = 1

[[root]]
name = "private"
path = "trusted_root.json"
sha256 = "{sha256}"
{issuers}
level = "signed for our own site"

[[signer]]
name = "release"
root = "private"
{signer}

[[require]]
kind = "release"
predicates = ["provenance", "sbom", "test-result"]
signers = ["release"]
gates = ["abi", "coverage", "size", "repeat", "correctness"]
levels = {{ correctness = "emulated" }}

[[require]]
kind = "wheel"
predicates = ["provenance", "sbom", "test-result"]
signers = ["release"]
gates = ["abi"]
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    folder = tmp_path / "instance"
    folder.mkdir()
    with playing(folder, Shape(authority="rsa", authority_between=1, timestamps_between=1)) as made:
        yield made


def write_policy(folder: Path, root: bytes, signer: str, issuer: str = "") -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "trusted_root.json").write_bytes(root)
    issuers = f"issuers = [{json.dumps(issuer)}]" if issuer else ""
    path = folder / "policy.toml"
    path.write_text(
        ROOT.format(sha256=digests.sha256(root), issuers=issuers, signer=signer), encoding="utf-8"
    )
    path.chmod(0o600)
    return path


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, set[str]]:
    """Exit code, and the reasons of all that was not accepted."""
    capsys.readouterr()
    code = main(["verify", *map(str, arguments), "--json"])
    document: Any = json.loads(capsys.readouterr().out)
    verdicts = [verdict for report in document.get("reports", []) for verdict in report["verdicts"]]
    return code, {verdict["reason"] for verdict in verdicts if verdict["verdict"] != "accepted"}


def test_signed_with_a_certificate_of_the_instance(
    services: Services,
    programs: dict[str, Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = services.configure(str(programs["cosign"].path))
    claims = {"email": IDENTITY, "email_verified": True}
    monkeypatch.setenv(TOKEN_VARIABLE, services.issuer.mint(IDENTITY, claims))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    with open_signer(Domain.FILE, config=config) as signer:
        root = signer.trusted_root
        dist = draft().write(tmp_path / "dist", signer.sign, root=root)
    issuer = services.issuer.url

    def by(identity: str, issuer: str = issuer) -> str:
        return f'issuer = "{issuer}"\nidentity = "{identity}"'

    policy = write_policy(tmp_path / "policy", root, by(IDENTITY), issuer)
    assert verify(capsys, dist, "--policy", policy) == (Exit.OK, set())
    code, reasons = verify(
        capsys, dist, "--policy", write_policy(tmp_path / "other", root, by("else@private.example"), issuer)
    )
    assert code == Exit.REJECTED
    assert "signer-identity" in reasons
    elsewhere = "https://issuer.invalid"
    code, reasons = verify(
        capsys, dist, "--policy", write_policy(tmp_path / "far", root, by(IDENTITY, elsewhere), elsewhere)
    )
    assert code == Exit.REJECTED
    assert "issuer-not-vouched" in reasons
    embedded.create(tmp_path / "stranger")
    theirs = embedded_root_path(tmp_path / "stranger").read_bytes()
    code, reasons = verify(
        capsys, dist, "--policy", write_policy(tmp_path / "theirs", theirs, by(IDENTITY), issuer)
    )
    assert code == Exit.REJECTED
    assert "untrusted-root" in reasons


def test_signed_by_cosign_with_a_managed_key(
    programs: dict[str, Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    with embedded.open_instance() as instance, instance.serving() as config:
        value = json.loads(config)
        root = digests.canonical_json(value["trustedRoot"])
        (work / "root.json").write_bytes(root)
        (work / "signing.json").write_text(json.dumps(value["signingConfig"]))
        run = _cosign(programs["cosign"], work)
        run("generate-key-pair")
        key = (work / "cosign.pub").read_bytes()
        public = load_pem_public_key(key)
        assert isinstance(public, ec.EllipticCurvePublicKey)
        instance.name_key(public)

        def sign(statement: bytes) -> bytes:
            (work / "statement.json").write_bytes(statement)
            where = ["--signing-config", "signing.json", "--trusted-root", "root.json"]
            run(
                "attest-blob",
                "--statement",
                "statement.json",
                "--key",
                "cosign.key",
                *where,
                "--bundle",
                "b.json",
                "--yes",
            )
            return (work / "b.json").read_bytes()

        dist = draft().write(tmp_path / "dist", sign, root=root)
    folder = tmp_path / "policy"
    signer = f'key = "release.pub"\nsha256 = "{digests.sha256(key)}"'
    policy = write_policy(folder, root, signer)
    (folder / "release.pub").write_bytes(key)
    assert verify(capsys, dist, "--policy", policy) == (Exit.OK, set())
    run("generate-key-pair", "--output-key-prefix", "other")
    other = (work / "other.pub").read_bytes()
    (folder / "release.pub").write_bytes(other)
    policy = write_policy(folder, root, f'key = "release.pub"\nsha256 = "{digests.sha256(other)}"')
    code, reasons = verify(capsys, dist, "--policy", policy)
    assert code == Exit.REJECTED
    assert "key-unknown" in reasons


def _cosign(client: Client, folder: Path) -> Callable[..., None]:
    def run(*arguments: str) -> None:
        environment = {**os.environ, "HOME": str(folder), "COSIGN_PASSWORD": ""}
        command = [str(client.path), *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr

    return run
