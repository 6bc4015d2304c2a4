"""Facts: what a bundle proves under the roots that a policy names. Cryptography only; no policy, no clock.

The plan, with the same numbers at the code:

1. The bytes are within bounds (``LIMITS``), before any parser sees them.
2. Strict JSON of a bundle, version 0.1 to 0.3, every member known. Under a canonical root (this machine's,
   and those that a policy marks) the bytes are exactly the one form that Wheelmark writes.
3. A signing certificate that an authority of one root issued. The root is found by that alone.
4. The signature, over the DSSE pre-authentication encoding or the artifact's digest.
5. The log entry: rebuilt from the bundle and compared; inclusion proof, root hash and checkpoint recomputed,
   the checkpoint signed by the log.
6. Signed time: RFC 3161 timestamps, or the promise of a Rekor v1 log. A time that is claimed and not signed
   counts for nothing. At every signed time the certificate was valid, and authority, certificate transparency
   log, log and timestamp authority were trusted (closed intervals).
7. The DSSE payload is an in-toto statement, read strictly, with subjects that have names and sha256.
8. sigstore-python agrees (see ``opinion``), and the facts are a value: who signed, when, what, under which
   root, and which fields nothing authenticates. Under a canonical root there may be none of those.

A bundle that fails is an exception with a reason code: ``RejectedError`` (bad evidence) or ``InputError``
(malformed). Any exception of a library below becomes one of them.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import warnings
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from wheelmark import digests
from wheelmark.attest.bundle import canonical_bundle
from wheelmark.attest.dsse import PAYLOAD_TYPE
from wheelmark.attest.statement import Statement, read_statement
from wheelmark.errors import InputError, RejectedError, WheelmarkError
from wheelmark.trust.roots import Authority, Root
from wheelmark.verify import certificate as certificates
from wheelmark.verify import log, timestamps
from wheelmark.verify.bundle import LIMITS, Bundle, Envelope, MessageSignature, read_bundle
from wheelmark.verify.opinion import ReferenceClient


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What one bundle proves. Nothing in it is a judgement."""

    bundle_sha256: str
    root: str
    """Name of the root under which it verified."""
    identity: str
    issuer: str
    claims: Mapping[str, str]
    """Further extensions of the certificate, by the last number of Fulcio's arc."""
    certificate_sha256: str
    key_id: str = ""
    """sha256 of the managed key's SubjectPublicKeyInfo, hexadecimal; empty for a certificate's signature."""
    times: tuple[dt.datetime, ...]
    """Every signed time, earliest first; never empty."""
    log_origin: str
    log_index: int
    """In the tree that the checkpoint signs."""
    entry_kind: str
    statement: Statement | None
    """``None`` for a message signature."""
    payload: bytes = dataclasses.field(repr=False)
    """The signed statement's bytes; empty for a message signature."""
    artifact_sha256: str
    """The digest that a message signature is over; empty for a statement."""
    unauthenticated: tuple[str, ...]
    """Fields of the bundle that no signature covers and nothing recomputes."""

    @property
    def time(self) -> dt.datetime:
        """The latest signed time."""
        return self.times[-1]


class Examiner:
    """Establishes facts under a set of roots; one per process, since what it builds is reused.

    Args:
        roots: The policy's roots.
    """

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(roots)
        self._clients = {root.name: ReferenceClient(root) for root in roots}
        self._known: dict[tuple[str, str], Facts] = {}

    def examine(self, data: bytes, *, artifact: str = "") -> Facts:
        """The facts of one bundle; the same bytes are verified once.

        Args:
            data: The bundle.
            artifact: sha256 of the artifact that a message signature is to be about.

        Raises:
            RejectedError: Bad evidence.
            InputError: A malformed or oversized bundle.
        """
        if len(data) > LIMITS.size:  # 1
            raise InputError(
                f"bundle of {len(data):,} bytes; the limit is {LIMITS.size:,}", reason="json-too-large"
            )
        key = (digests.sha256(data), artifact)
        if key not in self._known:
            self._known[key] = self._establish(data, artifact)
        return self._known[key]

    def _establish(self, data: bytes, artifact: str) -> Facts:
        try:
            with warnings.catch_warnings():
                # Of libraries, about odd certificates: they are refused below, or they are not odd enough.
                warnings.simplefilter("ignore")
                return self._follow_plan(data, artifact)
        except WheelmarkError:
            raise
        except Exception as error:  # row 44: whatever a library raises is a refusal, never a traceback
            raise RejectedError(
                f"the bundle could not be verified: {type(error).__name__}: {str(error)[:300]}",
                cause="a library refused it in a way that is not foreseen here",
                reason="library",
            ) from error

    def _follow_plan(self, data: bytes, artifact: str) -> Facts:
        bundle = read_bundle(data)  # 2
        certificate = certificates.load(bundle.certificates)  # 3
        root, authorities = self._root_of(certificate)
        if root.canonical and not (bundle.spelled() == data == _canonical(data)):
            raise RejectedError(
                "the bundle is not in the one form that Wheelmark writes",
                cause="it was changed, or written by another tool",
                reason="not-canonical",
            )
        digest = _artifact_digest(bundle, artifact)
        _check_signature(bundle, certificate, digest)  # 4
        log.check_body(bundle, certificate, digest)  # 5
        log.check_inclusion(bundle.entry.proof, bundle.entry.body)
        times, ignored = _signed_times(bundle, root)  # 6
        origin, alone = log.check_checkpoint(bundle.entry, root.material.logs, times)
        for time in times:
            issuer = certificates.check_chain(certificate, authorities, time)
            certificates.check_transparency(certificate, issuer, root.material.ct_logs, time)
        signer = certificates.read_signer(certificate)
        statement = _statement(bundle)  # 7
        self._clients[root.name].check(data, digest, certificate)  # 8
        unauthenticated = (*_unauthenticated(bundle, root, alone=alone), *ignored)
        if root.canonical and unauthenticated:
            raise RejectedError(
                f"nothing authenticates {', '.join(unauthenticated)} of the bundle",
                cause="bundles that Wheelmark writes have no such field",
                reason="unauthenticated",
            )
        return Facts(
            bundle_sha256=digests.sha256(data),
            root=root.name,
            identity=signer.identity,
            issuer=signer.issuer,
            claims=signer.claims,
            certificate_sha256=signer.sha256,
            times=times,
            log_origin=origin,
            log_index=bundle.entry.proof.index,
            entry_kind=f"{bundle.entry.kind} {bundle.entry.version}",
            statement=statement,
            payload=bundle.content.payload if isinstance(bundle.content, Envelope) else b"",
            artifact_sha256=artifact if digest is not None else "",
            unauthenticated=unauthenticated,
        )

    def _root_of(self, certificate: x509.Certificate) -> tuple[Root, tuple[Authority, ...]]:
        for root in self._roots:
            if found := certificates.issued_by(certificate, root.material.authorities):
                return root, found
        raise RejectedError(
            "no root of the policy issued the signing certificate",
            cause=f"the bundle is of another Sigstore instance; roots tried: {', '.join(r.name for r in self._roots)}",
            reason="untrusted-root",
        )


