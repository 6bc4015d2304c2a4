"""ECDSA twins: which is the one form, and that a writer of bundles gets there from either."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest
from asn1crypto import tsp
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from forging import Forge, Json, b64, canonical, changed, found
from keysigning import KeyLog, managed
from wheelmark.errors import InputError, RejectedError
from wheelmark.verify import der, log, timestamps, twins
from wheelmark.verify.bundle import read_bundle
from wheelmark.verify.facts import Examiner
from wheelmark.verify.oneform import in_one_form

KEY = ec.generate_private_key(ec.SECP256R1())
ENTRY = "verificationMaterial.tlogEntries.0"
PROMISE = f"{ENTRY}.inclusionPromise.signedEntryTimestamp"
CHECKPOINT = f"{ENTRY}.inclusionProof.checkpoint.envelope"
STAMP = "verificationMaterial.timestampVerificationData.rfc3161Timestamps.0.signedTimestamp"


def other_twin(signature: bytes, curve: str = "secp256r1") -> bytes:
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, twins._ORDERS[curve] - s)


def other_token(token: bytes) -> bytes:
    response = tsp.TimeStampResp.load(token)
    (signer,) = response["time_stamp_token"]["content"]["signer_infos"]
    signer["signature"] = other_twin(signer["signature"].native)
    return bytes(response.dump(force=True))


def other_note(text: str) -> str:
    head, _, blob = text.rstrip("\n").rpartition(" ")
    data = base64.b64decode(blob)
    return f"{head} {b64(data[:4] + other_twin(data[4:]))}\n"


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_of_two_twins_one_is_the_smaller(curve: Any) -> None:
    key = ec.generate_private_key(curve)
    for number in range(8):
        data = b"%d" % number
        one = key.sign(data, ec.ECDSA(hashes.SHA256()))
        other = other_twin(one, curve.name)
        key.public_key().verify(other, data, ec.ECDSA(hashes.SHA256()))
        smaller = twins.smaller_twin(key.public_key(), one)
        assert smaller == twins.smaller_twin(key.public_key(), other)
        assert smaller in {one, other}
        assert [twins.is_smaller_twin(key.public_key(), item) for item in (one, other)].count(True) == 1


def test_other_keys_have_no_twins_and_junk_is_none() -> None:
    assert twins.smaller_twin(ed25519.Ed25519PrivateKey.generate().public_key(), b"x") == b"x"
    assert twins.is_smaller_twin(ec.generate_private_key(ec.SECP256K1()).public_key(), b"x")
    assert not twins.is_smaller_twin(KEY.public_key(), b"x")


@pytest.fixture(scope="module")
def keylog(forge: Forge) -> KeyLog:
    return KeyLog(forge, 1)


@pytest.fixture(scope="module")
def bundle(keylog: KeyLog, statement: bytes) -> Json:
    return keylog.statement(KEY, statement)


def test_every_twin_is_brought_into_the_one_form(keylog: KeyLog, bundle: Json) -> None:
    root = keylog.root()
    good = canonical(bundle)
    examiner = Examiner([root], [managed(KEY)])
    examiner.examine(good)
    assert in_one_form(good, root.material) == good
    for path, twin in (
        (STAMP, b64(other_token(base64.b64decode(found(bundle, STAMP))))),
        (PROMISE, b64(other_twin(base64.b64decode(found(bundle, PROMISE))))),
        (CHECKPOINT, other_note(found(bundle, CHECKPOINT))),
    ):
        spoiled = canonical(changed(bundle, path, twin))
        assert spoiled != good
        with pytest.raises(RejectedError) as caught:
            examiner.examine(spoiled)
        assert caught.value.reason == "unauthenticated"
        assert in_one_form(spoiled, root.material) == good


def test_a_bundle_with_a_certificate_is_left_as_it_is(forge: Forge, statement: bytes) -> None:
    good = canonical(forge.dsse(statement))
    assert in_one_form(good, forge.root().material) == good


def test_signatures_of_others_are_left_as_they_are(
    keylog: KeyLog, other_forge: Forge, forge: Forge, bundle: Json
) -> None:
    entry = read_bundle(canonical(bundle)).entry
    # A log that is not the root's, and one that the root names twice.
    assert log.with_smaller_twins(entry, forge.root().material.logs) is entry
    assert log.with_smaller_twins(entry, keylog.root().material.logs * 2) is entry
    witness = (
        "\u2014 witness.example " + b64(b"1234" + other_twin(base64.b64decode(found(bundle, PROMISE)))) + "\n"
    )
    cosigned = dataclasses.replace(
        entry,
        promise=None,
        proof=dataclasses.replace(entry.proof, checkpoint=entry.proof.checkpoint + witness),
    )
    assert log.with_smaller_twins(cosigned, keylog.root().material.logs) == cosigned
    token = other_token(base64.b64decode(found(bundle, STAMP)))
    assert timestamps.with_smaller_twin(token, other_forge.root().material.timestamp_authorities) == token


def test_tokens_of_another_shape(forge: Forge, bundle: Json) -> None:
    authorities = forge.root().material.timestamp_authorities
    token = base64.b64decode(found(bundle, STAMP))
    response = tsp.TimeStampResp.load(token)
    (signer,) = response["time_stamp_token"]["content"]["signer_infos"]
    signer["unsigned_attrs"] = []
    unsigned = bytes(response.dump(force=True))
    assert timestamps.with_smaller_twin(unsigned, authorities) == unsigned
    for junk in (b"", b"\x30\x00", der.encode(der.SEQUENCE, der.encode(der.NULL, b""))):
        with pytest.raises((InputError, ValueError)):
            timestamps.with_smaller_twin(junk, authorities)
