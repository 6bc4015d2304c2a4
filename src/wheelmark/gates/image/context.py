"""What an image gate is given: one finished image in a layout, and the places that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from wheelmark.binaries.kernelobjects import Problem
from wheelmark.config import Declaration, TargetRow
from wheelmark.config.recipe import ImageRecipe
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.oci.layout import Layout
from wheelmark.oci.types import ImageManifest

GATES = ("contents", "size", "repeat", "run", "audit")
"""Modules of this package, each a gate named ``image-<module>``, in the order in which they are shown. Every image is held
to all of them."""
_SHOWN = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondImage:
    """The same target's image, built a second time in other surroundings."""

    layout: Path
    sha256: str
    """Of its manifest."""
    inputs: str
    """sha256 of all that decided it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageContext:
    """One image under test."""

    declaration: Declaration
    row: TargetRow
    recipe: ImageRecipe
    layout: Path
    """The layout directory that holds it."""
    sha256: str
    """Of its manifest: what evidence is bound to."""
    layers: Mapping[str, str]
    """What a layer holds -> sha256 of its blob."""
    stand_in: str
    """Why a stand-in takes the place of its dependencies; empty where it does not."""
    inputs: str
    """sha256 of all that decided its digest."""
    sbom: Path
    """Its CycloneDX document."""
    debian_lock: Path | None
    cache: Path
    """Where containers' storage is kept."""
    second: Callable[[], SecondImage]
    """Builds the image again elsewhere (once for all targets)."""

    def manifest(self) -> ImageManifest:
        """The image's manifest, by digest.

        Raises:
            InputError: It is not there, or malformed.
        """
        layout = Layout(self.layout)
        return layout.read_manifest(layout.resolve(f"sha256:{self.sha256}").descriptor)

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
        """Evidence about this image, bound to its digest."""
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

    def refused(self, gate: str, error: InputError) -> Evidence:
        """FAILED, because the image or something in it could not be read."""
        return self.evidence(gate, Verdict.FAILED, Level.STATIC, error.what, reason=error.reason)

    def judged(
        self, gate: str, problems: Sequence[Problem], *, summary: str, details: Mapping[str, Any]
    ) -> Evidence:
        """PASSED where there is no problem; else FAILED with the first one's reason, and all that were found."""
        if not problems:
            return self.evidence(gate, Verdict.PASSED, Level.STATIC, summary, details=details)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        found = [{"reason": problem.reason, "text": problem.text} for problem in problems[:_SHOWN]]
        return self.evidence(
            gate,
            Verdict.FAILED,
            Level.STATIC,
            problems[0].text + more,
            reason=problems[0].reason,
            details={**details, "problem_count": len(problems), "problems": found},
        )


class ImageGate(Protocol):
    """A gate is a module with a name and one function."""

    NAME: str

    def run(self, context: ImageContext) -> Evidence:
        """Judge one image."""
