"""The shape of bundles: what is malformed is an input error that says which member."""

from __future__ import annotations

from typing import Any

import pytest

from forging import Forge, Json, canonical, changed, found
from wheelmark.errors import InputError, RejectedError, WheelmarkError
from wheelmark.verify.bundle import MAX_TIMESTAMPS, MEDIA_TYPES, Envelope, MessageSignature, read_bundle

ENTRY = "verificationMaterial.tlogEntries.0"


@pytest.fixture(scope="module")
def bundle(forge: Forge, statement: bytes) -> Json:
    return forge.dsse(statement)


def reason(bundle: Json) -> str:
    with pytest.raises(WheelmarkError) as caught:
        read_bundle(canonical(bundle))
    assert isinstance(caught.value, InputError | RejectedError)
    return caught.value.reason


def test_values_of_a_bundle(bundle: Json, statement: bytes, forge: Forge) -> None:
    made = read_bundle(canonical(bundle))
    assert made.version == "0.3"
    assert isinstance(made.content, Envelope)
    assert made.content.payload == statement
    assert made.signature == made.content.signature
    assert made.entry.index == made.entry.proof.index
    assert len(made.certificates) == len(made.timestamps) == 1
    assert isinstance(read_bundle(canonical(forge.message(b"x"))).content, MessageSignature)


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_known_versions_are_read(bundle: Json, kind: str) -> None:
    if MEDIA_TYPES[kind] == "0.1":
        bundle = changed(bundle, f"{ENTRY}.inclusionPromise", {"signedEntryTimestamp": "AA=="})
    if MEDIA_TYPES[kind] != "0.3":
        assert reason({**bundle, "mediaType": kind}) == "bundle-shape"
        chain = {"certificates": [found(bundle, "verificationMaterial.certificate")]}
        bundle = changed(
            changed(bundle, "verificationMaterial.certificate", None),
            "verificationMaterial.x509CertificateChain",
            chain,
        )
    assert read_bundle(canonical({**bundle, "mediaType": kind})).version == MEDIA_TYPES[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/json",
        "application/vnd.dev.sigstore.bundle.v0.4+json",
        "application/vnd.dev.sigstore.bundle+json;version=99.9",
    ],
)
def test_unknown_version_is_refused(bundle: Json, kind: str) -> None:
    assert reason({**bundle, "mediaType": kind}) == "bundle-version"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mediaType", None),
        ("mediaType", 3),
        ("surprise", 1),
        ("verificationMaterial", []),
        ("verificationMaterial.surprise", 1),
        ("verificationMaterial.certificate", "MII"),
        ("verificationMaterial.certificate.surprise", "x"),
        ("verificationMaterial.certificate.rawBytes", 5),
        ("verificationMaterial.certificate.rawBytes", ""),
        ("verificationMaterial.certificate.rawBytes", "AB=="),
        ("verificationMaterial.certificate.rawBytes", "AA\n=="),
        ("verificationMaterial.certificate.rawBytes", "A-_="),
        ("verificationMaterial.publicKey", {"hint": "x"}),
        ("verificationMaterial.tlogEntries", {}),
        ("verificationMaterial.tlogEntries", ["x"]),
        (f"{ENTRY}.surprise", 1),
        (f"{ENTRY}.logIndex", 1),
        (f"{ENTRY}.logIndex", "-1"),
        (f"{ENTRY}.logIndex", "01"),
        (f"{ENTRY}.logIndex", "1e3"),
        (f"{ENTRY}.logIndex", "9" * 30),
        (f"{ENTRY}.logId", None),
        (f"{ENTRY}.logId.surprise", 1),
        (f"{ENTRY}.kindVersion.kind", None),
        (f"{ENTRY}.kindVersion.surprise", 1),
        (f"{ENTRY}.integratedTime", 5),
        (f"{ENTRY}.inclusionPromise", {"surprise": "x"}),
        (f"{ENTRY}.inclusionProof", "x"),
        (f"{ENTRY}.inclusionProof.surprise", 1),
        (f"{ENTRY}.inclusionProof.hashes", "x"),
        (f"{ENTRY}.inclusionProof.hashes", [1]),
        (f"{ENTRY}.inclusionProof.hashes", ["!"]),
        (f"{ENTRY}.inclusionProof.checkpoint", {"surprise": "x"}),
        (f"{ENTRY}.inclusionProof.checkpoint.envelope", 1),
        (f"{ENTRY}.canonicalizedBody", None),
        ("verificationMaterial.timestampVerificationData", "x"),
        ("verificationMaterial.timestampVerificationData.surprise", "x"),
        ("verificationMaterial.timestampVerificationData.rfc3161Timestamps", [{"surprise": 1}]),
        ("dsseEnvelope", None),
        ("dsseEnvelope", "x"),
        ("dsseEnvelope.surprise", 1),
        ("dsseEnvelope.signatures", []),
        ("dsseEnvelope.signatures.0.surprise", 1),
        ("dsseEnvelope.signatures.0.sig", None),
        ("dsseEnvelope.signatures.0.keyid", 1),
        ("dsseEnvelope.payload", None),
        ("dsseEnvelope.payloadType", None),
        ("messageSignature", {"signature": "AA=="}),
    ],
)
def test_malformed_member_is_refused(bundle: Json, path: str, value: Any) -> None:
    assert reason(changed(bundle, path, value)) == "bundle-shape"


