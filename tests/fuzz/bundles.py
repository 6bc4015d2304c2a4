"""Mutators of bundles: JSON, base64, DER, signatures, proofs, checkpoints, log entries, statements, splices."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from fuzz import asn1, documents
from fuzz.documents import Members, Path, at, copied, places, put, written
from fuzz.subject import Mutator, Original

_B64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MEDIA_TYPES = (
    "application/vnd.dev.sigstore.bundle+json;version=0.1",
    "application/vnd.dev.sigstore.bundle+json;version=0.2",
    "application/vnd.dev.sigstore.bundle+json;version=0.3",
    "application/vnd.dev.sigstore.bundle.v0.3+json",
    "application/vnd.dev.sigstore.bundle+json;version=0.4",
    "application/json",
)
_BYTES = [
    "rawBytes",
    "payload",
    "sig",
    "signature",
    "signedTimestamp",
    "canonicalizedBody",
    "keyId",
    "rootHash",
    "digest",
    "signedEntryTimestamp",
]
Edit = Callable[[Random, Any], Any]


def _find(tree: Any, ending: str, path: Path = ()) -> list[Path]:
    """Paths whose words end so."""
    return [
        place for place in places(tree, path) if f".{documents.names(tree, place)}".endswith(f".{ending}")
    ]


def _one(rng: Random, tree: Any, *endings: str) -> Path | None:
    found = [place for ending in endings for place in _find(tree, ending)]
    return rng.choice(found) if found else None


def _is_bytes(tree: Any, path: Path) -> bool:
    words = documents.names(tree, path).split(".")
    return isinstance(at(tree, path), str) and (words[-1] in _BYTES or words[-2:-1] == ["hashes"])


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(tree: Any, path: Path) -> bytes:
    try:
        return base64.b64decode(at(tree, path))
    except (ValueError, TypeError):
        return b""


def with_bytes(tree: Any, path: Path, change: Callable[[bytes], bytes]) -> Any:
    put(tree, path, b64(change(decoded(tree, path))))
    return tree


def base64_spelled(rng: Random, tree: Any) -> Any:
    """One base64 text in another spelling, of the same bytes or not quite."""
    path = rng.choice([place for place in places(tree) if _is_bytes(tree, place)])
    text = str(at(tree, path))
    index = rng.randrange(len(text) + 1)
    ways = [
        text.rstrip("="),
        f"{text}=",
        f"{text}====",
        text[:index] + rng.choice([" ", "\n", "\r\n", "=", "-", "\0", "!", "\u2028", "é"]) + text[index:],
        text.replace("+", "-").replace("/", "_"),
        decoded(tree, path).hex(),
        f"data:;base64,{text}",
        base64.b32encode(decoded(tree, path)).decode(),
        b64(text.encode()),
    ]
    body = text.rstrip("=")
    if body != text and body:  # the last character holds bits that say nothing
        spare = 2 if text.endswith("==") else 1
        ways += [
            body[:-1] + _B64[_B64.index(body[-1]) ^ rng.randrange(1, 1 << (spare * 2))] + "=" * spare
        ] * 4
    put(tree, path, rng.choice(ways))
    return tree


def bytes_flipped(rng: Random, tree: Any) -> Any:
    """Bytes inside base64 changed."""
    path = rng.choice([place for place in places(tree) if _is_bytes(tree, place)])
    return with_bytes(tree, path, lambda data: documents.flipped(rng, data))


def text_changed(rng: Random, tree: Any) -> Any:
    """One string changed by a character, or made long or strange."""
    path = rng.choice([place for place in places(tree) if isinstance(at(tree, place), str)])
    text = str(at(tree, path))
    index = rng.randrange(len(text) + 1)
    ways = (
        text[:index] + text[index + 1 :],
        text[:index]
        + rng.choice(["\0", " ", "a", "é", "e\u0301", "\u202e", "\U0001f600", "\n", '"'])
        + text[index:],
        text + text,
        text.swapcase(),
        text[::-1],
        text * rng.choice([1, 50]),
    )
    put(tree, path, rng.choice(ways))
    return tree


def number_changed(rng: Random, tree: Any) -> Any:
    """One of the numbers: index, size or time."""
    path = _one(rng, tree, "logIndex", "treeSize", "integratedTime")
    if path is None or not str(at(tree, path)).isdecimal():
        return text_changed(rng, tree)
    value = int(at(tree, path))
    ways = [
        value + 1,
        value - 1,
        value ^ 1 << rng.randrange(64),
        0,
        1,
        2**63 - 1,
        2**63,
        2**64,
        -value,
        value * 10,
    ]
    put(tree, path, str(rng.choice(ways)))
    return tree


def certificate(rng: Random, tree: Any) -> Any:
    """DER of a certificate."""
    path = _one(rng, tree, "rawBytes")
    return _der(rng, tree, path)


def timestamp(rng: Random, tree: Any) -> Any:
    """DER of a timestamp."""
    return _der(rng, tree, _one(rng, tree, "signedTimestamp"))


def _der(rng: Random, tree: Any, path: Path | None) -> Any:
    if path is None:
        return bytes_flipped(rng, tree)
    return with_bytes(tree, path, lambda data: asn1.mutated(rng, data))


def signature(rng: Random, tree: Any) -> Any:
    """The signature or the log's promise, otherwise encoded or the twin; perhaps in the log entry too."""
    path = _one(rng, tree, "sig", "messageSignature.signature", "signedEntryTimestamp")
    if path is None:
        return bytes_flipped(rng, tree)
    old = at(tree, path)
    with_bytes(tree, path, lambda data: asn1.odd_signatures(rng, data))
    body = _one(rng, tree, "canonicalizedBody")
    if body is not None and rng.random() < 0.4:
        with_bytes(tree, body, lambda data: data.replace(str(old).encode(), str(at(tree, path)).encode()))
    return tree


