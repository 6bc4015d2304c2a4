"""Signed time: RFC 3161 timestamps over the bundle's signature, by an authority that the root names.

The response is parsed by ``rfc3161-client``; its signature is checked by ``cms`` under the chain that the root states,
or, where the root states a certificate alone, by ``rfc3161-client`` with what the token carries. The authority's
window of trust is closed at both ends and is ours.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
from collections.abc import Iterator, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from rfc3161_client import TimeStampResponse, Verifier, VerifierBuilder, decode_timestamp_response

from wheelmark.errors import INTERRUPTS, InputError, RejectedError
from wheelmark.trust.roots import Authority
from wheelmark.verify import cms, der
from wheelmark.verify.twins import is_smaller_twin, smaller_twin

_IMPRINTS = {
    "2.16.840.1.101.3.4.2.1": hashlib.sha256,
    "2.16.840.1.101.3.4.2.2": hashlib.sha384,
    "2.16.840.1.101.3.4.2.3": hashlib.sha512,
}
# DER of what stands in every token (RFC 3161, RFC 5652) and of the algorithms (RFC 5754, RFC 5758).
_GRANTED = bytes.fromhex("3003020100")
_SIGNED_DATA = bytes.fromhex("06092a864886f70d010702")
_VERSION_3, _VERSION_1 = bytes.fromhex("020103"), bytes.fromhex("020101")
_NULL = bytes.fromhex("0500")
_RSA = bytes.fromhex("06092a864886f70d010101")
_ECDSA = {
    "sha256": bytes.fromhex("06082a8648ce3d040302"),
    "sha384": bytes.fromhex("06082a8648ce3d040303"),
    "sha512": bytes.fromhex("06082a8648ce3d040304"),
}
_GRANTED_STATUS = 0
"""``PKIStatus`` (RFC 3161, section 2.4.2): that it stands beside a token is signed by nobody, and others ask for it."""


def check_timestamp(token: bytes, signature: bytes, authorities: Sequence[Authority]) -> dt.datetime:
    """The time that an authority signed for ``signature``.

    Args:
        token: An RFC 3161 TimeStampResp, DER.
        signature: The bundle's signature, which the token has to be about.
        authorities: Timestamp authorities of the root.

    Raises:
        InputError: No RFC 3161 response in DER (``timestamp-malformed``).
        RejectedError: Over another signature (``timestamp-other``), by nobody that the root names
            (``timestamp-untrusted``), or outside the authority's window (``tsa-window``).
    """
    response, algorithm, imprint, time = _decode(token)
    function = _IMPRINTS.get(algorithm)
    if function is None or function(signature).digest() != imprint:
        raise RejectedError("the timestamp is over another signature", reason="timestamp-other")
    failures: list[str] = []
    signing: list[Authority] = []
    for authority in authorities:
        try:
            if len(authority.certificates) > 1:
                cms.check_signed(token, authority.certificates, time)
            else:
                _verifier(authority.certificates[0]).verify_message(response, signature)
        except RejectedError as error:
            failures.append(error.what)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - every failure of the library is a refusal
            failures.append(f"{type(error).__name__}: {error}")
        else:
            signing.append(authority)
    if not signing:
        raise RejectedError(
            "the timestamp is by no authority of this root"
            + (f" ({'; '.join(failures)})" if failures else ": it names none"),
            reason="timestamp-untrusted",
        )
    if not any(authority.window.contains(time) for authority in signing):
        raise RejectedError(
            f"the timestamp authority was not trusted at {time.isoformat()}", reason="tsa-window"
        )
    return time


def has_one_form(token: bytes, authorities: Sequence[Authority], *, canonical: bool) -> bool:
    """Whether every byte of a verified token is signed, or is the only one that could stand there.

    A CMS signature covers the TSTInfo and the signed attributes. Status, versions, algorithm identifiers,
    the signer's name and the certificates are covered by nothing, and verifiers do not look at all of them.
    An ECDSA signature has a twin that anybody can compute: where the form is the canonical one, it is the smaller.

    Args:
        token: A token that ``check_timestamp`` accepted.
        authorities: Timestamp authorities of the root; the token has to name one of their certificates.
        canonical: Whether the token has to be as our signers write it: the authority's certificate is in it, and
            of two ECDSA twins it has the smaller. Otherwise either may come.
    """
    try:
        return any(_fits(token, item.certificates[0], canonical=canonical) for item in authorities)
    except (InputError, ValueError):  # another number of elements than is expected
        return False


def with_smaller_twin(token: bytes, authorities: Sequence[Authority]) -> bytes:
    """A token with the smaller of its ECDSA signature's twins; itself where that is no authority's of ``authorities``.

    Raises:
        InputError: Not DER of a token (``der``).
        ValueError: Other elements than a token has.
    """
    status, info = der.elements(der.only(token, der.SEQUENCE).content)
    kind, wrapped = der.elements(info.content)
    *before, signers = der.elements(der.only(wrapped.content, der.SEQUENCE).content)
    *fields, signature = der.elements(der.only(signers.content, der.SEQUENCE).content)
    named = [
        item.certificates[0]
        for item in authorities
        if cms.signer_of(item.certificates[0]) == fields[1].encoded
    ]
    if signature.tag != der.OCTET_STRING or not named:
        return token
    twin = der.encode(der.OCTET_STRING, smaller_twin(named[0].public_key(), signature.content))
    signer = der.encode(der.SEQUENCE, b"".join(item.encoded for item in fields) + twin)
    content = b"".join(item.encoded for item in before) + der.encode(der.SET, signer)
    data = der.encode(der.EXPLICIT_0, der.encode(der.SEQUENCE, content))
    return der.encode(der.SEQUENCE, status.encoded + der.encode(der.SEQUENCE, kind.encoded + data))


def _fits(token: bytes, leaf: x509.Certificate, *, canonical: bool) -> bool:
    status, content_info = der.elements(der.only(token, der.SEQUENCE).content)
    kind, wrapped = der.elements(content_info.content)
    signed = der.elements(der.only(wrapped.content, der.SEQUENCE).content)
    # Certificates are optional, revocation lists are not expected: version, digests, content, [0], signers.
    version, algorithms, encapsulated, *optional, signers = signed
    content_kind, content = der.elements(encapsulated.content)
    fields = der.elements(der.only(signers.content, der.SEQUENCE).content)
    if len(fields) != 6:  # noqa: PLR2004 - SignerInfo without unsigned attributes
        return False
    signer_version, name, algorithm, attributes, signature_algorithm, signature = fields
    carried = [der.encode(der.EXPLICIT_0, leaf.public_bytes(Encoding.DER))]
    without = [[], [der.encode(der.EXPLICIT_0, b"")]]
    return (
        status.encoded == _GRANTED
        and (content_info.tag, wrapped.tag, content.tag) == (der.SEQUENCE, der.EXPLICIT_0, der.EXPLICIT_0)
        and (kind.encoded, content_kind.encoded) == (_SIGNED_DATA, cms.TST_INFO)
        and der.only(content.content, der.OCTET_STRING).encoded == content.content
        and (version.encoded, signer_version.encoded) == (_VERSION_3, _VERSION_1)
        and (algorithms.tag, algorithms.content) == (der.SET, algorithm.encoded)
        and [item.encoded for item in optional] in ([carried] if canonical else [carried, *without])
        and name.encoded == cms.signer_of(leaf)
        and attributes.tag == der.EXPLICIT_0
        and signature.tag == der.OCTET_STRING
        and (algorithm.encoded, signature_algorithm.encoded) in _algorithms(leaf)
        and (not canonical or is_smaller_twin(leaf.public_key(), signature.content))
    )


def _algorithms(certificate: x509.Certificate) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of digest and signature algorithm identifiers that fit a certificate's key."""
    for name, (digest, _) in cms.DIGESTS.items():
        plain = der.encode(der.SEQUENCE, digest)
        with_null = der.encode(der.SEQUENCE, digest + _NULL)
        if isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
            signature = der.encode(der.SEQUENCE, _ECDSA[name])
            yield from ((plain, signature), (with_null, signature))
        else:  # RSA: a key of another kind has verified nothing
            signature = der.encode(der.SEQUENCE, _RSA + _NULL)
            yield from ((plain, signature), (with_null, signature))


def _decode(token: bytes) -> tuple[TimeStampResponse, str, bytes, dt.datetime]:
    """The response, its imprint's algorithm and bytes, and its time."""
    try:
        response = decode_timestamp_response(token)
        # The token inside is parsed when it is first asked for.
        info = response.tst_info
        imprint, time = info.message_imprint, info.gen_time.astimezone(dt.UTC)
        algorithm, message = imprint.hash_algorithm.dotted_string, imprint.message
    except INTERRUPTS:
        raise
    except BaseException as error:  # a parser of another library: anything it raises is a malformed input
        raise InputError(
            f"malformed timestamp: {type(error).__name__}: {error}", reason="timestamp-malformed"
        ) from error
    if response.status != _GRANTED_STATUS:
        raise RejectedError(
            f"the timestamp authority's response has status {response.status}, which is not granted",
            reason="timestamp-untrusted",
        )
    return response, algorithm, message, time


@functools.lru_cache(maxsize=64)
def _verifier(root: x509.Certificate) -> Verifier:
    """For an authority of which only the root is stated; it keeps nothing of the tokens that it verifies."""
    return VerifierBuilder(roots=[root]).build()
