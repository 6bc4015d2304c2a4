"""Timestamps, as an independent RFC 3161 implementation sees them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from asn1crypto import tsp
from rfc3161_client import (
    TimestampRequestBuilder,
    VerificationError,
    Verifier,
    VerifierBuilder,
    decode_timestamp_response,
)
from rfc3161_client.base import HashAlgorithm

from wheelmark.errors import InputError
from wheelmark.sign import embedded

MESSAGE = b"a signature"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Instance]:
    with embedded.open_instance(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


def verifier(instance: embedded.Instance, nonce: int | None = None) -> Verifier:
    certificate, root = instance.domain.current.public.timestamping
    builder = VerifierBuilder().tsa_certificate(certificate).add_root_certificate(root)
    return (builder.nonce(nonce) if nonce is not None else builder).build()


@pytest.mark.parametrize("algorithm", [HashAlgorithm.SHA256, HashAlgorithm.SHA512])
def test_a_timestamp_verifies(algorithm: HashAlgorithm, instance: embedded.Instance) -> None:
    request = TimestampRequestBuilder().hash_algorithm(algorithm).data(MESSAGE).nonce(nonce=True).build()
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    response = decode_timestamp_response(instance.timestamp(request.as_bytes()))
    assert verifier(instance, request.nonce).verify_message(response, MESSAGE)
    assert before <= response.tst_info.gen_time <= dt.datetime.now(dt.UTC)
    assert response.tst_info.nonce == request.nonce
    assert response.tst_info.policy.dotted_string == "1.3.6.1.4.1.57264.2"


def test_serial_numbers_differ(instance: embedded.Instance) -> None:
    request = TimestampRequestBuilder().data(MESSAGE).build().as_bytes()
    found = {decode_timestamp_response(instance.timestamp(request)).tst_info.serial_number for _ in range(20)}
    assert len(found) == 20


def test_a_timestamp_is_of_one_message_and_one_authority(instance: embedded.Instance, tmp_path: Path) -> None:
    request = TimestampRequestBuilder().data(MESSAGE).nonce(nonce=True).build()
    response = decode_timestamp_response(instance.timestamp(request.as_bytes()))
    with pytest.raises(VerificationError):
        verifier(instance).verify_message(response, MESSAGE + b"!")
    assert request.nonce is not None
    with pytest.raises(VerificationError):
        verifier(instance, request.nonce ^ 1).verify_message(response, MESSAGE)
    with embedded.open_instance(tmp_path / "other") as other, pytest.raises(VerificationError):
        verifier(other).verify_message(response, MESSAGE)


def test_the_certificate_is_left_out_unless_it_is_asked_for(instance: embedded.Instance) -> None:
    for wanted in (True, False):
        request = TimestampRequestBuilder().data(MESSAGE).cert_request(cert_request=wanted).build()
        response = decode_timestamp_response(instance.timestamp(request.as_bytes()))
        assert len(response.signed_data.certificates) == int(wanted)
        assert verifier(instance).verify_message(response, MESSAGE)


def request_over(algorithm: str, digest: bytes) -> bytes:
    imprint = {"hash_algorithm": {"algorithm": algorithm}, "hashed_message": digest}
    data: bytes = tsp.TimeStampReq({"version": "v1", "message_imprint": imprint, "cert_req": True}).dump()
    return data


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"junk",
        b"\x30\x80",
        request_over("sha256", bytes(32)) + b"\x00",
        request_over("sha256", bytes(31)),
        request_over("sha1", bytes(20)),
        request_over("md5", bytes(16)),
    ],
)
def test_what_is_not_timestamped(request_bytes: bytes, instance: embedded.Instance) -> None:
    with pytest.raises(InputError) as caught:
        instance.timestamp(request_bytes)
    assert caught.value.reason == "timestamp-request"