def timestamp_signature(rng: Random, tree: Any) -> Any:
    """The twin of a timestamp's signature, or another encoding of it."""
    path = _one(rng, tree, "signedTimestamp")
    if path is None:
        return signature(rng, tree)
    try:
        token = asn1.with_signature(
            decoded(tree, path),
            asn1.twin if rng.random() < 0.5 else lambda old: asn1.odd_signatures(rng, old),
        )
    except (ValueError, RecursionError, OverflowError):
        return timestamp(rng, tree)
    put(tree, path, b64(token))
    return tree


def timestamps(rng: Random, tree: Any) -> Any:
    """Timestamps taken out, doubled, in another order, or one of nothing added."""
    path = _one(rng, tree, "rfc3161Timestamps")
    if path is None:
        return documents.dropped(rng, tree)
    items = at(tree, path)
    match rng.randrange(4):
        case 0 if items:
            del items[rng.randrange(len(items))]
        case 1 if items:
            items.insert(0, copied(rng.choice(items)))
        case 2:
            rng.shuffle(items)
            items.append(Members([("signedTimestamp", b64(b"\x30\x03\x02\x01\x00"))]))
        case _:
            put(tree, path[:-1], rng.choice([None, Members(), Members([("rfc3161Timestamps", [])]), []]))
    return tree


def proof(rng: Random, tree: Any) -> Any:
    """Hashes of the inclusion proof added, taken out, doubled or moved; index and size with them, or not."""
    path = _one(rng, tree, "inclusionProof")
    if path is None:
        return documents.swapped(rng, tree)
    found = at(tree, path)
    members = {name: index for index, (name, _) in enumerate(found)}
    if rng.random() < 0.3 or "hashes" not in members:
        return number_changed(rng, tree) if rng.random() < 0.5 else documents.dropped(rng, tree)
    items = found[members["hashes"]][1]
    if not isinstance(items, list):
        return documents.retyped(rng, tree)
    new = rng.choice([b64(rng.randbytes(32)), b64(b""), b64(rng.randbytes(31)), b64(bytes(32))])
    match rng.randrange(5):
        case 0:
            items.insert(rng.randrange(len(items) + 1), new)
        case 1 if items:
            del items[rng.randrange(len(items))]
        case 2 if items:
            items.insert(rng.randrange(len(items) + 1), rng.choice(items))
        case 3:
            rng.shuffle(items)
        case _:
            root = _one(rng, tree, "rootHash")
            items.extend([new] * rng.choice([1, 2, 64, 900]))
            if root is not None and rng.random() < 0.5:
                put(tree, root, new)
    if rng.random() < 0.3:
        number_changed(rng, tree)
    return tree


