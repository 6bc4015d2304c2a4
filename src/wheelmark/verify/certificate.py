"""The signing certificate: its chain, its certificate transparency timestamp, and whom it names.

Chain and extensions are checked by ``cryptography``'s RFC 5280 verifier; certificates as Fulcio issues them
(docs/certificate-specification.md of sigstore/fulcio, OID arc 1.3.6.1.4.1.57264.1).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import struct
from collections.abc import Iterable, Mapping, Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import verification
from cryptography.x509.certificate_transparency import LogEntryType
from cryptography.x509.oid import ExtendedKeyUsageOID

from wheelmark import digests
from wheelmark.errors import INTERRUPTS, InputError, RejectedError
from wheelmark.trust.roots import Authority, LogKey

FULCIO = "1.3.6.1.4.1.57264.1."
_OTHER_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
_ISSUER_V1, _ISSUER_V2 = "1", "8"
_FIRST_DER_ARC = 8
"""Extensions from .8 on hold a DER UTF8String; earlier ones hold bare text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signer:
    """Whom a certificate names, in its own words; whether to believe them is the policy's matter."""

    identity: str
    """The one subject alternative name: URI, e-mail address or Sigstore user name."""
    issuer: str
    """OIDC issuer: extension .8, or .1 where that is absent."""
    claims: Mapping[str, str]
    """The other extensions of Fulcio's arc, by their last number."""
    sha256: str
    """Of the certificate's DER bytes."""


def load(certificates: tuple[bytes, ...]) -> x509.Certificate:
    """The signing certificate of a bundle's list.

    Raises:
        InputError: Not DER certificates (``certificate-malformed``).
        RejectedError: A root CA stands in the bundle (``root-in-bundle``).
    """
    try:
        loaded = [x509.load_der_x509_certificate(data) for data in certificates]
        roots = [item for item in loaded if item.issuer == item.subject and _is_authority(item)]
        loaded[0].public_key()  # parsed when it is first asked for
    except Exception as error:  # a parser of another library: anything it raises is a malformed input
        raise InputError(
            f"malformed certificate: {type(error).__name__}: {error}", reason="certificate-malformed"
        ) from error
    if roots:
        raise RejectedError(
            "the bundle carries a root certificate",
            cause="trust roots come from the policy, never with what is verified",
            reason="root-in-bundle",
        )
    return loaded[0]


def issued_by(certificate: x509.Certificate, authorities: Iterable[Authority]) -> tuple[Authority, ...]:
    """The authorities that ``certificate`` names as its issuer, by name and key id (RFC 5280, section 4.2.1.1).

    Nothing is verified yet: ``check_chain`` does that. A certificate without an issuer's key id is tried against
    each key under the name, since two instances may go by one name.
    """
    return tuple(
        item for item in authorities if any(_is_issuer(member, certificate) for member in item.certificates)
    )


Above = dict[Authority, tuple[x509.Certificate, ...]]
"""Authority -> the certificates above a signing certificate, as a first chain was verified: issuer first, root last."""


def check_chain(
    certificate: x509.Certificate,
    authorities: Iterable[Authority],
    times: Sequence[dt.datetime],
    above: Above | None = None,
) -> x509.Certificate:
    """The certificate that issued ``certificate``, all valid at each of ``times``.

    Args:
        certificate: The signing certificate.
        authorities: Those of the root.
        times: Signed times, at least one.
        above: What was verified before, under the same authorities; it is added to.

    Raises:
        RejectedError: ``certificate-expired``, ``ca-window``, ``chain`` or ``certificate-usage``.
    """
    issuing = issued_by(certificate, authorities)
    chains: list[tuple[Authority, Sequence[x509.Certificate]]] = []
    for time in times:
        if not _is_valid(certificate, time):
            raise RejectedError(
                f"signed at {time.isoformat()}, outside the certificate's validity "
                f"({certificate.not_valid_before_utc.isoformat()} to "
                f"{certificate.not_valid_after_utc.isoformat()})",
                reason="certificate-expired",
            )
        current = [authority for authority in issuing if authority.window.contains(time)]
        if not current:
            raise RejectedError(
                f"the certificate authority was not trusted at {time.isoformat()}", reason="ca-window"
            )
        # A chain that was verified for one time needs no new public-key operation for another.
        if not any(
            authority in current and all(_is_valid(member, time) for member in chain)
            for authority, chain in chains
        ):
            chains.append(_chain(certificate, current, time, {} if above is None else above))
    _check_usage(certificate)
    _, (_, issuer, *_) = chains[0]
    return issuer


