"""Bundles that Wheelmark signs, judged by everybody: accepted as they are, refused where anything is wrong."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from instances.table import Table
from instances.verifiers import ARTIFACT, CLIENTS, PREDICATE_TYPE, Asking, Question, openssl
from presence import need_program
from wheelmark.attest.statement import Statement, Subject
from wheelmark.sign import embedded, open_signer
from wheelmark.trust.state import embedded_root_path

Json = dict[str, Any]
SECTION = "Bundles signed by Wheelmark"
KINDS = ("statement", "artifact")


@pytest.fixture(scope="module")
def bundles(home: Path) -> dict[str, bytes]:
    """One of each kind; not the log's first entries, so that the proof has a path."""
    subject = Subject(name="artifact", sha256=hashlib.sha256(ARTIFACT).hexdigest())
    statement = Statement(subjects=(subject,), predicate_type=PREDICATE_TYPE, predicate={"a": 1}).as_bytes()
    with open_signer(state=home) as signer:
        for _ in range(2):
            signer.sign(statement)
        return {"statement": signer.sign(statement), "artifact": signer.sign_artifact(ARTIFACT)}


def question(home: Path, bundle: bytes, **changes: Any) -> Question:
    asked = {
        "root": embedded_root_path(home).read_bytes(),
        "identity": embedded.RELEASE_IDENTITY,
        "issuer": embedded.ISSUER,
        **changes,
    }
    return Question(bundle=bundle, **asked)


def changed(bundle: bytes, change: Callable[[Json], None]) -> bytes:
    value = copy.deepcopy(json.loads(bundle))
    change(value)
    return json.dumps(value).encode()


def _flip(holder: Json, name: str, index: int) -> None:
    data = bytearray(base64.b64decode(holder[name]))
    data[index] ^= 1
    holder[name] = base64.b64encode(bytes(data)).decode()


def _entry(value: Json) -> Json:
    entry: Json = value["verificationMaterial"]["tlogEntries"][0]
    return entry


def _signature(value: Json) -> None:
    if "dsseEnvelope" in value:
        _flip(value["dsseEnvelope"]["signatures"][0], "sig", -1)
    else:
        _flip(value["messageSignature"], "signature", -1)


def _payload(value: Json) -> None:
    """The predicate, which nothing but the signature protects."""
    if "dsseEnvelope" in value:
        payload = base64.b64decode(value["dsseEnvelope"]["payload"]).replace(b'"a":1', b'"a":2')
        value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    else:
        _flip(value["messageSignature"]["messageDigest"], "digest", 0)


def _checkpoint(value: Json) -> None:
    checkpoint = _entry(value)["inclusionProof"]["checkpoint"]
    lines = checkpoint["envelope"].splitlines(keepends=True)
    dash, name, signature = lines[-1].split()
    data = bytearray(base64.b64decode(signature))
    data[-1] ^= 1
    lines[-1] = f"{dash} {name} {base64.b64encode(bytes(data)).decode()}\n"
    checkpoint["envelope"] = "".join(lines)


def _path(value: Json) -> None:
    hashes = _entry(value)["inclusionProof"]["hashes"]
    holder = {"hash": hashes[0]}
    _flip(holder, "hash", 0)
    hashes[0] = holder["hash"]


def _timestamp(value: Json) -> None:
    stamp = value["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"][0]
    _flip(stamp, "signedTimestamp", -1)


def _no_timestamp(value: Json) -> None:
    value["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"] = []


def _root_hash(value: Json) -> None:
    _flip(_entry(value)["inclusionProof"], "rootHash", 0)


def _proof_index(value: Json) -> None:
    proof = _entry(value)["inclusionProof"]
    proof["logIndex"] = str(int(proof["logIndex"]) - 1)


def _body(value: Json) -> None:
    """The digest in the logged entry."""
    entry = _entry(value)
    body = json.loads(base64.b64decode(entry["canonicalizedBody"]))
    _flip(body["spec"]["hashedRekordV002"]["data"], "digest", 0)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    entry["canonicalizedBody"] = base64.b64encode(text.encode()).decode()


def _outer_index(value: Json) -> None:
    _entry(value)["logIndex"] = "777"


