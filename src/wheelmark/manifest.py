"""``release.json``: what a release holds, by digest. Read strictly, written canonically.

It closes before statements are made, so it lists artifacts, SBOMs, runtime locks and evidence, and neither
statements nor bundles; nothing lists itself. A file under the release directory that neither this manifest
nor the fixed layout accounts for is refused.

Layout of a release directory (``dist/``), paths as they stand in the manifest:

===============================  =======================  ==========================================
path                             kind                     listed in release.json
===============================  =======================  ==========================================
``wheels/<name>.whl``            ``wheel``                yes
``kernels/<target>/manifest.json``  ``kernel-manifest``   yes
``kernels/<target>/<object>``    ``code-object``          yes
``sbom/<wheel file>.cdx.json``   ``sbom``                 yes
``locks/<lock>.txt``             ``lock``                 yes
``locks/debian-<arch>.json``     ``debian-lock``          yes: the operating system of images
``evidence/<wheel file>/<gate>.json``  ``evidence``       yes
``evidence/<target>.image/<gate>.json``  ``evidence``     yes: of the target's image
``sbom/<target>.image.cdx.json``  ``sbom``                yes
``images/blobs/sha256/<hex>``    ``image``, ``image-part``  yes; one OCI layout holds the images of all targets
``images/oci-layout``            fixed                    no
``images/index.json``            derived                  no: names images and, once signed, their referrers
``release.json``                 itself                   no: a subject of the provenance
``statements/<name>.json``       in-toto statement        no: must equal a bundle's payload
``bundles/<name>.sigstore.json``  Sigstore bundle         no: found by subject digest
``wheels/<name>.whl.sigstore.json``  Sigstore bundle      no: byte copy of the provenance bundle
``trust/trusted_root.json``      derived                  no: never believed
``report/``                      derived                  no: never believed
===============================  =======================  ==========================================
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError

SCHEMA_VERSION = 1
NAME = "release.json"
IMAGES = "images"
"""The folder of the images' layout, and the first part of their names as subjects."""


class Kind(enum.Enum):
    """What a listed file is."""

    WHEEL = "wheel"
    KERNEL_MANIFEST = "kernel-manifest"
    CODE_OBJECT = "code-object"
    SBOM = "sbom"
    LOCK = "lock"
    EVIDENCE = "evidence"
    IMAGE = "image"
    """The manifest of a target's container image: its sha256 is the image's digest."""
    IMAGE_PART = "image-part"
    """A configuration or a layer; several images may share one."""
    DEBIAN_LOCK = "debian-lock"
    """The Debian packages of images for one architecture."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Entry:
    """One file of the release."""

    path: str
    """POSIX path relative to the release directory; never absolute, never with ``..``."""
    kind: Kind = dataclasses.field(compare=False)
    sha256: str = dataclasses.field(compare=False)
    size: int = dataclasses.field(compare=False)
    """Bytes."""
    target: str = dataclasses.field(default="", compare=False)
    """Target id; empty for a lock, and for a part of several images."""
    describes: str = dataclasses.field(default="", compare=False)
    """sha256 of the wheel or image that an SBOM or evidence is about; empty otherwise."""

    @property
    def subject_name(self) -> str:
        """Its name as a subject of statements: a wheel's own file name, so that it verifies wherever it
        lies; ``images/<target>`` for an image, whose digest alone counts; the path of anything else.
        """
        if self.kind is Kind.IMAGE:
            return image_name(self.target)
        return PurePosixPath(self.path).name if self.kind is Kind.WHEEL else self.path

    def __post_init__(self) -> None:
        texts = (self.path, self.sha256, self.target, self.describes)
        if not all(isinstance(text, str) for text in texts) or type(self.size) is not int:
            raise InputError("release.json has an entry with a field of the wrong type", reason="manifest")
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts or str(path) != self.path or "\\" in self.path:
            raise InputError(f"release.json lists an unsafe path {self.path!r}", reason="manifest-path")
        if not digests.is_sha256(self.sha256) or self.size < 0:
            raise InputError(f"release.json: {self.path} has no valid digest or size", reason="manifest")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class NotBuilt:
    """A target of the declaration that this release does not hold, or holds without its image."""

    target: str
    """Target id; ``images/<target>`` where only its image is not there."""
    reason: str
    fix: str

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.target, self.reason, self.fix)):
            raise InputError("release.json: notBuilt has a field of the wrong type", reason="manifest")


def image_name(target: str) -> str:
    """How statements and ``notBuilt`` name the image of a target."""
    return f"{IMAGES}/{target}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseManifest:
    """The whole of ``release.json``.

    ``levels`` maps each target to its gates' ``<VERDICT>@<level>`` words, as the evidence files say; gates named
    ``image-…`` are its image's.
    """

    project: str
    version: str
    targets: tuple[str, ...]
    not_built: tuple[NotBuilt, ...]
    snapshot: bool
    """Built from a tree with uncommitted changes."""
    entries: tuple[Entry, ...]
    levels: Mapping[str, Mapping[str, str]]

    def __post_init__(self) -> None:
        paths = [entry.path for entry in self.entries]
        if len(set(paths)) != len(paths):
            raise InputError("release.json lists a path twice", reason="manifest")

    @property
    def partial(self) -> bool:
        """Whether a declared target or image is absent."""
        return bool(self.not_built)

    def of_kind(self, kind: Kind) -> tuple[Entry, ...]:
        """Entries of one kind, by path."""
        return tuple(sorted(entry for entry in self.entries if entry.kind is kind))

    def as_bytes(self) -> bytes:
        """Canonical JSON, the bytes of ``release.json``."""
        value = {
            "schemaVersion": SCHEMA_VERSION,
            "project": self.project,
            "version": self.version,
            "targets": sorted(self.targets),
            "partial": self.partial,
            "notBuilt": [dataclasses.asdict(item) for item in sorted(self.not_built)],
            "snapshot": self.snapshot,
            "entries": [
                {**dataclasses.asdict(entry), "kind": entry.kind.value} for entry in sorted(self.entries)
            ],
            "levels": {target: dict(words) for target, words in self.levels.items()},
        }
        return digests.canonical_json(value)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReleaseManifest:
        """Read ``release.json``; the bytes must be the canonical ones.

        Raises:
            InputError: Not a release manifest of this schema version, or not in canonical form.
        """
        value = strictjson.load_object(data, what=NAME)
        if value.get("schemaVersion") != SCHEMA_VERSION:
            raise InputError(
                f"release.json has schema version {value.get('schemaVersion')!r}; this verifier reads {SCHEMA_VERSION}",
                fix="use a wheelmark release that knows this schema",
                reason="manifest-version",
            )
        try:
            manifest = _read(cls, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"release.json has a missing or malformed field: {error}", reason="manifest"
            ) from error
        if manifest.as_bytes() != data:
            raise InputError(
                "release.json is not in canonical form, or has unknown fields", reason="manifest"
            )
        return manifest


def _read(cls: type[ReleaseManifest], value: dict[str, Any]) -> ReleaseManifest:
    return cls(
        project=str(value["project"]),
        version=str(value["version"]),
        targets=tuple(str(target) for target in value["targets"]),
        not_built=tuple(NotBuilt(**item) for item in value["notBuilt"]),
        snapshot=bool(value["snapshot"]),
        entries=tuple(Entry(**{**item, "kind": Kind(item["kind"])}) for item in value["entries"]),
        levels={str(k): {str(a): str(b) for a, b in v.items()} for k, v in value["levels"].items()},
    )
