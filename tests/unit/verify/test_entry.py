"""The log entry's body: every kind that is known, by a certificate and by a key, and what it is compared with."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import Forge, b64
from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE
from wheelmark.errors import RejectedError
from wheelmark.verify import entry
from wheelmark.verify.bundle import Bundle, Envelope, LogEntry, MessageSignature, Proof
from wheelmark.verify.signature import SigningKey, signing_key

ARTIFACT = hashlib.sha256(b"artifact").digest()
ENVELOPE = Envelope(payload_type=PAYLOAD_TYPE, payload=b"{}", signature=b"sig", keyid="")
MESSAGE = MessageSignature(digest=None, signature=b"sig")
HASH = {"algorithm": "sha256", "value": "0" * 64}
PAYLOAD_HASH = {"algorithm": "sha256", "value": digests.sha256(b"{}")}
Spec = dict[str, Any]


def bundle(content: Envelope | MessageSignature, kind: str, version: str, body: bytes) -> Bundle:
    return Bundle(
        version="0.3",
        certificates=(),
        entry=LogEntry(
            index=0,
            log_id=b"log",
            kind=kind,
            version=version,
            integrated_time=None,
            promise=None,
            proof=Proof(index=0, size=1, root_hash=b"", hashes=(), checkpoint=""),
            body=body,
        ),
        timestamps=(),
        content=content,
    )


def check(
    content: Envelope | MessageSignature, kind: str, version: str, spec: Any, key: SigningKey, **others: Any
) -> None:
    body = digests.canonical_json({"kind": kind, "apiVersion": version, "spec": spec, **others})
    digest = ARTIFACT if isinstance(content, MessageSignature) else None
    entry.check_body(bundle(content, kind, version, body), key, digest)


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(RejectedError) as caught:
        call()
    return caught.value.reason


def pem(key: SigningKey) -> str:
    if key.certificate is not None:
        return b64(key.certificate.public_bytes(Encoding.PEM))
    return b64(key.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def dsse(key: SigningKey) -> Spec:
    return {
        "envelopeHash": HASH,
        "payloadHash": PAYLOAD_HASH,
        "signatures": [{"signature": b64(b"sig"), "verifier": pem(key)}],
    }


def intoto(key: SigningKey) -> Spec:
    signature = {"publicKey": pem(key), "sig": b64(b64(b"sig").encode())}
    return {
        "content": {
            "envelope": {
                "payload": b64(b64(b"{}").encode()),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [signature],
            },
            "hash": HASH,
            "payloadHash": PAYLOAD_HASH,
        }
    }


def hashedrekord(key: SigningKey) -> Spec:
    return {
        "data": {"hash": {"algorithm": "sha256", "value": ARTIFACT.hex()}},
        "signature": {"content": b64(b"sig"), "publicKey": {"content": pem(key)}},
    }


def second(key: SigningKey, digest: bytes) -> Spec:
    member = "publicKey" if key.certificate is None else "x509Certificate"
    return {
        "hashedRekordV002": {
            "data": {"algorithm": key.digest, "digest": b64(digest)},
            "signature": {
                "content": b64(b"sig"),
                "verifier": {"keyDetails": key.details, member: {"rawBytes": b64(key.der)}},
            },
        }
    }


Kind = tuple[Envelope | MessageSignature, str, str, Callable[[SigningKey], Spec]]
KINDS: list[Kind] = [
    (ENVELOPE, "dsse", "0.0.1", dsse),
    (ENVELOPE, "intoto", "0.0.2", intoto),
    (ENVELOPE, "hashedrekord", "0.0.2", lambda key: second(key, hashlib.sha256(ENVELOPE.pae()).digest())),
    (MESSAGE, "hashedrekord", "0.0.1", hashedrekord),
    (MESSAGE, "hashedrekord", "0.0.2", lambda key: second(key, ARTIFACT)),
]
NAMES = [f"{kind} {version} {type(content).__name__}" for content, kind, version, _ in KINDS]


@pytest.fixture(scope="module", params=["certificate", "key"])
def key(request: pytest.FixtureRequest, forge: Forge) -> SigningKey:
    if request.param == "certificate":
        certificate = forge.certificate()[1]
        return signing_key(certificate.public_key(), certificate)
    return signing_key(ec.generate_private_key(ec.SECP256R1()).public_key())


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_entry_about_this_bundle(key: SigningKey, kind: Kind) -> None:
    content, name, version, spec = kind
    check(content, name, version, spec(key), key)


def _changes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Every leaf of a JSON value, with something else in its place; and every object with a member more."""
    found: list[tuple[tuple[Any, ...], Any]]
    if isinstance(value, dict):
        found = [(path, {**value, "surprise": 1}), (path, None), (path, {})]
        return found + [change for name, item in value.items() for change in _changes(item, (*path, name))]
    if isinstance(value, list):
        found = [(path, []), (path, value * 2), (path, None)]
        return found + [change for n, item in enumerate(value) for change in _changes(item, (*path, n))]
    return [(path, other) for other in (None, 1, "", "x", f"{value}x", value[:-1], "AAAA", ["x"])]


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    copied = {"spec": copy.deepcopy(value)}
    holder: Any = copied
    for step in ("spec", *path)[:-1]:
        holder = holder[step]
    holder[("spec", *path)[-1]] = other
    return copied["spec"]


