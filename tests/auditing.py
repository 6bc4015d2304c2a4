"""One small wheel with its SBOM and lock, and the context that a gate gets for it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packages import make_wheel
from wheelmark import digests
from wheelmark.attest.sbom import ROLE
from wheelmark.binaries.wheel import read_wheel
from wheelmark.config import AuditGate, load_declaration
from wheelmark.gates.context import Context, SecondWheel
from wheelmark.lock import Pin
from wheelmark.packages.pins import render_pins

ROOT = Path(__file__).parents[1]
Json = dict[str, Any]


def component(role: str, name: str, version: str = "", purl: str = "", **fields: Any) -> Json:
    """A component as the project's own SBOMs write it."""
    values = {
        "type": "library",
        "bom-ref": purl or f"{role}:{name}",
        "name": name,
        "version": version,
        "purl": purl,
    }
    properties = [{"name": ROLE, "value": role}]
    return {**{key: value for key, value in values.items() if value}, "properties": properties, **fields}


def dependency(name: str, version: str) -> Json:
    """A locked package."""
    return component("dependency", name, version, f"pkg:pypi/{name}@{version}")


def document(wheel: Path, components: Sequence[Json]) -> Json:
    """An SBOM about a wheel: its files in one first-party part, and the given components."""
    files = [
        component("file", path, **{"type": "file", "bom-ref": f"file:{path}"})
        | {"hashes": [{"alg": "SHA-256", "content": file.sha256}]}
        for path, file in sorted(read_wheel(wheel).files.items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "urn:uuid:00000000-0000-5000-8000-000000000000",
        "metadata": {
            "component": component(
                "wheel", "wheelmark-kernels", "0.1.0+cpu", "pkg:pypi/wheelmark-kernels@0.1.0%2Bcpu"
            )
        },
        "components": [component("python-package", "ours", components=files), *components],
    }


def make_context(
    folder: Path,
    *,
    locked: Mapping[str, str],
    components: Sequence[Json] | None = None,
    service: str = "none",
    max_age_days: int = 30,
) -> Context:
    """A context for a wheel whose lock holds ``locked``; its SBOM has the same packages unless said otherwise."""

    def no_second_wheel() -> SecondWheel:
        raise AssertionError("the audit needs no second wheel")

    wheel = make_wheel(folder, "wheelmark_kernels", "0.1.0+cpu")
    lock = folder / "runtime-cpu.txt"
    lock.write_bytes(render_pins(Pin(name=n, version=v, hashes=("a" * 64,)) for n, v in locked.items()))
    described = [dependency(n, v) for n, v in locked.items()] if components is None else list(components)
    sbom = folder / "sbom.cdx.json"
    sbom.write_text(json.dumps(document(wheel, described)))
    declaration = load_declaration(ROOT / "wheelmark.toml")
    gates = dataclasses.replace(
        declaration.gates, audit=AuditGate(service=service, max_age_days=max_age_days)
    )
    declaration = dataclasses.replace(declaration, root=folder, gates=gates)
    return Context(
        declaration=declaration,
        row=declaration.targets[0],
        wheel=wheel,
        sha256=digests.sha256_file(wheel),
        sbom=sbom,
        lock=lock,
        cache=folder / "cache",
        build_lock=folder / "build.txt",
        build_python=folder / "python",
        declared_variants={},
        toolchain="0" * 64,
        second=no_second_wheel,
    )


def advisory(identifier: str, package: str, events: Sequence[Mapping[str, str]], **fields: Any) -> Json:
    """An OSV advisory with one range."""
    affected = {
        "package": {"ecosystem": "PyPI", "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": identifier, "modified": "2026-01-01T00:00:00Z", "affected": [affected | fields]}


def write_advisories(
    folder: Path, *items: Json, date: str = "2026-11-01", packages: Any = "all", **manifest: Any
) -> Path:
    """A folder of OSV files with its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in items:
        (folder / f"{item['id']}.json").write_text(json.dumps(item))
    values = {
        "schema": "https://wheelmark.dev/advisories/v1",
        "source": "tests",
        "date": date,
        "coverage": {"ecosystem": "PyPI", "packages": packages},
    }
    (folder / "manifest.json").write_text(json.dumps(values | manifest))
    return folder
