"""DSSE: the envelope around a signed statement, and the bytes that are signed.

Format: Dead Simple Signing Envelope v1.0.0, ``protocol.md`` (pre-authentication encoding) and
``envelope.md``; in a Sigstore bundle v0.3 an envelope has exactly one signature.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from typing import Any

from wheelmark.errors import InputError

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Envelope:
    """A payload and the one signature over it. Nothing here says that the signature is right."""

    payload_type: str
    payload: bytes
    signature: bytes

    @property
    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        return pre_authentication_encoding(self.payload_type, self.payload)


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """PAE of DSSE v1: ``"DSSEv1" SP LEN(type) SP type SP LEN(body) SP body``; lengths in bytes, decimal."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def read_envelope(value: Any) -> Envelope:
    """The envelope of a bundle's ``dsseEnvelope`` member, which must hold an in-toto statement.

    Args:
        value: The JSON value, already parsed within bounds.

    Raises:
        InputError: Reason ``envelope-fields``, ``envelope-type`` (the payload is not in-toto),
            ``envelope-signatures`` (not exactly one) or ``envelope-encoding`` (not canonical base64).
    """
    if not isinstance(value, dict) or set(value) != {"payload", "payloadType", "signatures"}:
        raise InputError("a DSSE envelope has unknown or absent members", reason="envelope-fields")
    if value["payloadType"] != PAYLOAD_TYPE:
        raise InputError(
            f"envelope holds {str(value['payloadType'])[:200]!r}, not {PAYLOAD_TYPE}", reason="envelope-type"
        )
    signatures = value["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise InputError("a DSSE envelope must have exactly one signature", reason="envelope-signatures")
    signature = signatures[0]
    # keyid is a hint that no signature covers; a certificate bundle has no use for it.
    if not isinstance(signature, dict) or "sig" not in signature or signature.get("keyid", "") != "":
        raise InputError("a DSSE signature has unknown or absent members", reason="envelope-signatures")
    if set(signature) - {"sig", "keyid"}:
        raise InputError("a DSSE signature has unknown members", reason="envelope-signatures")
    return Envelope(
        payload_type=PAYLOAD_TYPE,
        payload=decode_base64(value["payload"], what="envelope payload"),
        signature=decode_base64(signature["sig"], what="envelope signature"),
    )


def decode_base64(text: Any, *, what: str) -> bytes:
    """The bytes of standard base64 with padding, of which each value has exactly one spelling.

    Raises:
        InputError: Not that (reason ``envelope-encoding``).
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is no string", reason="envelope-encoding")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{what} is no base64: {error}", reason="envelope-encoding") from error
    if base64.b64encode(data).decode() != text:
        raise InputError(f"{what} is not in the one canonical base64 spelling", reason="envelope-encoding")
    return data
