"""SBOM closure: the signed document is about this wheel's bytes and explains every file of it."""

from __future__ import annotations

from collections.abc import Mapping

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
        wheel: The wheel that the statement is about.
    """
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


def same_document(predicate: Mapping[str, object], document: bytes) -> bool:
    """Whether a document says, member for member, what a signed predicate says."""
    try:
        value = strictjson.load_object(document, what="SBOM", limits=_LIMITS)
        return digests.canonical_json(value) == digests.canonical_json(dict(predicate))
    except InputError:
        return False
