"""The shape of a Sigstore bundle: bounded strict JSON in, frozen values out. No cryptography here.

Versions 0.1 to 0.3 (sigstore/protobuf-specs, ``sigstore_bundle.proto``). Unknown members are refused, base64
is strict, integers are decimal strings without leading zeros: what one reader would skip, another could act
on. Refusals: a ``json-…`` code, ``bundle-version`` or ``bundle-shape`` (``InputError``); evidence that a
bundle ought to carry and does not is ``log-missing``, ``proof-missing`` or ``certificate-missing``
(``RejectedError``).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from typing import Any

from wheelmark import strictjson
from wheelmark.attest.dsse import pre_authentication_encoding
from wheelmark.errors import InputError, RejectedError

LIMITS = strictjson.Limits(
    size=16 << 20, depth=16, items=1000, string=12 << 20, containers=20_000, values=20_000
)
MEDIA_TYPES = {
    "application/vnd.dev.sigstore.bundle+json;version=0.1": "0.1",
    "application/vnd.dev.sigstore.bundle+json;version=0.2": "0.2",
    "application/vnd.dev.sigstore.bundle+json;version=0.3": "0.3",
    "application/vnd.dev.sigstore.bundle.v0.3+json": "0.3",
}
CANONICAL_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_TIMESTAMPS = 32
MAX_HINT = 1000
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Envelope:
    """A DSSE envelope with its one signature."""

    payload_type: str
    payload: bytes
    signature: bytes
    keyid: str

    def spelled(self) -> dict[str, Any]:
        """The bundle's member that holds it; a key id is a hint that nothing signs, and is left out."""
        return {
            "dsseEnvelope": {
                "payload": _encoded(self.payload),
                "payloadType": self.payload_type,
                "signatures": [{"sig": _encoded(self.signature)}],
            }
        }

    def pae(self) -> bytes:
        """What is signed: the pre-authentication encoding of DSSE v1."""
        return pre_authentication_encoding(self.payload_type, self.payload)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessageSignature:
    """A signature over an artifact's digest."""

    digest: bytes | None
    """The sha256 that the bundle states; not what the signature covers."""
    signature: bytes

    def spelled(self) -> dict[str, Any]:
        """The bundle's member that holds it."""
        digest = {} if self.digest is None else {"algorithm": "SHA2_256", "digest": _encoded(self.digest)}
        return {"messageSignature": _filled({"messageDigest": digest, "signature": _encoded(self.signature)})}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """A Merkle inclusion proof with the checkpoint that it leads to."""

    index: int
    size: int
    root_hash: bytes
    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogEntry:
    """A transparency log's answer, as the bundle carries it."""

    index: int
    """The outer ``logIndex``."""
    log_id: bytes
    kind: str
    version: str
    integrated_time: int | None
    """Seconds since the epoch; only a promise authenticates it."""
    promise: bytes | None
    """The signed entry timestamp of Rekor v1."""
    proof: Proof
    body: bytes
    """The canonicalized entry."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundle:
    """A whole bundle."""

    version: str
    certificates: tuple[bytes, ...]
    """DER; the signing certificate first. More than one only in versions 0.1 and 0.2; none where a key signed."""
    key_hint: str | None = None
    """Where a bare key signed: what the bundle calls it. Nothing signs that; it is empty where nothing was said."""
    entry: LogEntry
    timestamps: tuple[bytes, ...]
    """RFC 3161 responses, DER."""
    content: Envelope | MessageSignature

    @property
    def signature(self) -> bytes:
        """The signature that log entry and timestamps are about."""
        return self.content.signature

    def spelled(self) -> bytes:
        """The one spelling of these values as a bundle of version 0.3: RFC 8785, no member that is empty.

        Equal to the bytes that were read exactly when nothing in those was superfluous.
        """
        entry, proof = self.entry, self.entry.proof
        signer = (
            {"certificate": {"rawBytes": _encoded(self.certificates[0])}}
            if self.certificates
            else {"publicKey": {"hint": self.key_hint}}
        )
        promised = {} if entry.promise is None else {"signedEntryTimestamp": _encoded(entry.promise)}
        timestamps = [{"signedTimestamp": _encoded(token)} for token in self.timestamps]
        time = None if entry.integrated_time is None else str(entry.integrated_time)
        value = {
            "mediaType": CANONICAL_TYPE,
            "verificationMaterial": {
                **signer,
                "tlogEntries": [
                    _filled(
                        {
                            "logIndex": str(entry.index),
                            "logId": {"keyId": _encoded(entry.log_id)},
                            "kindVersion": {"kind": entry.kind, "version": entry.version},
                            "integratedTime": time,
                            "inclusionPromise": promised,
                            "inclusionProof": {
                                "logIndex": str(proof.index),
                                "rootHash": _encoded(proof.root_hash),
                                "treeSize": str(proof.size),
                                "hashes": [_encoded(item) for item in proof.hashes],
                                "checkpoint": {"envelope": proof.checkpoint},
                            },
                            "canonicalizedBody": _encoded(entry.body),
                        }
                    )
                ],
                "timestampVerificationData": {"rfc3161Timestamps": timestamps},
            },
            **self.content.spelled(),
        }
        # Every key is ASCII and every value a string that UTF-8 can carry: the standard library's encoder writes RFC 8785.
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def read_bundle(data: bytes) -> Bundle:
    """The bundle in ``data``.

    Raises:
        InputError: Not a bundle of a known version within bounds.
        RejectedError: A bundle without a certificate or a key's hint, a log entry or an inclusion proof.
    """
    document = strictjson.load_object(data, what="bundle", limits=LIMITS)
    version = MEDIA_TYPES.get(_text(document, "mediaType"))
    if version is None:
        raise InputError(
            f"bundle of unknown media type {document['mediaType']!r:.120}",
            fix=f"known versions: {', '.join(sorted(set(MEDIA_TYPES.values())))}",
            reason="bundle-version",
        )
    _known(document, "mediaType verificationMaterial messageSignature dsseEnvelope")
    material = _member(document, "verificationMaterial")
    _known(material, "publicKey x509CertificateChain certificate tlogEntries timestampVerificationData")
    certificates, hint = _signer(material, version)
    return Bundle(
        version=version,
        certificates=certificates,
        key_hint=hint,
        entry=_entry(material, version),
        timestamps=_timestamps(material),
        content=_content(document),
    )


def _signer(material: dict[str, Any], version: str) -> tuple[tuple[bytes, ...], str | None]:
    """The certificates, or the hint of a bare key."""
    named = [
        field for field in ("publicKey", "x509CertificateChain", "certificate") if _is_there(material, field)
    ]
    if len(named) > 1:
        raise _shape(f"verificationMaterial has {' and '.join(named)}")
    if named == ["publicKey"]:
        key = _member(material, "publicKey")
        _known(key, "hint")
        hint = _text(key, "hint") if "hint" in key else ""
        if len(hint) > MAX_HINT:
            raise _shape(f"a key hint of {len(hint):,} characters; the limit is {MAX_HINT}")
        return (), hint
    if named == ["certificate"] and version != "0.3":
        raise _shape(f"certificate is no member of version {version}, which has chains")
    if named == ["certificate"]:
        certificate = _member(material, "certificate")
        _known(certificate, "rawBytes")
        return (_bytes(certificate, "rawBytes"),), None
    if named == ["x509CertificateChain"] and version != "0.3":
        chain = _member(material, "x509CertificateChain")
        _known(chain, "certificates")
        items = _list(chain, "certificates")
        for item in items:
            _known(item, "rawBytes")
        certificates = tuple(_bytes(item, "rawBytes") for item in items)
        if certificates:
            return certificates, None
    raise RejectedError("the bundle holds no signing certificate", reason="certificate-missing")


def _entry(material: dict[str, Any], version: str) -> LogEntry:
    entries = _list(material, "tlogEntries")
    if len(entries) != 1:
        raise RejectedError(
            f"the bundle holds {len(entries)} log entries; one is expected", reason="log-missing"
        )
    entry = entries[0]
    _known(
        entry,
        "logIndex logId kindVersion integratedTime inclusionPromise inclusionProof canonicalizedBody",
    )
    kind = _member(entry, "kindVersion")
    _known(kind, "kind version")
    log_id = _member(entry, "logId")
    _known(log_id, "keyId")
    promise = _member(entry, "inclusionPromise") if _is_there(entry, "inclusionPromise") else None
    if promise is not None:
        _known(promise, "signedEntryTimestamp")
    if version == "0.1" and promise is None:
        raise RejectedError("a 0.1 bundle without its inclusion promise", reason="promise")
    return LogEntry(
        index=_index(entry),
        log_id=_bytes(log_id, "keyId"),
        kind=_text(kind, "kind"),
        version=_text(kind, "version"),
        integrated_time=_integer(entry, "integratedTime") if "integratedTime" in entry else None,
        promise=_bytes(promise, "signedEntryTimestamp") if promise is not None else None,
        proof=_proof(entry),
        body=_bytes(entry, "canonicalizedBody"),
    )


def _proof(entry: dict[str, Any]) -> Proof:
    if not entry.get("inclusionProof"):
        raise RejectedError("the log entry has no inclusion proof", reason="proof-missing")
    proof = _member(entry, "inclusionProof")
    _known(proof, "logIndex rootHash treeSize hashes checkpoint")
    if not proof.get("checkpoint"):
        raise RejectedError("the inclusion proof has no checkpoint", reason="proof-missing")
    checkpoint = _member(proof, "checkpoint")
    _known(checkpoint, "envelope")
    hashes = _list(proof, "hashes", of=str) if _is_there(proof, "hashes") else []
    return Proof(
        index=_index(proof),
        size=_integer(proof, "treeSize"),
        root_hash=_bytes(proof, "rootHash"),
        hashes=tuple(_decoded(text, "hashes") for text in hashes),
        checkpoint=_text(checkpoint, "envelope"),
    )


def _timestamps(material: dict[str, Any]) -> tuple[bytes, ...]:
    if not _is_there(material, "timestampVerificationData"):
        return ()
    data = _member(material, "timestampVerificationData")
    _known(data, "rfc3161Timestamps")
    items = _list(data, "rfc3161Timestamps") if _is_there(data, "rfc3161Timestamps") else []
    if len(items) > MAX_TIMESTAMPS:
        raise _shape(f"{len(items)} timestamps; the limit is {MAX_TIMESTAMPS}")
    for item in items:
        _known(item, "signedTimestamp")
    return tuple(_bytes(item, "signedTimestamp") for item in items)


def _content(document: dict[str, Any]) -> Envelope | MessageSignature:
    named = [field for field in ("messageSignature", "dsseEnvelope") if _is_there(document, field)]
    if len(named) != 1:
        raise _shape("a bundle has either messageSignature or dsseEnvelope")
    content = _member(document, named[0])
    if named == ["dsseEnvelope"]:
        _known(content, "payload payloadType signatures")
        signatures = _list(content, "signatures")
        if len(signatures) != 1:
            raise _shape(f"the envelope has {len(signatures)} signatures; one is expected")
        _known(signatures[0], "sig keyid")
        return Envelope(
            payload_type=_text(content, "payloadType"),
            payload=_bytes(content, "payload"),
            signature=_bytes(signatures[0], "sig"),
            keyid=_text(signatures[0], "keyid") if "keyid" in signatures[0] else "",
        )
    _known(content, "messageDigest signature")
    digest = None
    if _is_there(content, "messageDigest"):
        stated = _member(content, "messageDigest")
        _known(stated, "algorithm digest")
        if _text(stated, "algorithm") != "SHA2_256":
            raise _shape(f"messageDigest of algorithm {stated['algorithm']!r:.40}")
        digest = _bytes(stated, "digest")
    return MessageSignature(digest=digest, signature=_bytes(content, "signature"))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _filled(value: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if member not in ({}, None)}


def _shape(text: str) -> InputError:
    return InputError(f"malformed bundle: {text}", reason="bundle-shape")


def _known(value: dict[str, Any], names: str) -> None:
    unknown = sorted(set(value) - set(names.split()))
    if unknown:
        raise _shape(f"unknown member {unknown[0]!r:.80}")


def _is_there(value: dict[str, Any], name: str) -> bool:
    """Whether a member is there: null is what protobuf's JSON says for absent, and nothing else is."""
    return value.get(name) is not None


