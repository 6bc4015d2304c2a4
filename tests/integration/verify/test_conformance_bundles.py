"""Sigstore's own conformance suite: the client, run as a program, gives each folder's answer, and for its reason.

Not run where the suite is absent: name the folder that holds it in WHEELMARK_CASES.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from conformance import suite
from conformance.client import artifact_digest, policy_of, shipped
from conformance.client import parser as client_parser
from presence import cases
from wheelmark import digests
from wheelmark.errors import InputError, WheelmarkError
from wheelmark.trust.roots import read_root
from wheelmark.verify import certificate as certificates
from wheelmark.verify import log, reasons
from wheelmark.verify.bundle import Proof
from wheelmark.verify.facts import Examiner

CASES = cases() or Path("absent")
FOLDERS = suite.folders(CASES)
needs_suite = pytest.mark.skipif(
    not FOLDERS, reason="not run: WHEELMARK_CASES names no folder with the suite"
)


@needs_suite
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_folder(folder: Path) -> None:
    answer = suite.ask(folder)
    assert answer.right, answer


@needs_suite
def test_every_refusal_has_its_reason_and_the_suite_is_whole() -> None:
    refused = {folder.name for folder in FOLDERS if folder.name.endswith("_fail")}
    assert refused == set(suite.REASONS)
    assert set(suite.REASONS.values()) <= set(reasons.TABLE)
    assert len(FOLDERS) == 70


@needs_suite
def test_sign_and_verify(tmp_path: Path) -> None:
    answers = suite.sign_and_verify(CASES, tmp_path)
    assert len(answers) == 10
    assert [answer for answer in answers if not answer.right] == []


# Folders with a second fault that is met first: without that one, the fault that they are about is seen.
def document(name: str) -> Any:
    return json.loads((CASES / suite.ASSETS / name / "bundle.sigstore.json").read_text(encoding="utf-8"))


@needs_suite
def test_timestamp_with_incorrect_time_in_clean_base64() -> None:
    name = "rekor2-timestamp-with-incorrect-time_fail"
    bundle = document(name)
    stamp = bundle["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"][0]
    stamp["signedTimestamp"] = "".join(stamp["signedTimestamp"].split())
    data = (CASES / suite.ASSETS / name / "trusted_root.json").read_bytes()
    root = read_root(data, name="root", issuers=(), level="", canonical=False)
    artifact = digests.sha256_file(CASES / suite.ASSETS / "a.txt")
    with pytest.raises(WheelmarkError) as caught:
        Examiner([root]).examine(json.dumps(bundle).encode(), artifact=artifact)
    assert caught.value.reason == "certificate-expired"


@needs_suite
def test_root_certificate_in_a_chain() -> None:
    chain = document("bundle-with-root-cert_fail")["verificationMaterial"]["x509CertificateChain"][
        "certificates"
    ]
    with pytest.raises(WheelmarkError) as caught:
        certificates.load(tuple(base64.b64decode(item["rawBytes"]) for item in chain))
    assert caught.value.reason == "root-in-bundle"


@needs_suite
def test_old_inclusion_proof() -> None:
    (entry,) = document("invalid-inclusion-proof_fail")["verificationMaterial"]["tlogEntries"]
    proof = entry["inclusionProof"]
    made = Proof(
        index=int(proof["logIndex"]),
        size=int(proof["treeSize"]),
        root_hash=base64.b64decode(proof["rootHash"]),
        hashes=tuple(base64.b64decode(item) for item in proof["hashes"]),
        checkpoint="",
    )
    with pytest.raises(WheelmarkError) as caught:
        log.check_inclusion(made, base64.b64decode(entry["canonicalizedBody"]))
    assert caught.value.reason == "proof"


# The client itself.
def test_an_argument_is_a_digest_only_where_it_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "sha256:" + "ab" * 32
    assert artifact_digest(text) == "ab" * 32
    (tmp_path / text).write_bytes(b"x")
    assert artifact_digest(text) == digests.sha256(b"x")
    for odd in ("sha256:abc", "ab" * 32, "sha256:" + "g" * 64, "sha512:" + "ab" * 32):
        with pytest.raises(InputError) as caught:
            artifact_digest(odd)
        assert caught.value.reason == "unreadable"


def test_without_a_root_the_public_instance_is_trusted(tmp_path: Path) -> None:
    signer = ["--certificate-identity", "i", "--certificate-oidc-issuer", "o"]
    for flags, staging in (([], False), (["--staging"], True)):
        args = client_parser().parse_args(["verify-bundle", *flags, "--bundle", "b", *signer, "f"])
        assert policy_of(args).roots[0].data == shipped("trusted_root.json", staging=staging)
    assert shipped("trusted_root.json", staging=True) != shipped("trusted_root.json", staging=False)
    for bad in ([], [*signer, "--key", "k"], signer[:2]):
        args = client_parser().parse_args(["verify-bundle", "--bundle", "b", *bad, "f"])
        with pytest.raises(InputError):
            policy_of(args)


def test_what_cannot_be_read_is_a_refusal(tmp_path: Path) -> None:
    signer = ["--certificate-identity", "i", "--certificate-oidc-issuer", "o"]
    absent = str(tmp_path / "absent")
    assert suite.run(["verify-bundle", "--bundle", absent, *signer, str(suite.CLIENT)])[0] == 1
    assert suite.run(["verify-bundle", "--bundle", str(suite.CLIENT), *signer, absent])[0] == 1
