"""The one form in which Wheelmark writes a Sigstore bundle.

Format: sigstore protobuf-specs, ``sigstore_bundle.proto``, bundle v0.3 in protobuf JSON. That mapping lets one
message have many spellings (order, white space, number or string, absent or null); ours is RFC 8785 canonical
JSON with no null members, so that a byte that differs is a bundle that somebody changed.
"""

from __future__ import annotations

from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
LIMITS = strictjson.Limits(size=32 << 20, depth=16, items=1024, string=24 << 20)
"""A bundle holds one statement in base64 (4/3 of its size) and a few kilobytes of proof."""


def canonical_bundle(data: bytes) -> bytes:
    """The canonical bytes of a bundle; equal to ``data`` exactly when ``data`` is canonical already.

    Args:
        data: A bundle v0.3 in JSON.

    Raises:
        InputError: JSON that strictjson refuses, or reason ``bundle-media-type``.
    """
    value = read_bundle(data)
    return digests.canonical_json(_without_null(value))


def read_bundle(data: bytes) -> dict[str, Any]:
    """The JSON object of a bundle v0.3, parsed within ``LIMITS``; its members are not looked at.

    Raises:
        InputError: JSON that strictjson refuses, or reason ``bundle-media-type``.
    """
    value = strictjson.load_object(data, what="bundle", limits=LIMITS)
    if value.get("mediaType") != MEDIA_TYPE:
        raise InputError(
            f"bundle is of media type {str(value.get('mediaType'))[:200]!r}; {MEDIA_TYPE} is read here",
            reason="bundle-media-type",
        )
    return value


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value
