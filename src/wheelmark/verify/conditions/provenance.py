"""How it was made: builder and source by the provenance's word, and the same parameters as the release states."""

from __future__ import annotations

from collections.abc import Iterator

from wheelmark.attest import predicates
from wheelmark.attest.predicates import BUILD_TYPE, Provenance
from wheelmark.errors import InputError
from wheelmark.manifest import ReleaseManifest
from wheelmark.verify.case import Question, Standing
from wheelmark.verify.policy import Predicate
from wheelmark.verify.trail import Trail

_GIT = "git+"


def check_provenance(question: Question, standing: Standing, trail: Trail) -> None:
    """Every counting provenance names one of the builders and one of the sources."""
    rule = question.rule
    for item in standing.of(Predicate.PROVENANCE):
        try:
            found = predicates.read_provenance(item.predicate)
        except InputError as error:
            trail.refuse("predicates", f"{item.path}: {error.what}", reason=error.reason)
            continue
        if rule.builders and found.builder_id not in rule.builders:
            text = f"built by {found.builder_id!r}; the policy names {', '.join(rule.builders)}"
            trail.refuse("builders", text, reason="builder")
        elif rule.builders:
            trail.hold("builders", f"built by {found.builder_id}")
        sources = sorted(set(_repositories(found)))
        if rule.sources and not set(sources) & set(rule.sources):
            text = f"made from {', '.join(sources) or 'no repository'}; the policy names {', '.join(rule.sources)}"
            trail.refuse("sources", text, reason="source")
        elif rule.sources:
            trail.hold("sources", f"made from {', '.join(sources)}")


def differing_parameters(found: Provenance, release: ReleaseManifest) -> Iterator[str]:
    """What Wheelmark's own provenance and ``release.json`` state differently; nothing of another build type."""
    if found.build_type != BUILD_TYPE:
        return
    stated = {
        "project": release.project,
        "version": release.version,
        "targets": sorted(release.targets),
        "snapshot": release.snapshot,
    }
    for name, value in stated.items():
        said = found.external_parameters.get(name)
        if said != value:
            yield f"{name} is {said!r:.200} in the provenance and {value!r:.200} in the release"


def _repositories(found: Provenance) -> Iterator[str]:
    """Resolved dependencies that are repositories: ``git+https://HOST/PATH@REF`` without ``git+`` and the ref."""
    for item in found.resolved_dependencies:
        scheme, separator, rest = item.uri.removeprefix(_GIT).partition("://")
        host, slash, path = rest.partition("/")
        if item.uri.startswith(_GIT) and separator:
            yield f"{scheme}{separator}{host}{slash}{path.partition('@')[0]}"
