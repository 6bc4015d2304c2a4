"""Facts: what a bundle proves under the roots that a policy names. Cryptography only; no policy, no clock.

The plan, with the same numbers at the code:

1. The bytes are within bounds (``LIMITS``), before any parser sees them.
2. Strict JSON of a bundle, version 0.1 to 0.3, every member known. Under a canonical root (this machine's,
   and those that a policy marks) the bytes are exactly the one form that Wheelmark writes.
3. Who signed: a certificate that an authority of one root issued, or a managed key of the policy, under whose
   root the log stands. The root is found by that alone, and no two roots share an authority's key.
4. The signature, over the DSSE pre-authentication encoding or the artifact's digest.
5. The log entry: rebuilt from the bundle and compared; inclusion proof, root hash and checkpoint recomputed,
   the checkpoint signed by the log.
6. Signed time: RFC 3161 timestamps, or the promise of a Rekor v1 log. A time that is claimed and not signed
   counts for nothing. At every signed time the certificate was valid, and authority, certificate transparency
   log, log and timestamp authority were trusted (closed intervals). A key has no window but theirs.
7. The DSSE payload is an in-toto statement, read strictly, with subjects that have names and sha256, none twice.
   Subjects are known by sha256 alone: a digest of another algorithm is compared with nothing, and reported so.
8. Where the root asks for a second opinion, sigstore-python agrees (``opinion``). The facts are a value: who
   signed, when, what, under which root, and which fields nothing authenticates. Under a canonical root there may
   be none of those.

A bundle that fails is an exception with a reason code: ``RejectedError`` (bad evidence) or ``InputError``
(malformed). Any exception of a library below becomes one of them.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wheelmark import digests
from wheelmark.attest.dsse import PAYLOAD_TYPE
from wheelmark.attest.statement import Statement, read_statement
from wheelmark.errors import INTERRUPTS, ConfigError, InputError, RejectedError, WheelmarkError
from wheelmark.trust.keys import ManagedKey, hint_of
from wheelmark.trust.roots import Root
from wheelmark.verify import certificate as certificates
from wheelmark.verify import entry, log, timestamps
from wheelmark.verify.bundle import LIMITS, Bundle, Envelope, read_bundle
from wheelmark.verify.signature import SigningKey, signed, signing_key

if TYPE_CHECKING:
    from wheelmark.verify.factscache import FactsCache
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
    """Of the certificate's DER bytes; empty where a key signed."""
    key_id: str = ""
    """sha256 of a managed key's SubjectPublicKeyInfo, hexadecimal; then identity, issuer and claims are empty."""
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
    """Fields of the bundle that no signature covers, or that nothing recomputes."""

    @property
    def time(self) -> dt.datetime:
        """The latest signed time."""
        return self.times[-1]

    def as_json(self) -> dict[str, Any]:
        """These facts as JSON values; ``from_json`` gives the same facts again."""
        return {
            "bundle_sha256": self.bundle_sha256,
            "root": self.root,
            "identity": self.identity,
            "issuer": self.issuer,
            "claims": dict(self.claims),
            "certificate_sha256": self.certificate_sha256,
            "key_id": self.key_id,
            "times": [time.isoformat() for time in self.times],
            "log_origin": self.log_origin,
            "log_index": self.log_index,
            "entry_kind": self.entry_kind,
            "payload": base64.b64encode(self.payload).decode(),
            "artifact_sha256": self.artifact_sha256,
            "unauthenticated": list(self.unauthenticated),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Facts:
        """The facts that ``as_json`` gave.

        Raises:
            InputError: It is not what ``as_json`` gives (``facts``), or its statement is none.
        """
        try:
            payload = base64.b64decode(value["payload"], validate=True)
            made = cls(
                **{name: value[name] for name in _TEXTS},
                log_index=value["log_index"],
                claims=dict(value["claims"]),
                times=tuple(dt.datetime.fromisoformat(text) for text in value["times"]),
                payload=payload,
                statement=read_statement(payload) if payload else None,
                unauthenticated=tuple(value["unauthenticated"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"these are no facts: {type(error).__name__}: {error}", reason="facts"
            ) from error
        texts = [value[name] for name in _TEXTS] + [
            *made.claims,
            *made.claims.values(),
            *made.unauthenticated,
        ]
        if (
            made.as_json() != value
            or not made.times
            or not all(time.tzinfo for time in made.times)
            or not all(isinstance(text, str) for text in texts)
            or type(made.log_index) is not int
        ):
            raise InputError("these are no facts: other members or values", reason="facts")
        return made


_TEXTS = (
    "bundle_sha256",
    "root",
    "identity",
    "issuer",
    "certificate_sha256",
    "key_id",
    "log_origin",
    "entry_kind",
    "artifact_sha256",
)


class Examiner:
    """Establishes facts under a set of roots; one per process, since what it builds is reused.

    Args:
        roots: The policy's roots.
        keys: Managed keys, each of one of the roots.
        cache: Where facts are kept from one process to the next; nothing is where absent.

    Raises:
        ConfigError: Two roots share an authority's key, or a key names no root or one log's entries under two
            (``policy-contradiction``); sigstore-python cannot use a root that asks for its opinion (``root-shape``).
    """

    def __init__(
        self, roots: Sequence[Root], keys: Sequence[ManagedKey] = (), *, cache: FactsCache | None = None
    ) -> None:
        check_apart(roots, keys)
        self._roots = tuple(roots)
        self._keys = tuple((key, self._root(key.root)) for key in keys)
        self._clients = {root.name: _client(root) for root in roots if root.second_opinion}
        self._cache = cache
        self._trust = _spelled_trust(self._roots, keys)
        self._above: certificates.Above = {}
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
            self._known[key] = self._recalled(*key) or self._established(data, *key)
        return self._known[key]

    def _recalled(self, bundle: str, artifact: str) -> Facts | None:
        if self._cache is None:
            return None
        return self._cache.recall(trust=self._trust, bundle=bundle, artifact=artifact)

    def _established(self, data: bytes, bundle: str, artifact: str) -> Facts:
        try:
            with warnings.catch_warnings():
                # Of libraries, about odd certificates: they are refused below, or they are not odd enough.
                warnings.simplefilter("ignore")
                facts = self._follow_plan(data, bundle, artifact)
        except WheelmarkError:
            raise
        except INTERRUPTS:
            raise
        except BaseException as error:  # row 44: whatever a library raises is a refusal, never a traceback
            raise RejectedError(
                f"the bundle could not be verified: {type(error).__name__}: {str(error)[:300]}",
                cause="a library refused it in a way that is not foreseen here",
                reason="library",
            ) from error
        if self._cache is not None:
            self._cache.keep(facts, trust=self._trust, artifact=artifact)
        return facts

    def _follow_plan(self, data: bytes, sha256: str, artifact: str) -> Facts:
        bundle = read_bundle(data)  # 2
        digest = _artifact_digest(bundle, artifact)
        if bundle.key_hint is None:  # 3
            key, root = self._certified(bundle)
        else:
            key, root = self._managed(bundle, digest)
        if root.canonical and not _has_our_form(bundle, root, data):
            raise RejectedError(
                "the bundle is not in the one form that Wheelmark writes",
                cause="it was changed, or written by another tool",
                reason="not-canonical",
            )
        if not signed(key, bundle.content, digest):  # 4
            raise RejectedError("the signature is not the signer's over this content", reason="signature")
        entry.check_body(bundle, key, digest)  # 5
        log.check_inclusion(bundle.entry.proof, bundle.entry.body)
        times, ignored = _signed_times(bundle, root)  # 6
        origin, alone = log.check_checkpoint(bundle.entry, root.material.logs, times)
        signer = _signer(key, root, times, self._above)
        statement = _statement(bundle)  # 7
        if key.certificate is not None and root.name in self._clients:  # 8
            self._clients[root.name].check(data, digest, key.certificate)
        unauthenticated = (
            *_unauthenticated(bundle, key, root, alone=alone),
            *_not_compared(statement),
            *ignored,
        )
        if root.canonical and unauthenticated:
            raise RejectedError(
                f"nothing authenticates {', '.join(unauthenticated)} of the bundle",
                cause="bundles that Wheelmark writes have no such field",
                reason="unauthenticated",
            )
        return Facts(
            bundle_sha256=sha256,
            root=root.name,
            identity=signer.identity,
            issuer=signer.issuer,
            claims=signer.claims,
            certificate_sha256=signer.sha256,
            key_id="" if key.certificate is not None else key.key_id,
            times=times,
            log_origin=origin,
            log_index=bundle.entry.proof.index,
            entry_kind=f"{bundle.entry.kind} {bundle.entry.version}",
            statement=statement,
            payload=bundle.content.payload if isinstance(bundle.content, Envelope) else b"",
            artifact_sha256=artifact if digest is not None else "",
            unauthenticated=unauthenticated,
        )

    def _root(self, name: str) -> Root:
        return next(root for root in self._roots if root.name == name)

    def _certified(self, bundle: Bundle) -> tuple[SigningKey, Root]:
        """The key of the signing certificate, and the root whose authority it names as its issuer."""
        certificate = certificates.load(bundle.certificates)
        for root in self._roots:
            if certificates.issued_by(certificate, root.material.authorities):
                return signing_key(certificate.public_key(), certificate), root
        raise RejectedError(
            "no root of the policy issued the signing certificate",
            cause=f"the bundle is of another Sigstore instance; roots tried: {', '.join(r.name for r in self._roots)}",
            reason="untrusted-root",
        )

    def _managed(self, bundle: Bundle, digest: bytes | None) -> tuple[SigningKey, Root]:
        """The managed key that made the signature, under a root whose log is named.

        The hint only says which key to try first: nothing signs it.
        """
        if not self._keys:
            raise RejectedError(
                "the bundle was signed with a bare key",
                cause="the policy names certificates, and no key",
                reason="key-bundle",
            )
        logged = [
            (key, root)
            for key, root in self._keys
            if any(item.log_id == bundle.entry.log_id for item in root.material.logs)
        ]
        if not logged:
            raise RejectedError(
                f"the log {bundle.entry.log_id.hex()} is none of those under which the policy names a key",
                reason="log-unknown",
            )
        meant = [pair for pair in logged if bundle.key_hint in {pair[0].hint, pair[0].key_id}]
        for managed, root in meant or logged:
            key = signing_key(managed.key)
            if signed(key, bundle.content, digest):
                return key, root
        if meant:
            raise RejectedError(
                "the signature is not that of the key that the bundle names", reason="signature"
            )
        raise RejectedError("the bundle was signed with no key of the policy", reason="key-unknown")


def _has_our_form(bundle: Bundle, root: Root, data: bytes) -> bool:
    """Whether the bytes are those that the signer writes: with a timestamp and a promise where the instance gives them.

    Nothing else would tell that one of the two was taken out where the other still says when.
    """
    logged = bundle.entry
    promised = logged.promise is not None or (logged.kind, logged.version) not in log.PROMISING
    stamped = bool(bundle.timestamps) or not root.material.timestamp_authorities
    digest = isinstance(bundle.content, Envelope) or bundle.content.digest is not None
    return promised and stamped and digest and bundle.spelled() == data


def check_apart(roots: Sequence[Root], keys: Sequence[ManagedKey]) -> None:
    """Refuse roots and keys under which one bundle could have two roots.

    Raises:
        ConfigError: ``policy-contradiction``.
    """
    owners: dict[bytes, str] = {}
    for root in roots:
        for spki in {item for authority in root.material.authorities for item in authority.keys}:
            if owners.setdefault(spki, root.name) != root.name:
                raise ConfigError(
                    f"trust roots {owners[spki]!r} and {root.name!r} have a certificate authority's key in common",
                    cause="one instance is named twice: which root a signature counts under would be chance",
                    fix="name each Sigstore instance by one root",
                    reason="policy-contradiction",
                )
    logs = {root.name: {item.log_id for item in root.material.logs} for root in roots}
    for number, key in enumerate(keys):
        if key.root not in logs:
            raise ConfigError(
                f"a managed key counts under the root {key.root!r}, which the policy has not",
                reason="policy-contradiction",
            )
        for other in keys[:number]:
            if other.key_id == key.key_id and other.root != key.root and logs[other.root] & logs[key.root]:
                raise ConfigError(
                    f"one key counts under the roots {other.root!r} and {key.root!r}, which name one log",
                    fix="name the key under one root",
                    reason="policy-contradiction",
                )


def _client(root: Root) -> ReferenceClient:
    # Imported only where a root asks for it: it brings sigstore-python with it.
    from wheelmark.verify.opinion import ReferenceClient  # noqa: PLC0415

    return ReferenceClient(root)


def _spelled_trust(roots: Sequence[Root], keys: Sequence[ManagedKey]) -> str:
    """Everything of roots and keys that facts depend on."""
    return digests.sha256(
        digests.canonical_json(
            {
                "roots": [[root.name, root.sha256, root.canonical, root.second_opinion] for root in roots],
                "keys": [[key.root, key.key_id] for key in keys],
            }
        )
    )


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


def _signer(
    key: SigningKey, root: Root, times: Sequence[dt.datetime], above: certificates.Above
) -> certificates.Signer:
    """Whom a certificate names, once it is proven to have been valid; a key names nobody."""
    if key.certificate is None:
        return certificates.Signer(identity="", issuer="", claims={}, sha256="")
    issuer = certificates.check_chain(key.certificate, root.material.authorities, times, above)
    certificates.check_transparency(key.certificate, issuer, root.material.ct_logs, times)
    return certificates.read_signer(key.certificate)


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
        except RejectedError as error:  # one that is malformed spoils the bundle
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


def _unauthenticated(bundle: Bundle, key: SigningKey, root: Root, *, alone: bool) -> tuple[str, ...]:
    logged = bundle.entry
    found = []
    if bundle.key_hint is not None and bundle.key_hint != hint_of(key.key_id):
        found.append("publicKey.hint")
    # A promise covers the outer index; without one, only equality with the proven index does.
    if logged.promise is None and logged.index != logged.proof.index:
        found.append("tlogEntries.logIndex")
    if logged.promise is None and logged.integrated_time is not None:
        found.append("tlogEntries.integratedTime")
    if root.canonical and not log.has_one_form(logged, root.material.logs):
        found.append("tlogEntries signature")
    if not alone:
        found.append("inclusionProof.checkpoint.signatures")
    if len(bundle.certificates) > 1:
        found.append("x509CertificateChain")
    authorities = root.material.timestamp_authorities
    if not all(
        timestamps.has_one_form(token, authorities, canonical=root.canonical) for token in bundle.timestamps
    ):
        found.append("rfc3161Timestamps.signedTimestamp")
    # Of the kinds of entry, only intoto holds the envelope's key id.
    if isinstance(bundle.content, Envelope) and bundle.content.keyid and logged.kind != "intoto":
        found.append("dsseEnvelope.signatures.keyid")
    return tuple(found)


def _not_compared(statement: Statement | None) -> list[str]:
    """Algorithms beside sha256 of a statement's subjects."""
    subjects = statement.subjects if statement is not None else ()
    return sorted({f"subject.digest.{algorithm}" for subject in subjects for algorithm in subject.others})
