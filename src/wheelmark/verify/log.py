"""The transparency log: an entry is proven to stand in it, and the log signed that.

Formats: Merkle proofs of RFC 9162 section 2.1.3.2, checkpoints of C2SP ``tlog-checkpoint`` and
``signed-note``, promises of Rekor v1 (signed entry timestamps). A checkpoint may carry other signatures
(witnesses, a second key): they are noted, never believed. What an entry says is read in ``entry``.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
import re
from collections.abc import Sequence

from wheelmark import digests
from wheelmark.errors import RejectedError
from wheelmark.trust.roots import LogKey
from wheelmark.verify.bundle import LogEntry, Proof
from wheelmark.verify.twins import is_smaller_twin, smaller_twin

_HASH = 32
_NOTE_SIGNATURE = re.compile(r"\u2014 (\S+) (\S+)")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_HINT = 4
PROMISING = {("hashedrekord", "0.0.1"), ("dsse", "0.0.1"), ("intoto", "0.0.2")}
"""Kinds of entries of Rekor v1, whose log promises a time; v2 promises none."""


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
    if not entry.integrated_time or (entry.kind, entry.version) not in PROMISING:
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


def has_one_form(entry: LogEntry, logs: Sequence[LogKey]) -> bool:
    """Whether no signature of the log on a verified entry is the larger one of two ECDSA twins (``twins``)."""
    _, _, text = entry.proof.checkpoint.partition("\n\n")
    signatures = [blob[_HINT:] for _, blob in _note_signatures(text)]
    if entry.promise is not None:
        signatures.append(entry.promise)
    named = [log for log in logs if log.log_id == entry.log_id]
    return all(is_smaller_twin(log.key, signature) for log in named for signature in signatures)


def with_smaller_twins(entry: LogEntry, logs: Sequence[LogKey]) -> LogEntry:
    """An entry with the smaller twin of each ECDSA signature of the log (``twins``).

    Raises:
        RejectedError: A checkpoint that is malformed (``checkpoint``).
        ValueError: A signature that is.
    """
    named = [log.key for log in logs if log.log_id == entry.log_id]
    if len(named) != 1:
        return entry
    text, separator, signatures = entry.proof.checkpoint.partition("\n\n")
    lines = []
    for name, blob in _note_signatures(signatures):
        own = blob[:_HINT] == entry.log_id[:_HINT]
        kept = blob[:_HINT] + smaller_twin(named[0], blob[_HINT:]) if own else blob
        lines.append(f"\u2014 {name} {base64.b64encode(kept).decode()}\n")
    checkpoint = text + separator + "".join(lines)
    promise = entry.promise if entry.promise is None else smaller_twin(named[0], entry.promise)
    return dataclasses.replace(
        entry, promise=promise, proof=dataclasses.replace(entry.proof, checkpoint=checkpoint)
    )


def _note_signatures(text: str) -> list[tuple[str, bytes]]:
    """Name and blob (key hint, signature) of every signature line of a note; all have to be well formed."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        match = _NOTE_SIGNATURE.fullmatch(line)
        if match is None:
            raise RejectedError("the checkpoint has a malformed signature line", reason="checkpoint")
        blob = _base64(match[2])
        if len(blob) <= _HINT:
            raise RejectedError("the checkpoint has a signature of no bytes", reason="checkpoint")
        found.append((match[1], blob))
    return found


def _note_signed(log: LogKey, origin: str, note: bytes, signatures: Sequence[tuple[str, bytes]]) -> bool:
    # Rekor v1's origin is its host name and a number; the name on the signature is the host name.
    own = [
        blob[_HINT:]
        for name, blob in signatures
        if (name == origin or origin.startswith(f"{name} - ")) and blob[:_HINT] == log.log_id[:_HINT]
    ]
    # C2SP signed-note: a line that names a known key and is not its signature spoils the note.
    return bool(own) and all(log.verifies(signature, note) for signature in own)


def _base64(text: str) -> bytes:
    try:
        blob = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise RejectedError("the checkpoint has a malformed signature", reason="checkpoint") from error
    if base64.b64encode(blob).decode() != text:
        raise RejectedError("the checkpoint has a malformed signature", reason="checkpoint")
    return blob
