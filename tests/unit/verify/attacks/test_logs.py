"""Rows 11, 14 and 37: the transparency log's part of the evidence, and roots that cannot be used."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from asking import Expect, Stand, ask
from forging import Forge, Json, b64, canonical, changed, flipped, found
from rows import report, row
from wheelmark import digests
from wheelmark.trust.roots import read_root

MATERIAL = "verificationMaterial"
ENTRY = f"{MATERIAL}.tlogEntries.0"
PROOF = f"{ENTRY}.inclusionProof"
CHECKPOINT = f"{PROOF}.checkpoint.envelope"


@row(11, "proof-missing", "log-missing")
@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (PROOF, None, "proof-missing"),
        (PROOF, {}, "proof-missing"),
        (f"{PROOF}.checkpoint", None, "proof-missing"),
        (f"{MATERIAL}.tlogEntries", [], "log-missing"),
        (f"{MATERIAL}.tlogEntries", None, "log-missing"),
    ],
)
def test_no_proof(stand: Stand, expect: Expect, path: str, value: Any, code: str) -> None:
    expect(stand.ask(changed(stand.bundle(), path, value)), code, also=("no-bundle",))


@row(11, "log-missing")
def test_two_entries(stand: Stand, expect: Expect) -> None:
    bundle = stand.bundle()
    twice = changed(bundle, f"{MATERIAL}.tlogEntries", found(bundle, f"{MATERIAL}.tlogEntries") * 2)
    expect(stand.ask(twice), "log-missing", also=("no-bundle",))


HASH = b64(b"\7" * 32)
PROOFS: dict[str, Callable[[Json], Any]] = {
    "root hash": lambda proof: proof.update(rootHash=flipped(proof["rootHash"])),
    "root hash cut": lambda proof: proof.update(rootHash=b64(base64.b64decode(proof["rootHash"])[:-1])),
    "one hash more": lambda proof: proof["hashes"].append(HASH),
    "one hash before": lambda proof: proof["hashes"].insert(0, HASH),
    "a short hash": lambda proof: proof["hashes"].append(b64(b"\7" * 31)),
    "sixty-four hashes": lambda proof: proof["hashes"].extend([HASH] * 64),
    "a larger tree": lambda proof: proof.update(treeSize=str(int(proof["treeSize"]) + 1)),
    "an empty tree": lambda proof: proof.update(treeSize="0"),
    "a huge tree": lambda proof: proof.update(treeSize=str(2**63 - 1)),
    "index outside": lambda proof: proof.update(logIndex=proof["treeSize"]),
    "huge index": lambda proof: proof.update(logIndex=str(2**63 - 1)),
}


@row(11, "proof")
@pytest.mark.parametrize("kind", PROOFS)
def test_a_changed_proof(stand: Stand, expect: Expect, kind: str) -> None:
    bundle = stand.bundle()
    PROOFS[kind](found(bundle, PROOF))
    expect(stand.ask(bundle), "proof", also=("no-bundle",))


@row(11, "proof")
def test_the_command_recomputes_it(stand: Stand, expect: Expect) -> None:
    bundle = stand.bundle()
    PROOFS["root hash"](found(bundle, PROOF))
    expect(stand.command(bundle), "proof", also=("no-bundle",))


@row(11, "proof")
def test_a_body_that_the_proof_is_not_about(stand: Stand, expect: Expect) -> None:
    # The same entry in another spelling: what the log signed are the bytes.
    bundle = stand.bundle()
    path = f"{ENTRY}.canonicalizedBody"
    body = json.loads(base64.b64decode(found(bundle, path)))
    for text in (json.dumps(body, indent=1), json.dumps(dict(reversed(body.items())))):
        expect(stand.ask(changed(bundle, path, b64(text.encode()))), "proof", also=("no-bundle",))


def _resigned(text: str, change: Callable[[str, bytes], str]) -> str:
    note, _, line = text.rpartition("\n\n")
    _, name, blob = line.strip().split(" ")
    return f"{note}\n\n{change(name, base64.b64decode(blob))}\n"


CHECKPOINTS: dict[str, Callable[[str], str]] = {
    "another origin": lambda text: f"other.example\n{text.partition(chr(10))[2]}",
    "no origin": lambda text: text.partition("\n")[2],
    "another size": lambda text: text.replace("\n", "\n9", 1),
    "size with a zero before": lambda text: text.replace("\n", "\n0", 1),
    "another root": lambda text: text.replace("=\n\n", "A\n\n", 1),
    "a line more": lambda text: text.replace("\n\n", "\nextension\n\n", 1),
    "no signature": lambda text: text.partition("\n\n")[0] + "\n\n",
    "no blank line": lambda text: text.replace("\n\n", "\n", 1),
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "a turned bit": lambda text: _resigned(
        text, lambda name, blob: f"\u2014 {name} {b64(blob[:-1] + bytes([blob[-1] ^ 1]))}"
    ),
    "another hint": lambda text: _resigned(
        text, lambda name, blob: f"\u2014 {name} {b64(b'abcd' + blob[4:])}"
    ),
    "another name": lambda text: _resigned(text, lambda _name, blob: f"\u2014 other.example {b64(blob)}"),
    "a hyphen for the dash": lambda text: text.replace("\u2014", "-"),
    "a signature of nothing": lambda text: _resigned(
        text, lambda name, blob: f"\u2014 {name} {b64(blob[:4])}"
    ),
    "signed by somebody else": lambda text: _resigned(
        text, lambda name, blob: f"\u2014 {name} {b64(blob[:4] + b'x' * 64)}"
    ),
    "empty": lambda _text: "",
}


@row(11, "checkpoint")
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_changed_checkpoint(stand: Stand, expect: Expect, kind: str) -> None:
    bundle = stand.bundle()
    spoiled = CHECKPOINTS[kind](found(bundle, CHECKPOINT))
    assert spoiled != found(bundle, CHECKPOINT)
    expect(stand.ask(changed(bundle, CHECKPOINT, spoiled)), "checkpoint", also=("no-bundle",))


@row(11, "checkpoint", "log-unknown")
def test_a_checkpoint_of_another_log(stand: Stand, expect: Expect, other_forge: Forge) -> None:
    bundle, theirs = stand.bundle(), other_forge.dsse(stand.statement())
    spoiled = changed(bundle, CHECKPOINT, found(theirs, CHECKPOINT))
    expect(stand.ask(spoiled), "checkpoint", also=("no-bundle",))
    named = changed(bundle, f"{ENTRY}.logId.keyId", found(theirs, f"{ENTRY}.logId.keyId"))
    expect(stand.ask(named), "log-unknown", also=("no-bundle",))


# Row 37.
@row(37, "log-kind")
@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("hashedrekord", "0.0.3"),
        ("hashedrekord", "1.0.0"),
        ("dsse", "0.0.2"),
        ("rekord", "0.0.1"),
        ("tuf", "0.0.1"),
        ("", ""),
        ("HASHEDREKORD", "0.0.2"),
    ],
)
def test_an_entry_of_an_unknown_kind(stand: Stand, expect: Expect, kind: str, version: str) -> None:
    bundle = stand.bundle()
    path = f"{ENTRY}.canonicalizedBody"
    body = json.loads(base64.b64decode(found(bundle, path))) | {"kind": kind, "apiVersion": version}
    spoiled = changed(bundle, path, b64(digests.canonical_json(body)))
    spoiled = changed(spoiled, f"{ENTRY}.kindVersion", {"kind": kind, "version": version})
    expect(stand.ask(spoiled), "log-kind", also=("no-bundle",))


# Row 14.
def _strip(document: Json, part: str, how: str) -> None:
    for item in document[part]:
        holder = item["publicKey"] if part.endswith("logs") else item
        match how:
            case "no window":
                del holder["validFor"]
            case "empty window":
                holder["validFor"] = {}
            case "null":
                holder["validFor"] = None
            case "end alone":
                holder["validFor"] = {"end": "2999-01-01T00:00:00Z"}
            case _:
                holder["validFor"]["start"] = ""


@row(14, "root-no-start")
@pytest.mark.parametrize("part", ["certificateAuthorities", "timestampAuthorities", "tlogs", "ctlogs"])
@pytest.mark.parametrize("how", ["no window", "empty window", "null", "end alone", "empty start"])
def test_a_root_without_a_start(forge: Forge, expect: Expect, part: str, how: str) -> None:
    answer = ask(lambda: forge.root(change=lambda document: _strip(document, part, how)))
    expect(answer, "root-no-start")


@row(14, "root-in-bundle")
@pytest.mark.parametrize("place", ["instead", "before", "behind"])
def test_a_root_certificate_in_the_bundle(stand: Stand, expect: Expect, place: str) -> None:
    bundle = stand.bundle()
    document = json.loads(stand.forge.root_bytes)
    root = document["certificateAuthorities"][0]["certChain"]["certificates"][-1]
    leaf = bundle[MATERIAL].pop("certificate")
    chain = {"instead": [root], "before": [root, leaf], "behind": [leaf, root]}[place]
    bundle[MATERIAL]["x509CertificateChain"] = {"certificates": chain}
    bundle["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.2"
    answer = stand.ask(bundle, policy=stand.under(stand.forge.root(canonical=False)))
    expect(answer, "root-in-bundle", also=("no-bundle",))


@row(14, "root-in-bundle")
def test_a_root_certificate_as_the_certificate(stand: Stand, expect: Expect) -> None:
    document = json.loads(stand.forge.root_bytes)
    root = document["certificateAuthorities"][0]["certChain"]["certificates"][-1]["rawBytes"]
    spoiled = changed(stand.bundle(), f"{MATERIAL}.certificate.rawBytes", root)
    expect(stand.command(spoiled), "root-in-bundle", also=("no-bundle",))


# Row 36, the root's half.
@row(36, "root-empty", "root-shape")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d.update(certificateAuthorities=[]), "root-empty"),
        (lambda d: d.update(tlogs=[]), "root-empty"),
        (lambda d: d.pop("tlogs"), "root-empty"),
        (lambda d: d.pop("mediaType"), "root-shape"),
        (lambda d: d.clear(), "root-shape"),
        (lambda d: d["tlogs"][0].pop("publicKey"), "root-shape"),
        (lambda d: d["certificateAuthorities"][0]["certChain"].update(certificates=[]), "root-shape"),
    ],
)
def test_a_root_that_names_nothing(
    forge: Forge, expect: Expect, change: Callable[[Json], Any], code: str
) -> None:
    expect(ask(lambda: forge.root(change=change)), code)


@row(36, "root-shape")
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"PK\x03\x04", b"[" * 10_000])
def test_a_root_that_is_none(expect: Expect, data: bytes) -> None:
    answer = ask(lambda: read_root(data, name="x", issuers=("i",), level="", canonical=False))
    expect(answer, "root-shape")


@report("sigstore/cosign#4623", "log-entry")
def test_an_entry_of_a_known_kind_about_another_digest(stand: Stand, expect: Expect) -> None:
    bundle = stand.bundle()
    path = f"{ENTRY}.canonicalizedBody"
    body = json.loads(base64.b64decode(found(bundle, path)))
    body["spec"]["hashedRekordV002"]["data"]["digest"] = b64(bytes(32))
    spoiled = changed(bundle, path, b64(digests.canonical_json(body)))
    expect(stand.ask(canonical(spoiled)), "log-entry", also=("no-bundle",))
