"""Sigstore's own conformance bundles: facts under their roots agree with the verdict in each folder's name.

Not run where the folder is absent: name it in WHEELMARK_CASES. Bundles signed with a bare key and ``intoto``
log entries are refused here whatever the suite says; both are answered by codes of their own.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from presence import cases
from wheelmark import digests
from wheelmark.errors import WheelmarkError
from wheelmark.trust.roots import read_root
from wheelmark.verify import reasons
from wheelmark.verify.facts import Examiner

_ASSETS = Path("sigstore-conformance/test/assets/bundle-verify")
CASES = (cases() or Path("absent")) / _ASSETS
FOLDERS = sorted(p for p in CASES.iterdir() if p.is_dir()) if CASES.is_dir() else []
STRICTER = {
    "managed-key-happy-path": "key-bundle",
    "managed-key-and-trusted-root": "key-bundle",
    "intoto-with-custom-trust-root": "log-kind",
}
EXPECTED = {
    "bundle-from-wrong-instance_fail": "untrusted-root",
    "bundle-unknown-version_fail": "bundle-version",
    "checkpoint-bad-keyhint_fail": "checkpoint",
    "checkpoint-wrong-roothash_fail": "checkpoint",
    "dsse-invalid-sig_fail": "signature",
    "dsse-mismatch-envelope_fail": "log-entry",
    "dsse-mismatch-sig_fail": "log-entry",
    "inclusion-proof-corrupted-hash_fail": "proof",
    "integrated-time-in-future_fail": "certificate-expired",
    "invalid-ct-key_fail": "sct",
    "message-digest-mismatch_fail": "message-digest",
    "rekor2-no-inclusion-proof_fail": "proof-missing",
    "rekor2-no-timestamp_fail": "time-missing",
    "rekor2-timestamp-outside-trust-root-tsa-validity_fail": "tsa-window",
    "rekor2-timestamp-payload-mismatch_fail": "timestamp-other",
    "rekor2-timestamp-untrusted-tsa-without-embedded-cert_fail": "timestamp-untrusted",
    "set-invalid-signature_fail": "promise",
    "trust-root-tlog-missing-validity-start_fail": "root-no-start",
    "wrong-hashedrekord-entry_fail": "log-entry",
}


def answer(folder: Path) -> str:
    """Empty where the bundle is accepted; otherwise the reason."""
    own = folder / "trusted_root.json"
    public = (
        resources.files("sigstore")
        / "_store"
        / "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
        / "trusted_root.json"
    )
    artifact = folder / "artifact"
    if not artifact.is_file():
        artifact = folder.parent / "a.txt"
    data = own.read_bytes() if own.is_file() else public.read_bytes()
    try:
        root = read_root(data, name="root", issuers=(), level="a test's", canonical=False)
        facts = Examiner([root]).examine(
            (folder / "bundle.sigstore.json").read_bytes(), artifact=digests.sha256_file(artifact)
        )
    except WheelmarkError as error:
        return error.reason
    assert facts.times
    return ""


@pytest.mark.skipif(not FOLDERS, reason="not run: WHEELMARK_CASES names no folder with conformance bundles")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_conformance_bundle(folder: Path) -> None:
    found = answer(folder)
    if folder.name.endswith("_fail"):
        assert found in reasons.TABLE
        assert found == EXPECTED.get(folder.name, found)
        assert found not in {"library", "second-opinion"}
    else:
        assert found == STRICTER.get(folder.name, "")
