"""The case folders of Sigstore's conformance suite, the client driven as the suite drives it, and what is expected.

A folder is described in the suite's ``bundle-verify/README.md``: ``_fail`` at the end of its name says that the client has to
refuse; identity, issuer, key, root and artifact are files in it, or have defaults.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.sign import embedded

CLIENT = Path(__file__).with_name("client.py")
ASSETS = Path("sigstore-conformance/test/assets/bundle-verify")
IDENTITY = (
    "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/"
    "extremely-dangerous-oidc-beacon.yml@refs/heads/main"
)
ISSUER = "https://token.actions.githubusercontent.com"
REASONS = {
    "bundle-empty-certificate-chain_fail": "certificate-missing",
    "bundle-from-wrong-instance_fail": "untrusted-root",
    "bundle-invalid-base64-signature_fail": "bundle-shape",
    "bundle-malformed-json_fail": "json-syntax",
    "bundle-negative-log-index_fail": "bundle-shape",
    "bundle-unknown-version_fail": "bundle-version",
    "bundle-with-root-cert_fail": "proof-missing",
    "checkpoint-bad-keyhint_fail": "checkpoint",
    "checkpoint-wrong-roothash_fail": "checkpoint",
    "dsse-invalid-sig_fail": "signature",
    "dsse-mismatch-envelope_fail": "log-entry",
    "dsse-mismatch-sig_fail": "log-entry",
    "inclusion-proof-corrupted-hash_fail": "proof",
    "incorrect-public-key_fail": "log-entry",
    "integrated-time-in-future_fail": "certificate-expired",
    "intoto-expired-certificate_fail": "certificate-expired",
    "intoto-log-entry-mismatch_fail": "log-entry",
    "intoto-missing-inclusion-proof_fail": "proof-missing",
    "intoto-set-outside-signing-cert-validity_fail": "certificate-expired",
    "intoto-tsa-timestamp-outside-cert-validity_fail": "certificate-expired",
    "invalid-checkpoint-signature_fail": "checkpoint",
    "invalid-ct-key_fail": "sct",
    "invalid-inclusion-proof_fail": "proof-missing",
    "managed-key-no-key_fail": "key-bundle",
    "managed-key-wrong-key_fail": "key-shape",
    "message-digest-mismatch_fail": "message-digest",
    "rekor2-checkpoint-missing-log-signature_fail": "checkpoint",
    "rekor2-checkpoint-missing-origin_fail": "checkpoint",
    "rekor2-checkpoint-missing-root-hash_fail": "checkpoint",
    "rekor2-checkpoint-missing-size_fail": "checkpoint",
    "rekor2-checkpoint-no-matching-signature_fail": "checkpoint",
    "rekor2-dsse-invalid-sig_fail": "signature",
    "rekor2-dsse-mismatch-envelope_fail": "log-entry",
    "rekor2-dsse-mismatch-sig_fail": "log-entry",
    "rekor2-no-inclusion-proof_fail": "proof-missing",
    "rekor2-no-timestamp_fail": "time-missing",
    "rekor2-timestamp-outside-trust-root-tsa-validity_fail": "tsa-window",
    "rekor2-timestamp-outside-tsa-cert-validity_fail": "timestamp-untrusted",
    "rekor2-timestamp-payload-mismatch_fail": "timestamp-other",
    "rekor2-timestamp-untrusted-tsa-with-embedded-cert_fail": "timestamp-malformed",
    "rekor2-timestamp-untrusted-tsa-without-embedded-cert_fail": "timestamp-untrusted",
    "rekor2-timestamp-with-incorrect-time_fail": "bundle-shape",
    "set-invalid-signature_fail": "promise",
    "signature-mismatch_fail": "signature",
    "trust-root-tlog-missing-validity-start_fail": "root-no-start",
    "wrong-hashedrekord-artifact_fail": "log-entry",
    "wrong-hashedrekord-cert-and-sig_fail": "log-entry",
    "wrong-hashedrekord-entry_fail": "log-entry",
    "wrong-material_fail": "message-digest",
}
"""Folder -> the reason code that the refusal has to have: a refusal for another reason would be luck.

