"""The log on its own: promises, checkpoints, and inclusion proofs of every small tree."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import b64
from wheelmark import digests
from wheelmark.errors import RejectedError
from wheelmark.sign.embedded.merkle import MerkleTree
from wheelmark.trust.roots import LogKey, Window
from wheelmark.verify import log, twins
from wheelmark.verify.bundle import LogEntry, Proof

KEY = ec.generate_private_key(ec.SECP256R1())
SPKI = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
LOG_ID = hashlib.sha256(SPKI).digest()
TIME = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SECONDS = int(TIME.timestamp())
NO_PROOF = Proof(index=0, size=1, root_hash=b"\0" * 32, hashes=(), checkpoint="")


def log_key(**changes: Any) -> LogKey:
    made = LogKey(
        log_id=LOG_ID,
        key_id=LOG_ID,
        key=KEY.public_key(),
        details="PKIX_ECDSA_P256_SHA_256",
        host="log.example",
        window=Window(start=TIME, end=TIME),
    )
    return dataclasses.replace(made, **changes)


def entry(body: bytes = b"{}", **changes: Any) -> LogEntry:
    made = LogEntry(
        index=7,
        log_id=LOG_ID,
        kind="dsse",
        version="0.0.1",
        integrated_time=SECONDS,
        promise=None,
        proof=NO_PROOF,
        body=body,
    )
    return dataclasses.replace(made, **changes)


def promised(made: LogEntry) -> LogEntry:
    signed = digests.canonical_json(
        {
            "body": b64(made.body),
            "integratedTime": made.integrated_time,
            "logID": made.log_id.hex(),
            "logIndex": made.index,
        }
    )
    return dataclasses.replace(made, promise=KEY.sign(signed, ec.ECDSA(hashes.SHA256())))


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(RejectedError) as caught:
        call()
    return caught.value.reason


def test_a_promise_gives_its_time() -> None:
    assert log.check_promise(promised(entry()), [log_key()]) == TIME
    assert log.check_promise(entry(), [log_key()]) is None


@pytest.mark.parametrize(
    "changes", [{"index": 8}, {"body": b"[]"}, {"integrated_time": SECONDS + 1}, {"promise": b"x"}]
)
def test_promise_about_something_else_is_refused(changes: dict[str, Any]) -> None:
    spoiled = dataclasses.replace(promised(entry()), **changes)
    assert reason(lambda: log.check_promise(spoiled, [log_key()])) == "promise"


def test_promise_without_a_time_or_of_a_newer_log_is_refused() -> None:
    for changes in (
        {"integrated_time": None},
        {"integrated_time": 0},
        {"version": "0.0.2"},
        {"kind": "rekord"},
    ):
        spoiled = dataclasses.replace(promised(entry()), **changes)
        assert reason(lambda made=spoiled: log.check_promise(made, [log_key()])) == "promise"  # type: ignore[misc]


def test_promise_of_a_log_that_was_not_trusted_then_is_refused() -> None:
    made = promised(entry())
    instant = dt.timedelta(microseconds=1)
    for window in (Window(start=TIME + instant), Window(start=TIME - instant, end=TIME - instant)):
        assert reason(lambda w=window: log.check_promise(made, [log_key(window=w)])) == "log-window"  # type: ignore[misc]
    assert reason(lambda: log.check_promise(made, [])) == "log-unknown"
    assert reason(lambda: log.check_promise(made, [log_key(log_id=b"x" * 32)])) == "log-unknown"


# Inclusion proofs, differentially: the tree that the log keeps, and what is recomputed here.
def test_every_leaf_of_every_small_tree_is_proven_and_no_other() -> None:
    tree = MerkleTree()
    leaves: list[bytes] = []
    for size in range(1, 34):
        leaves.append(b"leaf %d" % size)
        tree.append(leaves[-1])
        for index, leaf in enumerate(leaves):
            proof = Proof(
                index=index, size=size, root_hash=tree.root(), hashes=tuple(tree.proof(index)), checkpoint=""
            )
            log.check_inclusion(proof, leaf)
            spoiled = [
                dataclasses.replace(proof, hashes=(*proof.hashes, b"\0" * 32)),
                dataclasses.replace(proof, root_hash=b"\0" * 32),
                dataclasses.replace(proof, index=size),
            ]
            if proof.hashes:
                spoiled += [
                    dataclasses.replace(proof, hashes=proof.hashes[:-1]),
                    dataclasses.replace(proof, hashes=(b"\0" * 32, *proof.hashes[1:])),
                    dataclasses.replace(proof, hashes=(b"short", *proof.hashes[1:])),
                    dataclasses.replace(proof, index=index ^ 1),
                ]
            for bad in spoiled:
                assert reason(lambda p=bad, b=leaf: log.check_inclusion(p, b)) == "proof"  # type: ignore[misc]
            assert reason(lambda p=proof: log.check_inclusion(p, b"another")) == "proof"  # type: ignore[misc]


# Checkpoints.
def note(origin: str = "log.example", size: str = "1", root: bytes = b"\0" * 32, name: str = "") -> str:
    text = f"{origin}\n{size}\n{b64(root)}\n"
    signature = LOG_ID[:4] + KEY.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
    return f"{text}\n\u2014 {name or origin.partition(' - ')[0]} {b64(signature)}\n"


def checkpoint(text: str) -> tuple[str, bool]:
    made = entry(proof=dataclasses.replace(NO_PROOF, checkpoint=text))
    return log.check_checkpoint(made, [log_key()], [TIME])


def test_checkpoint_gives_its_origin() -> None:
    assert checkpoint(note()) == ("log.example", True)
    assert checkpoint(note("log.example - 123")) == ("log.example - 123", True)
    assert checkpoint(note() + "\u2014 witness AAAAAAAA\n") == ("log.example", False)


def test_a_signature_line_that_is_none_spoils_the_checkpoint() -> None:
    own = note().splitlines()[-1].rpartition(" ")[2]
    blob = base64.b64decode(own)
    forged = base64.b64encode(blob[:4] + bytes(len(blob) - 4)).decode()
    for line in ("witness AAAA", "witness AAAAAA==", f"log.example {forged}"):
        with pytest.raises(RejectedError) as caught:
            checkpoint(note() + f"\u2014 {line}\n")
        assert caught.value.reason == "checkpoint"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "log.example",
        note()[:-1],
        note(size="2"),
        note(size="01"),
        note(size="x"),
        note(root=b"\1" * 32),
        note(name="other.example"),
        note("other.example").replace("\u2014 other", "\u2014 log"),
        note().replace("\u2014 ", "- "),
        note() + "junk\n",
        note().rpartition("\u2014")[0],
        note().rpartition(" ")[0] + " !!!!\n",
        note().rpartition(" ")[0] + " AB==\n",
        note().rpartition(" ")[0] + " " + b64(b"0000" + base64.b64decode(note().split()[-1])[4:]) + "\n",
    ],
)
def test_checkpoint_that_is_not_the_logs_own_is_refused(text: str) -> None:
    assert reason(lambda: checkpoint(text)) == "checkpoint"


def test_checkpoint_of_a_log_that_was_not_trusted_then_is_refused() -> None:
    made = entry(proof=dataclasses.replace(NO_PROOF, checkpoint=note()))
    late = TIME + dt.timedelta(microseconds=1)
    assert reason(lambda: log.check_checkpoint(made, [log_key()], [TIME, late])) == "log-window"
    assert reason(lambda: log.check_checkpoint(made, [], [TIME])) == "log-unknown"


def test_twins_of_the_logs_signatures_are_not_the_one_form() -> None:
    smaller = {True: 0, False: 0}
    for _ in range(40):
        made = promised(entry(proof=dataclasses.replace(NO_PROOF, checkpoint=note())))
        assert made.promise is not None
        blob = base64.b64decode(made.proof.checkpoint.split()[-1])
        both = all(twins.is_smaller_twin(KEY.public_key(), item) for item in (blob[4:], made.promise))
        assert log.has_one_form(made, [log_key()]) is both
        assert log.has_one_form(made, [])
        smaller[both] += 1
    assert all(smaller.values())
