"""The canonical form of a bundle: one for each message, and a fixed point."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wheelmark.attest.bundle import MEDIA_TYPE, canonical_bundle
from wheelmark.errors import InputError

BUNDLE: dict[str, Any] = {
    "mediaType": MEDIA_TYPE,
    "verificationMaterial": {"tlogEntries": [{"logIndex": "0", "kindVersion": {"kind": "x"}}]},
    "dsseEnvelope": {"payload": "e30=", "payloadType": "t", "signatures": [{"sig": "AA=="}]},
}


def test_order_and_white_space_do_not_matter() -> None:
    turned = dict(reversed(list(BUNDLE.items())))
    assert canonical_bundle(json.dumps(BUNDLE, indent=3).encode()) == canonical_bundle(
        json.dumps(turned).encode()
    )


def test_null_members_are_absent_members() -> None:
    with_null = {
        **BUNDLE,
        "messageSignature": None,
        "verificationMaterial": {**BUNDLE["verificationMaterial"]},
    }
    with_null["verificationMaterial"]["publicKey"] = None
    assert canonical_bundle(json.dumps(with_null).encode()) == canonical_bundle(json.dumps(BUNDLE).encode())


def test_the_canonical_form_is_a_fixed_point_and_every_other_byte_is_not() -> None:
    data = canonical_bundle(json.dumps(BUNDLE).encode())
    assert canonical_bundle(data) == data
    for index in range(len(data)):
        changed = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
        try:
            assert canonical_bundle(changed) != data
        except InputError as error:
            assert error.reason.startswith(("json-", "bundle-"))  # noqa: PT017 - either refusal is right


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "bundle-media-type"),
        (json.dumps({**BUNDLE, "mediaType": [MEDIA_TYPE]}).encode(), "bundle-media-type"),
        (
            json.dumps(
                {**BUNDLE, "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2"}
            ).encode(),
            "bundle-media-type",
        ),
        (b"[]", "json-type"),
        (b'{"a":' * 40, "json-too-deep"),
        (b'{"mediaType":1,"mediaType":1}', "json-duplicate-key"),
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        canonical_bundle(data)
    assert caught.value.reason == reason
