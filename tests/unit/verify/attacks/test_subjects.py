"""Rows 1 to 3 and 17 to 20: what a signature is about, and what it says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from asking import Expect, Stand, ask
from forging import b64, canonical, changed, flipped, found
from releasing import part
from rows import report, row
from wheelmark import digests
from wheelmark.attest.predicates import SBOM, TEST_RESULT, VULNS
from wheelmark.attest.statement import Subject
from wheelmark.verify.facts import Examiner

OTHER = {
    "another wheel": {"demo_kernels/evil.py": b"import os\n"},
    "one byte more": {"demo_kernels/__init__.py": b"\n"},
}


@row(1, "subject-digest")
@pytest.mark.parametrize("kind", OTHER)
def test_other_bytes_under_the_signed_name(stand: Stand, expect: Expect, kind: str) -> None:
    wheel = part(files=OTHER[kind]).wheel
    expect(stand.ask(stand.bundle(), wheel=wheel), "subject-digest", also=("predicate-missing",))


@row(1, "subject-digest")
@pytest.mark.parametrize("digest", ["0" * 64, "f" * 64, "other case", "last digit"])
def test_a_statement_with_another_digest(stand: Stand, expect: Expect, digest: str) -> None:
    own = stand.part.sha256
    digest = {"other case": own[::-1], "last digit": own[:-1] + ("0" if own[-1] != "0" else "1")}.get(
        digest, digest
    )
    signed = stand.forge.sign(stand.statement(Subject(name=stand.part.name, sha256=digest)))
    expect(stand.ask(signed), "subject-digest", also=("predicate-missing",))


@row(1, "subject-digest")
def test_the_command_says_so_too(stand: Stand, expect: Expect) -> None:
    wheel = part(files=OTHER["another wheel"]).wheel
    expect(stand.command(stand.bundle(), wheel=wheel), "subject-digest", also=("predicate-missing",))


@report("sigstore/sigstore-rs#596", "subject-digest")
@row(1, "subject-digest")
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_every_subject_at_every_position(stand: Stand, expect: Expect, place: int) -> None:
    others = [Subject(name=f"other-{number}.whl", sha256=f"{number}" * 64) for number in range(3)]
    own = Subject(name=stand.part.name, sha256=stand.part.sha256)
    wrong = Subject(name=stand.part.name, sha256="0" * 64)
    expect.accepted(stand.ask(stand.forge.sign(stand.statement(*others[:place], own, *others[place:]))))
    signed = stand.forge.sign(stand.statement(*others[:place], wrong, *others[place:]))
    expect(stand.ask(signed), "subject-digest", also=("predicate-missing",))


@row(2, "message-digest")
@pytest.mark.parametrize("index", [0, 15, 31])
def test_a_digest_of_another_file_in_the_bundle(
    stand: Stand, expect: Expect, lenient: Examiner, index: int
) -> None:
    wheel = stand.part.wheel
    sha256, path = digests.sha256(wheel), "messageSignature.messageDigest.digest"
    message = stand.forge.message(wheel)
    expect.accepted(ask(lambda: lenient.examine(canonical(message), artifact=sha256)))
    spoiled = canonical(changed(message, path, flipped(found(message, path), index)))
    expect(ask(lambda: lenient.examine(spoiled, artifact=sha256)), "message-digest")


@row(2, "message-digest", "signature")
@row(3, "message-digest", "signature")
def test_a_signature_over_another_file(stand: Stand, expect: Expect) -> None:
    other = part(files=OTHER["another wheel"])
    message = stand.forge.message(other.wheel)
    answer = stand.ask(message)
    expect(answer, "message-digest", also=("no-bundle", "predicate-missing"))
    # It states this file's digest now; what was signed is still the other's.
    claimed = changed(message, "messageSignature.messageDigest.digest", b64(bytes.fromhex(stand.part.sha256)))
    expect(stand.ask(claimed), "signature", also=("no-bundle", "predicate-missing"))


@row(3, "subject-digest")
def test_the_bundle_of_another_wheel(stand: Stand, expect: Expect) -> None:
    other = part("cuda-sm90", "sm90")
    signed = stand.forge.sign(stand.statement(Subject(name=other.name, sha256=other.sha256)))
    expect(stand.ask(signed), "subject-digest", also=("predicate-missing",))


ENTRY = "verificationMaterial.tlogEntries.0"


@report("sigstore/cosign#4623", "log-entry", "proof")
@row(3, "log-entry", "proof")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        (ENTRY, "log-entry"),
        (f"{ENTRY}.canonicalizedBody", "log-entry"),
        (f"{ENTRY}.inclusionProof", "proof"),
    ],
)
def test_the_log_entry_of_another_bundle(stand: Stand, expect: Expect, path: str, code: str) -> None:
    # By the same signer, over the same statement: nothing but the entry itself differs.
    one, two = stand.bundle(), stand.bundle()
    expect(stand.ask(changed(one, path, found(two, path))), code, also=("no-bundle",))


@report("sigstore/cosign#4623", "log-entry")
@row(3, "log-entry")
@pytest.mark.parametrize("member", ["data", "signature", "apiVersion", "kind"])
def test_an_entry_that_says_something_else(stand: Stand, expect: Expect, member: str) -> None:

    bundle = stand.bundle()
    body = json.loads(base64.b64decode(found(bundle, f"{ENTRY}.canonicalizedBody")))
    holder = body if member in body else body["spec"]["hashedRekordV002"]
    holder[member] = {} if member in {"data", "signature"} else "0.0.9"
    spoiled = changed(bundle, f"{ENTRY}.canonicalizedBody", b64(digests.canonical_json(body)))
    expect(stand.ask(spoiled), "log-entry", also=("no-bundle",))


@report("sigstore/cosign#4801", "payload-type", "statement-type", "json-syntax")
@row(17, "payload-type")
@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "text/plain",
        "application/vnd.in-toto+json ",
        "application/vnd.in-toto",
        "APPLICATION/VND.IN-TOTO+JSON",
    ],
)
def test_a_payload_of_another_type(stand: Stand, expect: Expect, kind: str) -> None:
    expect(stand.ask(stand.bundle(payload_type=kind)), "payload-type", also=("no-bundle",))


@report("sigstore/cosign#4801", "statement-type")
@row(17, "statement-type")
@pytest.mark.parametrize(
    "kind",
    [
        "https://in-toto.io/Statement/v0.2",
        "https://in-toto.io/Statement/v2",
        "",
        None,
        1,
        ["https://in-toto.io/Statement/v1"],
    ],
)
def test_a_statement_of_another_type(stand: Stand, expect: Expect, kind: Any) -> None:
    value = {**json.loads(stand.statement()), "_type": kind}
    signed = stand.forge.sign_payload(json.dumps(value).encode())
    expect(stand.ask(signed), "statement-type", also=("no-bundle",))


@report("sigstore/cosign#4801", "json-syntax", "json-type", "statement-fields")
@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\xff", "json-syntax"),
        (b"{", "json-syntax"),
        (b"[]", "json-type"),
        (b"null", "json-type"),
        (b'{"_type":"https://in-toto.io/Statement/v1"}', "statement-fields"),
    ],
)
def test_a_malformed_payload_is_never_ok(stand: Stand, expect: Expect, payload: bytes, code: str) -> None:
    expect(stand.ask(stand.forge.sign_payload(payload)), code, also=("no-bundle",))
    expect(stand.command(stand.forge.sign_payload(payload)), code, also=("no-bundle",))


@report("sigstore/cosign#4801", "predicate-missing")
@row(18, "predicate-missing")
@pytest.mark.parametrize(
    "kind", [SBOM, TEST_RESULT, VULNS, "https://slsa.dev/provenance/v0.2", "https://slsa.dev/provenance/v1/"]
)
def test_another_predicate_than_is_asked_for(stand: Stand, expect: Expect, kind: str) -> None:
    signed = stand.forge.sign(stand.statement(predicate_type=kind, predicate={}))
    allowed = ("sbom-format", "sbom-subject", "sbom-field", "sbom-predicate", "test-result", "vulns")
    answer = stand.ask(signed)
    if answer.reasons == {"predicate-missing"}:
        expect(answer, "predicate-missing")
    else:  # what is malformed besides is told too
        assert answer.reasons <= {"predicate-missing", *allowed}
        expect(stand.ask(stand.forge.sign(stand.statement(predicate_type=f"{kind}#x"))), "predicate-missing")


@row(18, "predicate-missing")
def test_the_command_says_what_is_missing(stand: Stand, expect: Expect) -> None:
    signed = stand.forge.sign(stand.statement(predicate_type="https://example.org/claim/v1"))
    expect(stand.command(signed), "predicate-missing")


@row(19, "subject-name")
@pytest.mark.parametrize(
    "name", ["other.whl", "wheels/{}", "./{}", "{} ", "{}.sig", "DEMO_KERNELS.whl", "/{}"]
)
def test_the_right_digest_under_another_name(stand: Stand, expect: Expect, name: str) -> None:
    subject = Subject(name=name.format(stand.part.name), sha256=stand.part.sha256)
    expect(stand.ask(stand.forge.sign(stand.statement(subject))), "subject-name", also=("predicate-missing",))


@row(19, "subject-name")
def test_a_wheel_renamed_to_another_target(stand: Stand, expect: Expect) -> None:
    wheel = part("cuda-sm90", "sm90")
    bundle = stand.forge.sign(stand.statement(Subject(name=wheel.name, sha256=wheel.sha256)))
    renamed = stand.ask(bundle, wheel=wheel.wheel)
    assert "wheel-name" in renamed.reasons  # its own METADATA says another version
    expect(renamed, "subject-name", also=("wheel-name", "wheel-tags", "predicate-missing"))


@row(20, "statement-subjects")
@pytest.mark.parametrize("subjects", [[], None, {}, "demo", [{}]])
def test_no_subject_that_could_be_compared(stand: Stand, expect: Expect, subjects: Any) -> None:
    value = {**json.loads(stand.statement()), "subject": subjects}
    answer = stand.ask(stand.forge.sign_payload(json.dumps(value).encode()))
    expect(answer, "statement-subjects", also=("no-bundle",))


@row(20, "statement-fields", "statement-subjects")
def test_a_statement_that_has_no_member_for_subjects(stand: Stand, expect: Expect) -> None:
    value = json.loads(stand.statement())
    del value["subject"]
    answer = stand.ask(stand.forge.sign_payload(json.dumps(value).encode()))
    expect(answer, "statement-fields", also=("no-bundle",))
    value["subject"] = [{"name": stand.part.name, "digest": {"sha256": stand.part.sha256}}] * 2
    answer = stand.ask(stand.forge.sign_payload(json.dumps(value).encode()))
    expect(answer, "statement-subjects", also=("no-bundle",))
