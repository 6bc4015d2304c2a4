"""The transparency log: proofs and checkpoints verify, and only the domain's own certificates get in."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wheelmark.errors import InputError
from wheelmark.sign import embedded

KEY = ec.generate_private_key(ec.SECP256R1())
IDENTITY = embedded.RELEASE_IDENTITY


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture
def instance(template: Path, tmp_path: Path) -> Iterator[embedded.Instance]:
    """An instance with an empty log."""
    shutil.copytree(template, tmp_path / "state")
    with embedded.open_instance(tmp_path / "state") as made:
        yield made


def certificate(instance: embedded.Instance) -> bytes:
    pem = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    answer = instance.certify(
        instance.mint(IDENTITY), {"certificateSigningRequest": base64.b64encode(pem).decode()}
    )
    leaf = answer["signedCertificateEmbeddedSct"]["chain"]["certificates"][0]
    return x509.load_pem_x509_certificate(leaf.encode()).public_bytes(Encoding.DER)


def entry(der: bytes, data: bytes = b"data", key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, Any]:
    digest = hashlib.sha256(data).digest()
    signature = key.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
    return {
        "hashedRekordRequestV002": {
            "digest": base64.b64encode(digest).decode(),
            "signature": {
                "content": base64.b64encode(signature).decode(),
                "verifier": {
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "x509Certificate": {"rawBytes": base64.b64encode(der).decode()},
                },
            },
        }
    }


def root_of_proof(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """RFC 9162, 2.1.3.2: the root that an inclusion proof leads to; written apart from the tree's own code."""
    fn, sn, value = index, size - 1, hashlib.sha256(b"\x00" + leaf).digest()
    for node in path:
        assert sn
        if fn % 2 or fn == sn:
            value = hashlib.sha256(b"\x01" + node + value).digest()
            while not fn % 2 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            value = hashlib.sha256(b"\x01" + value + node).digest()
        fn, sn = fn >> 1, sn >> 1
    assert not sn
    return value


def test_every_proof_leads_to_the_signed_root(instance: embedded.Instance) -> None:
    der = certificate(instance)
    public = instance.domain.current.public
    for number in range(9):
        answer = instance.log(entry(der, b"%d" % number))
        proof = answer["inclusionProof"]
        assert answer["logIndex"] == proof["logIndex"] == str(number)
        assert proof["treeSize"] == str(number + 1)
        body = base64.b64decode(answer["canonicalizedBody"])
        path = [base64.b64decode(item) for item in proof["hashes"]]
        root = root_of_proof(body, number, number + 1, path)
        assert base64.b64decode(proof["rootHash"]) == root
        note, _, signatures = proof["checkpoint"]["envelope"].partition("\n\n")
        assert note.split("\n") == [public.origin, str(number + 1), proof["rootHash"]]
        dash, name, text = signatures.rstrip("\n").split(" ")
        assert (dash, name) == ("\N{EM DASH}", public.origin)
        signature = base64.b64decode(text)
        identifier = base64.b64decode(answer["logId"]["keyId"])
        assert signature[:4] == identifier[:4]
        public.log.verify(signature[4:], f"{note}\n".encode())
        with pytest.raises(InvalidSignature):
            public.log.verify(signature[4:], note.encode())


def test_the_logged_body_is_canonical_and_holds_nothing_else(instance: embedded.Instance) -> None:
    asked = entry(certificate(instance))
    asked["extra"] = "not logged"
    body = base64.b64decode(instance.log(asked)["canonicalizedBody"])
    value = json.loads(body)
    assert json.dumps(value, separators=(",", ":"), sort_keys=True).encode() == body
    assert (value["kind"], value["apiVersion"]) == ("hashedrekord", "0.0.2")
    assert "extra" not in value
    logged = value["spec"]["hashedRekordV002"]
    assert logged["data"]["digest"] == asked["hashedRekordRequestV002"]["digest"]
    assert logged["signature"] == asked["hashedRekordRequestV002"]["signature"]


def test_the_log_goes_on_where_it_was_left(tmp_path: Path) -> None:
    for number in range(3):
        with embedded.open_instance(tmp_path / "state") as instance:
            assert instance.log(entry(certificate(instance), b"%d" % number))["logIndex"] == str(number)


def test_two_instances_write_one_history(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with embedded.open_instance(state) as one, embedded.open_instance(state) as two:
        der = certificate(one)
        sizes = [
            instance.log(entry(der, b"%d" % number))["inclusionProof"]["treeSize"]
            for number, instance in enumerate((one, two, two, one, two))
        ]
    assert sizes == ["1", "2", "3", "4", "5"]


def self_signed() -> bytes:
    name, now = x509.Name([]), dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(minutes=1))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def test_what_is_not_logged(instance: embedded.Instance, tmp_path: Path) -> None:
    der = certificate(instance)
    with embedded.open_instance(tmp_path / "other") as stranger:
        foreign = certificate(stranger)
    wrong_details = entry(der)
    wrong_details["hashedRekordRequestV002"]["signature"]["verifier"]["keyDetails"] = "PKIX_ED25519"
    other_digest = entry(der)
    digest = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    other_digest["hashedRekordRequestV002"]["digest"] = digest
    short_digest = entry(der)
    short_digest["hashedRekordRequestV002"]["digest"] = "AA=="
    bare_key = entry(der)
    bare_key["hashedRekordRequestV002"]["signature"]["verifier"] = {"publicKey": {"rawBytes": "AA=="}}
    unnamed = by_key(KEY)
    bad: list[Any] = [
        None,
        {},
        {"dsseRequestV002": {}},
        {"hashedRekordRequestV002": []},
        entry(foreign),
        entry(self_signed()),
        entry(b"junk"),
        entry(der, key=ec.generate_private_key(ec.SECP256R1())),
        other_digest,
        short_digest,
        wrong_details,
        bare_key,
        unnamed,
    ]
    for value in bad:
        with pytest.raises(InputError) as caught:
            instance.log(value)
        assert caught.value.reason == "log-entry"
    assert instance.log(entry(der))["logIndex"] == "0"


def by_key(key: ec.EllipticCurvePrivateKey, *, signer: ec.EllipticCurvePrivateKey | None = None) -> Any:
    made = entry(b"", key=signer or key)
    raw = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    made["hashedRekordRequestV002"]["signature"]["verifier"] = {
        "keyDetails": "PKIX_ECDSA_P256_SHA_256",
        "publicKey": {"rawBytes": base64.b64encode(raw).decode()},
    }
    return made


def test_a_key_that_was_named_is_logged_for_what_it_signed(instance: embedded.Instance) -> None:
    instance.name_key(KEY.public_key())
    body = json.loads(base64.b64decode(instance.log(by_key(KEY))["canonicalizedBody"]))
    assert set(body["spec"]["hashedRekordV002"]["signature"]["verifier"]) == {"keyDetails", "publicKey"}
    other = ec.generate_private_key(ec.SECP256R1())
    for value in (by_key(other), by_key(KEY, signer=other)):
        with pytest.raises(InputError) as caught:
            instance.log(value)
        assert caught.value.reason == "log-entry"