WRONG: dict[str, dict[str, Any]] = {
    "another artifact": {"artifact": ARTIFACT + b"!"},
    "another identity": {"identity": embedded.RELEASE_IDENTITY + "x"},
    "another issuer": {"issuer": "https://issuer.invalid"},
}
CHANGES: dict[str, Callable[[Json], None]] = {
    "signature changed": _signature,
    "signed content changed": _payload,
    "certificate changed": lambda value: _flip(value["verificationMaterial"]["certificate"], "rawBytes", -1),
    "log's signature changed": _checkpoint,
    "inclusion path changed": _path,
    "no log entry": lambda value: value["verificationMaterial"].update(tlogEntries=[]),
    "timestamp changed": _timestamp,
    "no timestamp": _no_timestamp,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", CLIENTS)
class TestEverybody:
    def test_accepts(
        self, client: str, kind: str, bundles: dict[str, bytes], home: Path, asking: Asking, table: Table
    ) -> None:
        said = asking.ask(client, question(home, bundles[kind]))
        assert said.accepted, said.text
        table.add(SECTION, f"{kind}: as signed", client, "accepts")

    @pytest.mark.parametrize("case", WRONG)
    def test_refuses_what_was_asked_for_otherwise(
        self,
        client: str,
        kind: str,
        case: str,
        bundles: dict[str, bytes],
        home: Path,
        asking: Asking,
        table: Table,
    ) -> None:
        assert not asking.ask(client, question(home, bundles[kind], **WRONG[case])).accepted
        table.add(SECTION, f"{kind}: {case}", client, "refuses")

    def test_refuses_another_root(
        self,
        client: str,
        kind: str,
        bundles: dict[str, bytes],
        home: Path,
        stranger: Path,
        asking: Asking,
        table: Table,
    ) -> None:
        root = embedded_root_path(stranger).read_bytes()
        assert not asking.ask(client, question(home, bundles[kind], root=root)).accepted
        table.add(SECTION, f"{kind}: another root", client, "refuses")

    @pytest.mark.parametrize("case", CHANGES)
    def test_refuses_changes(
        self,
        client: str,
        kind: str,
        case: str,
        bundles: dict[str, bytes],
        home: Path,
        asking: Asking,
        table: Table,
    ) -> None:
        bundle = changed(bundles[kind], CHANGES[case])
        assert not asking.ask(client, question(home, bundle)).accepted
        table.add(SECTION, f"{kind}: {case}", client, "refuses")


BLIND: dict[str, tuple[Callable[[Json], None], tuple[str, ...]]] = {
    "root hash of the proof": (_root_hash, ("cosign", "sigstore-go", "sigstore-js")),
    "index in the proof": (_proof_index, ("cosign", "sigstore-go")),
    "index of the entry": (_outer_index, ("sigstore-js", "sigstore-python")),
    "digest in the log entry": (_body, ("cosign", "sigstore-go")),
}
"""Changes, and who does not see them. None lets other content through; a report that repeats the field is wrong."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", BLIND)
def test_blind_spots_are_where_they_were(
    case: str,
    client: str,
    kind: str,
    bundles: dict[str, bytes],
    home: Path,
    asking: Asking,
    table: Table,
) -> None:
    change, blind = BLIND[case]
    said = asking.ask(client, question(home, changed(bundles[kind], change)))
    answer = "accepts" if said.accepted else "refuses"
    table.add("Changes that not everybody sees", f"{kind}: {case}", client, answer)
    assert said.accepted == (client in blind), said.text
    assert client != "wheelmark" or not said.accepted


class TestOpenSSL:
    @staticmethod
    def _chain(home: Path) -> list[bytes]:
        found = embedded.show(home).current.public.timestamping
        return [certificate.public_bytes(Encoding.PEM) for certificate in found]

    @pytest.mark.parametrize("kind", KINDS)
    def test_timestamps(
        self, kind: str, bundles: dict[str, bytes], home: Path, stranger: Path, tmp_path: Path, table: Table
    ) -> None:
        need_program("openssl")
        asked = question(home, bundles[kind])
        said = openssl(asked, self._chain(home), tmp_path)
        assert said.accepted, said.text
        table.add(SECTION, f"{kind}: as signed", "openssl", "accepts")
        changes = {"signature changed": _signature, "timestamp changed": _timestamp}
        for case, change in changes.items():
            wrong = question(home, changed(bundles[kind], change))
            assert not openssl(wrong, self._chain(home), tmp_path).accepted
            table.add(SECTION, f"{kind}: {case}", "openssl", "refuses")
        assert not openssl(asked, self._chain(stranger), tmp_path).accepted
        table.add(SECTION, f"{kind}: another root", "openssl", "refuses")
