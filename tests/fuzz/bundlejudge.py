"""What has to hold of a mutated bundle, and which changes of a bundle that is accepted change nothing that it says."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fuzz import asn1, bundles, documents
from fuzz.subject import EQUAL, LESS, UNCHANGED, BrokenError, Mutator, Original
from wheelmark.errors import WheelmarkError
from wheelmark.trust.keys import ManagedKey
from wheelmark.trust.roots import Root
from wheelmark.verify import reasons
from wheelmark.verify.bundle import Bundle, Envelope, read_bundle
from wheelmark.verify.facts import Examiner, Facts

_RENEW = 256
"""Mutants after which the examiner is a new one: it remembers every bundle that it accepted."""
_NAMED: Mapping[str, str] = {
    "index": "tlogEntries.logIndex",
    "time": "tlogEntries.integratedTime",
    "note signatures": "inclusionProof.checkpoint.signatures",
    "chain": "x509CertificateChain",
    "keyid": "dsseEnvelope.signatures.keyid",
    "hint": "publicKey.hint",
}
"""What of a bundle's meaning may differ where the facts name it as authenticated by nothing."""
_OPTIONAL = {"time", "promise", "keyid", "digest", "chain"}
"""What may be absent: nothing can tell that it was taken out, and then it counts for nothing."""
_STRICTER_THERE = ("inclusionProof.hashes\n  Field required", "ogIndex\n  Field required")
"""Refusals of sigstore-python alone: it wants empty lists and zeros to be there, and protobuf's JSON leaves them out."""
_IGNORED = "timestampVerificationData"
"""Named where a timestamp beside a good one counts for nothing. At some of those sigstore-python breaks off."""
_TIMES = ("rfc3161Timestamps.signedTimestamp", _IGNORED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Under what the bundles of a subject are examined."""

    root: Root
    artifact: str = ""
    keys: tuple[ManagedKey, ...] = ()


class BundleSubject:
    """Bundles under one root.

    Args:
        name: Of the subject.
        settings: Name of an original -> under what it is accepted.
        originals: The bundles.
        canonical: Whether invariant (a) holds: nothing but the originals' bytes is accepted.
    """

    def __init__(
        self, name: str, settings: Mapping[str, Setting], originals: Sequence[Original], *, canonical: bool
    ) -> None:
        self.name = name
        self.originals = tuple(
            dataclasses.replace(item, tree=documents.parse(item.data)) for item in originals
        )
        self._settings = settings
        self._canonical = canonical
        self._examiners: dict[str, tuple[int, Examiner]] = {}
        self._bytes = {item.data for item in originals}
        self._facts = {item.name: self._examined(item.name, item.data) for item in originals}
        self._meanings = {item.name: meaning(read_bundle(item.data)) for item in originals}
        self._references = {
            item.name: reference
            for item in originals
            if (reference := _reference(settings[item.name], item.data)) is not None
        }
        self.mutators: Mapping[str, Mutator] = bundles.mutators(self.originals, canonical=canonical)

    @property
    def compared(self) -> tuple[str, ...]:
        """Originals whose accepted mutants sigstore-python is asked about."""
        return tuple(sorted(self._references))

    def judge(self, original: Original, mutant: bytes) -> str:
        """See ``Subject``."""
        if mutant in self._bytes:
            return UNCHANGED
        try:
            facts = self._examined(original.name, mutant)
        except WheelmarkError as error:
            if error.reason not in reasons.TABLE:
                raise BrokenError(f"a reason that no table has: {error.reason}") from error
            if error.reason == "library":
                raise BrokenError(f"a library failed in a way that is not foreseen: {error.what}") from error
            return error.reason
        if self._canonical:
            raise BrokenError("(a) other bytes than the original's are accepted")
        outcome = self._compare(original.name, facts, mutant)
        reference = None if _IGNORED in facts.unauthenticated else self._references.get(original.name)
        failure = "" if reference is None else reference.refuses(mutant)
        if failure and not any(text in failure for text in _STRICTER_THERE):
            raise BrokenError(f"(d) accepted here, and not by sigstore-python: {failure}")
        return outcome

    def _examined(self, name: str, data: bytes) -> Facts:
        setting = self._settings[name]
        count, examiner = self._examiners.get(name, (_RENEW, None))
        if count >= _RENEW or examiner is None:
            count, examiner = 0, _examiner(setting)
        self._examiners[name] = (count + 1, examiner)
        return examiner.examine(data, artifact=setting.artifact)

    def _compare(self, name: str, facts: Facts, mutant: bytes) -> str:
        """Invariant (b), against the original, or the one that the mutant has become by splicing."""
        root = self._settings[name].root
        known = [name, *(other for other in self._facts if self._settings[other].root is root)]
        same = [item for item in known if _agree(self._facts[item], facts)]
        if not same:
            raise BrokenError(f"(b) a fact differs: {_differing(self._facts[name], facts)}")
        found = meaning(read_bundle(mutant))
        odd: list[str] = []
        for item in same:
            odd = _unnamed(
                self._meanings[item], found, {*facts.unauthenticated, *self._facts[item].unauthenticated}
            )
            if not odd:
                return EQUAL if facts.times == self._facts[item].times else LESS
        raise BrokenError(f"(b) changed, accepted and not named: {', '.join(odd)}")


def _examiner(setting: Setting) -> Examiner:
    return Examiner([setting.root], setting.keys)


def _agree(original: Facts, facts: Facts) -> bool:
    """Whether every fact is the original's; signed times may be fewer."""
    same = dataclasses.replace(
        facts,
        times=original.times,
        bundle_sha256=original.bundle_sha256,
        unauthenticated=original.unauthenticated,
    )
    return same == original and set(facts.times) <= set(original.times)


def _differing(original: Facts, facts: Facts) -> str:
    return ", ".join(
        field.name
        for field in dataclasses.fields(Facts)
        if getattr(original, field.name) != getattr(facts, field.name)
    )


def meaning(bundle: Bundle) -> dict[str, Any]:
    """What a bundle says, each signature as the smaller of its twins."""
    entry = bundle.entry
    note, _, signatures = entry.proof.checkpoint.partition("\n\n")
    content = bundle.content
    return {
        "chain": bundle.certificates[1:],
        "certificate": bundle.certificates[:1],
        "index": entry.index,
        "time": entry.integrated_time,
        "promise": None if entry.promise is None else asn1.smaller(entry.promise),
        "entry": (entry.log_id, entry.kind, entry.version, entry.body),
        "proof": (entry.proof.index, entry.proof.size, entry.proof.root_hash, entry.proof.hashes),
        "note": note,
        "note signatures": tuple(_note_line(line) for line in signatures.split("\n")),
        "timestamps": frozenset(_token(token) for token in bundle.timestamps),
        "content": (content.payload_type, content.payload, content.signature)
        if isinstance(content, Envelope)
        else content.signature,
        "keyid": content.keyid if isinstance(content, Envelope) else "",
        "digest": None if isinstance(content, Envelope) else content.digest,
        "hint": bundle.key_hint,
    }


def _note_line(line: str) -> str:
    head, _, blob = line.rpartition(" ")
    try:
        raw = base64.b64decode(blob, validate=True)
    except ValueError:
        return line
    return f"{head} {(raw[:4] + asn1.smaller(raw[4:])).hex()}"


def _token(token: bytes) -> bytes:
    """A timestamp without its signer's certificate, which the root has too, and with the smaller twin."""
    try:
        return asn1.with_signature(asn1.without_certificates(token), asn1.smaller)
    except (ValueError, IndexError, RecursionError, OverflowError):
        return token


def _unnamed(original: Mapping[str, Any], found: Mapping[str, Any], named: set[str]) -> list[str]:
    """Parts of the meaning that differ and that the facts do not name."""
    odd = []
    for part, value in found.items():
        if value == original.get(part) or (part in _OPTIONAL and not value) or _NAMED.get(part) in named:
            continue
        if part == "timestamps" and (value < original[part] or named & set(_TIMES)):
            continue
        odd.append(part)
    return odd


class _Reference:
    """sigstore-python's answer to mutants of one original."""

    def __init__(self, setting: Setting) -> None:
        from wheelmark.verify.opinion import ReferenceClient  # noqa: PLC0415 - imports sigstore

        self._client: Any = ReferenceClient(setting.root)
        self._artifact = setting.artifact

    def refuses(self, data: bytes) -> str:
        """Why sigstore-python does not accept it; empty where it does."""
        from cryptography import x509  # noqa: PLC0415

        bundle = read_bundle(data)
        digest = None if isinstance(bundle.content, Envelope) else bytes.fromhex(self._artifact)
        try:
            self._client.check(data, digest, x509.load_der_x509_certificate(bundle.certificates[0]))
        except WheelmarkError as error:
            return error.what
        return ""


def _reference(setting: Setting, data: bytes) -> _Reference | None:
    """sigstore-python, where it accepts the original (it knows no bare keys)."""
    if not read_bundle(data).certificates:
        return None
    reference = _Reference(setting)
    return None if reference.refuses(data) else reference
