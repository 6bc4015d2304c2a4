"""in-toto Statement v1: who it is about, what kind of claim it makes, and the claim.

Format: in-toto attestation framework, ``spec/v1/statement.md``. Stricter than that text on purpose: every
subject has a name and a sha256, no name stands twice, and a member that the format does not know is refused,
since a reader that ignores it could be made to overlook a restriction.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.attest.resource import read_digests
from wheelmark.errors import InputError

TYPE = "https://in-toto.io/Statement/v1"
"""What is written here."""
_TYPES = (TYPE, "https://in-toto.io/Statement/v0.1")
"""What is read: the older type has the same members, and cosign writes it still (3.1.1, ``attest-blob``)."""
LIMITS = strictjson.Limits(size=16 << 20, depth=32, items=100_000, string=1 << 20)
"""An SBOM of a big wheel is the largest statement: about 1 KiB for each of its files."""
_FIELDS = {"_type", "subject", "predicateType", "predicate"}
# RFC 3986: a scheme, then no white space and no control character.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """One artifact that a statement is about."""

    name: str
    sha256: str
    """Lowercase hexadecimal."""
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Digests of other algorithms, where a producer gave them. Nothing is ever found or compared by them."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a statement has a subject without a name", reason="statement-subjects")
        if not digests.is_sha256(self.sha256):
            raise InputError(f"subject {self.name[:200]!r} has no sha256", reason="statement-subjects")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
    """A claim about subjects.

    Raises:
        InputError: No subject, a name twice, digests that contradict each other, or a predicate type that is no URI.
    """

    subjects: tuple[Subject, ...]
    predicate_type: str
    """URI of the predicate's format (see ``wheelmark.attest.predicates``)."""
    predicate: Mapping[str, Any]
    """JSON values, in the format that ``predicate_type`` names."""

    def __post_init__(self) -> None:
        if not self.subjects:
            raise InputError("a statement has no subjects", reason="statement-subjects")
        names: set[str] = set()
        for subject in self.subjects:
            if subject.name in names:
                raise InputError(
                    f"subject {subject.name[:200]!r} stands twice in a statement", reason="statement-subjects"
                )
            names.add(subject.name)
        _check_digests(self.subjects)
        if not _URI.fullmatch(self.predicate_type):
            raise InputError(
                f"predicate type {self.predicate_type[:200]!r} is no URI", reason="statement-predicate-type"
            )

    def as_bytes(self) -> bytes:
        """Canonical JSON (RFC 8785), subjects by name: equal statements have equal bytes."""
        subjects = sorted(self.subjects, key=lambda subject: subject.name)
        return digests.canonical_json(
            {
                "_type": TYPE,
                "subject": [
                    {"name": subject.name, "digest": {**subject.others, "sha256": subject.sha256}}
                    for subject in subjects
                ],
                "predicateType": self.predicate_type,
                "predicate": dict(self.predicate),
            }
        )


def _check_digests(subjects: Iterable[Subject]) -> None:
    """Refuse two subjects that are one by one algorithm and two by another: readers would differ on what is meant.

    Names of git objects are left out: a commit may stand beside each file that was made of it.
    """
    known: dict[tuple[str, str], str] = {}
    for subject in subjects:
        for algorithm, text in subject.others.items():
            if algorithm.startswith("git"):
                continue
            same = (
                known.setdefault((subject.sha256, algorithm), text) == text
                and known.setdefault((algorithm, text), subject.sha256) == subject.sha256
            )
            if not same:
                raise InputError(
                    f"the digests of subject {subject.name[:200]!r} contradict those of another subject",
                    reason="statement-digest",
                )


def read_statement(data: bytes) -> Statement:
    """Read a statement within ``LIMITS``.

    Args:
        data: The payload of an envelope, or the bytes of a file under ``statements/``.

    Raises:
        InputError: JSON that strictjson refuses; or reason ``statement-type`` (another ``_type``),
            ``statement-fields`` (unknown or absent members), ``statement-subjects``, ``statement-digest``,
            ``statement-predicate-type``, ``statement-predicate`` (not an object).
    """
    value = strictjson.load_object(data, what="statement", limits=LIMITS)
    if value.get("_type") not in _TYPES:
        raise InputError(
            f"statement is of type {str(value.get('_type'))[:200]!r}; {' or '.join(_TYPES)} is read here",
            reason="statement-type",
        )
    if set(value) != _FIELDS:
        wrong = ", ".join(sorted(name[:80] for name in set(value) ^ _FIELDS))
        raise InputError(f"statement has unknown or absent members: {wrong}", reason="statement-fields")
    subjects = value["subject"]
    if not isinstance(subjects, list):
        raise InputError("a statement's subject member is no list", reason="statement-subjects")
    if not isinstance(value["predicateType"], str):
        raise InputError("a statement's predicate type is no string", reason="statement-predicate-type")
    if not isinstance(value["predicate"], dict):
        raise InputError("a statement's predicate is no object", reason="statement-predicate")
    return Statement(
        subjects=tuple(_read_subject(subject) for subject in subjects),
        predicate_type=value["predicateType"],
        predicate=value["predicate"],
    )


def _read_subject(value: Any) -> Subject:
    if not isinstance(value, dict) or set(value) != {"name", "digest"} or not isinstance(value["name"], str):
        raise InputError("a subject has other members than a name and digests", reason="statement-subjects")
    digest = value["digest"]
    # Nearly every subject, of thousands: one sha256.
    if isinstance(digest, dict) and list(digest) == ["sha256"] and _is_sha256(digest["sha256"]):
        return Subject(name=value["name"], sha256=digest["sha256"])
    found = read_digests(digest, what=f"subject {value['name'][:200]!r}")
    sha256 = found.pop("sha256", "")
    return Subject(name=value["name"], sha256=sha256, others=found)


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and digests.is_sha256(value)
