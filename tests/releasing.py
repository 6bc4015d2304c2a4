"""Small real releases: wheels, images, SBOMs, evidence, manifest, statements and bundles, as ``dist/`` holds them."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import imaging
import wheelmaking
from wheelmark import digests
from wheelmark.attest.predicates import PROVENANCE, SBOM, TEST_RESULT, Provenance, TestResult
from wheelmark.attest.statement import Statement, Subject
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.manifest import NAME, Entry, Kind, NotBuilt, ReleaseManifest
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import INDEX, REFERENCE, Descriptor, ImageIndex, read_manifest
from wheelmark.publish import attach

IMAGE_GATES = ("image-audit", "image-contents", "image-repeat", "image-run", "image-size")
GATES = ("abi", "audit", "correctness", "coverage", "performance", "repeat", "size")
LEVELS = {
    "correctness": Level.HARDWARE,
    "audit": Level.NONE,
    "performance": Level.NONE,
    "image-audit": Level.NONE,
    "image-run": Level.HARDWARE,
}
UNCHECKED = ("audit", "performance", "image-audit")
Sign = Callable[[bytes], bytes]


def file_name(local: str = "cpu", version: str = "0.1.0", platform: str = "manylinux_2_28_x86_64") -> str:
    return f"demo_kernels-{version}+{local}-py3-none-{platform}.whl"


def sbom_bytes(name: str, wheel: bytes, *, files: Mapping[str, str] | None = None) -> bytes:
    """A CycloneDX document that describes ``wheel`` and explains every file of it."""
    if files is None:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            files = {item: digests.sha256(archive.read(item)) for item in archive.namelist()}

    def component(kind: str, title: str, role: str, sha256: str, **members: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "bom-ref": f"{role}:{title}",
            "name": title,
            "version": "0.1.0",
            "hashes": [{"alg": "SHA-256", "content": sha256}] if sha256 else [],
            "properties": [{"name": "wheelmark:role", "value": role}],
            **members,
        }

    inside = [component("file", path, "file", sha256) for path, sha256 in files.items()]
    return digests.canonical_json(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": "urn:uuid:00000000-0000-4000-8000-000000000000",
            "version": 1,
            "metadata": {"component": component("library", name, "wheel", digests.sha256(wheel))},
            "components": [component("library", "demo-kernels", "payload", "", components=inside)],
        }
    )


def evidence_for(gate: str, target: str, sha256: str, **changes: Any) -> Evidence:
    unchecked = gate in UNCHECKED
    made = Evidence(
        gate=gate,
        target=target,
        subject=sha256,
        verdict=Verdict.UNCHECKED if unchecked else Verdict.PASSED,
        level=LEVELS.get(gate, Level.STATIC),
        summary=f"{gate} looked",
        reason="no-service" if unchecked else "",
    )
    return dataclasses.replace(made, **changes)


@dataclasses.dataclass(kw_only=True)
class Part:
    """One wheel of a release and what is said of it; a test may change any of it before ``write``."""

    target: str
    name: str
    wheel: bytes
    sbom: bytes
    evidence: list[Evidence]
    kernels: dict[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def sha256(self) -> str:
        return digests.sha256(self.wheel)


def part(
    target: str = "cpu-x86_64",
    local: str = "cpu",
    files: Mapping[str, bytes] | None = None,
    *,
    wheel: bytes | None = None,
) -> Part:
    """A wheel with everything that is said of it; for a GPU with one real code object."""
    name = file_name(local)
    if files is None:
        _, _, arch = target.partition("-")
        files = {"demo_kernels/__init__.py": b""} if target.startswith("cpu") else wheelmaking.gpu_files(arch)
    data = wheelmaking.wheel_bytes(files, name) if wheel is None else wheel
    folder = f"{wheelmaking.FOLDER}/"
    return Part(
        target=target,
        name=name,
        wheel=data,
        sbom=sbom_bytes(name, data),
        evidence=[evidence_for(gate, target, digests.sha256(data)) for gate in GATES],
        kernels={path.removeprefix(folder): d for path, d in files.items() if path.startswith(folder)},
    )


@dataclasses.dataclass(kw_only=True)
class ImagePart:
    """One image of a release; a test may change any of it before ``write``."""

    target: str
    draft: imaging.Draft
    evidence: Callable[[str, str], list[Evidence]] = lambda target, sha256: [
        evidence_for(gate, target, sha256) for gate in IMAGE_GATES
    ]
    attached: Callable[[str], bool] = lambda _name: True
    """Which bundles about it are attached, by the statement's name."""
    descriptor: Descriptor | None = None
    """Once written."""

    @property
    def sha256(self) -> str:
        assert self.descriptor is not None
        return self.descriptor.sha256

    def sbom(self) -> bytes:
        """A document about the image."""
        return digests.canonical_json(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.6",
                "serialNumber": "urn:uuid:00000000-0000-4000-8000-000000000001",
                "version": 1,
                "metadata": {
                    "component": {
                        "type": "container",
                        "bom-ref": "image",
                        "name": self.target,
                        "hashes": [{"alg": "SHA-256", "content": self.sha256}],
                        "properties": [{"name": "wheelmark:role", "value": "image"}],
                    }
                },
                "components": [],
            }
        )


