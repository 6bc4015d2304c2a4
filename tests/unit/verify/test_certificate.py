"""Certificates made one by one: chain, usage, certificate timestamps, and whom a certificate names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from forging import Forge
from wheelmark.errors import InputError, RejectedError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.trust.roots import Authority, Window
from wheelmark.verify import certificate as certificates
from wheelmark.verify import der

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TIME = START + dt.timedelta(minutes=5)
END = START + dt.timedelta(minutes=10)
KEY = ec.generate_private_key(ec.SECP256R1())
CA_KEY = ec.generate_private_key(ec.SECP256R1())
OPEN = Window(start=START - dt.timedelta(days=1))
ISSUER = (certificates.FULCIO + "8", b"\x0c\x03abc")
URI = x509.UniformResourceIdentifier("https://example.org/release")


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def usage(*, authority: bool, signs: bool = True) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs and not authority,
        content_commitment=False,
        key_encipherment=not signs and not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def authority_certificate() -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(name("ca"))
        .issuer_name(name("ca"))
        .public_key(CA_KEY.public_key())
        .serial_number(1)
        .not_valid_before(START - dt.timedelta(days=1))
        .not_valid_after(START + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(CA_KEY.public_key()), critical=False)
        .sign(CA_KEY, hashes.SHA256())
    )


CA = authority_certificate()


def leaf(
    *,
    names: Sequence[x509.GeneralName] = (URI,),
    extensions: Sequence[tuple[str, bytes]] = (ISSUER,),
    purposes: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.CODE_SIGNING,),
    signs: bool = True,
    key: Any = KEY,
    signed_by: ec.EllipticCurvePrivateKey = CA_KEY,
    names_key: bool = True,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(name("ca"))
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_before(START)
        .not_valid_after(END)
        .add_extension(usage(authority=False, signs=signs), critical=True)
    )
    if names_key:
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(CA_KEY.public_key()), critical=False
        )
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    for oid, value in extensions:
        builder = builder.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=False
        )
    return builder.sign(signed_by, hashes.SHA256())


def authority(window: Window = OPEN) -> Authority:
    return Authority(certificates=(CA,), window=window)


def chain_reason(certificate: x509.Certificate, time: dt.datetime = TIME, window: Window = OPEN) -> str:
    with pytest.raises(RejectedError) as caught:
        certificates.check_chain(certificate, [authority(window)], [time])
    return caught.value.reason


def test_a_good_certificate_chains_at_both_ends_of_its_validity() -> None:
    for time in (START, TIME, END):
        assert certificates.check_chain(leaf(), [authority()], [time]) == CA
    assert certificates.issued_by(leaf(), [authority()]) == (authority(),)


# Row 8.
@pytest.mark.parametrize(
    "time", [START - dt.timedelta(seconds=1), END + dt.timedelta(seconds=1), END + dt.timedelta(days=400)]
)
def test_signed_outside_the_certificate_is_refused(time: dt.datetime) -> None:
    assert chain_reason(leaf(), time) == "certificate-expired"


# Row 12.
def test_authority_that_was_not_trusted_then_is_refused() -> None:
    closed = Window(start=START - dt.timedelta(days=1), end=TIME - dt.timedelta(microseconds=1))
    assert chain_reason(leaf(), window=closed) == "ca-window"
    later = Window(start=TIME + dt.timedelta(microseconds=1))
    assert chain_reason(leaf(), window=later) == "ca-window"


def test_what_is_not_for_code_signing_is_refused() -> None:
    assert chain_reason(leaf(purposes=[ExtendedKeyUsageOID.SERVER_AUTH])) == "certificate-usage"
    assert chain_reason(leaf(purposes=[])) == "certificate-usage"
    assert chain_reason(leaf(signs=False)) == "certificate-usage"


def test_certificate_by_another_key_under_the_same_name_is_refused() -> None:
    stranger = leaf(signed_by=ec.generate_private_key(ec.SECP256R1()))
    assert chain_reason(stranger) == "chain"
    # Without the issuer's key id, only the signature can tell which of several of one name it is.
    nameless = leaf(signed_by=ec.generate_private_key(ec.SECP256R1()), names_key=False)
    assert certificates.issued_by(nameless, [authority()]) == ()
    assert certificates.issued_by(leaf(names_key=False), [authority()]) == (authority(),)


def test_certificate_without_a_timestamp_is_refused(forge: Forge) -> None:
    with pytest.raises(RejectedError) as caught:
        certificates.check_transparency(leaf(), CA, forge.root().material.ct_logs, [TIME])
    assert caught.value.reason == "sct"


def test_timestamp_of_another_certificate_is_refused(forge: Forge) -> None:
    _, certificate = forge.certificate()
    logs = forge.root().material.ct_logs
    issuer = forge.root().material.authorities[0].certificates[0]
    now = dt.datetime.now(dt.UTC)
    certificates.check_transparency(certificate, issuer, logs, [now])
    # The promise names the issuer's key: under another issuer it is another promise.
    with pytest.raises(RejectedError) as caught:
        certificates.check_transparency(certificate, CA, logs, [now])
    assert caught.value.reason == "sct"
    extension = certificate.extensions.get_extension_for_class(x509.PrecertificateSignedCertificateTimestamps)
    raw = extension.value.public_bytes()
    moved = leaf(extensions=[ISSUER, (extension.oid.dotted_string, raw)])
    with pytest.raises(RejectedError) as caught:
        certificates.check_transparency(moved, issuer, logs, [now])
    assert caught.value.reason == "sct"


def sct_extension(certificate: x509.Certificate) -> bytes:
    """The value of a certificate's list of timestamps (RFC 6962, section 3.3), without its DER wrapping."""
    extension = certificate.extensions.get_extension_for_class(x509.PrecertificateSignedCertificateTimestamps)
    (wrapped,) = der.elements(extension.value.public_bytes())
    return wrapped.content


