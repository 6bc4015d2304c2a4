"""The signature on a timestamp token: what is refused and why, and that ``rfc3161-client`` accepts what is accepted."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import random
import warnings
from typing import Any

import pytest
from asn1crypto import algos, core, tsp
from asn1crypto import cms as asn1
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from rfc3161_client import VerifierBuilder, decode_timestamp_response

from forging import Forge
from wheelmark.errors import InputError, RejectedError
from wheelmark.trust.roots import Authority, Window
from wheelmark.verify import cms, timestamps

TIME = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
MESSAGE = b"a signature"
ROOT_KEY = ec.generate_private_key(ec.SECP384R1())
KEYS: dict[str, Any] = {
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "RSA": rsa.generate_private_key(65537, 2048),
}
Chain = tuple[x509.Certificate, ...]


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def issue(
    subject: str,
    key: Any,
    issuer: str,
    signed_by: Any,
    *,
    ca: bool | None,
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (),
    path_length: int | None = None,
    window: tuple[dt.datetime, dt.datetime] = (TIME - DAY, TIME + DAY),
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(window[0])
        .not_valid_after(window[1])
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signed_by, hashes.SHA384())


STAMPS = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), True)


def usage(*, signs_certificates: bool) -> tuple[x509.ExtensionType, bool]:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    values = dict.fromkeys(names, False) | {"digital_signature": True, "key_cert_sign": signs_certificates}
    return x509.KeyUsage(**values), True


ROOT = issue("root", ROOT_KEY, "root", ROOT_KEY, ca=True, extensions=(usage(signs_certificates=True),))
LEAVES = {
    kind: issue(f"tsa {kind}", key, "root", ROOT_KEY, ca=None, extensions=(STAMPS,))
    for kind, key in KEYS.items()
}


def attribute(kind: str, value: Any) -> asn1.CMSAttribute:
    return asn1.CMSAttribute({"type": kind, "values": [value]})


def make(
    kind: str = "P-256",
    *,
    leaf: x509.Certificate | None = None,
    digest: str = "sha256",
    message: bytes = MESSAGE,
    drop: str = "",
    more: tuple[asn1.CMSAttribute, ...] = (),
    content_type: str = "tst_info",
    imprint: bytes | None = None,
    named: bytes | None = None,
    name_hash: str | None = None,
    carried: bool = True,
    signed_by: Any = None,
    change: Any = None,
) -> bytes:
    """A TimeStampResp, made by hand so that each part can be spoiled and still be signed."""
    certificate = leaf or LEAVES[kind]
    info = tsp.TSTInfo(
        {
            "version": "v1",
            "policy": "1.2.3.4",
            "message_imprint": {
                "hash_algorithm": {"algorithm": "sha256"},
                "hashed_message": hashlib.sha256(message).digest(),
            },
            "serial_number": 7,
            "gen_time": TIME,
        }
    ).dump()
    raw = certificate.public_bytes(Encoding.DER)
    hashed = {"algorithm": name_hash} if name_hash else None
    essential = {"cert_hash": named or hashlib.new(name_hash or "sha256", raw).digest()}
    if hashed:
        essential["hash_algorithm"] = hashed  # type: ignore[assignment]
    attributes = [
        attribute("content_type", content_type),
        attribute("message_digest", imprint or hashlib.new(digest, info).digest()),
        attribute(
            "signing_certificate_v2", tsp.SigningCertificateV2({"certs": [tsp.ESSCertIDv2(essential)]})
        ),
    ]
    signed = asn1.CMSAttributes([item for item in attributes if item["type"].native != drop] + list(more))
    key = signed_by or KEYS[kind]
    function: Any = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}[digest]
    data = signed.dump()
    if isinstance(key, rsa.RSAPrivateKey):
        signature, algorithm = key.sign(data, padding.PKCS1v15(), function), "rsassa_pkcs1v15"
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        signature, algorithm = key.sign(data), "ed25519"
    else:
        signature, algorithm = key.sign(data, ec.ECDSA(function)), f"{digest}_ecdsa"
    parsed = asn1_x509.Certificate.load(raw)
    signer = asn1.SignerInfo(
        {
            "version": "v1",
            "sid": asn1.SignerIdentifier(
                {
                    "issuer_and_serial_number": asn1.IssuerAndSerialNumber(
                        {"issuer": parsed.issuer, "serial_number": parsed.serial_number}
                    )
                }
            ),
            "digest_algorithm": algos.DigestAlgorithm({"algorithm": digest}),
            "signed_attrs": signed,
            "signature_algorithm": algos.SignedDigestAlgorithm({"algorithm": algorithm}),
            "signature": signature,
        }
    )
    body = {
        "version": "v3",
        "digest_algorithms": [algos.DigestAlgorithm({"algorithm": digest})],
        "encap_content_info": {"content_type": "tst_info", "content": core.ParsableOctetString(info)},
        "signer_infos": [signer],
    }
    if carried:
        body["certificates"] = [parsed]
    if change is not None:
        change(body)
    response = tsp.TimeStampResp(
        {
            "status": {"status": "granted"},
            "time_stamp_token": {"content_type": "signed_data", "content": asn1.SignedData(body)},
        }
    )
    return bytes(response.dump())


def ours(token: bytes, chain: Chain, message: bytes = MESSAGE) -> str:
    """Empty where accepted, else why not."""
    authority = Authority(certificates=chain, window=Window(start=TIME - 100 * DAY))
    try:
        time = timestamps.check_timestamp(token, message, [authority])
    except (RejectedError, InputError) as error:
        reasons = {"timestamp-untrusted", "timestamp-malformed", "timestamp-other"}
        return error.what if error.reason in reasons else f"for another reason: {error.reason}"
    return "" if time == TIME else "at another time"


def theirs(token: bytes, chain: Chain, message: bytes = MESSAGE) -> str:
    verifier = VerifierBuilder(
        tsa_certificate=chain[0], intermediates=list(chain[1:-1]), roots=[chain[-1]]
    ).build()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verifier.verify_message(decode_timestamp_response(token), message)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its refusal
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("digest", ["sha256", "sha384", "sha512"])
@pytest.mark.parametrize("carried", [True, False])
def test_good_tokens(kind: str, digest: str, carried: bool) -> None:
    token = make(kind, digest=digest, carried=carried)
    assert ours(token, (LEAVES[kind], ROOT)) == ""
    assert theirs(token, (LEAVES[kind], ROOT)) == ""


def test_the_signing_certificate_may_be_named_by_another_hash_or_not_at_all() -> None:
    chain = (LEAVES["P-256"], ROOT)
    for token in (make(name_hash="sha512"), make(drop="signing_certificate_v2")):
        assert ours(token, chain) == theirs(token, chain) == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"message": b"something else"}, "another signature"),
        ({"signed_by": KEYS["P-384"]}, "not the authority's"),
        ({"imprint": b"\0" * 32}, "not what was signed"),
        ({"drop": "message_digest"}, "not what was signed"),
        ({"drop": "content_type"}, "no timestamp"),
        ({"content_type": "data"}, "no timestamp"),
        ({"named": b"\0" * 32}, "another signing certificate"),
        ({"name_hash": "sha1", "named": b"\0" * 20}, "a hash that is not known"),
        ({"more": (attribute("content_type", "tst_info"),)}, "an attribute stands twice"),
        ({"leaf": LEAVES["P-384"]}, "another certificate signed it"),
    ],
)
def test_tokens_that_are_not_the_authoritys(options: dict[str, Any], why: str) -> None:
    assert why in ours(make(**options), (LEAVES["P-256"], ROOT))


def _without_attributes(body: dict[str, Any]) -> None:
    del body["signer_infos"][0]["signed_attrs"]


def _two_signers(body: dict[str, Any]) -> None:
    body["signer_infos"] = body["signer_infos"] * 2


def _no_signer(body: dict[str, Any]) -> None:
    body["signer_infos"] = []


def _other_digest(body: dict[str, Any]) -> None:
    body["signer_infos"][0]["digest_algorithm"] = algos.DigestAlgorithm({"algorithm": "sha1"})


def _unnamed_digest(body: dict[str, Any]) -> None:
    body["digest_algorithms"] = [algos.DigestAlgorithm({"algorithm": "sha384"})]


def _named_by_key(body: dict[str, Any]) -> None:
    signer = body["signer_infos"][0]
    signer["sid"] = asn1.SignerIdentifier({"subject_key_identifier": b"key"})


@pytest.mark.parametrize(
    "change", [_without_attributes, _two_signers, _no_signer, _other_digest, _unnamed_digest, _named_by_key]
)
def test_tokens_of_another_form(change: Any) -> None:
    assert ours(make(change=change), (LEAVES["P-256"], ROOT))


def test_an_unsigned_attribute_changes_nothing() -> None:
    def add(body: dict[str, Any]) -> None:
        body["signer_infos"][0]["unsigned_attrs"] = [attribute("content_type", "data")]

    assert ours(make(change=add), (LEAVES["P-256"], ROOT)) == ""
    authority = Authority(certificates=(LEAVES["P-256"], ROOT), window=Window(start=TIME))
    assert not timestamps.has_one_form(make(change=add), [authority], canonical=False)
    assert timestamps.has_one_form(make(), [authority], canonical=False)


def test_certificates_that_come_along() -> None:
    def carry(*certificates: x509.Certificate | bytes) -> Any:
        def change(body: dict[str, Any]) -> None:
            raw = [
                item if isinstance(item, bytes) else item.public_bytes(Encoding.DER) for item in certificates
            ]
            body["certificates"] = [asn1_x509.Certificate.load(item) for item in raw]

        return change

    leaf = LEAVES["P-256"]
    good = leaf.public_bytes(Encoding.DER)
    twin = good[:-1] + bytes([good[-1] ^ 1])
    chain = (leaf, ROOT)
    good_ones: list[tuple[Any, ...]] = [(leaf,), (leaf, ROOT), (LEAVES["RSA"], leaf)]
    for carried in good_ones:
        assert ours(make(change=carry(*carried)), chain) == ""
    refused: list[tuple[Any, ...]] = [(twin,), (twin, leaf), (leaf, twin), (ROOT,), (LEAVES["RSA"],)]
    for carried in refused:
        assert "that it carries" in ours(make(change=carry(*carried)), chain)


def test_a_key_of_another_kind() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    leaf = issue("tsa", key, "root", ROOT_KEY, ca=None, extensions=(STAMPS,))
    assert "not the authority's" in ours(make(leaf=leaf, signed_by=key), (leaf, ROOT))


@pytest.mark.parametrize("kind", KEYS)
def test_the_one_form_of_a_token(kind: str) -> None:
    authority = Authority(certificates=(LEAVES[kind], ROOT), window=Window(start=TIME))
    for carried in (True, False):
        token = make(kind, carried=carried)
        assert timestamps.has_one_form(token, [authority], canonical=False) is (
            kind != "RSA" or _fits_rsa(token)
        )
    assert not timestamps.has_one_form(make(kind)[:-1], [authority], canonical=False)
    assert not timestamps.has_one_form(b"", [authority], canonical=False)


def _fits_rsa(token: bytes) -> bool:
    """Two algorithm identifiers with and without NULL are common; asn1crypto writes the one that RFC 4055 asks for."""
    return bytes.fromhex("300d06092a864886f70d0101010500") in token


def test_a_signer_that_is_no_set() -> None:
    token = make()
    place = token.rindex(b"\x31\x82")
    assert ours(token[:place] + b"\x30" + token[place + 1 :], (LEAVES["P-256"], ROOT))


# The chain that the root states.
MIDDLE_KEY = ec.generate_private_key(ec.SECP256R1())
MIDDLE = issue("middle", MIDDLE_KEY, "root", ROOT_KEY, ca=True, path_length=0)
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")


def leaf_of(issuer: str = "root", key: Any = ROOT_KEY, **options: Any) -> x509.Certificate:
    return issue("tsa", KEYS["P-256"], issuer, key, ca=None, **{"extensions": (STAMPS,), **options})


def test_a_chain_of_three() -> None:
    leaf = leaf_of("middle", MIDDLE_KEY)
    assert ours(make(leaf=leaf), (leaf, MIDDLE, ROOT)) == ""


@pytest.mark.parametrize(
    ("chain", "why"),
    [
        ((leaf_of(extensions=()), ROOT), "does not chain"),
        ((leaf_of(extensions=((STAMPS[0], False),)), ROOT), "not for timestamps"),
        (
            (leaf_of(extensions=((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), True),)), ROOT),
            "not for timestamps",
        ),
        ((leaf_of(key=MIDDLE_KEY), ROOT), "does not chain"),
        ((leaf_of("middle"), MIDDLE, ROOT), "does not chain"),
        ((leaf_of("root", MIDDLE_KEY), MIDDLE, ROOT), "does not chain"),
        ((leaf_of(extensions=(STAMPS, (UNKNOWN, True))), ROOT), "critical extensions"),
        (
            (
                leaf_of("middle", MIDDLE_KEY),
                issue("middle", MIDDLE_KEY, "root", ROOT_KEY, ca=False),
                ROOT,
            ),
            "may not issue",
        ),
        (
            (leaf_of("middle", MIDDLE_KEY), issue("middle", MIDDLE_KEY, "root", ROOT_KEY, ca=None), ROOT),
            "does not chain",
        ),
        (
            (
                leaf_of("middle", MIDDLE_KEY),
                issue(
                    "middle",
                    MIDDLE_KEY,
                    "root",
                    ROOT_KEY,
                    ca=True,
                    extensions=(usage(signs_certificates=False),),
                ),
                ROOT,
            ),
            "may not sign certificates",
        ),
        (
            (
                leaf_of("middle", MIDDLE_KEY),
                MIDDLE,
                issue("root", ROOT_KEY, "root", ROOT_KEY, ca=True, path_length=0),
            ),
            "may not issue",
        ),
        ((leaf_of(window=(TIME - 9 * DAY, TIME - DAY)), ROOT), "was not valid"),
        ((leaf_of(window=(TIME + DAY, TIME + 2 * DAY)), ROOT), "was not valid"),
        (
            (
                leaf_of(),
                issue("root", ROOT_KEY, "root", ROOT_KEY, ca=True, window=(TIME - 9 * DAY, TIME - DAY)),
            ),
            "was not valid",
        ),
    ],
)
def test_chains_that_are_no_authoritys(chain: Chain, why: str) -> None:
    token = make(leaf=chain[0])
    assert why in ours(token, chain)


def test_first_and_last_instant_of_a_certificate_count() -> None:
    second = dt.timedelta(seconds=1)
    for start, end, good in (
        (TIME, TIME + DAY, True),
        (TIME - DAY, TIME, True),
        (TIME + second, TIME + DAY, False),
        (TIME - DAY, TIME - second, False),
    ):
        leaf = leaf_of(window=(start, end))
        assert (ours(make(leaf=leaf), (leaf, ROOT)) == "") is good


def test_an_authority_of_which_only_the_root_is_stated() -> None:
    assert ours(make(), (ROOT,)) == ""
    assert ours(make(carried=False), (ROOT,))
    assert ours(make(signed_by=KEYS["P-384"]), (ROOT,))


# Differentially: nothing is accepted here that the reference verifier refuses.
def test_whatever_is_accepted_the_reference_verifier_accepts(forge: Forge) -> None:
    chain = forge.root().material.timestamp_authorities[0].certificates
    token = base64.b64decode(forge.timestamp(MESSAGE))
    time = decode_timestamp_response(token).tst_info.gen_time
    generator = random.Random(3161)
    accepted = 0
    for number in range(1500):
        spoiled = bytearray(token)
        for _ in range(generator.choice((1, 1, 1, 2))):
            index = generator.randrange(len(spoiled))
            match generator.randrange(3):
                case 0:
                    spoiled[index] ^= 1 << generator.randrange(8)
                case 1:
                    del spoiled[index]
                case _:
                    spoiled.insert(index, generator.randrange(256))
        data = bytes(spoiled) if number else token
        try:
            cms.check_signed(data, chain, time)
        except RejectedError:
            continue
        accepted += 1
        # Parsing is rfc3161-client's own in both cases: what it cannot read never comes to a signature.
        try:
            decode_timestamp_response(data).time_stamp_token()
        except ValueError:
            continue
        assert theirs(data, chain) == "", data.hex()
    assert accepted > 5