@pytest.mark.parametrize("place", [ENTRY, f"{ENTRY}.inclusionProof"])
def test_a_first_entry_without_its_index_is_read_as_cosign_writes_it(bundle: Json, place: str) -> None:
    first = changed(bundle, f"{place}.logIndex", "0")
    absent = changed(bundle, f"{place}.logIndex", None)
    assert read_bundle(canonical(absent)) == read_bundle(canonical(first))


def test_two_signatures_and_too_many_timestamps_are_refused(bundle: Json) -> None:
    for path, count in (
        ("dsseEnvelope.signatures", 2),
        ("verificationMaterial.timestampVerificationData.rfc3161Timestamps", MAX_TIMESTAMPS + 1),
    ):
        assert reason(changed(bundle, path, found(bundle, path) * count)) == "bundle-shape"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("verificationMaterial.certificate", None, "certificate-missing"),
        ("verificationMaterial.tlogEntries", [], "log-missing"),
        (f"{ENTRY}.inclusionProof", None, "proof-missing"),
        (f"{ENTRY}.inclusionProof.checkpoint", {}, "proof-missing"),
    ],
)
def test_absent_evidence_is_rejected(bundle: Json, path: str, value: Any, expected: str) -> None:
    assert reason(changed(bundle, path, value)) == expected


def test_bare_keys_chains_and_promises(bundle: Json) -> None:
    bare = changed(bundle, "verificationMaterial.certificate", None)
    for hint, read in (({"hint": "key"}, "key"), ({}, ""), ({"hint": ""}, "")):
        keyed = read_bundle(canonical(changed(bare, "verificationMaterial.publicKey", hint)))
        assert (keyed.certificates, keyed.key_hint) == ((), read)
    for odd in ({"hint": 1}, {"rawBytes": "AA=="}, {"hint": "x" * 2000}, "key", ["key"]):
        assert reason(changed(bare, "verificationMaterial.publicKey", odd)) == "bundle-shape"
    assert read_bundle(canonical(bundle)).key_hint is None
    chain = {"certificates": [found(bundle, "verificationMaterial.certificate")]}
    chained = changed(bare, "verificationMaterial.x509CertificateChain", chain)
    assert reason(chained) == "certificate-missing"  # version 0.3 has no chains
    old = "application/vnd.dev.sigstore.bundle+json;version="
    assert len(read_bundle(canonical({**chained, "mediaType": old + "0.2"})).certificates) == 1
    assert reason({**chained, "mediaType": old + "0.1"}) == "promise"
    empty = changed(chained, "verificationMaterial.x509CertificateChain.certificates", [])
    assert reason({**empty, "mediaType": old + "0.2"}) == "certificate-missing"


def test_message_digest_of_another_algorithm_is_refused(forge: Forge) -> None:
    made = forge.message(b"x")
    assert reason(changed(made, "messageSignature.messageDigest.algorithm", "SHA2_512")) == "bundle-shape"
    assert reason(changed(made, "messageSignature.messageDigest.surprise", 1)) == "bundle-shape"


@pytest.mark.parametrize("value", ["", {}, [], 0, False])
@pytest.mark.parametrize(
    "path",
    [
        "messageSignature.messageDigest",
        "verificationMaterial.publicKey",
        "dsseEnvelope",
        f"{ENTRY}.inclusionPromise",
    ],
)
def test_only_null_is_absent(forge: Forge, path: str, value: Any) -> None:
    made = forge.message(b"x")
    assert reason(changed(made, path, value)) == "bundle-shape"
    *outer, last = path.split(".")
    holder = found(made, ".".join(outer)) if outer else made
    holder[last] = None
    assert read_bundle(canonical(made)).signature


@pytest.mark.parametrize("value", ["", [], 0, False])
def test_timestamps_of_another_type(bundle: Json, value: Any) -> None:
    assert reason(changed(bundle, "verificationMaterial.timestampVerificationData", value)) == "bundle-shape"
    empty = changed(bundle, "verificationMaterial.timestampVerificationData", {})
    assert read_bundle(canonical(empty)).timestamps == ()


def test_members_of_a_certificate_in_a_chain_are_known(bundle: Json) -> None:
    item = {**found(bundle, "verificationMaterial.certificate"), "more": ""}
    spoiled = changed(bundle, "verificationMaterial.certificate", None)
    spoiled = changed(spoiled, "verificationMaterial.x509CertificateChain", {"certificates": [item]})
    version = "application/vnd.dev.sigstore.bundle+json;version=0.2"
    assert reason({**spoiled, "mediaType": version}) == "bundle-shape"
