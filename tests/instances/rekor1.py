"""A Rekor of version 1 on loopback: entries with a promise, inclusion proofs and checkpoints under one ECDSA key.

Formats: sigstore/rekor ``openapi.yaml`` (``POST /api/v1/log/entries``), ``pkg/types`` (``hashedrekord`` and ``dsse``
0.0.1; ``intoto`` is not played), signed entry timestamps over canonical JSON; checkpoints as in ``pkg/util``: the
origin is ``host - tree id``, and a signature is named by the first four bytes of the log's id.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from instances.ctlog import key_hash
from instances.serving import Answer, served_json
from wheelmark import digests
from wheelmark.sign.embedded.merkle import MerkleTree

TREE = 1193050959916656506


class Rekor1:
    """Keeps its entries in memory."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._tree = MerkleTree()
        self.host = ""

    def answer(self, path: str, body: bytes) -> Answer:
        if path != "/api/v1/log/entries":
            return Answer(status=404, body={"code": 404, "message": path})
        entry = digests.canonical_json(_canonical(json.loads(body)))
        index = self._tree.append(entry)
        size, root, proof = self._tree.size, self._tree.root(), self._tree.proof(index)
        integrated = int(time.time())
        identifier = key_hash(self._key.public_key())
        encoded = base64.b64encode(entry).decode()
        promised = digests.canonical_json(
            {"body": encoded, "integratedTime": integrated, "logID": identifier.hex(), "logIndex": index}
        )
        uuid = f"{TREE:016x}" + hashlib.sha256(b"\x00" + entry).hexdigest()
        value = {
            "body": encoded,
            "integratedTime": integrated,
            "logID": identifier.hex(),
            "logIndex": index,
            "verification": {
                "signedEntryTimestamp": self._sign(promised),
                "inclusionProof": {
                    "checkpoint": self._checkpoint(size, root),
                    "hashes": [item.hex() for item in proof],
                    "logIndex": index,
                    "rootHash": root.hex(),
                    "treeSize": size,
                },
            },
        }
        # Go's clients read the entry's name from this header.
        headers = {"ETag": uuid, "Location": f"/api/v1/log/entries/{uuid}"}
        return Answer(status=201, body={uuid: value}, headers=headers)

    def _sign(self, data: bytes) -> str:
        return base64.b64encode(self._key.sign(data, ec.ECDSA(hashes.SHA256()))).decode()

    def _checkpoint(self, size: int, root: bytes) -> str:
        note = f"{self.host} - {TREE}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = key_hash(self._key.public_key())[:4] + base64.b64decode(self._sign(note.encode()))
        return f"{note}\n\N{EM DASH} {self.host} {base64.b64encode(signature).decode()}\n"


def _canonical(proposed: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an entry that a client proposes."""
    spec: dict[str, Any]
    if proposed["kind"] == "hashedrekord":
        signature = proposed["spec"]["signature"]
        spec = {
            "data": {"hash": proposed["spec"]["data"]["hash"]},
            "signature": {
                "content": signature["content"],
                "publicKey": {"content": signature["publicKey"]["content"]},
            },
        }
    else:
        content = proposed["spec"]["proposedContent"]
        envelope = json.loads(content["envelope"])
        spec = {
            "envelopeHash": _hash(content["envelope"].encode()),
            "payloadHash": _hash(base64.b64decode(envelope["payload"])),
            "signatures": [
                {"signature": signature["sig"], "verifier": verifier}
                for signature, verifier in zip(envelope["signatures"], content["verifiers"], strict=True)
            ],
        }
    return {"apiVersion": "0.0.1", "kind": proposed["kind"], "spec": spec}


def _hash(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


@contextlib.contextmanager
def logging_entries(key: ec.EllipticCurvePrivateKey) -> Iterator[tuple[Rekor1, str]]:
    """A log that can be asked, and its address."""
    log = Rekor1(key)
    with served_json(log.answer) as url:
        log.host = urlsplit(url).hostname or ""
        yield log, url