def image_part(target: str = "cpu-x86_64", **labels: str) -> ImagePart:
    """A good image for a target."""
    platform = imaging.ARM64 if target.endswith("aarch64") else imaging.AMD64
    version = {"org.opencontainers.image.version": "0.1.0"}
    return ImagePart(
        target=target, draft=imaging.Draft(target=target, platform=platform, labels={**version, **labels})
    )


@dataclasses.dataclass(kw_only=True)
class Draft:
    """A release before it is signed; a test may change any of it before ``write``."""

    parts: list[Part]
    images: list[ImagePart] = dataclasses.field(default_factory=list)
    index: dict[str, str] | None = None
    """Annotations of an index ``all`` over the images; ``None``: there is no index."""
    snapshot: bool = False
    not_built: tuple[NotBuilt, ...] = ()
    extra_entries: dict[str, tuple[Kind, bytes]] = dataclasses.field(
        default_factory=lambda: {"locks/runtime-cpu.txt": (Kind.LOCK, b"torch==2.13.0 --hash=sha256:00\n")}
    )
    change_statements: Callable[[dict[str, Statement]], None] = lambda _statements: None
    change_manifest: Callable[[ReleaseManifest], ReleaseManifest] = lambda made: made

    def write(self, dist: Path, sign: Sign, *, root: bytes = b"") -> Path:
        """Sign it and write the whole directory."""
        files = self._files()
        files |= self._image_files(dist / "images")
        release = self.change_manifest(self._manifest(files))
        for entry in release.entries:
            files.setdefault(entry.path, (Kind.LOCK, b"", "", ""))
        statements = self._statements(release)
        self.change_statements(statements)
        written = {path: item[1] for path, item in files.items()}
        written[NAME] = release.as_bytes()
        for name, statement in statements.items():
            written[f"statements/{name}.json"] = statement.as_bytes()
            written[f"bundles/{name}.sigstore.json"] = sign(statement.as_bytes())
        for item in self.parts:
            written[f"wheels/{item.name}.sigstore.json"] = written["bundles/provenance.sigstore.json"]
        if root:
            written["trust/trusted_root.json"] = root
        for path, data in written.items():
            target = dist / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._attach(dist / "images", written)
        return dist

    def _attach(self, layout: Path, written: Mapping[str, bytes]) -> None:
        for image in self.images:
            for name in ("provenance", f"{image.target}.image.sbom", f"{image.target}.image.test-result"):
                if f"bundles/{name}.sigstore.json" in written and image.attached(name):
                    bundle = written[f"bundles/{name}.sigstore.json"]
                    attach(layout, f"sha256:{image.sha256}", bundle)
        for item in Layout(layout).index.manifests if self.index is not None else ():
            if item.annotations.get(REFERENCE) == "all":
                attach(layout, item.digest, written["bundles/provenance.sigstore.json"])

    def _image_files(self, layout: Path) -> dict[str, tuple[Kind, bytes, str, str]]:
        """Blobs of the images, written already, and what is said of each."""
        files: dict[str, tuple[Kind, bytes, str, str]] = {}
        if not self.images:
            return files
        writer = LayoutWriter(layout)
        for image in self.images:
            image.descriptor = image.draft.write(writer, tag=image.target, platform=image.draft.platform)
        tops = [image.descriptor for image in self.images if image.descriptor]
        if self.index is not None:
            below = tuple(dataclasses.replace(item, annotations={}) for item in tops)
            data = ImageIndex(manifests=below, annotations=self.index).as_bytes()
            tops.append(writer.add(data, INDEX, annotations={REFERENCE: "all"}))
            files[f"images/blobs/sha256/{tops[-1].sha256}"] = (Kind.IMAGE_PART, data, "", "")
        writer.finish(tops)
        for image in self.images:
            blobs = layout / "blobs" / "sha256"
            manifest = read_manifest((blobs / image.sha256).read_bytes())
            for item in (manifest.config, *manifest.layers):
                files[f"images/blobs/sha256/{item.sha256}"] = (
                    Kind.IMAGE_PART,
                    (blobs / item.sha256).read_bytes(),
                    "",
                    "",
                )
            files[f"images/blobs/sha256/{image.sha256}"] = (
                Kind.IMAGE,
                (blobs / image.sha256).read_bytes(),
                image.target,
                "",
            )
            files[f"sbom/{image.target}.image.cdx.json"] = (
                Kind.SBOM,
                image.sbom(),
                image.target,
                image.sha256,
            )
            for made in image.evidence(image.target, image.sha256):
                files[f"evidence/{image.target}.image/{made.gate}.json"] = (
                    Kind.EVIDENCE,
                    digests.canonical_json(made.as_json()),
                    image.target,
                    image.sha256,
                )
        return files

    def _files(self) -> dict[str, tuple[Kind, bytes, str, str]]:
        files = {path: (kind, data, "", "") for path, (kind, data) in self.extra_entries.items()}
        for item in self.parts:
            files[f"wheels/{item.name}"] = (Kind.WHEEL, item.wheel, item.target, "")
            files[f"sbom/{item.name}.cdx.json"] = (Kind.SBOM, item.sbom, item.target, item.sha256)
            for made in item.evidence:
                data = digests.canonical_json(made.as_json())
                files[f"evidence/{item.name}/{made.gate}.json"] = (
                    Kind.EVIDENCE,
                    data,
                    item.target,
                    item.sha256,
                )
            for name, data in item.kernels.items():
                kind = Kind.KERNEL_MANIFEST if name == "manifest.json" else Kind.CODE_OBJECT
                files[f"kernels/{item.target}/{name}"] = (kind, data, item.target, "")
        return files

    def _manifest(self, files: Mapping[str, tuple[Kind, bytes, str, str]]) -> ReleaseManifest:
        return ReleaseManifest(
            project="demo-kernels",
            version="0.1.0",
            targets=tuple(item.target for item in self.parts),
            not_built=self.not_built,
            snapshot=self.snapshot,
            entries=tuple(
                Entry(
                    path=path,
                    kind=kind,
                    sha256=digests.sha256(data),
                    size=len(data),
                    target=target,
                    describes=describes,
                )
                for path, (kind, data, target, describes) in files.items()
            ),
            levels={
                item.target: {
                    e.gate: f"{e.verdict.value}@{e.level.value}"
                    for e in [
                        *item.evidence,
                        *(
                            found
                            for image in self.images
                            if image.target == item.target
                            for found in image.evidence(image.target, image.sha256)
                        ),
                    ]
                }
                for item in self.parts
            },
        )

    def _statements(self, release: ReleaseManifest) -> dict[str, Statement]:
        subjects = [Subject(name=NAME, sha256=digests.sha256(release.as_bytes()))]
        subjects += [Subject(name=entry.subject_name, sha256=entry.sha256) for entry in release.entries]
        provenance = Provenance(
            external_parameters={
                "project": release.project,
                "version": release.version,
                "targets": sorted(release.targets),
                "snapshot": release.snapshot,
            },
            resolved_dependencies=(),
            builder_id="https://wheelmark.dev/builder/tests/v1",
        )
        made = {
            "provenance": Statement(
                subjects=tuple(subjects), predicate_type=PROVENANCE, predicate=provenance.as_predicate()
            )
        }
        for item in self.parts:
            subject = (Subject(name=item.name, sha256=item.sha256),)
            document = json.loads(item.sbom)
            made[f"{item.name}.sbom"] = Statement(subjects=subject, predicate_type=SBOM, predicate=document)
            if item.evidence:
                made[f"{item.name}.test-result"] = Statement(
                    subjects=subject,
                    predicate_type=TEST_RESULT,
                    predicate=TestResult.of(item.evidence).as_predicate(),
                )
        for image in self.images:
            about = (Subject(name=f"images/{image.target}", sha256=image.sha256),)
            stem = f"{image.target}.image"
            made[f"{stem}.sbom"] = Statement(
                subjects=about, predicate_type=SBOM, predicate=json.loads(image.sbom())
            )
            made[f"{stem}.test-result"] = Statement(
                subjects=about,
                predicate_type=TEST_RESULT,
                predicate=TestResult.of(image.evidence(image.target, image.sha256)).as_predicate(),
            )
        return made


def draft(*parts: Part) -> Draft:
    return Draft(parts=list(parts) or [part()])