def checkpoint(rng: Random, tree: Any) -> Any:
    """Lines of the checkpoint: added, taken out, moved, of other ends; more signatures, other names and hints."""
    path = _one(rng, tree, "checkpoint.envelope")
    if path is None or not isinstance(at(tree, path), str):
        return text_changed(rng, tree)
    text = str(at(tree, path))
    lines = text.split("\n")
    index = rng.randrange(len(lines))
    signed = [number for number, line in enumerate(lines) if line.startswith("\u2014")]
    match rng.randrange(10):
        case 0:
            del lines[index]
        case 1:
            lines.insert(index, rng.choice(["", "x", "0", "\u2014", "\u2014 a b", lines[index]]))
        case 2:
            other = rng.randrange(len(lines))
            lines[index], lines[other] = lines[other], lines[index]
        case 3:
            lines[index] += rng.choice([" ", "\r", "\0", "\t", "\u2028"])
        case 4 | 5:
            name, junk = (
                rng.choice(["witness.example", "x", lines[0]]),
                b64(rng.randbytes(rng.choice([0, 4, 68, 76]))),
            )
            lines.insert(rng.choice([*signed, len(lines) - 1]), f"\u2014 {name} {junk}")
        case 6 if signed:
            lines.insert(rng.choice(signed), lines[rng.choice(signed)])
        case 7 if signed:
            head, _, blob = lines[rng.choice(signed)].rpartition(" ")
            lines[signed[0]] = f"{head} {b64(documents.flipped(rng, base64.b64decode(blob)))}"
        case 8 if signed:
            head, _, blob = lines[signed[0]].rpartition(" ")
            raw = base64.b64decode(blob)
            lines[signed[0]] = f"{head} {b64(raw[:4] + asn1.odd_signatures(rng, raw[4:]))}"
        case _:
            lines = rng.choice(
                [text.replace("\n", "\r\n"), text.rstrip("\n"), f"{text}\n", text.replace("\n\n", "\n")]
            ).split("\n")
    put(tree, path, "\n".join(lines))
    return tree


def log_entry(rng: Random, tree: Any) -> Any:
    """The entry's own JSON in the bundle: values, spellings, and the PEM in it."""
    path = _one(rng, tree, "canonicalizedBody")
    if path is None:
        return documents.renamed(rng, tree)

    def change(data: bytes) -> bytes:
        if rng.random() < 0.3 and b"LS0t" in data:
            start = data.index(b"LS0t")
            end = data.index(b'"', start)
            pem = base64.b64decode(data[start:end])
            respelled = rng.choice(
                [pem + b"\n", pem.replace(b"\n", b"\r\n"), b"\n" + pem, pem.rstrip(b"\n"), pem + pem]
            )
            return data[:start] + base64.b64encode(respelled) + data[end:]
        return json_changed(rng, data)

    return with_bytes(tree, path, change)


def statement(rng: Random, tree: Any) -> Any:
    """The signed statement: any value of it, or its spelling."""
    path = _one(rng, tree, "payload")
    if path is None:
        return message(rng, tree)
    return with_bytes(tree, path, lambda data: json_changed(rng, data))


def message(rng: Random, tree: Any) -> Any:
    """The digest that a message signature states."""
    path = _one(rng, tree, "messageDigest", "messageDigest.digest", "messageDigest.algorithm")
    if path is None:
        return documents.retyped(rng, tree)
    options = [None, "", "SHA2_256", "SHA2_512", "sha256", 1, Members(), b64(rng.randbytes(32)), b64(b"")]
    put(tree, path, rng.choice(options))
    return tree


def json_changed(rng: Random, data: bytes) -> bytes:
    try:
        tree = documents.parse(data)
    except ValueError:
        return documents.flipped(rng, data)
    if not isinstance(tree, list) or not tree or rng.random() < 0.2:
        return documents.respelled(rng, data)
    ways = (
        documents.dropped,
        documents.doubled,
        documents.swapped,
        documents.retyped,
        documents.renamed,
        text_changed,
    )
    return written(rng.choice(ways)(rng, tree), canonical=rng.random() < 0.5)


def version(rng: Random, tree: Any) -> Any:
    """Another media type; certificate as a chain, chain as a certificate, a key in its place."""
    media = _one(rng, tree, "mediaType")
    if media is not None and rng.random() < 0.6:
        put(tree, media, rng.choice(MEDIA_TYPES))
    material = _one(rng, tree, "verificationMaterial")
    if material is None or rng.random() < 0.3:
        return tree
    holder = at(tree, material)
    raw = [at(tree, path) for path in _find(tree, "rawBytes")] or [""]
    leaf = Members([("rawBytes", raw[0])])
    options: list[tuple[str, Any]] = [
        ("certificate", leaf),
        ("x509CertificateChain", Members([("certificates", [leaf])])),
        ("x509CertificateChain", Members([("certificates", [leaf, copied(leaf)])])),
        ("x509CertificateChain", Members([("certificates", [])])),
        ("publicKey", Members([("hint", "x")])),
        ("publicKey", Members()),
    ]
    new = rng.choice(options)
    kept = [item for item in holder if item[0] not in {"certificate", "x509CertificateChain", "publicKey"}]
    put(tree, material, Members([*(kept if rng.random() < 0.7 else holder), new]))
    return tree


