"""SLSA provenance v1: how a release was made, from what, by whom.

Format: SLSA v1.0, "Provenance", predicate type ``https://slsa.dev/provenance/v1``. One statement covers the
whole release: its subjects are every file that ``release.json`` lists, and ``release.json`` itself.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from wheelmark.attest.fields import Fields, time_text
from wheelmark.attest.resource import Resource, read_resource

PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://wheelmark.dev/build/v1"
"""What ``externalParameters`` mean: ``targets`` (ids asked for, in table order), ``options`` (command line and
environment settings that change what is built) and ``snapshot`` (built from a tree with uncommitted changes).
``internalParameters`` are what the builder chose itself. Resolved dependencies are the declaration, the locks,
the source tree, the git revision and the compilers."""

_REASON = "provenance"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """The predicate's fields."""

    external_parameters: Mapping[str, Any]
    """JSON values that whoever started the build chose."""
    resolved_dependencies: tuple[Resource, ...]
    """Everything that went in, by digest."""
    builder_id: str
    """URI of whatever ran the build and is trusted to describe it."""
    internal_parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    builder_version: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Component of the builder to its version."""
    invocation_id: str = ""
    started_on: dt.datetime | None = None
    finished_on: dt.datetime | None = None
    byproducts: tuple[Resource, ...] = ()
    build_type: str = BUILD_TYPE

    @property
    def git_commit(self) -> str:
        """The revision of the source, or empty where it was not under git."""
        commits = (item.digest.get("gitCommit", "") for item in self.resolved_dependencies)
        return next((commit for commit in commits if commit), "")

    def as_predicate(self) -> dict[str, Any]:
        """The JSON object; dependencies and by-products in an order of their own bytes, not of discovery."""
        metadata: dict[str, Any] = {}
        if self.invocation_id:
            metadata["invocationId"] = self.invocation_id
        if self.started_on:
            metadata["startedOn"] = time_text(self.started_on)
        if self.finished_on:
            metadata["finishedOn"] = time_text(self.finished_on)
        builder: dict[str, Any] = {"id": self.builder_id}
        if self.builder_version:
            builder["version"] = dict(self.builder_version)
        details: dict[str, Any] = {"builder": builder}
        if metadata:
            details["metadata"] = metadata
        if self.byproducts:
            details["byproducts"] = _resources(self.byproducts)
        definition: dict[str, Any] = {
            "buildType": self.build_type,
            "externalParameters": dict(self.external_parameters),
            "resolvedDependencies": _resources(self.resolved_dependencies),
        }
        if self.internal_parameters:
            definition["internalParameters"] = dict(self.internal_parameters)
        return {"buildDefinition": definition, "runDetails": details}


def read_provenance(predicate: Mapping[str, Any]) -> Provenance:
    """Read a provenance predicate of any build type.

    Raises:
        InputError: Reason ``provenance``, ``statement-resource`` or ``statement-digest``.
    """
    outer = Fields(predicate, what="provenance", reason=_REASON, known=("buildDefinition", "runDetails"))
    definition = outer.inner(
        "buildDefinition",
        ("buildType", "externalParameters", "internalParameters", "resolvedDependencies"),
    )
    details = outer.inner("runDetails", ("builder", "metadata", "byproducts"))
    builder = details.inner("builder", ("id", "version", "builderDependencies"))
    metadata = Fields(
        details.mapping("metadata"),
        what="provenance: metadata",
        reason=_REASON,
        known=("invocationId", "startedOn", "finishedOn"),
    )
    version = builder.mapping("version")
    if not all(isinstance(text, str) for text in version.values()):
        raise builder.refusal("has a version that is no string")
    present = details.mapping("metadata")
    return Provenance(
        build_type=definition.string("buildType"),
        external_parameters=definition.mapping("externalParameters"),
        internal_parameters=definition.mapping("internalParameters"),
        resolved_dependencies=_read_resources(definition, "resolvedDependencies"),
        builder_id=builder.string("id"),
        builder_version=version,
        invocation_id=metadata.string("invocationId", ""),
        started_on=metadata.time("startedOn") if "startedOn" in present else None,
        finished_on=metadata.time("finishedOn") if "finishedOn" in present else None,
        byproducts=_read_resources(details, "byproducts"),
    )


def _resources(resources: tuple[Resource, ...]) -> list[dict[str, Any]]:
    ordered = sorted(resources, key=lambda item: (item.name, item.uri, sorted(item.digest.items())))
    return [item.as_json() for item in ordered]


def _read_resources(fields: Fields, name: str) -> tuple[Resource, ...]:
    return tuple(
        read_resource(value, what=f"{fields.what}: {name}[{index}]")
        for index, value in enumerate(fields.items(name))
    )
