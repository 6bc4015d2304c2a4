"""Private keys of one generation of the embedded domain: made once, kept in PEM files with mode 0600."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from wheelmark.errors import StateError
from wheelmark.sign.embedded import storage

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey
_RSA_BITS = 2048
"""What real issuers of identity tokens use (RFC 7518, section 3.3: 2048 or larger)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """One key for each service, so that none can speak for another."""

    authority: ec.EllipticCurvePrivateKey
    """P-384: signs signing certificates."""
    ct_log: ec.EllipticCurvePrivateKey
    """P-256: signs certificate timestamps (RFC 6962, 2.1.4)."""
    log: ed25519.Ed25519PrivateKey
    """Signs checkpoints."""
    timestamp_authority: ec.EllipticCurvePrivateKey
    """P-384: signs the certificate of ``timestamping``."""
    timestamping: ec.EllipticCurvePrivateKey
    """P-256: signs timestamps."""
    tokens: rsa.RSAPrivateKey
    """RS256: signs identity tokens (cosign reads no other algorithm)."""


def generate() -> Keys:
    """New keys for one generation."""
    return Keys(
        authority=ec.generate_private_key(ec.SECP384R1()),
        ct_log=ec.generate_private_key(ec.SECP256R1()),
        log=ed25519.Ed25519PrivateKey.generate(),
        timestamp_authority=ec.generate_private_key(ec.SECP384R1()),
        timestamping=ec.generate_private_key(ec.SECP256R1()),
        tokens=rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS),
    )


def save(keys: Keys, folder: Path) -> None:
    """Write each key to ``<name>.key.pem`` in ``folder``, and the logs' public keys to ``<name>.pub.pem``."""
    for field in dataclasses.fields(keys):
        key: PrivateKey = getattr(keys, field.name)
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        storage.write_new(folder / f"{field.name}.key.pem", data)

    for name, public in (("ct_log", keys.ct_log.public_key()), ("log", keys.log.public_key())):
        data = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        storage.write_new(folder / f"{name}.pub.pem", data)


def delete(folder: Path) -> None:
    """Delete the private keys in ``folder``, if any; the public ones stay."""
    for path in sorted(folder.glob("*.key.pem")):
        path.unlink()
    storage.sync_directory(folder)


def load_public(folder: Path) -> tuple[ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey]:
    """The public keys of the certificate log and of the transparency log.

    Raises:
        StateError: One is absent, unreadable or of the wrong kind (reason ``trust-keys``).
    """
    ct_log = _read(folder / "ct_log.pub.pem", load_pem_public_key)
    log = _read(folder / "log.pub.pem", load_pem_public_key)
    if not isinstance(ct_log, ec.EllipticCurvePublicKey) or not isinstance(log, ed25519.Ed25519PublicKey):
        raise _other_kind(folder)
    return ct_log, log


def load(folder: Path) -> Keys:
    """Read what ``save`` wrote.

    Raises:
        StateError: A key is absent, unreadable or of the wrong kind (reason ``trust-keys``).
    """
    log, tokens = _load(folder / "log.key.pem"), _load(folder / "tokens.key.pem")
    if not isinstance(log, ed25519.Ed25519PrivateKey) or not isinstance(tokens, rsa.RSAPrivateKey):
        raise _other_kind(folder)
    return Keys(
        authority=_load_elliptic(folder / "authority.key.pem"),
        ct_log=_load_elliptic(folder / "ct_log.key.pem"),
        log=log,
        timestamp_authority=_load_elliptic(folder / "timestamp_authority.key.pem"),
        timestamping=_load_elliptic(folder / "timestamping.key.pem"),
        tokens=tokens,
    )


def _load_elliptic(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _load(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _other_kind(path)
    return key


def _load(path: Path) -> object:
    return _read(path, lambda data: load_pem_private_key(data, None))


def _read(path: Path, parse: Callable[[bytes], object]) -> object:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StateError(
            f"cannot read the key {path}: {error}",
            fix="restore a backup, or begin anew with wheelmark trust rotate: what was signed stays verifiable",
            reason="trust-keys",
        ) from error


def _other_kind(path: Path) -> StateError:
    return StateError(f"{path} holds a key of another kind", reason="trust-keys")


def public_der(key: PublicKey) -> bytes:
    """SubjectPublicKeyInfo in DER."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_hash(key: PublicKey) -> bytes:
    """sha256 of SubjectPublicKeyInfo: how RFC 6962 (3.2) names logs and issuers."""
    return hashlib.sha256(public_der(key)).digest()


def base64_text(data: bytes) -> str:
    """Standard base64, as protobuf JSON writes bytes."""
    return base64.b64encode(data).decode()
