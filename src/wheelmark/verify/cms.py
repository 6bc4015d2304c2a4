"""The signature on a timestamp token: CMS SignedData by an authority whose chain the root names.

RFC 5652 (sections 5.1, 5.3, 5.4), RFC 3161 (section 2.4.2), RFC 5816. The authority's chain is the root's own and is
verified once; each token then takes one public-key operation, where ``rfc3161-client``'s verifier takes one for
each certificate too and sets up a certificate store. That it accepts what is accepted here is tested differentially.
Encodings are DER, as RFC 3161 asks, and read with ``der``: what is not in its one form is refused.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import itertools
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from wheelmark.errors import InputError, RejectedError
from wheelmark.verify import der

TST_INFO = bytes.fromhex("060b2a864886f70d0109100104")
DIGESTS: dict[str, tuple[bytes, hashes.HashAlgorithm]] = {
    "sha256": (bytes.fromhex("0609608648016503040201"), hashes.SHA256()),
    "sha384": (bytes.fromhex("0609608648016503040202"), hashes.SHA384()),
    "sha512": (bytes.fromhex("0609608648016503040203"), hashes.SHA512()),
}
"""Names of ``hashlib``, with the object identifier in DER (RFC 5754)."""
_CONTENT_TYPE = bytes.fromhex("06092a864886f70d010903")
_MESSAGE_DIGEST = bytes.fromhex("06092a864886f70d010904")
_SIGNING_CERTIFICATE_V2 = bytes.fromhex("060b2a864886f70d010910022f")
_KNOWN_CRITICAL = {
    x509.BasicConstraints.oid,
    x509.KeyUsage.oid,
    x509.ExtendedKeyUsage.oid,
}


def signer_of(leaf: x509.Certificate) -> bytes:
    """How a token names the certificate of its signer: issuer and serial number (RFC 5652, section 5.3)."""
    return der.encode(der.SEQUENCE, leaf.issuer.public_bytes() + der.encode_integer(leaf.serial_number))


def check_signed(token: bytes, chain: tuple[x509.Certificate, ...], time: dt.datetime) -> None:
    """Check that the authority with ``chain`` signed a token.

    Args:
        token: An RFC 3161 TimeStampResp, DER.
        chain: The authority's, its own certificate first and the root last; at least two.
        time: The token's own time, at which every certificate has to be valid.

    Raises:
        RejectedError: It did not (``timestamp-untrusted``).
    """
    try:
        _check_signed(token, chain[0])
    except (InputError, ValueError) as error:  # ValueError: another number of elements
        raise _refused(f"the token is not in DER of the expected form: {error}") from error
    if why := chain_fault(chain):
        raise _refused(why)
    for certificate in chain:
        if not certificate.not_valid_before_utc <= time <= certificate.not_valid_after_utc:
            raise _refused(f"{certificate.subject.rfc4514_string()} was not valid at {time.isoformat()}")


def _check_signed(token: bytes, leaf: x509.Certificate) -> None:
    _, content_info = der.elements(der.only(token, der.SEQUENCE).content)
    _, wrapped = der.elements(content_info.content)
    _, algorithms, encapsulated, *optional, signers = der.elements(
        der.only(wrapped.content, der.SEQUENCE).content
    )
    kind, wrapped_content = der.elements(encapsulated.content)
    content = der.only(wrapped_content.content, der.OCTET_STRING).content
    _, name, algorithm, attributes, _, signature, *_ = der.elements(
        der.only(signers.content, der.SEQUENCE).content
    )
    if name.encoded != signer_of(leaf):
        raise _refused("another certificate signed it")
    _check_carried(optional, leaf)
    if signers.tag != der.SET or attributes.tag != der.EXPLICIT_0 or signature.tag != der.OCTET_STRING:
        raise _refused("its signer has no signed attributes")
    digest = _digest(algorithm)
    if digest not in [_digest(item) for item in der.elements(algorithms.content)]:
        raise _refused("its hash is not among those that it names")
    signed = _attributes(attributes)
    if kind.encoded != TST_INFO or signed.get(_CONTENT_TYPE) != TST_INFO:
        raise _refused("it is no timestamp")
    imprint = der.encode(der.OCTET_STRING, hashlib.new(digest, content).digest())
    if signed.get(_MESSAGE_DIGEST) != imprint:
        raise _refused("its content is not what was signed")
    if _SIGNING_CERTIFICATE_V2 in signed and not _names(signed[_SIGNING_CERTIFICATE_V2], leaf):
        raise _refused("it names another signing certificate")
    # What is signed is the set of attributes, and not their implicit tag (RFC 5652, section 5.4).
    data = bytes([der.SET]) + attributes.encoded[1:]
    if not _verifies(leaf, signature.content, data, DIGESTS[digest][1]):
        raise _refused("its signature is not the authority's")


def _check_carried(optional: Sequence[der.Element], leaf: x509.Certificate) -> None:
    """Refuse certificates without the signer's own, or with another that goes by its name and number.

    Which certificates come along is signed by nobody: the chain is the root's, these are compared with it.
    """
    own = leaf.public_bytes(Encoding.DER)
    carried = [
        certificate.encoded
        for item in optional
        if item.tag == der.EXPLICIT_0
        for certificate in der.elements(item.content)
    ]
    others = [x509.load_der_x509_certificate(encoded) for encoded in carried if encoded != own]
    if carried and (own not in carried or signer_of(leaf) in map(signer_of, others)):
        raise _refused("the certificates that it carries are not its signer's")


def _digest(algorithm: der.Element) -> str:
    oid = der.elements(algorithm.content)[0].encoded
    for name, (encoded, _) in DIGESTS.items():
        if oid == encoded:
            return name
    raise _refused("a hash that is not known here")


def _attributes(element: der.Element) -> dict[bytes, bytes]:
    """The signed attributes: object identifier to the one value, both DER."""
    found: dict[bytes, bytes] = {}
    for attribute in der.elements(element.content):
        oid, values = der.elements(attribute.content)
        (value,) = der.elements(values.content)
        if oid.encoded in found:
            raise _refused("an attribute stands twice")
        found[oid.encoded] = value.encoded
    return found


def _names(value: bytes, leaf: x509.Certificate) -> bool:
    """Whether the first ESSCertIDv2 of a signing-certificate attribute is ``leaf`` (RFC 5816; sha256 where unsaid)."""
    certificates, *_ = der.elements(der.only(value, der.SEQUENCE).content)
    first, *_ = der.elements(certificates.content)
    hashed, *more = der.elements(first.content)
    digest = "sha256"
    if hashed.tag == der.SEQUENCE:
        digest, (hashed, *_) = _digest(hashed), more
    return hashed.content == hashlib.new(digest, leaf.public_bytes(Encoding.DER)).digest()


def _verifies(leaf: x509.Certificate, signature: bytes, data: bytes, function: hashes.HashAlgorithm) -> bool:
    key = leaf.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, data, ec.ECDSA(function))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, data, padding.PKCS1v15(), function)
        else:
            return False
    except InvalidSignature:
        return False
    return True


@functools.lru_cache(maxsize=64)
def chain_fault(chain: tuple[x509.Certificate, ...]) -> str:
    """What keeps a chain from being a timestamp authority's, apart from time; empty where nothing does.

    RFC 5280 (section 6.1) for a chain that the root states whole, RFC 3161 (section 2.3) for the authority.
    """
    leaf = chain[0]
    try:
        purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        if not purposes.critical or ExtendedKeyUsageOID.TIME_STAMPING not in purposes.value:
            return "its certificate is not for timestamps alone"
        for depth, (certificate, issuer) in enumerate(itertools.pairwise(chain)):
            certificate.verify_directly_issued_by(issuer)
            constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
            if not constraints.ca or (
                constraints.path_length is not None and constraints.path_length < depth
            ):
                return f"{issuer.subject.rfc4514_string()} may not issue its certificate"
            if not _may_sign_certificates(issuer):
                return f"{issuer.subject.rfc4514_string()} may not sign certificates"
        unknown = [
            extension.oid.dotted_string
            for certificate in chain
            for extension in certificate.extensions
            if extension.critical and extension.oid not in _KNOWN_CRITICAL
        ]
    except Exception as error:  # noqa: BLE001 - extensions are parsed when asked for, signatures are of many kinds
        return f"its certificate does not chain to the root's: {type(error).__name__}: {error}"
    return f"its chain has critical extensions that are not known: {', '.join(unknown)}" if unknown else ""


def _may_sign_certificates(issuer: x509.Certificate) -> bool:
    try:
        return issuer.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def _refused(text: str) -> RejectedError:
    return RejectedError(text, reason="timestamp-untrusted")
