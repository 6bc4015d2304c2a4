"""A timestamp of an embedded authority has one form: not even the twin of its ECDSA signature is taken."""

from __future__ import annotations

import base64

import pytest
from asn1crypto import tsp
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from forging import Forge, Json, canonical, changed, found
from wheelmark.errors import RejectedError
from wheelmark.verify.facts import Examiner

STAMP = "verificationMaterial.timestampVerificationData.rfc3161Timestamps.0.signedTimestamp"
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def signed_by(token: bytes) -> tuple[tsp.TimeStampResp, int, int]:
    response = tsp.TimeStampResp.load(token)
    (signer,) = response["time_stamp_token"]["content"]["signer_infos"]
    r, s = decode_dss_signature(signer["signature"].native)
    return response, r, s


def test_the_twin_of_the_signature_is_refused(forge: Forge, statement: bytes, examiner: Examiner) -> None:
    bundle: Json = forge.dsse(statement)
    response, r, s = signed_by(base64.b64decode(found(bundle, STAMP)))
    assert s < ORDER - s
    examiner.examine(canonical(bundle))
    (signer,) = response["time_stamp_token"]["content"]["signer_infos"]
    signer["signature"] = encode_dss_signature(r, ORDER - s)
    twin = base64.b64encode(response.dump(force=True)).decode()
    with pytest.raises(RejectedError) as caught:
        examiner.examine(canonical(changed(bundle, STAMP, twin)))
    assert caught.value.reason == "unauthenticated"


def test_every_timestamp_has_the_smaller_s(forge: Forge) -> None:
    for number in range(20):
        _, _, s = signed_by(base64.b64decode(forge.timestamp(b"%d" % number)))
        assert 2 * s < ORDER
