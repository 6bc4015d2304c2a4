"""A CycloneDX document about one wheel, read: what it is about, which files it explains, which components it names.

Read are CycloneDX 1.6 JSON documents as ``wheelmark.sbom`` writes them: the wheel in ``metadata.component``,
every file of it as a component of type ``file`` (its path as the name, one SHA-256) inside the component that
explains it, and the property ``wheelmark:role`` on every component. The schema is checked where documents are
made; here only that part is read, strictly, which decisions stand on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

ROLE = "wheelmark:role"
SPEC_VERSION = "1.6"
_FILE = "file"
_LIMITS = strictjson.Limits(size=16 << 20, depth=24)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """One component that is not a file."""

    ref: str
    kind: str
    """CycloneDX type: ``library``, ``application``."""
    role: str
    """What it is to the wheel: ``dependency``, ``toolchain``, ``native-library``, …"""
    name: str
    version: str
    purl: str
    """Package URL, or empty."""
    hashes: tuple[str, ...]
    """sha256 digests; for a locked package, of each file that may be installed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sbom:
    """What a document says of a wheel."""

    serial: str
    subject: Component
    """The wheel; an embedded document cannot know its digest and has no hash here."""
    files: Mapping[str, str]
    """Path in the wheel -> sha256, of every file that a component explains."""
    components: tuple[Component, ...]
    """All components that are not files, nested ones too."""


def read_sbom(data: bytes) -> Sbom:
    """Read a CycloneDX document about a wheel.

    Raises:
        InputError: A ``json-…`` code of ``strictjson``; not a CycloneDX 1.6 document (``sbom-format``), a field
            is absent or malformed (``sbom-field``), a file stands twice (``sbom-twice``) or in no component
            (``sbom-unexplained``).
    """
    value = strictjson.load_object(data, what="SBOM", limits=_LIMITS)
    if value.get("bomFormat") != "CycloneDX" or value.get("specVersion") != SPEC_VERSION:
        raise InputError(f"the SBOM is no CycloneDX {SPEC_VERSION} document", reason="sbom-format")
    described = value.get("metadata")
    if not isinstance(described, dict):
        raise InputError("the SBOM has no metadata", reason="sbom-field")
    files: dict[str, str] = {}
    components: list[Component] = []
    for item, nested in _walk(_list(value, "components"), nested=False):
        if item.get("type") != _FILE:
            components.append(_component(item))
            continue
        name, found = _text(item, "name"), _sha256(item)
        if not nested:
            raise InputError(f"the SBOM lists {name} in no component", reason="sbom-unexplained")
        if name in files:
            raise InputError(f"the SBOM lists {name} twice", reason="sbom-twice")
        if len(found) != 1:
            raise InputError(f"the SBOM has not one SHA-256 of {name}", reason="sbom-field")
        files[name] = found[0]
    references = [component.ref for component in components]
    if len(set(references)) != len(references):
        raise InputError("the SBOM uses a bom-ref twice", reason="sbom-twice")
    return Sbom(
        serial=_text(value, "serialNumber"),
        subject=_component(_object(described, "component")),
        files=files,
        components=tuple(components),
    )


def unexplained_files(sbom: Sbom, files: Mapping[str, str]) -> tuple[str, ...]:
    """Paths on which the document and the wheel do not agree.

    Args:
        sbom: The document.
        files: Path -> sha256 of the files that it has to cover: of a finished wheel all; for an embedded
            document all but itself and RECORD.

    Returns:
        Sorted: files that no component explains, files with another digest, and listed files that are not there.
    """
    return tuple(sorted(path for path in {*files, *sbom.files} if files.get(path) != sbom.files.get(path)))


def is_embedded_sbom(path: str) -> bool:
    """Whether ``path`` in a wheel is a CycloneDX document in ``.dist-info/sboms`` (PEP 770)."""
    parts = path.split("/")
    return (
        len(parts) == 3  # noqa: PLR2004 - <name>.dist-info/sboms/<file>
        and parts[0].endswith(".dist-info")
        and parts[1] == "sboms"
        and parts[2].endswith(".cdx.json")
    )


def is_record(path: str) -> bool:
    """Whether ``path`` in a wheel is the RECORD of its ``.dist-info``."""
    folder, _, name = path.partition("/")
    return folder.endswith(".dist-info") and name == "RECORD"


def _walk(items: list[Any], *, nested: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every component with whether it stands inside one that is not a file."""
    for item in items:
        if not isinstance(item, dict):
            raise InputError("a component of the SBOM is no object", reason="sbom-field")
        yield item, nested
        yield from _walk(_list(item, "components"), nested=item.get("type") != _FILE)


def _component(item: dict[str, Any]) -> Component:
    roles = [
        entry.get("value")
        for entry in _list(item, "properties")
        if isinstance(entry, dict) and entry.get("name") == ROLE
    ]
    if len(roles) != 1 or not isinstance(roles[0], str) or not roles[0]:
        raise InputError(
            f"component {_text(item, 'name')} of the SBOM has not one property {ROLE}", reason="sbom-field"
        )
    return Component(
        ref=_text(item, "bom-ref"),
        kind=_text(item, "type"),
        role=roles[0],
        name=_text(item, "name"),
        version=_text(item, "version", absent=True),
        purl=_text(item, "purl", absent=True),
        hashes=_sha256(item),
    )


def _sha256(item: dict[str, Any]) -> tuple[str, ...]:
    found = []
    for entry in _list(item, "hashes"):
        if not isinstance(entry, dict) or entry.get("alg") != "SHA-256":
            continue
        content = entry.get("content")
        if not isinstance(content, str) or not digests.is_sha256(content):
            raise InputError(
                f"{_text(item, 'name')} has a malformed SHA-256 in the SBOM", reason="sbom-field"
            )
        found.append(content)
    return tuple(found)


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    if not isinstance(member, dict):
        raise InputError(f"the SBOM has no object {name!r} where one belongs", reason="sbom-field")
    return member


def _list(value: dict[str, Any], name: str) -> list[Any]:
    member = value.get(name, [])
    if not isinstance(member, list):
        raise InputError(f"{name!r} in the SBOM is no array", reason="sbom-field")
    return member


def _text(value: dict[str, Any], name: str, *, absent: bool = False) -> str:
    member = value.get(name, "" if absent else None)
    if not isinstance(member, str) or (not member and not absent):
        raise InputError(f"the SBOM has no string {name!r} where one belongs", reason="sbom-field")
    return member
