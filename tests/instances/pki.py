"""Certificate chains of a private instance: RSA or ECDSA keys, with or without certificates between root and issuer."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_LIFE = dt.timedelta(days=3650)


def make_key(kind: str) -> Key:
    """``rsa`` (2048 bits), or the name of a curve's size: ``p256``, ``p384``, ``p521``."""
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    curves = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}
    return ec.generate_private_key(curves[kind])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """Certificates from the one whose key signs to the root, and that key."""

    certificates: tuple[x509.Certificate, ...]
    key: Key

    def pem(self) -> bytes:
        return b"".join(item.public_bytes(Encoding.PEM) for item in self.certificates)

    def write(self, folder: Path, name: str, *, password: str = "") -> tuple[Path, Path]:
        """``<name>.crt.pem`` and ``<name>.key.pem``."""
        chain, key = folder / f"{name}.crt.pem", folder / f"{name}.key.pem"
        chain.write_bytes(self.pem())
        lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        key.write_bytes(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
        return chain, key


def authority(name: str, kind: str, *, between: int, usage: x509.ObjectIdentifier | None = None) -> Chain:
    """A certificate authority: a root, ``between`` intermediates, the last of which issues."""
    start = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(minutes=5)
    certificates: list[x509.Certificate] = []
    issuer_key, issuer_name = make_key(kind), _name(f"{name} root")
    certificates.append(
        _certificate(issuer_name, issuer_name, issuer_key, issuer_key, start, path=between, usage=None)
    )
    for number in range(between):
        key, subject = make_key(kind), _name(f"{name} intermediate {number + 1}")
        path = between - number - 1
        certificates.insert(
            0, _certificate(subject, issuer_name, key, issuer_key, start, path=path, usage=usage)
        )
        issuer_key, issuer_name = key, subject
    return Chain(certificates=tuple(certificates), key=issuer_key)


def timestamping(kind: str, *, between: int, leaf: str = "") -> Chain:
    """A timestamp authority: its certificate, ``between`` intermediates, a root."""
    above = authority("timestamp", kind, between=between, usage=ExtendedKeyUsageOID.TIME_STAMPING)
    key = make_key(leaf or kind)
    start = above.certificates[0].not_valid_before_utc
    certificate = _certificate(
        _name("timestamp signer"),
        above.certificates[0].subject,
        key,
        above.key,
        start,
        path=None,
        usage=ExtendedKeyUsageOID.TIME_STAMPING,
    )
    return Chain(certificates=(certificate, *above.certificates), key=key)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: Key,
    issuer_key: Key,
    start: dt.datetime,
    *,
    path: int | None,
    usage: x509.ObjectIdentifier | None,
) -> x509.Certificate:
    is_authority = path is not None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFE)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=path), critical=True)
        .add_extension(_usage(is_authority=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if usage is not None:
        # RFC 3161, 2.3: critical where timestamps are signed.
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=not is_authority)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "a private instance"),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )
