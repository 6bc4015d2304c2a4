"""The CycloneDX 1.6 document of a container image, deterministic to the byte.

It is made from the finished image and from the locks that it was put together by: Debian packages by the Debian lock,
Python packages by the very wheels that were laid out, the payload as a reference to the wheel's own document
(BOM-Link), and every blob of the image as a file with its digest. Roles, in the property ``wheelmark:role``:

==================  ==========================================================================
role                what it is
==================  ==========================================================================
``image``           the artifact itself, by the digest of its manifest
``image-blobs``     configuration and layers, each a file
``debian-package``  a package of the operating system, by the digest of its .deb file
``base-image``      an image by digest whose layers lie below ours
``dependency``      a Python package, by the digest of the wheel that was laid out
``wheel``           the payload; its own document explains its files
==================  ==========================================================================

A Debian archive's index states no licences: each package says ``license: unknown`` rather than nothing.
Sources: CycloneDX 1.6; package URLs of types ``deb``, ``pypi`` and ``oci`` (purl-spec); BOM-Link (CycloneDX).
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_wheel_filename

import wheelmark
from wheelmark import digests
from wheelmark.build.wheel import wheel_version
from wheelmark.config import Declaration, TargetRow
from wheelmark.config.recipe import ImageRecipe
from wheelmark.lock.debian import DebianLock, DebianPackage
from wheelmark.oci.types import ImageManifest
from wheelmark.sbom.components import Json, component, purl, sha256_hash
from wheelmark.sbom.document import NAMESPACE, TIMESTAMP
from wheelmark.sbom.inputs import Facts, Inputs, license_expression, read_inputs

_IMAGE, _PAYLOAD = "image", "payload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageContents:
    """A finished image, and what it was put together from."""

    sha256: str
    """Of its manifest."""
    manifest: ImageManifest
    layer_names: Sequence[str]
    """What each layer holds, in order."""
    recipe: ImageRecipe
    debian: DebianLock | None
    """``None`` where the recipe names a base image."""
    dependencies: Sequence[Path]
    """The wheels that were laid out."""
    payload: Path
    payload_sbom: Path
    """The detached document of the payload."""
    releasable: bool


def describe_image(contents: ImageContents, *, declaration: Declaration, row: TargetRow) -> bytes:
    """The document about a finished image.

    Args:
        contents: The image and its parts.
        declaration: The project.
        row: The target's row.

    Raises:
        ConfigError: A hand-kept input is malformed (``sbom-inputs``).
    """
    inputs = read_inputs(declaration.root)
    project = declaration.project
    ours = Facts(supplier=project.supplier, license=license_expression(project.license, "project.license"))
    payload = _payload(contents, ours)
    packages = [_dependency(path, inputs) for path in contents.dependencies]
    system = _system(contents)
    blobs = _blobs(contents)
    listed = sorted([payload, *packages, *system, blobs], key=lambda item: str(item["bom-ref"]))
    refs = {str(item["name"]): str(item["bom-ref"]) for item in packages}
    edges: dict[str, list[str]] = {_IMAGE: sorted(str(item["bom-ref"]) for item in listed)}
    for item in listed:
        edges[str(item["bom-ref"])] = []
    for name, ref in refs.items():
        edges[ref] = sorted(refs[other] for other in inputs.package(name).requires if other in refs)
    edges[_PAYLOAD] = [refs["torch"]] if "torch" in refs else []
    value = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'image:{contents.sha256}')}",
        "version": 1,
        "metadata": {
            "timestamp": TIMESTAMP,
            "lifecycles": [{"phase": "build"}],
            "tools": {
                "components": [{"type": "application", "name": "wheelmark", "version": wheelmark.__version__}]
            },
            "component": _subject(contents, declaration, row, ours),
            "supplier": {"name": project.supplier},
        },
        "components": listed,
        "dependencies": [{"ref": ref, "dependsOn": found} for ref, found in sorted(edges.items())],
        "compositions": [
            {
                # Of a base image only its digest is known.
                "aggregate": "complete" if contents.debian is not None else "incomplete",
                "assemblies": [_IMAGE],
            }
        ],
    }
    return digests.canonical_json(value)


def debian_purl(package: DebianPackage) -> str:
    """The package URL of a Debian package; its source package is named where it has another name or version."""
    text = f"pkg:deb/debian/{_quoted(package.name)}@{_quoted(package.version)}"
    qualifiers = {"arch": package.architecture, "distro": package.suite}
    if (package.source, package.source_version) != (package.name, package.version):
        qualifiers["upstream"] = f"{package.source}@{package.source_version}"
    return f"{text}?{'&'.join(f'{key}={_quoted(value)}' for key, value in sorted(qualifiers.items()))}"


def _subject(contents: ImageContents, declaration: Declaration, row: TargetRow, ours: Facts) -> Json:
    project = declaration.project
    name = canonicalize_name(project.name)
    return component(
        "container",
        "image",
        _IMAGE,
        name,
        facts=ours,
        version=str(wheel_version(declaration, row)),
        description=project.summary,
        hashes=[sha256_hash(contents.sha256)],
        purl=f"pkg:oci/{_quoted(name)}@sha256%3A{contents.sha256}",
        externalReferences=[{"type": "website", "url": project.homepage}] if project.homepage else None,
        properties=[
            ("target", str(row.target)),
            ("recipe", row.image.as_posix() if row.image else ""),
            ("releasable", "true" if contents.releasable else "false"),
            ("user", str(contents.recipe.image.user)),
        ],
    )


def _payload(contents: ImageContents, ours: Facts) -> Json:
    _name, version, _build, _tags = parse_wheel_filename(contents.payload.name)
    document = contents.payload_sbom.read_bytes()
    serial = str(json.loads(document)["serialNumber"]).removeprefix("urn:uuid:")
    name = canonicalize_name(contents.payload.name.partition("-")[0])
    return component(
        "library",
        "wheel",
        _PAYLOAD,
        name,
        facts=ours,
        version=str(version),
        hashes=[sha256_hash(digests.sha256_file(contents.payload))],
        purl=purl(name, str(version), file=contents.payload.name),
        externalReferences=[
            {
                "type": "bom",
                "url": f"urn:cdx:{serial}/1",
                "hashes": [sha256_hash(digests.sha256(document))],
            }
        ],
        properties=[("file", contents.payload.name)],
    )


def _dependency(path: Path, inputs: Inputs) -> Json:
    name, version, _build, _tags = parse_wheel_filename(path.name)
    return component(
        "library",
        "dependency",
        purl(name, str(version)),
        name,
        facts=inputs.package(name),
        version=str(version),
        scope="required",
        hashes=[sha256_hash(digests.sha256_file(path))],
        purl=purl(name, str(version)),
        properties=[("file", path.name)],
    )


def _system(contents: ImageContents) -> list[Json]:
    base = contents.recipe.base
    if base is not None:
        name, _, digest = base.image.rpartition("@")
        text = f"pkg:oci/{_quoted(name.rpartition('/')[2])}@{_quoted(digest)}"
        return [
            component(
                "container",
                "base-image",
                text,
                name,
                version=digest,
                purl=text,
                scope="required",
                hashes=[sha256_hash(digest.removeprefix("sha256:"))],
            )
        ]
    return [_debian(package) for package in (contents.debian.packages if contents.debian else ())]


def _debian(package: DebianPackage) -> Json:
    text = debian_purl(package)
    return component(
        "library",
        "debian-package",
        text,
        package.name,
        facts=Facts(supplier="Debian"),
        version=package.version,
        scope="required",
        hashes=[sha256_hash(package.sha256)],
        purl=text,
        properties=[
            ("license", "unknown"),
            ("source", package.source),
            ("source-version", package.source_version),
            ("suite", package.suite),
        ],
    )


def _blobs(contents: ImageContents) -> Json:
    manifest = contents.manifest
    named = [("configuration", manifest.config), *zip(contents.layer_names, manifest.layers, strict=True)]
    nested = [
        component(
            "file",
            "file",
            f"file:{item.digest}",
            item.digest,
            hashes=[sha256_hash(item.sha256)],
            properties=[("size", str(item.size)), ("holds", name), ("media-type", item.media_type)],
        )
        for name, item in named
    ]
    return component(
        "data",
        "image-blobs",
        "blobs",
        "blobs",
        components=sorted(nested, key=lambda item: str(item["name"])),
    )


def _quoted(text: str) -> str:
    return quote(text, safe=".-_~")
