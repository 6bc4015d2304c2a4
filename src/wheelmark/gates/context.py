"""What a gate is given: one finished wheel, and the places that it needs. Gates never build or sign."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from wheelmark.config import Declaration, TargetRow
from wheelmark.evidence import Evidence, Level, Verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondWheel:
    """The same target, built a second time in other surroundings."""

    path: Path
    toolchain: str
    """Digest of the toolchain that made it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """One wheel under test."""

    declaration: Declaration
    row: TargetRow
    wheel: Path
    """The very bytes that ship."""
    sha256: str
    """Their digest, which evidence is bound to."""
    sbom: Path
    """The detached CycloneDX document."""
    lock: Path
    """The runtime lock of this target."""
    cache: Path
    """Where locked environments and compiled test parts are kept."""
    build_lock: Path
    """The lock of the build environment (triton and torch's CPU build)."""
    build_python: Path
    """Interpreter of the build environment."""
    declared_variants: Mapping[str, tuple[str, ...]]
    """Kernel -> names of the variants that are declared for this target."""
    toolchain: str
    """Digest of the toolchain that built the wheel."""
    second: Callable[[], SecondWheel]
    """Builds the target again elsewhere (once for all targets) and gives its wheel."""

    def evidence(
        self,
        gate: str,
        verdict: Verdict,
        level: Level,
        summary: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Evidence:
        """Evidence about this wheel, bound to its digest."""
        return Evidence(
            gate=gate,
            target=str(self.row.target),
            subject=self.sha256,
            verdict=verdict,
            level=level,
            summary=summary,
            reason=reason,
            details=details or {},
            environment=environment or {},
        )


class Gate(Protocol):
    """A gate is a module with a name and one function."""

    NAME: str

    def run(self, context: Context) -> Evidence:
        """Judge one wheel."""
