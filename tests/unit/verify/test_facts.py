"""Rows 2, 3, 8 to 14, 17, 20, 21, 37 and 44: each a family of bundles made by code, spoiled in one place."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from sigstore.errors import VerificationError
from sigstore.verify import Verifier

from forging import Forge, Json, b64, canonical, changed, flipped, found
from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE, pre_authentication_encoding
from wheelmark.errors import ConfigError, InputError, RejectedError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.verify import facts as facts_module
from wheelmark.verify import log
from wheelmark.verify.bundle import Bundle, read_bundle
from wheelmark.verify.facts import Examiner, Facts
from wheelmark.verify.opinion import _SameCertificate

ENTRY = "verificationMaterial.tlogEntries.0"
STAMP = "verificationMaterial.timestampVerificationData.rfc3161Timestamps.0.signedTimestamp"
RAW = "verificationMaterial.certificate.rawBytes"
CHECKPOINT = f"{ENTRY}.inclusionProof.checkpoint.envelope"


@pytest.fixture(scope="module")
def bundle(forge: Forge, statement: bytes) -> Json:
    return forge.dsse(statement)


@pytest.fixture(scope="module")
def another(forge: Forge, statement: bytes) -> Json:
    """A second bundle over the same statement: all that is swapped between the two is right in itself."""
    return forge.dsse(statement)


@pytest.fixture(scope="module")
def message(forge: Forge) -> Json:
    return forge.message(b"artifact")


def reason(examiner: Examiner, bundle: Json | bytes, artifact: str = "") -> str:
    data = bundle if isinstance(bundle, bytes) else canonical(bundle)
    with pytest.raises(WheelmarkError) as caught:
        examiner.examine(data, artifact=artifact)
    assert isinstance(caught.value, RejectedError | InputError)
    return caught.value.reason


def test_facts_say_who_signed_what_when_under_which_root(
    examiner: Examiner, bundle: Json, statement: bytes
) -> None:
    found_facts = examiner.examine(canonical(bundle))
    assert found_facts.identity == embedded.RELEASE_IDENTITY
    assert found_facts.issuer == embedded.ISSUER
    assert found_facts.root == "embedded"
    assert found_facts.payload == statement
    assert found_facts.statement is not None
    assert found_facts.statement.as_bytes() == statement
    assert found_facts.log_index == int(found(bundle, f"{ENTRY}.logIndex"))
    assert found_facts.entry_kind == "hashedrekord 0.0.2"
    assert found_facts.unauthenticated == ()
    assert abs(dt.datetime.now(dt.UTC) - found_facts.time) < dt.timedelta(hours=1)
    assert found_facts.bundle_sha256 == digests.sha256(canonical(bundle))


def test_the_same_bytes_are_verified_once(
    forge: Forge, bundle: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def counting(data: bytes) -> Bundle:
        asked.append(data)
        return read_bundle(data)

    monkeypatch.setattr(facts_module, "read_bundle", counting)
    examiner = Examiner([forge.root()])
    assert examiner.examine(canonical(bundle)) is examiner.examine(canonical(bundle))
    assert len(asked) == 1


# Row 2.
def test_a_message_signature_is_about_one_artifact(lenient: Examiner, message: Json) -> None:
    right, wrong = digests.sha256(b"artifact"), digests.sha256(b"another")
    assert lenient.examine(canonical(message), artifact=right).artifact_sha256 == right
    assert reason(lenient, message, wrong) == "message-digest"
    assert reason(lenient, message) == "statement-expected"


def test_a_message_signature_has_one_form_too(examiner: Examiner, message: Json) -> None:
    artifact = digests.sha256(b"artifact")
    assert examiner.examine(canonical(message), artifact=artifact).unauthenticated == ()
    older = "application/vnd.dev.sigstore.bundle+json;version=0.3"
    for path, value in (("mediaType", older), ("messageSignature.messageDigest", None)):
        assert reason(examiner, changed(message, path, value), artifact) == "not-canonical"


@pytest.mark.parametrize("index", [0, 15, 31])
def test_message_digest_that_differs_is_refused(lenient: Examiner, message: Json, index: int) -> None:
    path = "messageSignature.messageDigest.digest"
    spoiled = changed(message, path, flipped(found(message, path), index))
    assert reason(lenient, spoiled, digests.sha256(b"artifact")) == "message-digest"


def test_without_a_message_digest_the_signature_decides(lenient: Examiner, message: Json) -> None:
    bare = changed(message, "messageSignature.messageDigest", None)
    lenient.examine(canonical(bare), artifact=digests.sha256(b"artifact"))
    assert reason(lenient, bare, digests.sha256(b"another")) == "signature"


# Row 3.
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (ENTRY, "log-entry"),
        (f"{ENTRY}.canonicalizedBody", "log-entry"),
        (RAW, "signature"),
        ("dsseEnvelope.signatures", "signature"),
        (STAMP, "timestamp-other"),
        (f"{ENTRY}.inclusionProof", "proof"),
    ],
)
def test_parts_of_another_bundle_are_refused(
    examiner: Examiner, bundle: Json, another: Json, path: str, expected: str
) -> None:
    assert reason(examiner, changed(bundle, path, found(another, path))) == expected


def test_envelope_of_another_bundle_is_refused(
    examiner: Examiner, forge: Forge, bundle: Json, statement: bytes
) -> None:
    other = forge.dsse(statement.replace(b"so", b"no"))
    spoiled = changed(bundle, "dsseEnvelope.payload", found(other, "dsseEnvelope.payload"))
    assert reason(examiner, spoiled) == "signature"
    # Envelope and timestamp of one bundle, certificate and entry of another by the same key: only the entry tells.
    assert reason(examiner, {**other, "dsseEnvelope": bundle["dsseEnvelope"]}) == "signature"


def test_signature_by_the_same_key_over_the_same_content_is_not_what_was_logged(
    forge: Forge, examiner: Examiner, statement: bytes
) -> None:

    key, certificate = forge.certificate()
    pae = pre_authentication_encoding(PAYLOAD_TYPE, statement)
    first, second = (key.sign(pae, ec.ECDSA(hashes.SHA256())) for _ in range(2))
    content = {
        "dsseEnvelope": {
            "payload": b64(statement),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": b64(second)}],
        }
    }
    made = forge._bundle(certificate, bytes.fromhex(digests.sha256(pae)), first, content)
    spoiled = changed(made, STAMP, forge.timestamp(second))
    assert reason(examiner, spoiled) == "log-entry"


# Rows 8 and 9.
@pytest.mark.parametrize("empty", [None, {}, {"rfc3161Timestamps": []}])
def test_without_a_timestamp_there_is_no_time(lenient: Examiner, bundle: Json, empty: Any) -> None:
    spoiled = changed(bundle, "verificationMaterial.timestampVerificationData", empty)
    assert reason(lenient, spoiled) == "time-missing"


@pytest.mark.parametrize("seconds", [1, 1_700_000_000, 1_800_000_000])
def test_time_claimed_and_not_signed_is_refused(lenient: Examiner, bundle: Json, seconds: int) -> None:
    spoiled = changed(bundle, "verificationMaterial.timestampVerificationData", None)
    assert reason(lenient, changed(spoiled, f"{ENTRY}.integratedTime", str(seconds))) == "time-unsigned"


def test_time_claimed_beside_a_signed_one_is_never_believed(
    lenient: Examiner, examiner: Examiner, bundle: Json
) -> None:
    claimed = changed(bundle, f"{ENTRY}.integratedTime", "1700000000")
    assert lenient.examine(canonical(claimed)).unauthenticated == ("tlogEntries.integratedTime",)
    assert lenient.examine(canonical(claimed)).times == lenient.examine(canonical(bundle)).times
    assert reason(examiner, claimed) == "unauthenticated"


@pytest.mark.parametrize("promise", [b"\0", b"promise", b"\x30\x06\x02\x01\x01\x02\x01\x01"])
def test_promise_that_no_log_signed_is_refused(lenient: Examiner, bundle: Json, promise: bytes) -> None:
    text = base64.b64encode(promise).decode()
    spoiled = changed(bundle, f"{ENTRY}.inclusionPromise", {"signedEntryTimestamp": text})
    assert reason(lenient, spoiled) == "promise"
    assert reason(lenient, changed(spoiled, f"{ENTRY}.integratedTime", "1700000000")) == "promise"


# Row 10.
def test_timestamp_of_an_unknown_authority_is_refused(
    examiner: Examiner, lenient: Examiner, other_forge: Forge, bundle: Json
) -> None:
    signature = base64.b64decode(found(bundle, "dsseEnvelope.signatures.0.sig"))
    spoiled = changed(bundle, STAMP, other_forge.timestamp(signature))
    assert reason(examiner, spoiled) == "timestamp-untrusted"
    assert reason(lenient, spoiled) == "timestamp-untrusted"


@pytest.mark.parametrize("over", [b"x", b"something else", b"\0" * 70])
def test_timestamp_over_another_signature_is_refused(
    lenient: Examiner, forge: Forge, bundle: Json, over: bytes
) -> None:
    assert reason(lenient, changed(bundle, STAMP, forge.timestamp(over))) == "timestamp-other"


def test_one_timestamp_twice_is_refused(lenient: Examiner, bundle: Json) -> None:
    path = STAMP.removesuffix(".0.signedTimestamp")
    assert reason(lenient, changed(bundle, path, found(bundle, path) * 2)) == "timestamp-other"


def test_a_timestamp_that_fails_beside_a_good_one_is_reported(
    lenient: Examiner, examiner: Examiner, forge: Forge, bundle: Json
) -> None:
    path = STAMP.removesuffix(".0.signedTimestamp")
    both = changed(bundle, path, [*found(bundle, path), {"signedTimestamp": forge.timestamp(b"else")}])
    assert "timestampVerificationData" in lenient.examine(canonical(both)).unauthenticated
    assert reason(examiner, both) == "timestamp-other"


def test_timestamp_without_its_certificate_is_not_what_our_signer_asks_for(
    examiner: Examiner, lenient: Examiner, forge: Forge, bundle: Json
) -> None:
    signature = base64.b64decode(found(bundle, "dsseEnvelope.signatures.0.sig"))
    bare = changed(bundle, STAMP, forge.timestamp(signature, certificate=False))
    assert lenient.examine(canonical(bare)).unauthenticated == ()
    assert reason(examiner, bare) == "unauthenticated"


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        (bytes.fromhex("020103"), bytes.fromhex("020104"), 1),  # the version of SignedData
        # the signature algorithm of SignerInfo, the last one in the token
        (bytes.fromhex("300a06082a8648ce3d040302"), bytes.fromhex("300a06082a8648ce3d040303"), -1),
    ],
)
def test_fields_of_a_timestamp_that_nothing_signs_are_fixed(
    examiner: Examiner, bundle: Json, old: bytes, new: bytes, count: int
) -> None:
    token = base64.b64decode(found(bundle, STAMP))
    start = token.index(old) if count > 0 else token.rindex(old)
    turned = token[:start] + new + token[start + len(old) :]
    assert reason(examiner, changed(bundle, STAMP, b64(turned))) == "unauthenticated"


@pytest.mark.parametrize("junk", [b"\0", b"0" * 40, b"\x30\x80" + b"\0" * 20])
def test_malformed_timestamp_is_an_input_error(lenient: Examiner, bundle: Json, junk: bytes) -> None:
    spoiled = changed(bundle, STAMP, base64.b64encode(junk).decode())
    assert reason(lenient, spoiled) == "timestamp-malformed"


# Row 11.
@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (f"{ENTRY}.inclusionProof", None, "proof-missing"),
        (f"{ENTRY}.inclusionProof.checkpoint", None, "proof-missing"),
        ("verificationMaterial.tlogEntries", [], "log-missing"),
        (f"{ENTRY}.inclusionProof.logIndex", "999999", "proof"),
        (f"{ENTRY}.inclusionProof.treeSize", "999999", "proof"),
        (f"{ENTRY}.inclusionProof.hashes", [], "proof"),
        (f"{ENTRY}.inclusionProof.hashes", ["AAAA"], "proof"),
        (CHECKPOINT, "log\n1\nAAAA\n", "checkpoint"),
        (CHECKPOINT, "\n\n", "checkpoint"),
    ],
)
def test_spoiled_proof_is_refused(
    lenient: Examiner, another: Json, path: str, value: Any, expected: str
) -> None:
    # ``another`` is not the first entry of its log: its proof has hashes to lose.
    assert found(another, f"{ENTRY}.inclusionProof.hashes")
    assert reason(lenient, changed(another, path, value)) == expected


@pytest.mark.parametrize("index", range(0, 32, 5))
def test_other_root_hash_or_sibling_is_refused(lenient: Examiner, another: Json, index: int) -> None:
    for path in (f"{ENTRY}.inclusionProof.rootHash", f"{ENTRY}.inclusionProof.hashes.0"):
        assert reason(lenient, changed(another, path, flipped(found(another, path), index))) == "proof"


def test_every_character_of_the_checkpoint_counts(examiner: Examiner, bundle: Json) -> None:
    text = found(bundle, CHECKPOINT)
    for index, character in enumerate(text):
        other = "A" if character != "A" else "B"
        spoiled = changed(bundle, CHECKPOINT, text[:index] + other + text[index + 1 :])
        assert reason(examiner, spoiled) == "checkpoint", index


def test_a_foreign_checkpoint_signature_is_noted_never_needed(
    lenient: Examiner, examiner: Examiner, bundle: Json
) -> None:
    text = found(bundle, CHECKPOINT) + "\u2014 witness.example AAAAAAAAAAAA\n"
    cosigned = changed(bundle, CHECKPOINT, text)
    assert "inclusionProof.checkpoint.signatures" in lenient.examine(canonical(cosigned)).unauthenticated
    assert reason(examiner, cosigned) == "unauthenticated"


def test_checkpoint_signed_by_another_log_is_refused(
    lenient: Examiner, other_forge: Forge, bundle: Json, statement: bytes
) -> None:
    other = other_forge.dsse(statement)
    assert reason(lenient, changed(bundle, CHECKPOINT, found(other, CHECKPOINT))) == "checkpoint"
    assert reason(lenient, changed(bundle, f"{ENTRY}.logId", found(other, f"{ENTRY}.logId"))) == "log-unknown"


def test_outer_index_has_to_be_the_proven_one(lenient: Examiner, examiner: Examiner, bundle: Json) -> None:
    spoiled = changed(bundle, f"{ENTRY}.logIndex", "777")
    facts = lenient.examine(canonical(spoiled))
    assert facts.unauthenticated == ("tlogEntries.logIndex",)
    assert facts.log_index != 777
    assert reason(examiner, spoiled) == "unauthenticated"


# Rows 12 and 13: closed intervals, at every part that has a window.
def _windows(document: Json, part: str) -> list[Json]:
    items = document[part]
    return [item["publicKey"] if part.endswith("logs") else item for item in items]


def _with_window(part: str, start: dt.datetime | None, end: dt.datetime | None) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        for item in _windows(document, part):
            if start is not None:
                item["validFor"]["start"] = start.isoformat().replace("+00:00", "Z")
            if end is not None:
                item["validFor"]["end"] = end.isoformat().replace("+00:00", "Z")

    return change


PARTS = [
    ("certificateAuthorities", "ca-window"),
    ("timestampAuthorities", "tsa-window"),
    ("tlogs", "log-window"),
    ("ctlogs", "ct-window"),
]


def _moments(bundle: Json, examiner: Examiner) -> tuple[dt.datetime, dt.datetime]:
    """First and last moment at which the windows matter: the signed time, and the certificate timestamp."""
    signed = examiner.examine(canonical(bundle)).time
    certificate = x509.load_der_x509_certificate(base64.b64decode(found(bundle, RAW)))
    promise = next(
        iter(
            certificate.extensions.get_extension_for_class(
                x509.PrecertificateSignedCertificateTimestamps
            ).value
        )
    ).timestamp.replace(tzinfo=dt.UTC)
    return min(signed, promise), max(signed, promise)


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_key_whose_window_closed_before_is_refused(
    forge: Forge, lenient: Examiner, bundle: Json, part: str, expected: str
) -> None:
    first, last = _moments(bundle, lenient)
    instant = dt.timedelta(milliseconds=1)
    for change in (_with_window(part, None, first - instant), _with_window(part, last + instant, None)):
        root = forge.root(canonical=False, change=change)
        assert reason(Examiner([root]), bundle) == expected


@pytest.mark.parametrize("part", [part for part, _ in PARTS])
def test_first_and_last_instant_of_a_window_count(
    forge: Forge, lenient: Examiner, bundle: Json, part: str
) -> None:
    first, last = _moments(bundle, lenient)
    if part in {"certificateAuthorities", "timestampAuthorities", "tlogs"}:
        first = last = lenient.examine(canonical(bundle)).time
    root = forge.root(canonical=False, change=_with_window(part, first, last))
    assert Examiner([root]).examine(canonical(bundle)).root == "embedded"


# Row 14, second half, and row 15 at the level of facts.
def test_root_certificate_in_the_bundle_is_refused(lenient: Examiner, forge: Forge, bundle: Json) -> None:
    document = json.loads(forge.root_bytes)
    root = document["certificateAuthorities"][0]["certChain"]["certificates"][-1]
    for version in ("0.1", "0.2"):
        spoiled = {
            **changed(bundle, "verificationMaterial.certificate", None),
            "mediaType": f"application/vnd.dev.sigstore.bundle+json;version={version}",
        }
        spoiled["verificationMaterial"]["x509CertificateChain"] = {
            "certificates": [found(bundle, "verificationMaterial.certificate"), root]
        }
        if version == "0.1":
            spoiled["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"] = {
                "signedEntryTimestamp": "AA=="
            }
        assert reason(lenient, spoiled) == "root-in-bundle"


def test_bundle_of_another_instance_is_refused(
    examiner: Examiner, other_forge: Forge, statement: bytes
) -> None:
    assert reason(examiner, other_forge.sign(statement)) == "untrusted-root"


def test_the_root_that_issued_the_certificate_is_the_one_reported(
    forge: Forge, other_forge: Forge, statement: bytes
) -> None:
    examiner = Examiner([forge.root(name="one"), other_forge.root(name="two")])
    assert examiner.examine(forge.sign(statement)).root == "one"
    assert examiner.examine(other_forge.sign(statement)).root == "two"


def test_certificate_of_a_rotated_log_key_is_refused(forge: Forge, other_forge: Forge, bundle: Json) -> None:
    theirs = json.loads(other_forge.root_bytes)

    def swap(document: Json) -> None:
        document["ctlogs"] = theirs["ctlogs"]

    assert reason(Examiner([forge.root(canonical=False, change=swap)]), bundle) == "sct"


# Row 17.
@pytest.mark.parametrize("kind", ["text/plain", "application/vnd.in-toto+JSON", "application/json", " "])
def test_payload_that_is_not_in_toto_is_refused(
    lenient: Examiner, forge: Forge, statement: bytes, kind: str
) -> None:
    assert reason(lenient, forge.dsse(statement, payload_type=kind)) == "payload-type"


@pytest.mark.parametrize(
    "kind",
    [
        "https://in-toto.io/Statement/v0.2",
        "https://in-toto.io/Statement/v2",
        "https://in-toto.io/Link/v1",
        "",
    ],
)
def test_statement_of_an_unknown_type_is_refused(
    examiner: Examiner, forge: Forge, statement: bytes, kind: str
) -> None:
    spoiled = digests.canonical_json({**json.loads(statement), "_type": kind})
    assert reason(examiner, forge.sign_payload(spoiled)) == "statement-type"


# Row 20.
@pytest.mark.parametrize(
    "subjects",
    [
        [],
        [{"name": "", "digest": {"sha256": "ab" * 32}}],
        [{"name": "a", "digest": {"sha512": "ab" * 64}}],
        [{"name": "a", "digest": {"sha256": "ab" * 32}}] * 2,
        {},
    ],
)
def test_statement_without_usable_subjects_is_refused(
    examiner: Examiner, forge: Forge, statement: bytes, subjects: Any
) -> None:
    spoiled = digests.canonical_json({**json.loads(statement), "subject": subjects})
    assert reason(examiner, forge.sign_payload(spoiled)) == "statement-subjects"


# Row 21.
def test_junk_is_refused_before_it_is_parsed(examiner: Examiner) -> None:
    assert reason(examiner, b"[" * (17 << 20)) == "json-too-large"
    assert reason(examiner, b"[" * 10_000 + b"]" * 10_000) == "json-too-deep"
    assert reason(examiner, b'{"a":' * 10_000) == "json-too-deep"
    assert reason(examiner, b'{"mediaType": 1, "mediaType": 2}') == "json-duplicate-key"
    assert reason(examiner, b'{"hashes":[' + b"0," * 200_000 + b"0]}") == "json-too-long"
    assert reason(examiner, b"\xff\xfe") == "json-syntax"
    assert reason(examiner, b"") == "json-syntax"
    assert reason(examiner, b"[]") == "json-type"


def test_duplicate_key_anywhere_is_refused(examiner: Examiner, bundle: Json) -> None:
    text = canonical(bundle).decode()
    for key in ('"logIndex":', '"payload":', '"sig":', '"rootHash":', '"mediaType":'):
        doubled = text.replace(key, f'{key}"x",{key}', 1).encode()
        assert reason(examiner, doubled) == "json-duplicate-key"


# Row 37.
@pytest.mark.parametrize("kind", ["alpine", "rekord", "hashedrekord2", "dsse"])
def test_log_entry_of_an_unknown_kind_is_refused(lenient: Examiner, bundle: Json, kind: str) -> None:
    body = json.loads(base64.b64decode(found(bundle, f"{ENTRY}.canonicalizedBody")))
    body["kind"] = kind
    spoiled = changed(bundle, f"{ENTRY}.kindVersion.kind", kind)
    text = base64.b64encode(digests.canonical_json(body)).decode()
    assert reason(lenient, changed(spoiled, f"{ENTRY}.canonicalizedBody", text)) == "log-kind"
    assert reason(lenient, spoiled) == "log-entry"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"kind":1}'])
def test_unreadable_log_entry_is_refused(lenient: Examiner, bundle: Json, body: bytes) -> None:
    text = base64.b64encode(body or b"\0").decode()
    assert reason(lenient, changed(bundle, f"{ENTRY}.canonicalizedBody", text)) == "log-entry"


# Row 44.
@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), RecursionError("x"), AssertionError(), OSError()]
)
def test_whatever_a_library_raises_is_a_refusal(
    forge: Forge, bundle: Json, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(log, "check_inclusion", fail)
    assert reason(Examiner([forge.root()]), bundle) == "library"


def test_sigstore_python_has_to_agree_where_the_root_asks_for_it(
    forge: Forge, bundle: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise AttributeError("of a library")

    monkeypatch.setattr(Verifier, "verify_dsse", fail)
    assert reason(Examiner([forge.root(second_opinion=True)]), bundle) == "second-opinion"
    Examiner([forge.root()]).examine(canonical(bundle))


# The canonical form.
def test_other_spellings_of_our_own_bundle_are_refused(
    examiner: Examiner, lenient: Examiner, bundle: Json
) -> None:
    spellings = [
        json.dumps(bundle).encode(),
        canonical(bundle) + b"\n",
        b" " + canonical(bundle),
        canonical({**bundle, "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.3"}),
        canonical(changed(bundle, "dsseEnvelope.signatures.0.keyid", "")),
        canonical(bundle).replace(b"/", b"\\/"),
    ]
    for data in spellings:
        assert reason(examiner, data) == "not-canonical"
        lenient.examine(data)


@pytest.mark.parametrize(
    "path",
    [
        "messageSignature",
        "verificationMaterial.publicKey",
        "verificationMaterial.x509CertificateChain",
        f"{ENTRY}.inclusionPromise",
        f"{ENTRY}.integratedTime",
    ],
)
@pytest.mark.parametrize("empty", [{}, "", []])
def test_empty_members_are_refused(examiner: Examiner, bundle: Json, path: str, empty: Any) -> None:
    assert reason(examiner, changed(bundle, path, empty)) in {"not-canonical", "bundle-shape"}


def test_key_id_is_a_hint_that_nothing_signs(examiner: Examiner, lenient: Examiner, bundle: Json) -> None:
    hinted = changed(bundle, "dsseEnvelope.signatures.0.keyid", "somebody")
    assert lenient.examine(canonical(hinted)).unauthenticated == ("dsseEnvelope.signatures.keyid",)
    assert reason(examiner, hinted) == "not-canonical"


def test_every_eleventh_byte_of_a_bundle_counts(examiner: Examiner, bundle: Json) -> None:
    data = canonical(bundle)
    for index in range(0, len(data), 11):
        spoiled = bytearray(data)
        spoiled[index] ^= 1
        with pytest.raises((RejectedError, InputError)) as caught:
            examiner.examine(bytes(spoiled))
        assert caught.value.reason not in {"library", "second-opinion"}, index


def test_a_malformed_timestamp_beside_a_good_one_spoils_the_bundle(lenient: Examiner, bundle: Json) -> None:
    path = "verificationMaterial.timestampVerificationData.rfc3161Timestamps"
    stamps = [*found(bundle, path), {"signedTimestamp": "MAMCAQA="}]
    assert reason(lenient, changed(bundle, path, stamps)) == "timestamp-malformed"


# What stands in a statement beside sha256, and in an envelope beside what is signed.
def test_digests_of_other_algorithms_are_reported_and_never_compared(
    examiner: Examiner, lenient: Examiner, forge: Forge, statement: bytes
) -> None:
    subject = {"name": "a", "digest": {"sha256": "ab" * 32, "sha512": "cd" * 64, "sha1": "ef" * 20}}
    made = forge.sign_payload(digests.canonical_json({**json.loads(statement), "subject": [subject]}))
    assert lenient.examine(made).unauthenticated == ("subject.digest.sha1", "subject.digest.sha512")
    assert reason(examiner, made) == "unauthenticated"


def test_digest_sets_that_disagree_are_refused(lenient: Examiner, forge: Forge, statement: bytes) -> None:
    subjects = [
        {"name": name, "digest": {"sha256": "ab" * 32, "sha512": text * 64}}
        for name, text in (("a", "cd"), ("b", "ce"))
    ]
    made = forge.sign_payload(digests.canonical_json({**json.loads(statement), "subject": subjects}))
    assert reason(lenient, made) == "statement-digest"


# Roots.
def test_a_root_that_sigstore_python_cannot_use_is_a_configuration_error(forge: Forge) -> None:
    def spoil(document: Json) -> None:
        document["tlogs"][0]["hashAlgorithm"] = "SHA2_0"

    root = forge.root(canonical=False, second_opinion=True, change=spoil)
    with pytest.raises(ConfigError) as caught:
        Examiner([root])
    assert caught.value.reason == "root-shape"
    Examiner([forge.root(canonical=False, change=spoil)])


def test_two_roots_with_one_authority_are_a_contradiction(forge: Forge, other_forge: Forge) -> None:
    with pytest.raises(ConfigError) as caught:
        Examiner([forge.root(), other_forge.root(name="other"), forge.root(name="again", canonical=False)])
    assert caught.value.reason == "policy-contradiction"
    theirs = json.loads(other_forge.root_bytes)["certificateAuthorities"][0]

    def add(document: Json) -> None:
        document["certificateAuthorities"].append(theirs)

    with pytest.raises(ConfigError) as caught:
        Examiner([other_forge.root(name="other"), forge.root(change=add)])
    assert caught.value.reason == "policy-contradiction"
    # One root may name its own authority several times, with windows one after the other.
    Examiner(
        [
            forge.root(
                change=lambda document: document["certificateAuthorities"].append(
                    document["certificateAuthorities"][0]
                )
            )
        ]
    )


# Facts are values.
def test_facts_go_through_json_and_back(forge: Forge, lenient: Examiner, bundle: Json, message: Json) -> None:
    for data, artifact in ((bundle, ""), (message, digests.sha256(b"artifact"))):
        facts = lenient.examine(canonical(data), artifact=artifact)
        again = Facts.from_json(json.loads(json.dumps(facts.as_json())))
        assert again == facts
        assert again.time == facts.time


@pytest.mark.parametrize(
    "change",
    [
        {"root": None},
        {"times": []},
        {"times": ["yesterday"]},
        {"times": [1]},
        {"times": ["2026-01-01T00:00:00"]},
        {"claims": {"1": 1}},
        {"unauthenticated": [1]},
        {"log_index": True},
        {"claims": [1]},
        {"claims": None},
        {"payload": "!"},
        {"payload": "AA=="},
        {"payload": "e30="},
        {"unauthenticated": None},
        {"unauthenticated": "x"},
        {"log_index": "1"},
        {"identity": 1},
        {"surprise": 1},
    ],
)
def test_what_are_no_facts_is_refused(lenient: Examiner, bundle: Json, change: Json) -> None:
    good = lenient.examine(canonical(bundle)).as_json()
    with pytest.raises(InputError):
        Facts.from_json({**good, **change})
    del good["issuer"]
    with pytest.raises(InputError) as caught:
        Facts.from_json(good)
    assert caught.value.reason == "facts"


def test_further_certificates_are_reported(
    lenient: Examiner, forge: Forge, bundle: Json, another: Json
) -> None:
    older = {
        **changed(bundle, "verificationMaterial.certificate", None),
        "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2",
    }
    chain = [found(item, "verificationMaterial.certificate") for item in (bundle, another)]
    older["verificationMaterial"]["x509CertificateChain"] = {"certificates": chain}
    assert lenient.examine(canonical(older)).unauthenticated == ("x509CertificateChain",)


def test_a_second_opinion_on_an_artifact(forge: Forge, message: Json) -> None:
    asked = Examiner([forge.root(canonical=False, second_opinion=True)])
    assert asked.examine(canonical(message), artifact=digests.sha256(b"artifact")).artifact_sha256


def test_a_second_opinion_is_about_the_same_certificate(forge: Forge) -> None:
    one, two = forge.certificate()[1], forge.certificate()[1]
    _SameCertificate(one).verify(one)
    with pytest.raises(VerificationError):
        _SameCertificate(one).verify(two)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["cms.check_signed", "decode_timestamp_response"])
def test_an_interrupt_is_no_refusal(
    forge: Forge, bundle: Json, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException], where: str
) -> None:
    def stop(*_arguments: object) -> None:
        raise interrupt

    monkeypatch.setattr(f"wheelmark.verify.timestamps.{where}", stop)
    with pytest.raises(interrupt):
        Examiner([forge.root()]).examine(canonical(bundle))