def check_transparency(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    logs: Iterable[LogKey],
    times: Sequence[dt.datetime],
) -> None:
    """Check the certificate's one signed certificate timestamp (RFC 6962, section 3.2).

    Args:
        certificate: The signing certificate.
        issuer: The certificate that issued it.
        logs: Certificate transparency logs of the root.
        times: Signed times; the log has to be trusted then, and when it made its promise.

    Raises:
        RejectedError: ``sct`` or ``ct-window``.
    """
    try:
        found = list(
            certificate.extensions.get_extension_for_class(
                x509.PrecertificateSignedCertificateTimestamps
            ).value
        )
        data = _signed_data(certificate, issuer, found)
    except RejectedError:
        raise
    except Exception as error:  # lazily parsed extensions: anything raised is a refusal
        raise RejectedError(
            f"no readable certificate timestamp: {type(error).__name__}: {error}", reason="sct"
        ) from error
    sct = found[0]
    named = [log for log in logs if sct.log_id in {log.key_id, log.log_id}]
    signed = [log for log in named if log.verifies(sct.signature, data)]
    if not signed:
        raise RejectedError(
            "the certificate timestamp is not signed by a log of this root"
            if named
            else f"the certificate timestamp names an unknown log {sct.log_id.hex()}",
            reason="sct",
        )
    promised = sct.timestamp.replace(tzinfo=dt.UTC)
    if not any(all(log.window.contains(time) for time in (promised, *times)) for log in signed):
        raise RejectedError(
            f"the certificate transparency log was not trusted at {promised.isoformat()}", reason="ct-window"
        )


def read_signer(certificate: x509.Certificate) -> Signer:
    """Whom the certificate names.

    Raises:
        RejectedError: Not exactly one subject alternative name, or no issuer (``certificate-identity``).
    """
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        identities = [_identity(name) for name in names]
        claims = dict(_claims(certificate))
    except Exception as error:  # lazily parsed extensions: anything raised is a refusal
        raise RejectedError(
            f"the certificate names nobody readable: {type(error).__name__}: {error}",
            reason="certificate-identity",
        ) from error
    issuer = claims.get(_ISSUER_V2) or claims.get(_ISSUER_V1) or ""
    both = {claims[arc] for arc in (_ISSUER_V1, _ISSUER_V2) if arc in claims}
    if len(identities) != 1 or not identities[0] or not issuer or len(both) != 1:
        raise RejectedError(
            f"the certificate has {len(identities)} identities and {len(both)} issuers; one each is expected",
            reason="certificate-identity",
        )
    return Signer(
        identity=identities[0],
        issuer=issuer,
        claims={arc: text for arc, text in claims.items() if arc not in {_ISSUER_V1, _ISSUER_V2}},
        sha256=digests.sha256(certificate.public_bytes(Encoding.DER)),
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _is_issuer(candidate: x509.Certificate, certificate: x509.Certificate) -> bool:
    if candidate.subject != certificate.issuer:
        return False
    named = _key_id(certificate, x509.AuthorityKeyIdentifier)
    if named is not None:
        return named == _own_key_id(candidate)
    try:
        certificate.verify_directly_issued_by(candidate)
    except Exception:  # noqa: BLE001 - another key type or signature: not this one
        return False
    return True


@functools.lru_cache(maxsize=64)
def _own_key_id(authority: x509.Certificate) -> bytes | None:
    return _key_id(authority, x509.SubjectKeyIdentifier)


def _key_id(
    certificate: x509.Certificate, kind: type[x509.AuthorityKeyIdentifier | x509.SubjectKeyIdentifier]
) -> bytes | None:
    """What a certificate calls its issuer's key, or its own; ``None`` where it does not say, or unreadably."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value.key_identifier
    except Exception:  # noqa: BLE001 - absent, twice, or malformed
        return None


def _is_valid(certificate: x509.Certificate, time: dt.datetime) -> bool:
    return certificate.not_valid_before_utc <= time <= certificate.not_valid_after_utc


def _chain(
    certificate: x509.Certificate, authorities: Iterable[Authority], time: dt.datetime, above: Above
) -> tuple[Authority, Sequence[x509.Certificate]]:
    """An authority, and the signing certificate, the one that issued it, and so on to the authority's root."""
    failures: list[str] = []
    for authority in authorities:
        try:
            return authority, _build_chain(certificate, authority, time, above)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - every failure of the library is a refusal
            failures.append(f"{type(error).__name__}: {error}")
    raise RejectedError(f"no chain to the root's authority: {'; '.join(failures)}", reason="chain")


def _build_chain(
    certificate: x509.Certificate, authority: Authority, time: dt.datetime, above: Above
) -> Sequence[x509.Certificate]:
    """Verify a chain; where the authority's own part was verified before, only the last link is new."""
    known = above.get(authority, ())
    if known and _is_issuer(known[0], certificate) and all(_is_valid(member, time) for member in known):
        _verify(certificate, known[0], (), time)
        return (certificate, *known)
    _, *found = _verify(certificate, authority.certificates[-1], authority.certificates[:-1], time)
    # Constraints on names are about the signing certificate too: with them, each chain is verified whole.
    if not any(_has(member, x509.NameConstraints) for member in found):
        above[authority] = tuple(found)
    return (certificate, *found)


def _verify(
    certificate: x509.Certificate,
    trusted: x509.Certificate,
    given: Sequence[x509.Certificate],
    time: dt.datetime,
) -> Sequence[x509.Certificate]:
    # The defaults of the web's profile ask for a server or client usage; code signing is checked by us.
    # Everything else of the profile stays.
    any_usage = (x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, None)
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store([trusted]))
        .time(time)
        .extension_policies(
            ca_policy=verification.ExtensionPolicy.webpki_defaults_ca().may_be_present(*any_usage),
            ee_policy=verification.ExtensionPolicy.webpki_defaults_ee().may_be_present(*any_usage),
        )
        .build_client_verifier()
    )
    return verifier.verify(certificate, list(given)).chain


