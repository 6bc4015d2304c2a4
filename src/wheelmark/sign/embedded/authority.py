"""The certificate authority: Fulcio's one call, an identity token and a key in, a ten-minute certificate out.

Formats: fulcio ``fulcio.proto`` (v2 ``CreateSigningCertificateRequest`` and its answer), certificate profile of
Sigstore's "Fulcio certificate specification"; the extensions are in ``claims``. Certificates of the services
themselves are made here too.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wheelmark.attest.dsse import decode_base64
from wheelmark.errors import InputError
from wheelmark.sign.embedded import claims as token_claims
from wheelmark.sign.embedded.ctlog import CertificateLog
from wheelmark.sign.embedded.oidc import TokenIssuer

ORGANIZATION = "self-issued, no external trust"
CERTIFICATE_LIFETIME = dt.timedelta(minutes=10)
SERVICE_LIFETIME = dt.timedelta(days=3650)
_HASH = hashes.SHA384()


def service_authority(name: str, key: ec.EllipticCurvePrivateKey, start: dt.datetime) -> x509.Certificate:
    """A self-signed root that issues end-entity certificates directly."""
    subject = _name(name)
    public = key.public_key()
    return (
        _builder(subject, subject, public, start, start + SERVICE_LIFETIME, is_authority=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, _HASH)
    )


def timestamping_certificate(
    key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
    start: dt.datetime,
) -> x509.Certificate:
    """The certificate that timestamps are signed under (RFC 3161, 2.3: that usage alone, and critical)."""
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        _builder(_name("timestamping"), issuer.subject, key, start, start + SERVICE_LIFETIME)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, _HASH)
    )


class CertificateAuthority:
    """Issues signing certificates for the tokens of one issuer."""

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        tokens: TokenIssuer,
        log: CertificateLog,
    ) -> None:
        self._key = key
        self._certificate = certificate
        self._tokens = tokens
        self._log = log

    def issue(self, token: str, request: Any) -> dict[str, Any]:
        """A certificate for the token's identity over the request's key, with the chain that it hangs on.

        Args:
            token: Identity token; empty where the request carries it itself.
            request: The request's JSON value: with ``certificateSigningRequest`` (sigstore-python), or with
                ``publicKeyRequest`` (cosign, sigstore-go).

        Raises:
            InputError: A token that is not good (reason ``token``), or a key whose possession is not proved
                (reason ``certificate-request``).
        """
        claims = self._tokens.check(token or _inline_token(request))
        certificate = self._certify(claims, _requested_key(request, claims))
        chain = [item.public_bytes(Encoding.PEM).decode() for item in (certificate, self._certificate)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _certify(self, claims: token_claims.Claims, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(x509.Name([]), self._certificate.subject, key, now, now + CERTIFICATE_LIFETIME)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectAlternativeName([token_claims.subject_name(claims)]), critical=True)
        )
        for extension in token_claims.extensions(claims):
            builder = builder.add_extension(extension, critical=False)
        # RFC 6962, 3.2: what is logged is the certificate without its poison or SCT list; that is this one.
        precertificate = builder.sign(self._key, _HASH).tbs_certificate_bytes
        promise = self._log.promise(precertificate, self._key.public_key())
        return builder.add_extension(promise, critical=False).sign(self._key, _HASH)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: dt.datetime,
    end: dt.datetime,
    *,
    is_authority: bool = False,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _inline_token(request: Any) -> str:
    try:
        return str(request["credentials"]["oidcIdentityToken"])
    except (KeyError, TypeError) as error:
        raise InputError("a certificate request carries no identity token", reason="token") from error


def _requested_key(request: Any, claims: token_claims.Claims) -> ec.EllipticCurvePublicKey:
    """The public key of a request, whose owner proved to hold the private one."""
    try:
        if "certificateSigningRequest" in request:
            pem = decode_base64(request["certificateSigningRequest"], what="certificate request")
            asked = x509.load_pem_x509_csr(pem)
            if not asked.is_signature_valid:
                raise InputError("certificate request: bad signature", reason="certificate-request")
            return _usable(asked.public_key())
        asked_key = request["publicKeyRequest"]
        key = _usable(load_pem_public_key(asked_key["publicKey"]["content"].encode()))
        proof = decode_base64(asked_key["proofOfPossession"], what="proof of possession")
        key.verify(proof, token_claims.proved_subject(claims).encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise InputError("proof of possession: bad signature", reason="certificate-request") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"malformed certificate request: {error}", reason="certificate-request") from error
    return key


def _usable(key: object) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError("only ECDSA keys on P-256 are certified", reason="certificate-request")
    return key
