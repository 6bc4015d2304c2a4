"""What is put before an evaluation: one artifact, what was found for it, and the rule that it has to meet. Values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wheelmark.verify.artifact import ArtifactFacts
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Policy, Predicate, Requirement, Signer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attestation:
    """A bundle that verified, and where it was found."""

    path: str
    facts: Facts

    @property
    def kind(self) -> str:
        """The statement's predicate type; empty for a bare signature."""
        return self.facts.statement.predicate_type if self.facts.statement else ""

    @property
    def predicate(self) -> Mapping[str, object]:
        """The statement's predicate; empty for a bare signature."""
        return self.facts.statement.predicate if self.facts.statement else {}

    def digests(self) -> frozenset[str]:
        """sha256 of everything that the statement is about."""
        subjects = self.facts.statement.subjects if self.facts.statement else ()
        return frozenset(subject.sha256 for subject in subjects)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that is known of one artifact."""

    artifact: ArtifactFacts
    target: str
    """As the release says; empty for an artifact alone whose bytes do not say."""
    attestations: tuple[Attestation, ...]
    """Those found for this artifact, and in a release all of them."""
    documents: tuple[bytes, ...] | None = None
    """The SBOMs beside it; ``None`` for an artifact alone."""
    evidence_files: Mapping[str, str] | None = None
    """Gate -> sha256 of its evidence file; ``None`` for an artifact alone."""
    levels: Mapping[str, str] | None = None
    """Gate -> word, as ``release.json`` says; ``None`` for an artifact alone."""
    release_sha256: str = ""
    """Digest of the ``release.json`` that it lies beside; empty for an artifact alone."""
    project: str = ""
    """Name of the project, as ``release.json`` or METADATA says; empty where neither does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted:
    """An attestation and the signer rule that it counts by."""

    attestation: Attestation
    signer: Signer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """The statements that are about the artifact, by whose word they count."""

    counted: tuple[Counted, ...]
    """By signers of the requirement."""
    runners: tuple[Attestation, ...]
    """Test results by runners of the requirement."""

    def of(self, predicate: Predicate) -> tuple[Attestation, ...]:
        """Those of one kind."""
        return tuple(item.attestation for item in self.counted if item.attestation.kind == predicate.uri)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """May this artifact be used, by this rule of this policy, under these circumstances?"""

    case: Case
    rule: Requirement
    policy: Policy
    circumstances: Circumstances

    @property
    def artifact(self) -> ArtifactFacts:
        """What the artifact's bytes say."""
        return self.case.artifact

    @property
    def digests(self) -> frozenset[str]:
        """sha256 of the artifact, and of what holds it by digest."""
        return frozenset({self.artifact.sha256, *self.artifact.linked_from})

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that the rule asks of this artifact."""
        return self.rule.gates_of(image=self.artifact.is_image)

    @property
    def rule_name(self) -> str:
        """How steps name the requirement: ``require[2]``, by its place in the policy."""
        found = [index for index, rule in enumerate(self.policy.requirements) if rule == self.rule]
        return f"require[{found[0]}]" if found else "require"