def _has(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> bool:
    return any(isinstance(extension.value, kind) for extension in certificate.extensions)


def _check_usage(certificate: x509.Certificate) -> None:
    try:
        signs = certificate.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise RejectedError(f"the certificate lacks a usage: {error}", reason="certificate-usage") from error
    if not signs or ExtendedKeyUsageOID.CODE_SIGNING not in purposes:
        raise RejectedError("the certificate is not for code signing", reason="certificate-usage")


def _signed_data(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    found: list[x509.certificate_transparency.SignedCertificateTimestamp],
) -> bytes:
    if len(found) != 1:
        raise RejectedError(f"{len(found)} certificate timestamps; one is expected", reason="sct")
    sct = found[0]
    key = issuer.public_key()
    if (
        sct.entry_type is not LogEntryType.PRE_CERTIFICATE
        or not isinstance(sct.signature_hash_algorithm, hashes.SHA256)
        or not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
    ):
        raise RejectedError("a certificate timestamp of a kind not known here", reason="sct")
    issuer_id = bytes.fromhex(
        digests.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    )
    body = certificate.tbs_precertificate_bytes
    milliseconds = round(sct.timestamp.replace(tzinfo=dt.UTC).timestamp() * 1000)
    return b"".join(
        [
            struct.pack("!BBQH", 0, 0, milliseconds, 1),
            issuer_id,
            len(body).to_bytes(3, "big"),
            body,
            struct.pack("!H", len(sct.extension_bytes)),
            sct.extension_bytes,
        ]
    )


def _identity(name: x509.GeneralName) -> str:
    if isinstance(name, x509.RFC822Name | x509.UniformResourceIdentifier):
        return name.value
    if isinstance(name, x509.OtherName) and name.type_id == _OTHER_NAME:
        return _der_text(name.value)
    raise InputError(f"identity of kind {type(name).__name__}", reason="certificate-identity")


def _claims(certificate: x509.Certificate) -> Iterable[tuple[str, str]]:
    for extension in certificate.extensions:
        oid = extension.oid.dotted_string
        if not oid.startswith(FULCIO) or not isinstance(extension.value, x509.UnrecognizedExtension):
            continue
        arc = oid.removeprefix(FULCIO)
        value = extension.value.value
        if arc.isdecimal():
            yield arc, _der_text(value) if int(arc) >= _FIRST_DER_ARC else value.decode()


def _der_text(value: bytes) -> str:
    """A DER UTF8String (tag 12) in short or long form."""
    if len(value) < 2 or value[0] != 0x0C:  # noqa: PLR2004 - tag and length octets
        raise InputError("not a DER UTF8String", reason="certificate-identity")
    length, start = value[1], 2
    if length & 0x80:
        octets = length & 0x7F
        length, start = int.from_bytes(value[2 : 2 + octets], "big"), 2 + octets
    if len(value) != start + length:
        raise InputError("a DER string of the wrong length", reason="certificate-identity")
    return value[start:].decode()
