"""The transparency log entry: rebuilt from the bundle, compared, and proven to stand in the log.

Formats: Rekor v1 entries ``hashedrekord`` and ``dsse`` 0.0.1 (sigstore/rekor ``pkg/types``), Rekor v2
``hashedrekord`` 0.0.2 (sigstore/rekor-tiles; DSSE by the digest of its pre-authentication encoding), Merkle
proofs of RFC 9162 section 2.1.3.2, checkpoints of C2SP ``tlog-checkpoint`` and ``signed-note``. A checkpoint
may carry other signatures (witnesses, a second key): they are noted, never believed.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from wheelmark import digests, strictjson
from wheelmark.errors import InputError, RejectedError
from wheelmark.trust.roots import LogKey
from wheelmark.verify.bundle import Bundle, Envelope, LogEntry, MessageSignature, Proof

_LIMITS = strictjson.Limits(size=4 << 20, depth=12, items=1000, string=4 << 20)
_HASH = 32
_CURVES: dict[str, tuple[str, str, hashes.HashAlgorithm]] = {
    "secp256r1": ("PKIX_ECDSA_P256_SHA_256", "SHA2_256", hashes.SHA256()),
    "secp384r1": ("PKIX_ECDSA_P384_SHA_384", "SHA2_384", hashes.SHA384()),
    "secp521r1": ("PKIX_ECDSA_P521_SHA_512", "SHA2_512", hashes.SHA512()),
}
_NOTE_SIGNATURE = re.compile(r"\u2014 (\S+) (\S+)")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_HINT = 4
_V1, _V2 = "0.0.1", "0.0.2"


def key_profile(certificate: x509.Certificate) -> tuple[str, str, hashes.HashAlgorithm]:
    """What Rekor calls the certificate's key and the hash that goes with it.

    Returns:
        ``PublicKeyDetails``, ``HashAlgorithm`` (both protobuf-specs' words), and the hash.

    Raises:
        RejectedError: A key of a kind not known here (``certificate-key``).
    """
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    if isinstance(key, rsa.RSAPublicKey):
        return f"PKIX_RSA_PKCS1V15_{key.key_size}_SHA256", "SHA2_256", hashes.SHA256()
    raise RejectedError(
        f"the certificate's key is a {type(key).__name__}, which is not known here", reason="certificate-key"
    )


def check_body(bundle: Bundle, certificate: x509.Certificate, artifact: bytes | None) -> None:
    """Compare the logged entry with what the bundle's other members say it has to be.

    Args:
        bundle: The bundle.
        certificate: Its signing certificate.
        artifact: sha256 of the artifact, for a message signature.

    Raises:
        RejectedError: ``log-kind`` or ``log-entry``.
    """
    entry = bundle.entry
    try:
        body = strictjson.load_object(entry.body, what="log entry", limits=_LIMITS)
    except InputError as error:
        raise RejectedError(f"unreadable log entry: {error.what}", reason="log-entry") from error
    if (body.get("kind"), body.get("apiVersion")) != (entry.kind, entry.version):
        raise RejectedError(
            f"the bundle calls its log entry {entry.kind} {entry.version}; its body says otherwise",
            reason="log-entry",
        )
    match (entry.kind, entry.version, bundle.content):
        case ("hashedrekord", "0.0.2", content):
            matches = body.get("spec") == _hashedrekord_v2(content, certificate, artifact)
        case ("hashedrekord", "0.0.1", MessageSignature() as content):
            matches = _matches_hashedrekord_v1(body.get("spec"), content, certificate, artifact)
        case ("dsse", "0.0.1", Envelope() as content):
            matches = _matches_dsse_v1(body.get("spec"), content, certificate)
        case _:
            raise RejectedError(
                f"log entry of kind {entry.kind!r:.60} {entry.version!r:.20} for this content",
                cause="this verifier knows hashedrekord 0.0.1 and 0.0.2, and dsse 0.0.1",
                reason="log-kind",
            )
    if not matches:
        raise RejectedError("the log entry is about something else than this bundle", reason="log-entry")


def check_inclusion(proof: Proof, body: bytes) -> None:
    """Recompute the tree's root from ``body`` and the proof (RFC 9162, section 2.1.3.2).

    Raises:
        RejectedError: The root differs from ``rootHash``, or the proof has the wrong size (``proof``).
    """
    if proof.index >= proof.size or any(len(item) != _HASH for item in proof.hashes):
        raise RejectedError("the inclusion proof does not fit its tree", reason="proof")
    node, last = proof.index, proof.size - 1
    root = hashlib.sha256(b"\0" + body).digest()
    for sibling in proof.hashes:
        if last == 0:
            raise RejectedError("the inclusion proof is too long", reason="proof")
        if node & 1 or node == last:
            root = hashlib.sha256(b"\1" + sibling + root).digest()
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = hashlib.sha256(b"\1" + root + sibling).digest()
        node, last = node >> 1, last >> 1
    if last != 0 or root != proof.root_hash:
        raise RejectedError("the inclusion proof leads to another root hash", reason="proof")


def check_checkpoint(
    entry: LogEntry, logs: Sequence[LogKey], times: Sequence[dt.datetime]
) -> tuple[str, bool]:
    """Check that the log signed a checkpoint for exactly the tree of the inclusion proof.

    Args:
        entry: The bundle's log entry.
        logs: Logs of the root.
        times: Signed times, in each of which the log has to be trusted.

    Returns:
        The log's origin, and whether every signature on the checkpoint was the log's own one.

    Raises:
        RejectedError: ``log-unknown``, ``log-window`` or ``checkpoint``.
    """
    named = [log for log in logs if log.log_id == entry.log_id]
    if not named:
        raise RejectedError(
            f"the log {entry.log_id.hex()} is none of this root's transparency logs", reason="log-unknown"
        )
    text, separator, signatures = entry.proof.checkpoint.partition("\n\n")
    lines = text.split("\n")
    if not separator or len(lines) < 3 or not lines[0] or not signatures.endswith("\n"):  # noqa: PLR2004 - C2SP: origin, size, root
        raise RejectedError("the checkpoint is no signed note", reason="checkpoint")
    origin, size, root_hash = lines[:3]
    if (
        not _DECIMAL.fullmatch(size)
        or int(size) != entry.proof.size
        or root_hash != base64.b64encode(entry.proof.root_hash).decode()
    ):
        raise RejectedError("the checkpoint is about another tree than the proof", reason="checkpoint")
    note, signed_by = f"{text}\n".encode(), _note_signatures(signatures)
    signing = [log for log in named if _note_signed(log, origin, note, signed_by)]
    if not signing:
        raise RejectedError("the checkpoint is not signed by the log", reason="checkpoint")
    if not any(all(log.window.contains(time) for time in times) for log in signing):
        raise RejectedError("the transparency log was not trusted when this was signed", reason="log-window")
    return origin, len(signed_by) == 1


def check_promise(entry: LogEntry, logs: Sequence[LogKey]) -> dt.datetime | None:
    """The time that a Rekor v1 log promised with its own signature; ``None`` without a promise.

    Raises:
        RejectedError: A promise that the log did not sign, or without a time (``promise``);
            ``log-unknown`` or ``log-window``.
    """
    if entry.promise is None:
        return None
    if not entry.integrated_time or entry.version != _V1:
        raise RejectedError("an inclusion promise without its time", reason="promise")
    named = [log for log in logs if log.log_id == entry.log_id]
    if not named:
        raise RejectedError(
            f"the log {entry.log_id.hex()} is none of this root's transparency logs", reason="log-unknown"
        )
    signed = digests.canonical_json(
        {
            "body": base64.b64encode(entry.body).decode(),
            "integratedTime": entry.integrated_time,
            "logID": entry.log_id.hex(),
            "logIndex": entry.index,
        }
    )
    promise = entry.promise
    signing = [log for log in named if log.verifies(promise, signed)]
    if not signing:
        raise RejectedError("the inclusion promise is not signed by the log", reason="promise")
    time = dt.datetime.fromtimestamp(entry.integrated_time, tz=dt.UTC)
    if not any(log.window.contains(time) for log in signing):
        raise RejectedError(
            "the transparency log was not trusted at the time it promised", reason="log-window"
        )
    return time


def _note_signatures(text: str) -> list[tuple[str, bytes]]:
    """Name and blob (key hint, signature) of every signature line of a note; all have to be well formed."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        match = _NOTE_SIGNATURE.fullmatch(line)
        if match is None:
            raise RejectedError("the checkpoint has a malformed signature line", reason="checkpoint")
        found.append((match[1], _base64(match[2])))
    return found


def _note_signed(log: LogKey, origin: str, note: bytes, signatures: Sequence[tuple[str, bytes]]) -> bool:
    # Rekor v1's origin is its host name and a number; the name on the signature is the host name.
    return any(
        (name == origin or origin.startswith(f"{name} - "))
        and blob[:_HINT] == log.log_id[:_HINT]
        and log.verifies(blob[_HINT:], note)
        for name, blob in signatures
    )


def _base64(text: str) -> bytes:
    try:
        blob = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise RejectedError("the checkpoint has a malformed signature", reason="checkpoint") from error
    if base64.b64encode(blob).decode() != text:
        raise RejectedError("the checkpoint has a malformed signature", reason="checkpoint")
    return blob


def _hashedrekord_v2(
    content: Envelope | MessageSignature, certificate: x509.Certificate, artifact: bytes | None
) -> dict[str, Any]:
    details, algorithm, function = key_profile(certificate)
    if isinstance(content, Envelope):
        context = hashes.Hash(function)
        context.update(content.pae())
        digest = context.finalize()
    else:
        digest = artifact or b""
    raw = base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()
    return {
        "hashedRekordV002": {
            "data": {"algorithm": algorithm, "digest": base64.b64encode(digest).decode()},
            "signature": {
                "content": base64.b64encode(content.signature).decode(),
                "verifier": {"keyDetails": details, "x509Certificate": {"rawBytes": raw}},
            },
        }
    }


def _matches_hashedrekord_v1(
    spec: Any, content: MessageSignature, certificate: x509.Certificate, artifact: bytes | None
) -> bool:
    def build(pem: str) -> dict[str, Any]:
        return {
            "data": {"hash": {"algorithm": "sha256", "value": (artifact or b"").hex()}},
            "signature": {
                "content": base64.b64encode(content.signature).decode(),
                "publicKey": {"content": pem},
            },
        }

    return _matches_with_pem(spec, lambda: spec["signature"]["publicKey"]["content"], build, certificate)


def _matches_dsse_v1(spec: Any, content: Envelope, certificate: x509.Certificate) -> bool:
    def build(pem: str) -> dict[str, Any]:
        # The envelope's own hash covers JSON text that a bundle does not keep: it is taken as it stands.
        return {
            "envelopeHash": spec["envelopeHash"],
            "payloadHash": {"algorithm": "sha256", "value": digests.sha256(content.payload)},
            "signatures": [{"signature": base64.b64encode(content.signature).decode(), "verifier": pem}],
        }

    return _matches_with_pem(spec, lambda: spec["signatures"][0]["verifier"], build, certificate)


def _matches_with_pem(
    spec: Any, find: Callable[[], Any], build: Callable[[str], dict[str, Any]], certificate: x509.Certificate
) -> bool:
    """Compare with PEM inside base64: any spelling of the same certificate is the same certificate."""
    try:
        pem = find()
        logged = x509.load_pem_x509_certificate(base64.b64decode(pem, validate=True))
        return logged == certificate and bool(spec == build(pem))
    except (KeyError, IndexError, TypeError, ValueError):
        return False