def moved(listed: bytes) -> x509.Certificate:
    """A certificate with such a list."""
    oid = x509.PrecertificateSignedCertificateTimestamps.oid.dotted_string
    return leaf(extensions=[ISSUER, (oid, der.encode(der.OCTET_STRING, listed))])


def test_two_timestamps_or_one_of_another_kind_are_refused(forge: Forge) -> None:
    logs = forge.root().material.ct_logs
    issuer = forge.root().material.authorities[0].certificates[0]
    listed = sct_extension(forge.certificate()[1])
    one = listed[2:]
    sha512 = bytearray(one)
    # After two octets of length: version, log id, time, no extensions; then the hash of the signature: 4 is SHA-256.
    place = 2 + 1 + 32 + 8 + 2
    assert sha512[place] == 4
    sha512[place] = 6
    for content, why in (
        (one + one, "2 certificate timestamps"),
        (bytes(sha512), "of a kind not known"),
        (one[:-1], "no readable"),
    ):
        with pytest.raises(RejectedError, match=why) as caught:
            certificates.check_transparency(
                moved(len(content).to_bytes(2, "big") + content), issuer, logs, [TIME]
            )
        assert caught.value.reason == "sct"


# Several signed times, and several chains.
def test_one_chain_is_verified_once_for_all_times_in_which_it_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dt.datetime] = []
    verify = certificates._verify

    def counting(certificate: Any, trusted: Any, given: Any, time: dt.datetime) -> Any:
        asked.append(time)
        return verify(certificate, trusted, given, time)

    monkeypatch.setattr(certificates, "_verify", counting)
    assert certificates.check_chain(leaf(), [authority()], [START, TIME, END]) == CA
    assert asked == [START]
    early, late = (
        authority(Window(start=START - dt.timedelta(days=1), end=TIME)),
        authority(Window(start=END)),
    )
    certificates.check_chain(leaf(), [early, late], [START, TIME, END])
    assert asked == [START, START, END]
    with pytest.raises(RejectedError) as caught:
        certificates.check_chain(leaf(), [early], [START, END])
    assert caught.value.reason == "ca-window"


MIDDLE_KEY = ec.generate_private_key(ec.SECP256R1())


def middle(
    *, names: x509.NameConstraints | None = None, end: dt.datetime = START + dt.timedelta(days=1)
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name("middle"))
        .issuer_name(name("top"))
        .public_key(MIDDLE_KEY.public_key())
        .serial_number(5)
        .not_valid_before(START - dt.timedelta(days=1))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(MIDDLE_KEY.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(CA_KEY.public_key()), critical=False
        )
    )
    if names is not None:
        builder = builder.add_extension(names, critical=True)
    return builder.sign(CA_KEY, hashes.SHA256())


def top() -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(name("top"))
        .issuer_name(name("top"))
        .public_key(CA_KEY.public_key())
        .serial_number(6)
        .not_valid_before(START - dt.timedelta(days=9))
        .not_valid_after(START + dt.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(CA_KEY.public_key()), critical=False)
        .sign(CA_KEY, hashes.SHA256())
    )


def below(uri: str = "https://example.org/release", signed_by: Any = MIDDLE_KEY) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(name("middle"))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(END)
        .add_extension(usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(MIDDLE_KEY.public_key()), critical=False
        )
        .sign(signed_by, hashes.SHA256())
    )


def test_what_stands_above_a_certificate_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted: list[x509.Certificate] = []
    verify = certificates._verify

    def counting(certificate: Any, anchor: x509.Certificate, given: Any, time: Any) -> Any:
        trusted.append(anchor)
        return verify(certificate, anchor, given, time)

    monkeypatch.setattr(certificates, "_verify", counting)
    issuing, root = middle(), top()
    whole = Authority(certificates=(issuing, root), window=OPEN)
    above: certificates.Above = {}
    for _ in range(3):
        assert certificates.check_chain(below(), [whole], [TIME], above) == issuing
    assert trusted == [root, issuing, issuing]
    assert above == {whole: (issuing, root)}
    # The link that is new is verified each time, and what stands above has to be valid at each time.
    with pytest.raises(RejectedError) as caught:
        certificates.check_chain(below(signed_by=KEY), [whole], [TIME], above)
    assert caught.value.reason == "chain"
    short = middle(end=START + dt.timedelta(minutes=3))
    narrow = Authority(certificates=(short, root), window=OPEN)
    certificates.check_chain(below(), [narrow], [START], above)
    with pytest.raises(RejectedError) as caught:
        certificates.check_chain(below(), [narrow], [TIME], above)
    assert caught.value.reason == "chain"


