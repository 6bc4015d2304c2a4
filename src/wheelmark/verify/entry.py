"""The log entry's body: rebuilt from the bundle and compared, member for member.

Formats: Rekor v1 ``hashedrekord`` and ``dsse`` 0.0.1 and ``intoto`` 0.0.2 (sigstore/rekor ``pkg/types``), Rekor v2
``hashedrekord`` 0.0.2 (sigstore/rekor-tiles; DSSE by the digest of its pre-authentication encoding).

What cannot be rebuilt is a hash over JSON text that a bundle does not keep: ``envelopeHash`` of ``dsse`` 0.0.1, and
``hash`` of ``intoto`` 0.0.2. They are taken as they stand, have to be sha256, and nothing is concluded from them.
"""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from wheelmark import digests, strictjson
from wheelmark.errors import InputError, RejectedError
from wheelmark.verify.bundle import Bundle, Envelope, LogEntry, MessageSignature
from wheelmark.verify.signature import SigningKey

_LIMITS = strictjson.Limits(
    size=24 << 20, depth=12, items=1000, string=22 << 20, containers=20_000, values=20_000
)


def check_body(bundle: Bundle, key: SigningKey, artifact: bytes | None) -> None:
    """Compare the logged entry with what the bundle's other members say it has to be.

    Args:
        bundle: The bundle.
        key: Who signed it.
        artifact: sha256 of the artifact, for a message signature.

    Raises:
        RejectedError: ``log-kind`` or ``log-entry``.
    """
    spec = _spec(bundle.entry)
    match (bundle.entry.kind, bundle.entry.version, bundle.content):
        case ("hashedrekord", "0.0.2", content):
            matches = spec == _hashedrekord_v2(content, key, artifact)
        case ("hashedrekord", "0.0.1", MessageSignature() as content):
            matches = _is_hashedrekord_v1(spec, content, key, artifact)
        case ("dsse", "0.0.1", Envelope() as content):
            matches = _is_dsse_v1(spec, content, key)
        case ("intoto", "0.0.2", Envelope() as content):
            matches = _is_intoto_v2(spec, content, key)
        case _:
            raise RejectedError(
                f"log entry of kind {bundle.entry.kind!r:.60} {bundle.entry.version!r:.20} for this content",
                cause="this verifier knows hashedrekord 0.0.1 and 0.0.2, dsse 0.0.1 and intoto 0.0.2",
                reason="log-kind",
            )
    if not matches:
        raise RejectedError("the log entry is about something else than this bundle", reason="log-entry")


def _spec(entry: LogEntry) -> Any:
    """The body's one member that differs from kind to kind."""
    try:
        body = strictjson.load_object(entry.body, what="log entry", limits=_LIMITS)
    except InputError as error:
        raise RejectedError(f"unreadable log entry: {error.what}", reason="log-entry") from error
    if set(body) != {"kind", "apiVersion", "spec"}:
        raise RejectedError("the log entry has unknown or absent members", reason="log-entry")
    if (body["kind"], body["apiVersion"]) != (entry.kind, entry.version):
        raise RejectedError(
            f"the bundle calls its log entry {entry.kind} {entry.version}; its body says otherwise",
            reason="log-entry",
        )
    return body["spec"]


def _hashedrekord_v2(
    content: Envelope | MessageSignature, key: SigningKey, artifact: bytes | None
) -> dict[str, Any]:
    algorithm, digest = key.digest, artifact or b""
    if isinstance(content, Envelope):
        context = hashes.Hash(key.function)
        context.update(content.pae())
        digest = context.finalize()
    raw = {"rawBytes": _text(key.der)}
    signer = {"publicKey": raw} if key.certificate is None else {"x509Certificate": raw}
    return {
        "hashedRekordV002": {
            "data": {"algorithm": algorithm, "digest": _text(digest)},
            "signature": {
                "content": _text(content.signature),
                "verifier": {"keyDetails": key.details, **signer},
            },
        }
    }


def _is_hashedrekord_v1(
    spec: Any, content: MessageSignature, key: SigningKey, artifact: bytes | None
) -> bool:
    pem = _at(spec, "signature", "publicKey", "content")
    return _names(pem, key) and bool(
        spec
        == {
            "data": {"hash": {"algorithm": "sha256", "value": (artifact or b"").hex()}},
            "signature": {"content": _text(content.signature), "publicKey": {"content": pem}},
        }
    )


def _is_dsse_v1(spec: Any, content: Envelope, key: SigningKey) -> bool:
    pem, unrebuilt = _at(spec, "signatures", 0, "verifier"), _at(spec, "envelopeHash")
    return (
        _names(pem, key)
        and _is_hash(unrebuilt)
        and bool(
            spec
            == {
                "envelopeHash": unrebuilt,
                "payloadHash": _sha256(content.payload),
                "signatures": [{"signature": _text(content.signature), "verifier": pem}],
            }
        )
    )


def _is_intoto_v2(spec: Any, content: Envelope, key: SigningKey) -> bool:
    pem = _at(spec, "content", "envelope", "signatures", 0, "publicKey")
    unrebuilt = _at(spec, "content", "hash")
    # Base64 of a bundle's base64. The log may drop the payload from what it keeps, and an empty key id.
    signature = {"publicKey": pem, "sig": _text(_text(content.signature).encode())}
    named = {"keyid": content.keyid} if content.keyid else {}
    envelope = {"payloadType": content.payload_type, "signatures": [{**signature, **named}]}
    payload = {"payload": _text(_text(content.payload).encode())}
    others = {"hash": unrebuilt, "payloadHash": _sha256(content.payload)}
    return (
        _names(pem, key)
        and _is_hash(unrebuilt)
        and spec in ({"content": {"envelope": {**envelope, **part}, **others}} for part in ({}, payload))
    )


def _names(pem: Any, key: SigningKey) -> bool:
    """Whether PEM inside base64 is the certificate or key; any spelling of the same one is the same."""
    try:
        data = base64.b64decode(pem, validate=True)
        if key.certificate is not None:
            return x509.load_pem_x509_certificate(data) == key.certificate
        logged = load_pem_public_key(data).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except Exception:  # noqa: BLE001 - whatever cannot be read, or is of another kind, names nobody
        return False
    return logged == key.der


def _at(value: Any, *steps: str | int) -> Any:
    """The member that ``steps`` lead to; ``None`` where there is none."""
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _is_hash(value: Any) -> bool:
    """Whether this is a hash over text that the bundle does not keep: taken as it stands."""
    return (
        isinstance(value, dict)
        and set(value) == {"algorithm", "value"}
        and value["algorithm"] == "sha256"
        and digests.is_sha256(str(value["value"]))
    )


def _sha256(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": digests.sha256(data)}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
