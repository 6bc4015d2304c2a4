"""SBOM closure: the signed document is about this artifact's bytes and explains every file of it.

Of an image (an artifact without a name) the digest of the subject is compared and nothing else: its SBOM may come from
any tool, and lists packages, not files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wheelmark import digests, strictjson
from wheelmark.attest.sbom import read_sbom, unexplained_files
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.errors import InputError
from wheelmark.verify.artifact import ArtifactFacts

_LIMITS = strictjson.Limits(size=64 << 20)
_SHOWN = 5


def check_description(predicate: Mapping[str, object], wheel: ArtifactFacts) -> tuple[Problem, ...]:
    """What is wrong with an SBOM as a description of ``wheel``.

    Args:
        predicate: A CycloneDX document, from a signed statement.
        wheel: The wheel, image or kernel pack that the statement is about.
    """
    if not wheel.name:
        return _check_subject(predicate, wheel)
    try:
        found = read_sbom(digests.canonical_json(dict(predicate)))
    except InputError as error:
        return (Problem(reason=error.reason, text=error.what),)
    problems = []
    if found.subject.hashes != (wheel.sha256,):
        said = ", ".join(found.subject.hashes) or "no bytes"
        problems.append(Problem(reason="sbom-subject", text=f"the SBOM describes {said}, not this wheel"))
    # Where the wheel's structure could not be read there is nothing to compare with; that is refused elsewhere.
    if not wheel.problems and (odd := unexplained_files(found, wheel.files)):
        shown = ", ".join(odd[:_SHOWN]) + (f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else "")
        problems.append(Problem(reason="sbom-subject", text=f"SBOM and wheel differ on {shown}"))
    return tuple(problems)


def _check_subject(predicate: Mapping[str, object], image: ArtifactFacts) -> tuple[Problem, ...]:
    metadata = predicate.get("metadata")
    component = metadata.get("component") if isinstance(metadata, Mapping) else None
    hashes = component.get("hashes") if isinstance(component, Mapping) else None
    said = [
        item.get("content")
        for item in (hashes if isinstance(hashes, Sequence) else ())
        if isinstance(item, Mapping) and item.get("alg") == "SHA-256"
    ]
    if len(said) == 1 and said[0] in {image.sha256, *image.linked_from}:
        return ()
    shown = ", ".join(str(item)[:80] for item in said[:_SHOWN]) or "no bytes"
    return (Problem(reason="sbom-subject", text=f"the SBOM describes {shown}, not this image"),)


def same_document(predicate: Mapping[str, object], document: bytes) -> bool:
    """Whether a document says, member for member, what a signed predicate says."""
    try:
        value = strictjson.load_object(document, what="SBOM", limits=_LIMITS)
        return digests.canonical_json(value) == digests.canonical_json(dict(predicate))
    except InputError:
        return False
