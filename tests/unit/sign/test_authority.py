"""The certificate authority and its log: whom it certifies, how, and whom it refuses."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.certificate_transparency import LogEntryType

from wheelmark.errors import InputError
from wheelmark.sign import embedded
from wheelmark.sign.embedded.oidc import AUDIENCE, TokenIssuer

WORKFLOW = "acme/widget/.github/workflows/release.yml@refs/tags/v1"
GITHUB_CLAIMS = {
    "job_workflow_ref": WORKFLOW,
    "job_workflow_sha": "1" * 40,
    "runner_environment": "github-hosted",
    "repository": "acme/widget",
    "repository_id": "7",
    "repository_owner": "acme",
    "repository_owner_id": "8",
    "repository_visibility": "public",
    "sha": "2" * 40,
    "ref": "refs/tags/v1",
    "workflow": "release",
    "workflow_ref": WORKFLOW,
    "workflow_sha": "3" * 40,
    "event_name": "push",
    "run_id": "99",
    "run_attempt": "2",
}
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Instance]:
    with embedded.open_instance(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


def signing_request(key: Any = KEY) -> dict[str, Any]:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    pem = builder.sign(key, algorithm).public_bytes(Encoding.PEM)
    return {"certificateSigningRequest": base64.b64encode(pem).decode()}


def key_request(proved: str, key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, Any]:
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    proof = key.sign(proved.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "publicKeyRequest": {
            "publicKey": {"algorithm": "ECDSA", "content": pem},
            "proofOfPossession": base64.b64encode(proof).decode(),
        }
    }


def issued(answer: Mapping[str, Any]) -> tuple[x509.Certificate, x509.Certificate]:
    leaf, root = answer["signedCertificateEmbeddedSct"]["chain"]["certificates"]
    return x509.load_pem_x509_certificate(leaf.encode()), x509.load_pem_x509_certificate(root.encode())


def extension(certificate: x509.Certificate, number: int) -> bytes:
    identifier = x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
    value = certificate.extensions.get_extension_for_oid(identifier).value
    assert isinstance(value, x509.UnrecognizedExtension)
    return value.value


def names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert found.critical
    return [str(name.value) for name in found.value]


@pytest.mark.parametrize("request_value", [signing_request(), key_request(embedded.RELEASE_IDENTITY)])
def test_a_certificate_says_who_and_by_whom(
    request_value: dict[str, Any], instance: embedded.Instance
) -> None:
    leaf, root = issued(instance.certify(instance.mint(embedded.RELEASE_IDENTITY), request_value))
    leaf.verify_directly_issued_by(root)
    assert leaf.public_key() == KEY.public_key()
    assert names(leaf) == [embedded.RELEASE_IDENTITY]
    assert extension(leaf, 1) == embedded.ISSUER.encode()
    assert extension(leaf, 8) == b"\x0c" + bytes([len(embedded.ISSUER)]) + embedded.ISSUER.encode()
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == dt.timedelta(minutes=10)
    assert leaf.subject == x509.Name([])
    assert "self-issued, no external trust" in leaf.issuer.rfc4514_string().replace("\\", "")
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [item.dotted_string for item in usage] == ["1.3.6.1.5.5.7.3.3"]
    assert root == instance.domain.current.public.authority


def test_the_certificate_timestamp_is_the_logs_own(instance: embedded.Instance) -> None:
    leaf, root = issued(instance.certify(instance.mint(embedded.RELEASE_IDENTITY), signing_request()))
    (promise,) = leaf.extensions.get_extension_for_class(x509.PrecertificateSignedCertificateTimestamps).value
    log = instance.domain.current.public.ct_log
    spki = log.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert promise.log_id == hashlib.sha256(spki).digest()
    assert promise.entry_type is LogEntryType.PRE_CERTIFICATE
    issuer = root.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    body = leaf.tbs_precertificate_bytes
    # RFC 6962, 3.2: digitally-signed struct.
    moment = promise.timestamp.replace(tzinfo=dt.UTC)
    signed = struct.pack("!BBQH", 0, 0, round(moment.timestamp() * 1000), 1)
    signed += hashlib.sha256(issuer).digest() + len(body).to_bytes(3, "big") + body + b"\x00\x00"
    log.verify(promise.signature, signed, ec.ECDSA(hashes.SHA256()))
    records = (instance.domain.current.folder / "ct.records").read_bytes()
    assert body in records


def test_a_token_inside_the_request_counts_too(instance: embedded.Instance) -> None:
    token = instance.mint(embedded.RELEASE_IDENTITY)
    leaf, _root = issued(
        instance.certify("", {**signing_request(), "credentials": {"oidcIdentityToken": token}})
    )
    assert names(leaf) == [embedded.RELEASE_IDENTITY]


def test_a_workflow_gets_the_extensions_that_fulcio_gives(instance: embedded.Instance) -> None:
    leaf, _root = issued(
        instance.certify(instance.mint("repo:acme/widget", GITHUB_CLAIMS), signing_request())
    )
    assert names(leaf) == [f"https://github.com/{WORKFLOW}"]
    raw = {2: "push", 3: "2" * 40, 4: "release", 5: "acme/widget", 6: "refs/tags/v1"}
    for number, text in raw.items():
        assert extension(leaf, number) == text.encode()
    texts = {
        9: f"https://github.com/{WORKFLOW}",
        10: "1" * 40,
        11: "github-hosted",
        12: "https://github.com/acme/widget",
        13: "2" * 40,
        14: "refs/tags/v1",
        15: "7",
        16: "https://github.com/acme",
        17: "8",
        18: f"https://github.com/{WORKFLOW}",
        19: "3" * 40,
        20: "push",
        21: "https://github.com/acme/widget/actions/runs/99/attempts/2",
        22: "public",
        24: "repo:acme/widget",
    }
    for number, text in texts.items():
        assert extension(leaf, number) == b"\x0c" + bytes([len(text)]) + text.encode()


def test_a_long_claim_is_encoded_in_the_long_form(instance: embedded.Instance) -> None:
    claims = {**GITHUB_CLAIMS, "ref": "refs/heads/" + "x" * 300}
    leaf, _root = issued(instance.certify(instance.mint("repo:x", claims), signing_request()))
    assert extension(leaf, 14) == b"\x0c\x82\x01\x37" + claims["ref"].encode()


@pytest.mark.parametrize(
    ("claims", "subject", "expected"),
    [
        ({}, "bot@example.org", "bot@example.org"),
        ({"email": "a@example.org", "email_verified": True}, "1234", "a@example.org"),
        ({"email": "a@example.org", "email_verified": "true"}, "https://x.invalid/y", "https://x.invalid/y"),
    ],
)
def test_only_a_verified_address_is_certified(
    claims: dict[str, Any], subject: str, expected: str, instance: embedded.Instance
) -> None:
    leaf, _root = issued(instance.certify(instance.mint(subject, claims), key_request(expected)))
    assert names(leaf) == [expected]


def test_a_workflow_token_without_its_claims_is_refused(instance: embedded.Instance) -> None:
    for name in GITHUB_CLAIMS:
        if name == "job_workflow_ref":
            continue
        claims = {key: value for key, value in GITHUB_CLAIMS.items() if key != name}
        with pytest.raises(InputError) as caught:
            instance.certify(instance.mint("repo:x", claims), signing_request())
        assert caught.value.reason == "token"


def test_tokens_that_are_not_good(instance: embedded.Instance, tmp_path: Path) -> None:
    key = instance.domain.current.keys().tokens
    now = int(time.time())
    good = {
        "iss": embedded.ISSUER,
        "sub": "https://x.invalid",
        "aud": AUDIENCE,
        "iat": now,
        "nbf": now,
        "exp": now + 60,
    }

    def signed(**changes: Any) -> str:
        claims = {name: value for name, value in {**good, **changes}.items() if value is not None}
        return jwt.encode(claims, key, algorithm="RS256")

    assert issued(instance.certify(signed(), signing_request()))
    foreign = TokenIssuer(embedded.create(tmp_path / "other").current.keys().tokens, embedded.ISSUER).mint(
        "https://x.invalid"
    )
    header, body, signature = signed().split(".")
    unsigned = jwt.encode(good, "", algorithm="none")
    bad = [
        foreign,
        unsigned,
        f"{header}.{body}.{signature[:-8]}AAAAAAAA",
        f"{header}.{body[:-4]}AAAA.{signature}",
        signed(exp=now - 1),
        signed(nbf=now + 60),
        signed(aud="somebody"),
        signed(iss="https://token.actions.githubusercontent.com"),
        signed(sub=None),
        signed(exp=None),
        "",
        "a.b.c",
    ]
    for token in bad:
        with pytest.raises(InputError) as caught:
            instance.certify(token, signing_request())
        assert caught.value.reason == "token"


def test_keys_that_are_not_certified(instance: embedded.Instance) -> None:
    token = instance.mint(embedded.RELEASE_IDENTITY)
    other = ec.generate_private_key(ec.SECP256R1())
    tampered = bytearray(base64.b64decode(signing_request()["certificateSigningRequest"]))
    tampered[-60] = ord("A") if tampered[-60] != ord("A") else ord("B")
    without_proof = key_request(embedded.RELEASE_IDENTITY)
    del without_proof["publicKeyRequest"]["proofOfPossession"]
    bad: list[Any] = [
        {},
        None,
        {"certificateSigningRequest": ""},
        {"certificateSigningRequest": base64.b64encode(b"x").decode()},
        {"certificateSigningRequest": base64.b64encode(tampered).decode()},
        signing_request(ec.generate_private_key(ec.SECP384R1())),
        signing_request(ed25519.Ed25519PrivateKey.generate()),
        key_request("https://somebody.invalid/else"),
        key_request(embedded.RELEASE_IDENTITY, other),
        without_proof,
        {"publicKeyRequest": {"publicKey": {"content": "x"}, "proofOfPossession": "AA=="}},
        {"publicKeyRequest": []},
    ]
    for value in bad:
        with pytest.raises(InputError) as caught:
            instance.certify(token, value)
        assert caught.value.reason in {"certificate-request", "envelope-encoding"}


@pytest.mark.parametrize("name", ["", "a/b", "..", "A", "gpu runner", "gpü", "a\n"])
def test_runner_names_are_plain(name: str) -> None:
    with pytest.raises(InputError) as caught:
        embedded.runner_identity(name)
    assert caught.value.reason == "runner-name"


def test_runner_identities() -> None:
    assert embedded.runner_identity("gpu-1") == "https://embedded.invalid/wheelmark/runner/gpu-1"