UNREBUILT = {("envelopeHash",), ("content", "hash")}


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_entry_with_any_other_value_is_refused(key: SigningKey, kind: Kind) -> None:
    content, name, version, spec = kind
    good = spec(key)
    changes = _changes(good)
    assert len(changes) > 30
    for path, other in changes:
        spoiled = _with(good, path, other)
        assert reason(lambda s=spoiled: check(content, name, version, s, key)) == "log-entry", (path, other)  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_entry_by_somebody_else_is_refused(key: SigningKey, kind: Kind) -> None:
    content, name, version, spec = kind
    other = signing_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    assert reason(lambda: check(content, name, version, spec(other), key)) == "log-entry"


def test_certificate_and_bare_key_are_two_signers(forge: Forge) -> None:
    certificate = forge.certificate()[1]
    whole = signing_key(certificate.public_key(), certificate)
    bare = signing_key(certificate.public_key())
    for content, name, version, spec in KINDS:
        assert reason(lambda: check(content, name, version, spec(whole), bare)) == "log-entry"  # noqa: B023
        assert reason(lambda: check(content, name, version, spec(bare), whole)) == "log-entry"  # noqa: B023


def test_a_hash_over_text_that_is_not_kept_is_taken_as_it_stands(key: SigningKey) -> None:
    other = {"algorithm": "sha256", "value": "ab" * 32}
    check(ENVELOPE, "dsse", "0.0.1", {**dsse(key), "envelopeHash": other}, key)
    spec = intoto(key)
    spec["content"]["hash"] = other
    check(ENVELOPE, "intoto", "0.0.2", spec, key)


def test_another_spelling_of_the_same_signer_is_the_same(key: SigningKey) -> None:
    spec = dsse(key)
    spec["signatures"][0]["verifier"] = pem(key).rstrip("=")[:-4] + "AAAA"
    assert reason(lambda: check(ENVELOPE, "dsse", "0.0.1", spec, key)) == "log-entry"
    text = (
        key.certificate.public_bytes(Encoding.PEM)
        if key.certificate is not None
        else key.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    spec["signatures"][0]["verifier"] = b64(text.strip())
    check(ENVELOPE, "dsse", "0.0.1", spec, key)


def test_intoto_entry_without_its_payload_and_with_a_key_id(key: SigningKey) -> None:
    spec = intoto(key)
    del spec["content"]["envelope"]["payload"]
    check(ENVELOPE, "intoto", "0.0.2", spec, key)
    spec["content"]["envelope"]["signatures"][0]["keyid"] = "k"
    assert reason(lambda: check(ENVELOPE, "intoto", "0.0.2", spec, key)) == "log-entry"
    named = Envelope(payload_type=PAYLOAD_TYPE, payload=b"{}", signature=b"sig", keyid="k")
    check(named, "intoto", "0.0.2", spec, key)


def test_ed25519_in_a_log_of_the_second_version() -> None:
    key = signing_key(ed25519.Ed25519PrivateKey.generate().public_key())
    digest = hashlib.sha512(ENVELOPE.pae()).digest()
    check(ENVELOPE, "hashedrekord", "0.0.2", second(key, digest), key)


@pytest.mark.parametrize(
    ("content", "kind", "version"),
    [
        (MESSAGE, "dsse", "0.0.1"),
        (ENVELOPE, "hashedrekord", "0.0.1"),
        (ENVELOPE, "intoto", "0.0.1"),
        (MESSAGE, "intoto", "0.0.2"),
        (MESSAGE, "rekord", "0.0.1"),
        (ENVELOPE, "dsse", "0.0.2"),
    ],
)
def test_kind_that_does_not_go_with_the_content_is_refused(
    key: SigningKey, content: Any, kind: str, version: str
) -> None:
    assert reason(lambda: check(content, kind, version, {}, key)) == "log-kind"


def test_a_body_has_three_members_and_says_its_kind(key: SigningKey) -> None:
    assert reason(lambda: check(ENVELOPE, "dsse", "0.0.1", dsse(key), key, surprise=1)) == "log-entry"
    assert reason(lambda: check(ENVELOPE, "dsse", "0.0.1", dsse(key), key, apiVersion="0.0.2")) == "log-entry"
    for body in (b"", b"[]", b"{}", b'{"kind":"dsse","kind":"dsse"}', b"[" * 100, b"\xff"):
        made = bundle(ENVELOPE, "dsse", "0.0.1", body)
        assert reason(lambda b=made: entry.check_body(b, key, None)) == "log-entry"  # type: ignore[misc]
