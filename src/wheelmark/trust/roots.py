"""Trust roots: Sigstore trusted-root files that an operator named, read strictly.

A root is named by its policy with the sha256 of its bytes, or is ``this-machine`` (the embedded instance's
root in the state directory). What it says is turned into values with **closed** windows of trust: a key or an
authority counts from its first instant to its last, both included. A log or authority with no start of
validity makes the root unusable (``root-no-start``), and so does a root without an authority or a log.

Format: ``application/vnd.dev.sigstore.trustedroot+json;version=0.1`` (sigstore/protobuf-specs,
``sigstore_trustroot.proto``); a client trust configuration is read for the trusted root inside it.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from wheelmark import digests, strictjson
from wheelmark.errors import INTERRUPTS, ConfigError, InputError
from wheelmark.plainfiles import read_named
from wheelmark.trust import state

THIS_MACHINE = "this-machine"
ROOT_TYPES = (
    "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    "application/vnd.dev.sigstore.trustedroot.v0.1+json",
)
CONFIG_TYPE = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
_LIMITS = strictjson.Limits(size=4 << 20, depth=16, items=10_000, string=1 << 20)

_EC_HASHES: Mapping[str, hashes.HashAlgorithm] = {
    "PKIX_ECDSA_P256_SHA_256": hashes.SHA256(),
    "PKIX_ECDSA_P384_SHA_384": hashes.SHA384(),
    "PKIX_ECDSA_P521_SHA_512": hashes.SHA512(),
}
_RSA_SHA256 = (
    "PKCS1_RSA_PKCS1V5",
    "PKIX_RSA_PKCS1V15_2048_SHA256",
    "PKIX_RSA_PKCS1V15_3072_SHA256",
    "PKIX_RSA_PKCS1V15_4096_SHA256",
)
_FRACTION = re.compile(r"(\.\d{6})\d+")

_Item = TypeVar("_Item")
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A closed interval of time; ``end`` is ``None`` while it is open."""

    start: dt.datetime
    end: dt.datetime | None = None

    def contains(self, time: dt.datetime) -> bool:
        """Whether ``time`` lies in it, the first and the last instant included."""
        return self.start <= time and (self.end is None or time <= self.end)

    def __str__(self) -> str:
        end = "open" if self.end is None else self.end.isoformat()
        return f"{self.start.isoformat()} to {end}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Authority:
    """A certificate or timestamp authority: its chain, the issuing certificate first and the root last."""

    certificates: tuple[x509.Certificate, ...]
    window: Window

    @property
    def keys(self) -> frozenset[bytes]:
        """SubjectPublicKeyInfo of each of its certificates."""
        return frozenset(
            item.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            for item in self.certificates
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogKey:
    """The key of a transparency log, or of a certificate transparency log."""

    log_id: bytes
    """What bundles name it by (``logId.keyId``)."""
    key_id: bytes
    """sha256 of the key's SubjectPublicKeyInfo (RFC 6962, section 3.2)."""
    key: PublicKey
    details: str
    """``PublicKeyDetails`` of protobuf-specs."""
    host: str
    """Host of the log's base URL."""
    window: Window

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether ``signature`` over ``data`` is this key's."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, data)
            elif isinstance(self.key, ec.EllipticCurvePublicKey):
                self.key.verify(signature, data, ec.ECDSA(_EC_HASHES[self.details]))
            else:
                self.key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    """What a trusted-root file says."""

    authorities: tuple[Authority, ...]
    ct_logs: tuple[LogKey, ...]
    logs: tuple[LogKey, ...]
    timestamp_authorities: tuple[Authority, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """A trust root that a policy names."""

    name: str
    sha256: str
    data: bytes
    """The file's bytes, as their digest says."""
    issuers: tuple[str, ...]
    """OIDC issuers that it may vouch for; a certificate with another issuer is refused."""
    level: str
    """The trust level's words, the operator's own: what a bundle under this root proves."""
    canonical: bool
    """Whether bundles under it have to be in the canonical form that Wheelmark writes."""
    material: Material
    document: Mapping[str, Any] = dataclasses.field(repr=False)
    """The trusted root as parsed JSON."""
    second_opinion: bool = False
    """Whether sigstore-python has to accept each bundle under it too."""
    vouched: dt.datetime | None = None
    """When TUF last vouched for it; ``None`` for a root that is named by its own digest."""
    max_age: dt.timedelta | None = None
    """How long after ``vouched`` it may be used."""


def load_root(
    path: Path,
    *,
    name: str,
    sha256: str,
    issuers: tuple[str, ...],
    level: str,
    canonical: bool = False,
    second_opinion: bool = False,
) -> Root:
    """The root in ``path``, whose bytes must have the digest ``sha256``.

    Raises:
        ConfigError: The file is absent, has another digest (``root-digest``), or cannot be used.
    """
    data = _read(path, name)
    if digests.sha256(data) != sha256:
        raise ConfigError(
            f"trust root {name!r}: {path} has sha256 {digests.sha256(data)}, the policy names {sha256}",
            cause="the file was replaced, or the policy is older than the root",
            fix="compare both digests with the publisher's, then correct the policy",
            reason="root-digest",
        )
    return read_root(
        data, name=name, issuers=issuers, level=level, canonical=canonical, second_opinion=second_opinion
    )


def this_machine(*, name: str, issuers: tuple[str, ...], level: str, second_opinion: bool = False) -> Root:
    """The root of the embedded instance on this machine, as it is now; its bundles must be canonical.

    Raises:
        ConfigError: There is none yet, or it cannot be used.
    """
    path = state.embedded_root_path()
    if not path.is_file():
        raise ConfigError(
            f"trust root {name!r}: this machine has no embedded Sigstore instance ({path} is absent)",
            cause="nothing was signed here yet, or WHEELMARK_STATE points elsewhere",
            fix="run `nox -s sign` first, or name a root by path and sha256",
            reason="root-absent",
        )
    return read_root(
        _read(path, name),
        name=name,
        issuers=issuers,
        level=level,
        canonical=True,
        second_opinion=second_opinion,
    )


def read_root(
    data: bytes,
    *,
    name: str,
    issuers: tuple[str, ...],
    level: str,
    canonical: bool,
    second_opinion: bool = False,
) -> Root:
    """A root from its bytes.

    Raises:
        ConfigError: The bytes are no trusted root that can be used.
    """
    document = _document(data, name)
    material = read_material(document, name=name)
    return Root(
        name=name,
        sha256=digests.sha256(data),
        data=data,
        issuers=issuers,
        level=level,
        canonical=canonical,
        material=material,
        document=document,
        second_opinion=second_opinion,
    )


def read_material(document: Mapping[str, Any], *, name: str) -> Material:
    """The keys, authorities and windows of a parsed trusted root.

    Raises:
        ConfigError: ``root-shape``, ``root-no-start`` or ``root-empty``.
    """
    try:
        material = Material(
            authorities=_authorities(document, "certificateAuthorities", name),
            ct_logs=_logs(document, "ctlogs", name),
            logs=_logs(document, "tlogs", name),
            timestamp_authorities=_authorities(document, "timestampAuthorities", name),
        )
    except ConfigError:
        raise
    except INTERRUPTS:
        raise
    except BaseException as error:  # cryptography raises classes of its own beside ValueError
        raise ConfigError(
            f"trust root {name!r} has a missing or malformed field: {type(error).__name__}: {error}",
            reason="root-shape",
        ) from error
    if not material.authorities or not material.logs:
        raise ConfigError(
            f"trust root {name!r} names no {'log' if material.authorities else 'certificate authority'}",
            fix="use the whole trusted_root.json of the instance",
            reason="root-empty",
        )
    return material


def _read(path: Path, name: str) -> bytes:
    return read_named(path, _LIMITS.size + 1, what=f"trust root {name!r}: ", reason="root-absent")


def _document(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        document = strictjson.load_object(data, what=f"trust root {name!r}", limits=_LIMITS)
    except InputError as error:
        raise ConfigError(error.what, reason="root-shape") from error
    found: Any = document.get("trustedRoot") if document.get("mediaType") == CONFIG_TYPE else document
    if not isinstance(found, dict) or found.get("mediaType") not in ROOT_TYPES:
        raise ConfigError(
            f"trust root {name!r} is not a Sigstore trusted root",
            fix=f"use a file whose mediaType is {ROOT_TYPES[0]}",
            reason="root-shape",
        )
    return found


def _authorities(document: Mapping[str, Any], field: str, name: str) -> tuple[Authority, ...]:
    def read(item: Mapping[str, Any]) -> Authority:
        chain = tuple(
            x509.load_der_x509_certificate(_bytes(certificate["rawBytes"]))
            for certificate in item["certChain"]["certificates"]
        )
        if not chain:
            raise ConfigError(f"trust root {name!r}: an authority has no certificate", reason="root-shape")
        for certificate in chain:
            _read_whole(certificate)
        return Authority(certificates=chain, window=_window(item, field, name))

    return _each(document, field, read)


def _read_whole(certificate: x509.Certificate) -> None:
    """Read what is parsed when it is first asked for: a root that cannot be used is said to be one at once."""
    _ = (
        certificate.subject,
        certificate.issuer,
        list(certificate.extensions),
        certificate.signature_hash_algorithm,
    )
    _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _logs(document: Mapping[str, Any], field: str, name: str) -> tuple[LogKey, ...]:
    def read(item: Mapping[str, Any]) -> LogKey | None:
        public = item["publicKey"]
        details = str(public["keyDetails"])
        key = load_der_public_key(_bytes(public["rawBytes"]))
        window = _window(public, field, name)
        if not _usable(key, details):
            return None  # a key of a kind not known here vouches for nothing
        assert isinstance(key, PublicKey)  # noqa: S101 - _usable looked; this tells the type checker
        key_id = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
        named = item.get("logId", {}).get("keyId", "")
        return LogKey(
            log_id=_bytes(named) if named else key_id,
            key_id=key_id,
            key=key,
            details=details,
            host=urlsplit(str(item.get("baseUrl", ""))).hostname or "",
            window=window,
        )

    return _each(document, field, read)


def _each(
    document: Mapping[str, Any], field: str, read: Callable[[Mapping[str, Any]], _Item | None]
) -> tuple[_Item, ...]:
    items: Iterable[Mapping[str, Any]] = document.get(field, [])
    return tuple(value for item in items if (value := read(item)) is not None)


def _usable(key: object, details: str) -> bool:
    return (
        (details in _EC_HASHES and isinstance(key, ec.EllipticCurvePublicKey))
        or (details in _RSA_SHA256 and isinstance(key, rsa.RSAPublicKey))
        or (details == "PKIX_ED25519" and isinstance(key, ed25519.Ed25519PublicKey))
    )


def _window(item: Mapping[str, Any], field: str, name: str) -> Window:
    valid = item.get("validFor") or {}
    if not valid.get("start"):
        raise ConfigError(
            f"trust root {name!r}: an entry of {field} has no start of validity",
            cause="without it, a key would count for all time before",
            fix="use the instance's own trusted_root.json",
            reason="root-no-start",
        )
    start = _time(valid["start"])
    return Window(start=start, end=_time(valid["end"]) if valid.get("end") else None)


def _time(text: str) -> dt.datetime:
    time = dt.datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    if time.tzinfo is None:
        raise ValueError(f"time without a zone: {text}")
    return time


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
