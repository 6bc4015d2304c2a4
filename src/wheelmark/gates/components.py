"""What an SBOM's components are to an audit: to be queried, first-party, or of a kind with no advisory service.

Nothing is left over: a component that is none of the three is a finding. The pins of the runtime lock must be
among the components, at the locked versions, or something was dropped between the lock and the document.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark.errors import InputError
from wheelmark.lock import Pin

PIPELINE = "wheelmark"


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


# Component types of CycloneDX 1.6 that are no package of software.
_NO_PACKAGE = {
    "data",
    "device",
    "device-driver",
    "firmware",
    "machine-learning-model",
    "operating-system",
    "platform",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited:
    """One component and how it is audited."""

    component: str
    """Its purl, or type and name."""
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


def classify(
    document: Mapping[str, Any], *, project: str, supplier: str, files: frozenset[str]
) -> tuple[Audited, ...]:
    """Every component of a CycloneDX document, nested ones too.

    Args:
        document: The parsed SBOM.
        project: Name of the distribution that is released.
        supplier: Its supplier, as the declaration names it.
        files: Paths inside the wheel.

    Raises:
        InputError: The document has no components, or one of them is malformed (``audit-sbom``).
    """
    found = tuple(_one(component, project, supplier, files) for component in _components(document))
    if not found:
        raise InputError("the SBOM has no components", reason="audit-sbom")
    return found


def missing_pins(audited: Iterable[Audited], pins: Sequence[Pin]) -> tuple[str, ...]:
    """Locked packages that no component stands for, or only one of another version."""
    described: dict[str, set[str]] = {}
    for item in audited:
        if item.package:
            described.setdefault(item.package, set()).add(item.version)
    return tuple(
        f"{pin.name} {pin.version}"
        for pin in pins
        if Version(pin.version).public not in described.get(pin.name, set())
    )


def _components(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    metadata = document.get("metadata", {})
    waiting = [metadata.get("component")] if isinstance(metadata, dict) and "component" in metadata else []
    waiting += _list(document)
    while waiting:
        component = waiting.pop(0)
        if not isinstance(component, dict) or not isinstance(component.get("name"), str):
            raise InputError("a component of the SBOM is no object with a name", reason="audit-sbom")
        yield component
        waiting += _list(component)


def _list(holder: Mapping[str, Any]) -> list[Any]:
    value = holder.get("components", [])
    if not isinstance(value, list):
        raise InputError("'components' of the SBOM is no list", reason="audit-sbom")
    return value


def _one(component: Mapping[str, Any], project: str, supplier: str, files: frozenset[str]) -> Audited:
    name, kind = component["name"], str(component.get("type", ""))
    purl = component.get("purl")
    label = purl if isinstance(purl, str) else f"{kind}:{name}"
    if purl is not None:
        return _by_purl(label, project)
    if name in files:
        return Audited(component=label, answer=Answer.FIRST_PARTY, why="a file of the wheel")
    owner = component.get("supplier")
    if isinstance(owner, dict) and owner.get("name") == supplier:
        return Audited(component=label, answer=Answer.FIRST_PARTY, why=f"supplied by {supplier}")
    if kind in _NO_PACKAGE:
        return Audited(component=label, answer=Answer.NO_SERVICE, why=f"no advisory service for type {kind}")
    return Audited(
        component=label, answer=Answer.UNEXPLAINED, why="no purl, not a file of the wheel, not ours"
    )


def _by_purl(text: str, project: str) -> Audited:
    try:
        purl = PackageURL.from_string(text)
    except ValueError as error:
        return Audited(component=text, answer=Answer.UNEXPLAINED, why=f"malformed purl: {error}")
    if purl.type != "pypi":
        return Audited(
            component=text, answer=Answer.NO_SERVICE, why=f"no advisory service for purl type {purl.type}"
        )
    package = canonicalize_name(purl.name)
    if package in {canonicalize_name(project), PIPELINE}:
        return Audited(component=text, answer=Answer.FIRST_PARTY, why="this project's own distribution")
    try:
        version = Version(purl.version or "").public
    except InvalidVersion:
        return Audited(component=text, answer=Answer.UNEXPLAINED, why="the purl has no exact version")
    return Audited(
        component=text,
        answer=Answer.QUERIED,
        why="asked by name and version",
        package=package,
        version=version,
    )