def hints(rng: Random, tree: Any) -> Any:
    """Members that nothing signs, added or changed: key id, claimed time, promise, empty members."""
    envelope, entry = _one(rng, tree, "signatures.0"), _one(rng, tree, "tlogEntries.0")
    options: list[tuple[Path | None, tuple[str, Any]]] = [
        (envelope, ("keyid", rng.choice(["", "x", "SHA256:abc"]))),
        (entry, ("integratedTime", str(rng.choice([0, 1, 1_700_000_000, 4_000_000_000])))),
        (
            entry,
            (
                "inclusionPromise",
                rng.choice([None, Members([("signedEntryTimestamp", b64(rng.randbytes(70)))])]),
            ),
        ),
        (entry, ("logIndex", str(rng.randrange(1 << 40)))),
        (
            rng.choice(places(tree)),
            (rng.choice(["", "x", "certificate", "keyid"]), rng.choice([None, "", Members(), []])),
        ),
    ]
    path, (name, value) = rng.choice(options)
    holder = at(tree, path) if path is not None else tree
    if not isinstance(holder, Members):
        return documents.renamed(rng, tree)
    holder[:] = [item for item in holder if item[0] != name or rng.random() < 0.1] + [(name, value)]
    return tree


EDITS: Mapping[str, Edit] = {
    "JSON: member dropped": documents.dropped,
    "JSON: member twice": documents.doubled,
    "JSON: values swapped": documents.swapped,
    "JSON: value of another type": documents.retyped,
    "JSON: member renamed or added": documents.renamed,
    "JSON: order": documents.shuffled,
    "string changed": text_changed,
    "number changed": number_changed,
    "base64 spelled otherwise": base64_spelled,
    "bytes in base64 changed": bytes_flipped,
    "certificate: DER": certificate,
    "timestamp: DER": timestamp,
    "timestamp: signature": timestamp_signature,
    "timestamps: list": timestamps,
    "signature: twin, encodings": signature,
    "inclusion proof": proof,
    "checkpoint": checkpoint,
    "log entry": log_entry,
    "statement or digest": statement,
    "version, certificate or key": version,
    "unsigned members": hints,
}


def mutators(originals: Sequence[Original], *, canonical: bool) -> dict[str, Mutator]:
    """Every mutator of bundles.

    Args:
        originals: What splices are taken from.
        canonical: Write mutants as RFC 8785 has it, so that they get past the comparison of spellings.
    """

    def edited(edit: Edit) -> Mutator:
        return lambda rng, original: written(edit(rng, copied(original.tree)), canonical=canonical)

    def spliced(rng: Random, original: Original) -> bytes:
        tree, other = copied(original.tree), rng.choice(originals)
        for _ in range(rng.choice([1, 1, 2, 3])):
            path = rng.choice(places(tree))
            words = documents.names(tree, path)
            same = [place for place in places(other.tree) if documents.names(other.tree, place) == words]
            source = same or places(other.tree)
            put(tree, path, copied(at(other.tree, rng.choice(source))))
        return written(tree, canonical=canonical)

    def several(rng: Random, original: Original) -> bytes:
        tree = copied(original.tree)
        for _ in range(rng.choice([2, 2, 3, 5])):
            try:
                tree = rng.choice(tuple(EDITS.values()))(rng, tree)
            except (IndexError, ValueError, TypeError, KeyError, AttributeError):
                break  # the edit before left nothing that this one could change
        return written(tree, canonical=canonical)

    made: dict[str, Mutator] = {
        **{name: edited(edit) for name, edit in EDITS.items()},
        "spliced with another bundle": spliced,
        "several at once": several,
        "raw bytes": lambda rng, original: documents.flipped(rng, original.data),
        "spelling of the document": lambda rng, original: documents.respelled(rng, original.data),
    }
    if canonical:  # which has one order
        made["JSON: order"] = lambda rng, original: written(documents.shuffled(rng, copied(original.tree)))
    return made


__all__ = ["EDITS", "MEDIA_TYPES", "mutators"]
