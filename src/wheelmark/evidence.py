"""Evidence: what a gate found out about one artifact, at which level, bound to a digest.

This is the word that gates write and policies read. A verdict without a level says nothing: a kernel that
was only compiled PASSED at ``static``, and a policy that asks for ``hardware`` does not take it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from wheelmark import digests
from wheelmark.errors import InputError

SCHEMA = "https://wheelmark.dev/evidence/v1"


class Verdict(enum.Enum):
    """A gate's answer. Nothing turns UNCHECKED into PASSED."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    UNCHECKED = "UNCHECKED"


class Level(enum.Enum):
    """How close to the deployed situation the evidence was made."""

    NONE = "none"
    """Nothing was looked at."""
    STATIC = "static"
    """Only inspected: bytes, symbols, recorded figures."""
    EMULATED = "emulated"
    """The same kernel source ran in the interpreter; launches were checked against a recording driver."""
    HARDWARE = "hardware"
    """Ran on that device, or on that CPU dispatch path."""

    @property
    def rank(self) -> int:
        """0 for ``none`` up to 3 for ``hardware``."""
        return list(Level).index(self)

    def at_least(self, other: Level) -> bool:
        """Whether this level is as strong as ``other``."""
        return self.rank >= other.rank


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """One gate's result for one artifact.

    Raises:
        InputError: The digest is not a sha256, or a PASSED verdict claims level ``none``.
    """

    gate: str
    target: str
    """Target id, for instance ``cuda-sm90``."""
    subject: str
    """sha256 (hex) of the artifact's bytes."""
    verdict: Verdict
    level: Level
    summary: str
    """One line for people: what was found."""
    reason: str = ""
    """Stable reason code of a FAILED or UNCHECKED verdict."""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values: figures, cases, limits."""
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values: machine, versions, precision; whatever a reader needs to judge the figures."""
    imported: bool = False
    """True where another machine made it (``wheelmark evidence add``)."""

    def __post_init__(self) -> None:
        if not digests.is_sha256(self.subject):
            raise InputError(f"evidence of {self.gate}: {self.subject!r} is no sha256", reason="evidence")
        if self.verdict is Verdict.PASSED and self.level is Level.NONE:
            raise InputError(f"evidence of {self.gate}: PASSED at level none", reason="evidence")
        if self.verdict is not Verdict.PASSED and not self.reason:
            raise InputError(
                f"evidence of {self.gate}: {self.verdict.value} without a reason", reason="evidence"
            )

    def as_json(self) -> dict[str, Any]:
        """The JSON object that ``from_json`` reads back."""
        return {
            "schema": SCHEMA,
            "gate": self.gate,
            "target": self.target,
            "subject": {"sha256": self.subject},
            "verdict": self.verdict.value,
            "level": self.level.value,
            "summary": self.summary,
            "reason": self.reason,
            "details": dict(self.details),
            "environment": dict(self.environment),
            "imported": self.imported,
        }

    @classmethod
    def from_json(cls, value: Any) -> Evidence:
        """Read what ``as_json`` wrote.

        Raises:
            InputError: A field is absent, unknown or of the wrong type.
        """
        names = {field.name for field in dataclasses.fields(cls)} | {"schema"}
        if not isinstance(value, dict) or set(value) != names or value["schema"] != SCHEMA:
            raise InputError("not an evidence record of this version", reason="evidence")
        subject = value["subject"]
        strings = ("gate", "target", "summary", "reason")
        if (
            not isinstance(subject, dict)
            or set(subject) != {"sha256"}
            or not isinstance(subject["sha256"], str)
            or not all(isinstance(value[name], str) for name in strings)
            or not isinstance(value["details"], dict)
            or not isinstance(value["environment"], dict)
            or not isinstance(value["imported"], bool)
        ):
            raise InputError("an evidence record has a field of the wrong type", reason="evidence")
        try:
            verdict, level = Verdict(value["verdict"]), Level(value["level"])
        except ValueError as error:
            raise InputError(f"evidence record: {error}", reason="evidence") from error
        return cls(
            gate=value["gate"],
            target=value["target"],
            subject=subject["sha256"],
            verdict=verdict,
            level=level,
            summary=value["summary"],
            reason=value["reason"],
            details=value["details"],
            environment=value["environment"],
            imported=value["imported"],
        )
