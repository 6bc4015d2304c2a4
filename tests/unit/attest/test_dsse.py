"""DSSE envelopes: the encoding that is signed, and the envelopes that are refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from wheelmark.attest.dsse import PAYLOAD_TYPE, pre_authentication_encoding, read_envelope
from wheelmark.errors import InputError

PAYLOAD = base64.b64encode(b"{}").decode()
SIGNATURE = base64.b64encode(b"signature!").decode()


def envelope(**changes: Any) -> dict[str, Any]:
    value = {"payload": PAYLOAD, "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": SIGNATURE}], **changes}
    return {key: member for key, member in value.items() if member is not ...}


def test_the_example_of_the_specification() -> None:
    # DSSE v1.0.0, protocol.md: PAE(UTF8("http://example.com/HelloWorld"), UTF8("hello world")).
    assert (
        pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_lengths_are_of_bytes() -> None:
    assert pre_authentication_encoding("é", b"\x00 1") == b"DSSEv1 2 \xc3\xa9 3 \x00 1"


def test_an_envelope_is_read() -> None:
    found = read_envelope(envelope(signatures=[{"sig": SIGNATURE, "keyid": ""}]))
    assert (found.payload, found.signature) == (b"{}", b"signature!")
    assert found.signed_bytes == b"DSSEv1 28 application/vnd.in-toto+json 2 {}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "envelope-fields"),
        (envelope(payload=...), "envelope-fields"),
        (envelope(extra=1), "envelope-fields"),
        (envelope(payloadType="application/json"), "envelope-type"),
        (envelope(payloadType=PAYLOAD_TYPE.upper()), "envelope-type"),
        (envelope(payloadType=None), "envelope-type"),
        (envelope(signatures=[]), "envelope-signatures"),
        (envelope(signatures=[{"sig": SIGNATURE}] * 2), "envelope-signatures"),
        (envelope(signatures={"sig": SIGNATURE}), "envelope-signatures"),
        (envelope(signatures=[{"sig": SIGNATURE, "keyid": "k"}]), "envelope-signatures"),
        (envelope(signatures=[{"sig": SIGNATURE, "extra": ""}]), "envelope-signatures"),
        (envelope(signatures=[{}]), "envelope-signatures"),
        (envelope(signatures=[{"sig": 3}]), "envelope-encoding"),
        (envelope(payload="e30"), "envelope-encoding"),
        (envelope(payload="e30=\n"), "envelope-encoding"),
        (envelope(payload="e31="), "envelope-encoding"),
        (envelope(payload="_-8="), "envelope-encoding"),
        (envelope(payload="é"), "envelope-encoding"),
    ],
)
def test_other_envelopes_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_envelope(value)
    assert caught.value.reason == reason
