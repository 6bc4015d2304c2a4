"""Bundles signed with a bare key: row 16, and everything that holds for certificates too."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from forging import Forge, Json, b64, canonical, changed, flipped, found
from keysigning import KeyLog, PrivateKey, managed
from rows import row
from wheelmark import digests
from wheelmark.errors import ConfigError, WheelmarkError
from wheelmark.trust.roots import read_root
from wheelmark.verify.facts import Examiner
from wheelmark.verify.twins import _ORDERS

P256 = ec.generate_private_key(ec.SECP256R1())
KEYS: dict[str, PrivateKey] = {
    "P-256": P256,
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "RSA": rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}
ENTRY = "verificationMaterial.tlogEntries.0"
STAMPS = "verificationMaterial.timestampVerificationData"
HINT = "verificationMaterial.publicKey.hint"
SHA256 = digests.sha256(b"artifact")


@pytest.fixture(scope="module", params=[1, 2])
def log(request: pytest.FixtureRequest, forge: Forge) -> KeyLog:
    return KeyLog(forge, request.param)


@pytest.fixture(scope="module")
def first(forge: Forge) -> KeyLog:
    return KeyLog(forge, 1)


def examiner(log: KeyLog, *keys: PrivateKey, **options: Any) -> Examiner:
    return Examiner([log.root(**options)], [managed(key) for key in keys])


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(WheelmarkError) as caught:
        call()
    return caught.value.reason


@pytest.mark.parametrize("name", KEYS)
def test_a_statement_by_a_key_of_the_policy(log: KeyLog, name: str, statement: bytes) -> None:
    bundle = canonical(log.statement(KEYS[name], statement))
    for canonical_root in (True, False):
        facts = examiner(log, KEYS[name], canonical=canonical_root).examine(bundle)
        assert facts.key_id == managed(KEYS[name]).key_id
        assert (facts.identity, facts.issuer, facts.claims, facts.certificate_sha256) == ("", "", {}, "")
        assert facts.root == "embedded"
        assert facts.payload == statement
        assert len(facts.times) == (2 if log.version == 1 else 1)
        assert facts.unauthenticated == ()


def test_an_intoto_entry(first: KeyLog, statement: bytes) -> None:
    bundle = canonical(first.statement(P256, statement, kind="intoto"))
    assert examiner(first, P256).examine(bundle).entry_kind == "intoto 0.0.2"


@pytest.mark.parametrize("name", [name for name in KEYS if name != "Ed25519"])
def test_an_artifact_by_a_key_of_the_policy(log: KeyLog, name: str) -> None:
    bundle = canonical(log.message(KEYS[name], b"artifact"))
    made = examiner(log, KEYS[name], canonical=False)
    assert made.examine(bundle, artifact=SHA256).artifact_sha256 == SHA256
    assert reason(lambda: made.examine(bundle, artifact="00" * 32)) == "message-digest"


def test_ed25519_over_an_artifact_is_refused_with_its_reason(log: KeyLog) -> None:
    bundle = canonical(log.message(KEYS["Ed25519"], b"artifact"))
    made = examiner(log, KEYS["Ed25519"])
    assert reason(lambda: made.examine(bundle, artifact=SHA256)) == "certificate-key"


# Row 16.
@row(16, "key-bundle")
def test_without_a_key_in_the_policy(log: KeyLog, statement: bytes) -> None:
    bundle = canonical(log.statement(P256, statement))
    assert reason(lambda: examiner(log).examine(bundle)) == "key-bundle"


@row(16, "key-unknown", "signature")
def test_by_no_key_of_the_policy(log: KeyLog, statement: bytes) -> None:
    bundle = canonical(log.statement(P256, statement))
    others = [key for name, key in KEYS.items() if name != "P-256"]
    assert reason(lambda: examiner(log, *others).examine(bundle)) == "key-unknown"
    stranger = ec.generate_private_key(ec.SECP256R1())
    # A hint is no more than that: it neither makes a key known nor unknown.
    hinted = canonical(log.statement(stranger, statement, hint=managed(P256).hint))
    assert reason(lambda: examiner(log, P256).examine(hinted)) == "signature"


@pytest.mark.parametrize(
    "hint",
    ["", "somebody", managed(P256).key_id, managed(KEYS["P-384"]).hint],
    ids=["empty", "a word", "its own key id", "another key's hint"],
)
def test_the_hint_is_nobodys_word(log: KeyLog, statement: bytes, hint: str) -> None:
    bundle = canonical(log.statement(P256, statement, hint=hint))
    facts = examiner(log, KEYS["RSA"], P256, canonical=False).examine(bundle)
    assert facts.key_id == managed(P256).key_id
    assert facts.unauthenticated == ("publicKey.hint",)
    assert reason(lambda: examiner(log, P256).examine(bundle)) == "unauthenticated"


def test_under_a_root_whose_log_it_is_not_in(
    forge: Forge, other_forge: Forge, log: KeyLog, statement: bytes
) -> None:
    bundle = canonical(log.statement(P256, statement))
    made = Examiner([forge.root()], [managed(P256)])
    assert reason(lambda: made.examine(bundle)) == "log-unknown"
    # The key counts under one root; that another one knows the log does not help it.
    both = Examiner([log.root(), other_forge.root(name="other")], [managed(P256, "other")])
    assert reason(lambda: both.examine(bundle)) == "log-unknown"


def test_roots_and_keys_that_would_leave_it_to_chance(forge: Forge, log: KeyLog) -> None:
    twice = [forge.root(), log.root(name="again")]
    assert reason(lambda: Examiner(twice)) == "policy-contradiction"
    assert reason(lambda: Examiner([log.root()], [managed(P256, "absent")])) == "policy-contradiction"
    with pytest.raises(ConfigError):
        Examiner(twice)


def test_one_key_under_two_roots_of_one_log(other_forge: Forge, log: KeyLog) -> None:
    mine = log.root()
    there = KeyLog(other_forge, log.version)
    there.spki, there.log_id = log.spki, log.log_id
    other = there.root(name="other")
    keys = [managed(P256), managed(P256, "other")]
    assert reason(lambda: Examiner([mine, other], keys)) == "policy-contradiction"
    Examiner([mine, other_forge.root(name="other")], [*keys, keys[0]])


# What is spoiled elsewhere is refused as under a certificate.
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{ENTRY}.canonicalizedBody", "log-entry"),
        (f"{ENTRY}.inclusionProof.rootHash", "proof"),
        ("dsseEnvelope.payload", "signature"),
        ("dsseEnvelope.signatures.0.sig", "signature"),
        (f"{STAMPS}.rfc3161Timestamps.0.signedTimestamp", "timestamp-malformed"),
    ],
)
def test_one_bit(log: KeyLog, statement: bytes, path: str, expected: str) -> None:
    bundle = log.statement(P256, statement, promised=False)
    spoiled = canonical(changed(bundle, path, flipped(found(bundle, path))))
    assert reason(lambda: examiner(log, P256, canonical=False).examine(spoiled)) == expected


def test_parts_of_another_bundle_by_the_same_key(log: KeyLog, statement: bytes) -> None:
    one, two = (log.statement(P256, statement) for _ in range(2))
    made = examiner(log, P256)
    assert reason(lambda: made.examine(canonical(changed(one, ENTRY, found(two, ENTRY))))) == "log-entry"
    stamp = f"{STAMPS}.rfc3161Timestamps"
    assert (
        reason(lambda: made.examine(canonical(changed(one, stamp, found(two, stamp))))) == "timestamp-other"
    )


@pytest.mark.parametrize("left", ["promised", "stamped"])
def test_what_the_signer_would_have_written_is_not_taken_out(
    first: KeyLog, statement: bytes, left: str
) -> None:
    made = first.statement(P256, statement, promised=left == "promised", stamped=left == "stamped")
    bundle = canonical(made)
    assert reason(lambda: examiner(first, P256).examine(bundle)) == "not-canonical"
    assert len(examiner(first, P256, canonical=False).examine(bundle).times) == 1


def test_a_key_bundle_needs_a_signed_time_too(log: KeyLog, statement: bytes) -> None:
    bare = log.statement(P256, statement, promised=False, stamped=False)
    made = examiner(log, P256, canonical=False)
    assert reason(lambda: made.examine(canonical(bare))) == "time-missing"
    claimed = changed(bare, f"{ENTRY}.integratedTime", "1700000000")
    assert reason(lambda: made.examine(canonical(claimed))) == "time-unsigned"
    promised = log.statement(P256, statement, stamped=False)
    if log.version == 1:
        assert len(made.examine(canonical(promised)).times) == 1


@pytest.mark.parametrize("part", ["tlogs", "timestampAuthorities"])
def test_windows_hold_for_keys_too(log: KeyLog, statement: bytes, part: str) -> None:
    bundle = canonical(log.statement(P256, statement, promised=False))
    time = examiner(log, P256, canonical=False).examine(bundle).time
    instant = dt.timedelta(microseconds=1)
    for start, end, expected in (
        (time, time, ""),
        (time + instant, None, "window"),
        (time - instant, time - instant, "window"),
    ):
        document: Json = copy.deepcopy(dict(log.root().document))
        for item in document[part]:
            holder = item["publicKey"] if part == "tlogs" else item
            holder["validFor"] = {"start": start.isoformat()} | ({"end": end.isoformat()} if end else {})
        narrow = read_root(
            json.dumps(document).encode(), name="embedded", issuers=(), level="", canonical=False
        )
        made = Examiner([narrow], [managed(P256)])
        if expected:
            with pytest.raises(WheelmarkError) as caught:
                made.examine(bundle)
            assert caught.value.reason == ("log-window" if part == "tlogs" else "tsa-window")
        else:
            assert made.examine(bundle).times == (time,)


# Twins of the log's ECDSA signatures.
@pytest.mark.parametrize("which", ["checkpoint", "promise"])
def test_a_twin_of_the_logs_signature_is_refused_under_a_canonical_root(
    first: KeyLog, statement: bytes, which: str
) -> None:
    bundle = first.statement(P256, statement)
    path = f"{ENTRY}.inclusionPromise.signedEntryTimestamp"
    if which == "promise":
        spoiled = changed(bundle, path, b64(_twin(base64.b64decode(found(bundle, path)))))
    else:
        path = f"{ENTRY}.inclusionProof.checkpoint.envelope"
        head, _, text = found(bundle, path).rstrip("\n").rpartition(" ")
        blob = base64.b64decode(text)
        spoiled = changed(bundle, path, f"{head} {b64(blob[:4] + _twin(blob[4:]))}\n")
    data = canonical(spoiled)
    assert reason(lambda: examiner(first, P256).examine(data)) == "unauthenticated"
    # Elsewhere either form may come from an honest log.
    assert examiner(first, P256, canonical=False).examine(data).unauthenticated == ()


def test_the_twin_of_the_signers_own_signature_is_not_what_was_logged(log: KeyLog, statement: bytes) -> None:
    bundle = log.statement(P256, statement)
    path = "dsseEnvelope.signatures.0.sig"
    twin = b64(_twin(base64.b64decode(found(bundle, path))))
    for canonical_root in (True, False):
        made = examiner(log, P256, canonical=canonical_root)
        assert reason(lambda m=made: m.examine(canonical(changed(bundle, path, twin)))) == "log-entry"  # type: ignore[misc]


def _twin(signature: bytes) -> bytes:
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, _ORDERS["secp256r1"] - s)


def test_a_certificate_and_a_hint_are_one_too_many(log: KeyLog, forge: Forge, statement: bytes) -> None:
    bundle: Json = log.statement(P256, statement)
    certificate = found(forge.dsse(statement), "verificationMaterial.certificate")
    both = changed(bundle, "verificationMaterial.certificate", certificate)
    assert reason(lambda: examiner(log, P256).examine(canonical(both))) == "bundle-shape"
    assert HINT.startswith("verificationMaterial")