def _canonical(data: bytes) -> bytes:
    try:
        return canonical_bundle(data)
    except InputError:
        return b""


def _artifact_digest(bundle: Bundle, artifact: str) -> bytes | None:
    if isinstance(bundle.content, Envelope):
        return None
    if not artifact:
        raise RejectedError(
            "a signature over an artifact's digest, without the artifact", reason="statement-expected"
        )
    digest = bytes.fromhex(artifact)
    if bundle.content.digest is not None and bundle.content.digest != digest:
        raise RejectedError(
            f"the bundle is about an artifact with sha256 {bundle.content.digest.hex()}; this one has {artifact}",
            reason="message-digest",
        )
    return digest


def _check_signature(bundle: Bundle, certificate: x509.Certificate, digest: bytes | None) -> None:
    key = certificate.public_key()
    _, _, function = log.key_profile(certificate)
    algorithm: hashes.HashAlgorithm | Prehashed = function
    match bundle.content:
        case Envelope():
            data = bundle.content.pae()
        case MessageSignature():
            # Clients sign the artifact's sha256, whatever the curve.
            data, algorithm = digest or b"", Prehashed(hashes.SHA256())
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(bundle.signature, data, ec.ECDSA(algorithm))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(bundle.signature, data, padding.PKCS1v15(), algorithm)
    except InvalidSignature as error:
        raise RejectedError(
            "the signature is not the certificate's over this content", reason="signature"
        ) from error


def _signed_times(bundle: Bundle, root: Root) -> tuple[tuple[dt.datetime, ...], tuple[str, ...]]:
    """Signed times, and what was ignored because another time stands without it."""
    if len(set(bundle.timestamps)) != len(bundle.timestamps):
        raise RejectedError("the bundle has one timestamp twice", reason="timestamp-other")
    times: list[dt.datetime] = []
    failures: list[WheelmarkError] = []
    promised = log.check_promise(bundle.entry, root.material.logs)
    if promised is not None:
        times.append(promised)
    for token in bundle.timestamps:
        try:
            times.append(
                timestamps.check_timestamp(token, bundle.signature, root.material.timestamp_authorities)
            )
        except (RejectedError, InputError) as error:
            failures.append(error)
    if failures and (not times or root.canonical):
        raise failures[0]
    if not times:
        claimed = bundle.entry.integrated_time is not None
        raise RejectedError(
            "the bundle claims a time that nobody signed" if claimed else "the bundle has no signed time",
            cause="the timestamp was taken out, or the signer asked no timestamp authority",
            reason="time-unsigned" if claimed else "time-missing",
        )
    return tuple(sorted(times)), ("timestampVerificationData",) if failures else ()


def _statement(bundle: Bundle) -> Statement | None:
    if not isinstance(bundle.content, Envelope):
        return None
    if bundle.content.payload_type != PAYLOAD_TYPE:
        raise RejectedError(
            f"the envelope holds {bundle.content.payload_type!r:.120}, not an in-toto statement",
            reason="payload-type",
        )
    return read_statement(bundle.content.payload)


def _unauthenticated(bundle: Bundle, root: Root, *, alone: bool) -> tuple[str, ...]:
    entry = bundle.entry
    found = []
    # A promise covers the outer index; without one, only equality with the proven index does.
    if entry.promise is None and entry.index != entry.proof.index:
        found.append("tlogEntries.logIndex")
    if entry.promise is None and entry.integrated_time is not None:
        found.append("tlogEntries.integratedTime")
    if not alone:
        found.append("inclusionProof.checkpoint.signatures")
    if len(bundle.certificates) > 1:
        found.append("x509CertificateChain")
    authorities = root.material.timestamp_authorities
    if not all(
        timestamps.has_one_form(token, authorities, carries=root.canonical) for token in bundle.timestamps
    ):
        found.append("rfc3161Timestamps.signedTimestamp")
    if isinstance(bundle.content, Envelope) and bundle.content.keyid:
        found.append("dsseEnvelope.signatures.keyid")
    return tuple(found)
