"""What an SBOM's components are to an audit: to be queried, first-party, or of a kind with no advisory service.

Nothing is left over: a component that is none of the three is a finding. The pins of the runtime lock must be
among the components, at the locked versions, or something was dropped between the lock and the document.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark.attest.sbom import Component, Sbom
from wheelmark.lock import Pin


class Answer(enum.Enum):
    """How a component is audited."""

    QUERIED = "queried"
    """Its package and version are asked of the advisory service."""
    FIRST_PARTY = "first-party"
    """Ours: no service knows it better than we do."""
    NO_SERVICE = "no-service"
    """Its kind has no service that the audit can ask."""
    UNEXPLAINED = "unexplained"
    """None of the others: a finding."""


_OURS = {"wheel", "python-package", "native-library", "kernel", "wheel-metadata", "image", "image-blobs"}
# Roles whose version is chosen where the wheel is installed, which is where it has to be audited.
_ELSEWHERE = {
    "system-library": "the operating system brings it and its advisories",
    "host-provided": "not locked: its version is chosen where the wheel is installed",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited:
    """One component and how it is audited."""

    component: str
    """Its purl, or role and name."""
    answer: Answer
    why: str
    package: str = ""
    """Normalized name, where it is queried."""
    version: str = ""
    """Public version (PEP 440, without a local label): advisories know no labels."""

    def as_json(self) -> dict[str, str]:
        """For the evidence's details."""
        values = {
            "component": self.component,
            "answer": self.answer.value,
            "why": self.why,
            "package": self.package,
            "version": self.version,
        }
        return {key: value for key, value in values.items() if value}


def classify(sbom: Sbom, *, project: str) -> tuple[Audited, ...]:
    """Every component of a document that is not a file, the wheel first.

    Args:
        sbom: The document.
        project: Name of the distribution that is released.
    """
    return tuple(
        _one(component, canonicalize_name(project)) for component in (sbom.subject, *sbom.components)
    )


def missing_pins(audited: Iterable[Audited], pins: Sequence[Pin]) -> tuple[str, ...]:
    """Locked packages that no component stands for, or only one of another version."""
    described = {(item.package, item.version) for item in audited if item.answer is Answer.QUERIED}
    return tuple(
        f"{pin.name} {pin.version}"
        for pin in pins
        if (pin.name, Version(pin.version).public) not in described
    )


def _one(component: Component, project: str) -> Audited:
    if component.purl:
        return _by_purl(component, project)
    label = f"{component.role}:{component.name}"
    if component.role in _OURS:
        return Audited(component=label, answer=Answer.FIRST_PARTY, why=f"role {component.role}")
    if component.role in _ELSEWHERE:
        return Audited(component=label, answer=Answer.NO_SERVICE, why=_ELSEWHERE[component.role])
    return Audited(
        component=label, answer=Answer.UNEXPLAINED, why=f"role {component.role!r} and no package URL"
    )


def _by_purl(component: Component, project: str) -> Audited:
    text = component.purl
    try:
        purl = PackageURL.from_string(text)
    except ValueError as error:
        return Audited(component=text, answer=Answer.UNEXPLAINED, why=f"malformed package URL: {error}")
    if purl.type != "pypi":
        return Audited(component=text, answer=Answer.NO_SERVICE, why=f"kind {purl.type}")
    package = canonicalize_name(purl.name)
    if package == project:
        return Audited(component=text, answer=Answer.FIRST_PARTY, why="the project's own distribution")
    if not purl.version and component.role == "host-provided":
        return Audited(component=text, answer=Answer.NO_SERVICE, why=_ELSEWHERE[component.role])
    try:
        version = Version(purl.version or "").public
    except InvalidVersion:
        return Audited(component=text, answer=Answer.UNEXPLAINED, why="the package URL has no exact version")
    return Audited(
        component=text,
        answer=Answer.QUERIED,
        why="asked by name and version",
        package=package,
        version=version,
    )