def test_a_chain_with_constraints_on_names_is_verified_whole_each_time() -> None:
    names = x509.NameConstraints(permitted_subtrees=[x509.DNSName("example.org")], excluded_subtrees=None)
    constrained = Authority(certificates=(middle(names=names), top()), window=OPEN)
    above: certificates.Above = {}
    for _ in range(2):
        certificates.check_chain(below(), [constrained], [TIME], above)
    assert above == {}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_refusal(monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]) -> None:
    def stop(*_arguments: object) -> None:
        raise interrupt

    monkeypatch.setattr(certificates, "_verify", stop)
    with pytest.raises(interrupt):
        certificates.check_chain(leaf(), [authority()], [TIME])


def test_extensions_that_cannot_be_read_name_nobody() -> None:
    twice = leaf(extensions=[ISSUER, (x509.SubjectKeyIdentifier.oid.dotted_string, b"junk")])
    assert certificates._key_id(twice, x509.SubjectKeyIdentifier) is None


def identity_reason(certificate: x509.Certificate) -> str:
    with pytest.raises(RejectedError) as caught:
        certificates.read_signer(certificate)
    return caught.value.reason


def test_whom_a_certificate_names(forge: Forge) -> None:
    signer = certificates.read_signer(leaf())
    assert (signer.identity, signer.issuer) == ("https://example.org/release", "abc")
    mail = certificates.read_signer(leaf(names=[x509.RFC822Name("a@example.org")]))
    assert mail.identity == "a@example.org"
    other = x509.OtherName(x509.ObjectIdentifier(certificates.FULCIO + "7"), b"\x0c\x04user")
    assert certificates.read_signer(leaf(names=[other])).identity == "user"
    old = certificates.read_signer(leaf(extensions=[(certificates.FULCIO + "1", b"https://old.example")]))
    assert old.issuer == "https://old.example"
    long = b"\x0c\x81\xc8" + b"x" * 200
    assert certificates.read_signer(leaf(extensions=[(certificates.FULCIO + "8", long)])).issuer == "x" * 200
    further = [(certificates.FULCIO + "14", b"\x0c\x01r"), (certificates.FULCIO + "14.1", b"junk")]
    claims = certificates.read_signer(leaf(extensions=[ISSUER, *further])).claims
    assert claims == {"14": "r"}
    assert certificates.read_signer(forge.certificate()[1]).issuer == embedded.ISSUER


@pytest.mark.parametrize(
    "certificate",
    [
        leaf(names=[]),
        leaf(names=[URI, x509.UniformResourceIdentifier("https://example.org/second")]),
        leaf(names=[URI, x509.RFC822Name("a@example.org")]),
        leaf(names=[x509.DNSName("example.org")]),
        leaf(names=[x509.OtherName(x509.ObjectIdentifier("1.2.3.4"), b"\x0c\x04user")]),
        leaf(extensions=[]),
        leaf(extensions=[(certificates.FULCIO + "8", b"\x0c\x00")]),
        leaf(extensions=[(certificates.FULCIO + "8", b"abc")]),
        leaf(extensions=[(certificates.FULCIO + "8", b"\x0c\x05abc")]),
        leaf(extensions=[(certificates.FULCIO + "8", b"\x0c")]),
        leaf(extensions=[(certificates.FULCIO + "8", b"\x0c\x02\xff\xff")]),
        leaf(extensions=[ISSUER, (certificates.FULCIO + "1", b"https://other.example")]),
    ],
)
def test_certificate_that_names_nobody_or_several_is_refused(certificate: x509.Certificate) -> None:
    assert identity_reason(certificate) == "certificate-identity"


def test_what_is_no_certificate_or_a_root_is_refused() -> None:
    cases: list[tuple[tuple[bytes, ...], type[WheelmarkError], str]] = [
        ((b"\0",), InputError, "certificate-malformed"),
        ((leaf().public_bytes(Encoding.DER), b"junk"), InputError, "certificate-malformed"),
        ((CA.public_bytes(Encoding.DER),), RejectedError, "root-in-bundle"),
        ((leaf().public_bytes(Encoding.DER), CA.public_bytes(Encoding.DER)), RejectedError, "root-in-bundle"),
    ]
    for data, kind, expected in cases:
        with pytest.raises(kind) as caught:
            certificates.load(data)
        assert caught.value.reason == expected
    assert certificates.load((leaf().public_bytes(Encoding.DER),)).serial_number == 2
    # By its own name, but no authority: nothing is trusted by it, and its chain decides.
    own = (
        x509.CertificateBuilder()
        .subject_name(name("self"))
        .issuer_name(name("self"))
        .public_key(KEY.public_key())
        .serial_number(4)
        .not_valid_before(START)
        .not_valid_after(END)
        .sign(KEY, hashes.SHA256())
    )
    assert certificates.load((own.public_bytes(Encoding.DER),)) == own