def _member(value: dict[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    if not isinstance(member, dict):
        raise _shape(f"{name} is not an object")
    return member


def _list(value: dict[str, Any], name: str, *, of: type = dict) -> list[Any]:
    member = value.get(name, [])
    if not isinstance(member, list) or not all(isinstance(item, of) for item in member):
        raise _shape(f"{name} is not a list of {'objects' if of is dict else 'strings'}")
    return member


def _text(value: dict[str, Any], name: str) -> str:
    member = value.get(name)
    if not isinstance(member, str):
        raise _shape(f"{name} is not a string")
    return member


def _integer(value: dict[str, Any], name: str) -> int:
    text = _text(value, name)
    if not _DECIMAL.fullmatch(text):
        raise _shape(f"{name} is not a decimal number: {text!r:.40}")
    return int(text)


def _index(value: dict[str, Any]) -> int:
    """A log's first entry has index 0, and protobuf's JSON may leave a number out that is 0: cosign's does."""
    return _integer(value, "logIndex") if _is_there(value, "logIndex") else 0


def _bytes(value: dict[str, Any], name: str) -> bytes:
    return _decoded(_text(value, name), name)


def _decoded(text: str, name: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _shape(f"{name} is not base64: {error}") from error
    # Strict decoding leaves one freedom: bits after the last byte, which are in the last four characters.
    whole = len(text) == (len(data) + 2) // 3 * 4 and text.endswith(_encoded(data[-(len(data) % 3 or 3) :]))
    if not data or not whole:
        raise _shape(f"{name} is empty, or not the one base64 spelling of its bytes")
    return data