Five folders hold a second fault that is met first, and without which they would have these: ``bundle-with-root-cert``
(``root-in-bundle``) and ``invalid-inclusion-proof`` (``proof``) have no checkpoint; the key of ``managed-key-wrong-key``
(``key-unknown``) and the base64 of ``rekor2-timestamp-with-incorrect-time`` (``certificate-expired``) are malformed, and so is
the DER of ``rekor2-timestamp-untrusted-tsa-with-embedded-cert`` (``timestamp-untrusted``).
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What the client said about one case."""

    case: str
    expected: str
    """``accept`` or ``refuse``."""
    because: str
    """The reason code that a refusal has to have."""
    answer: str
    reason: str

    @property
    def right(self) -> bool:
        """As the suite wants, and for the reason that is known here."""
        return (self.answer, self.reason) == (self.expected, self.because)


def folders(cases: Path) -> list[Path]:
    """Every case folder under the shared data; none where it is absent."""
    root = cases / ASSETS
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def arguments(folder: Path) -> list[str]:
    """The command line, its arguments in the protocol's order."""

    def text(name: str, default: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf-8").strip() if path.is_file() else default

    key, root, artifact = folder / "key.pub", folder / "trusted_root.json", folder / "artifact"
    signer = (
        ["--key", str(key)]
        if key.is_file()
        else [
            "--certificate-identity",
            text("identity", IDENTITY),
            "--certificate-oidc-issuer",
            text("issuer", ISSUER),
        ]
    )
    trusted = ["--trusted-root", str(root)] if root.is_file() else []
    named = artifact if artifact.is_file() else folder.parent / "a.txt"
    return ["verify-bundle", "--bundle", str(folder / "bundle.sigstore.json"), *signer, *trusted, str(named)]


def run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr of the client."""
    done = subprocess.run(
        [sys.executable, str(CLIENT), *command], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


def ask(folder: Path) -> Answer:
    """The client's answer about one folder."""
    expected = "refuse" if folder.name.endswith("_fail") else "accept"
    return _answer(folder.name, expected, REASONS.get(folder.name, ""), run(arguments(folder)))


def _answer(case: str, expected: str, because: str, ended: tuple[int, str]) -> Answer:
    code, said = ended
    words = said.partition(":")[0].split()
    return Answer(
        case=case,
        expected=expected,
        because=because,
        answer={0: "accept", 1: "refuse"}.get(code, f"exit {code}"),
        reason=words[1] if code == 1 and len(words) == 2 and words[0] == "refused" else "",
    )


def sign_and_verify(cases: Path, place: Path) -> list[Answer]:
    """Sign the suite's artifact and statement in an embedded instance over loopback, and verify the bundles.

    Args:
        cases: The shared data.
        place: An empty folder to work in.
    """
    artifact, statement = cases / ASSETS.parent / "a.txt", cases / ASSETS.parent / "statement.json"
    bundle, root, config = place / "bundle", place / "root", place / "config"
    digest = digests.sha256_file(artifact)
    embedded.create(place / "state")
    answers = []
    with embedded.open_instance(place / "state") as instance, instance.serving() as made:
        whole = json.loads(made)
        root.write_text(json.dumps(whole["trustedRoot"]), encoding="utf-8")
        config.write_text(json.dumps(whole["signingConfig"]), encoding="utf-8")
        for name, form, file in (
            ("sign-bundle", [], artifact),
            ("sign-bundle --in-toto", ["--in-toto"], statement),
        ):
            token = instance.mint(embedded.RELEASE_IDENTITY)
            services = ["--trusted-root", str(root), "--signing-config", str(config)]
            asked = [*form, "--identity-token", token, "--bundle", str(bundle), *services, str(file)]
            answers.append(_answer(f"{name}: signed", "accept", "", run(["sign-bundle", *asked])))
            wrong = "0" * 64
            for what, text, identity, reason in (
                ("file", str(artifact), embedded.RELEASE_IDENTITY, ""),
                ("digest", f"sha256:{digest}", embedded.RELEASE_IDENTITY, ""),
                (
                    "another digest",
                    f"sha256:{wrong}",
                    embedded.RELEASE_IDENTITY,
                    "subject-digest" if form else "message-digest",
                ),
                ("another identity", str(artifact), "https://example.org/somebody", "signer-identity"),
            ):
                signer = ["--certificate-identity", identity, "--certificate-oidc-issuer", embedded.ISSUER]
                command = [
                    "verify-bundle",
                    "--bundle",
                    str(bundle),
                    *signer,
                    "--trusted-root",
                    str(root),
                    text,
                ]
                expected = "refuse" if reason else "accept"
                answers.append(_answer(f"{name}: verified, {what}", expected, reason, run(command)))
    return answers
