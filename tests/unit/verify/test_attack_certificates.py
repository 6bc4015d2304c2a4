"""Certificates that the domain's own authority signed and that must not count; everything else of the bundle is right."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from forging import Forge, b64, canonical
from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE, pre_authentication_encoding
from wheelmark.errors import WheelmarkError
from wheelmark.sign import embedded
from wheelmark.verify.facts import Examiner

ARC = "1.3.6.1.4.1.57264.1."
URI = x509.UniformResourceIdentifier(embedded.RELEASE_IDENTITY)
Extra = tuple[x509.ExtensionType, bool]


def der_text(text: str) -> bytes:
    return b"\x0c" + bytes([len(text)]) + text.encode()


def extension(arc: str, value: bytes) -> Extra:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(arc), value), False


ISSUER = extension(f"{ARC}8", der_text(embedded.ISSUER))
SIGNING: Extra = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)


def usage(**changes: bool) -> Extra:
    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    )
    values = {name: name == "digital_signature" for name in names.split()} | changes
    return x509.KeyUsage(**values), True


def names(*found: x509.GeneralName) -> Extra:
    return x509.SubjectAlternativeName(found), True


def bundle(
    forge: Forge,
    statement: bytes,
    extensions: Sequence[Extra],
    *,
    promises: int = 1,
    ends: dt.timedelta = dt.timedelta(minutes=10),
) -> bytes:
    """A bundle by a certificate with these extensions, logged and timestamped as it should be."""
    authority = forge._instance._authority
    key = ec.generate_private_key(ec.SECP256R1())
    start = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority._certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + ends)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority._key.public_key()), critical=False
        )
    )
    for value, critical in extensions:
        builder = builder.add_extension(value, critical=critical)
    for _ in range(promises):
        body = builder.sign(authority._key, hashes.SHA384()).tbs_certificate_bytes
        promise = authority._log.promise(body, authority._key.public_key())
        builder = builder.add_extension(promise, critical=False)
    certificate = builder.sign(authority._key, hashes.SHA384())
    pae = pre_authentication_encoding(PAYLOAD_TYPE, statement)
    signature = key.sign(pae, ec.ECDSA(hashes.SHA256()))
    content = {
        "dsseEnvelope": {
            "payload": b64(statement),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": b64(signature)}],
        }
    }
    return canonical(forge._bundle(certificate, bytes.fromhex(digests.sha256(pae)), signature, content))


GOOD: tuple[Extra, ...] = (usage(), SIGNING, names(URI), ISSUER)


def test_the_certificate_that_the_others_are_spoiled_from(
    forge: Forge, examiner: Examiner, statement: bytes
) -> None:
    facts = examiner.examine(bundle(forge, statement, GOOD))
    assert (facts.identity, facts.issuer) == (embedded.RELEASE_IDENTITY, embedded.ISSUER)


def without(kind: type[x509.ExtensionType]) -> list[Extra]:
    return [item for item in GOOD if not isinstance(item[0], kind)]


CASES: dict[str, tuple[Callable[[], Sequence[Extra]], set[str]]] = {
    "another authority": (
        lambda: [
            *without(x509.KeyUsage),
            usage(key_cert_sign=True),
            (x509.BasicConstraints(ca=True, path_length=None), True),
        ],
        {"chain"},
    ),
    "says CA without the usage": (
        lambda: [*GOOD, (x509.BasicConstraints(ca=True, path_length=None), True)],
        {"chain"},
    ),
    "unknown critical extension": (
        lambda: [*GOOD, (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)],
        {"chain"},
    ),
    "no purpose": (lambda: without(x509.ExtendedKeyUsage), {"certificate-usage"}),
    "for servers": (
        lambda: [
            *without(x509.ExtendedKeyUsage),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        ],
        {"certificate-usage"},
    ),
    "any purpose": (
        lambda: [
            *without(x509.ExtendedKeyUsage),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]), False),
        ],
        {"certificate-usage"},
    ),
    "no key usage": (lambda: without(x509.KeyUsage), {"certificate-usage", "chain"}),
    "key for agreement": (
        lambda: [*without(x509.KeyUsage), usage(digital_signature=False, key_agreement=True)],
        {"certificate-usage", "chain"},
    ),
    "no name": (lambda: without(x509.SubjectAlternativeName), {"certificate-identity", "chain"}),
    "two names": (
        lambda: [
            *without(x509.SubjectAlternativeName),
            names(URI, x509.UniformResourceIdentifier("https://evil.example/")),
        ],
        {"certificate-identity"},
    ),
    "a name of another kind": (
        lambda: [*without(x509.SubjectAlternativeName), names(x509.DNSName("embedded.invalid"))],
        {"certificate-identity", "chain"},
    ),
    "a directory name": (
        lambda: [
            *without(x509.SubjectAlternativeName),
            names(x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]))),
        ],
        {"certificate-identity", "chain"},
    ),
    "no issuer": (lambda: GOOD[:-1], {"certificate-identity"}),
    "two issuers": (lambda: [*GOOD, extension(f"{ARC}1", b"https://evil.example")], {"certificate-identity"}),
    "issuer that is no text": (
        lambda: [*GOOD[:-1], extension(f"{ARC}8", embedded.ISSUER.encode())],
        {"certificate-identity"},
    ),
    "issuer with bytes behind it": (
        lambda: [*GOOD[:-1], extension(f"{ARC}8", der_text(embedded.ISSUER) + b"\0")],
        {"certificate-identity"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_spoiled_certificates(
    forge: Forge, examiner: Examiner, lenient: Examiner, statement: bytes, case: str
) -> None:
    make, expected = CASES[case]
    data = bundle(forge, statement, make())
    for reader in (examiner, lenient):
        with pytest.raises(WheelmarkError) as caught:
            reader.examine(data)
        assert caught.value.reason in expected


def test_certificate_without_a_promise(forge: Forge, lenient: Examiner, statement: bytes) -> None:
    with pytest.raises(WheelmarkError) as caught:
        lenient.examine(bundle(forge, statement, GOOD, promises=0))
    assert caught.value.reason == "sct"


def test_certificate_that_was_over_before_the_timestamp(
    forge: Forge, lenient: Examiner, statement: bytes
) -> None:
    with pytest.raises(WheelmarkError) as caught:
        lenient.examine(bundle(forge, statement, GOOD, ends=dt.timedelta(0)))
    assert caught.value.reason == "certificate-expired"
