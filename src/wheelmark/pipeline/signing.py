"""The ``sign`` stage: close the release, state what is known of it, sign, and verify what was signed.

1. Everything that was built has evidence, and none of it is FAILED.  2. ``release.json`` closes.
3. Statements: provenance once for the release; SBOM, test result and (where a scan was made) vulnerabilities for
each wheel and each image.  4. Each is signed and its bundle verified again.  5. A copy of the provenance bundle goes
beside each wheel, so that one wheel verifies alone; the bundles about an image are attached to it in the layout; the
trusted root is exported as a convenience, never as a trust anchor.
"""

from __future__ import annotations

import collections
import dataclasses
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

import wheelmark
from wheelmark import digests
from wheelmark.attest.predicates import (
    PROVENANCE,
    SBOM,
    TEST_RESULT,
    VULNS,
    Provenance,
    Scan,
    TestResult,
    sbom_predicate,
)
from wheelmark.attest.resource import Resource
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import GateError
from wheelmark.evidence import Evidence, Verdict
from wheelmark.manifest import IMAGES, NAME, Entry, Kind, ReleaseManifest, image_name
from wheelmark.pipeline.building import read_built
from wheelmark.pipeline.buildrecord import Built, BuiltWheel
from wheelmark.pipeline.gating import read_evidence
from wheelmark.pipeline.imaging import DERIVED, ReleaseImage, detach, indexes_of
from wheelmark.pipeline.importing import imports_of
from wheelmark.pipeline.progress import Progress
from wheelmark.pipeline.workspace import Workspace, holding
from wheelmark.publish import attach
from wheelmark.release import ReleaseDirectory, Step, close_release, entry_for
from wheelmark.release.close import BUNDLE_SUFFIX
from wheelmark.sign import Domain, open_signer

_AUDITS = ("audit", "image-audit")
BUILDER_ID = "https://wheelmark.dev/builder/local/v1"
"""SLSA builder id of a build on the machine of whoever runs it: nothing isolates it from its user."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signed:
    """A closed and signed release."""

    release: ReleaseManifest
    bundles: tuple[str, ...]
    """Relative to the release directory."""
    domain: Domain
    identity: str
    resumed: bool


@holding
def sign(workspace: Workspace, progress: Progress, *, domain: Domain, config: Path | None = None) -> Signed:
    """Close the release in the workspace and sign it.

    Raises:
        StateError: Something was not built or not tested.
        GateError: A gate FAILED; a release with a failed gate is not signed.
        SignError: Signing did not complete.
    """
    directory = workspace.directory
    built = read_built(workspace)
    evidence = read_evidence(workspace, built)
    _refuse_failed(evidence)
    detach(workspace)
    release = _close(workspace, built, evidence)
    statements = make_statements(workspace, built, release, evidence)
    payloads = {name: statement.as_bytes() for name, statement in statements.items()}
    confirmed = _confirmed(workspace, built)
    with open_signer(domain, config=config) as signer:
        step = Step(
            name="sign",
            inputs={
                "statements": {name: digests.sha256(data) for name, data in payloads.items()},
                "runners": {name: digests.sha256(item.bundle) for name, item in confirmed.items()},
                "domain": domain.value,
                "identity": signer.identity,
                "root": digests.sha256(signer.trusted_root),
            },
        )
        record = workspace.steps.finished(step)
        signed = Signed(
            release=release,
            bundles=tuple(f"bundles/{name}{BUNDLE_SUFFIX}" for name in sorted([*payloads, *confirmed])),
            domain=domain,
            identity=signer.identity,
            resumed=record is not None,
        )
        if record is not None:
            _remove_others(directory, set(record.outputs))
            _attach(workspace, built, payloads)
            progress.note(f"{len(signed.bundles)} bundles are signed already and unchanged")
            return signed
        with progress.stage(f"sign {len(payloads)} statements ({domain.value})"):
            fresh = {
                name: _Pair(statement=data, bundle=signer.sign(data))
                for name, data in sorted(payloads.items())
            }
        written = _write(directory, built, {**fresh, **confirmed}, signer.trusted_root)
        _attach(workspace, built, payloads)
        workspace.steps.record(step, [*written, directory.manifest_path])
        return signed


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pair:
    """A statement and the bundle that signs it."""

    statement: bytes
    bundle: bytes


def _confirmed(workspace: Workspace, built: Built) -> dict[str, _Pair]:
    """Runners' own bundles of imported evidence: they go into the release as they are."""
    found = {}
    for wheel in built.wheels:
        for item in imports_of(workspace.directory, wheel):
            if item.bundle is not None and item.statement is not None:
                name = f"{Path(wheel.path).name}.{item.evidence.gate}.runner"
                found[name] = _Pair(statement=item.statement, bundle=item.bundle)
    return found


def _write(
    directory: ReleaseDirectory, built: Built, pairs: Mapping[str, _Pair], trusted_root: bytes
) -> list[Path]:
    """Statements, bundles, the copies beside the wheels and the root; whatever else lay there goes."""
    written = []
    for name, pair in pairs.items():
        written.append(directory.write(f"statements/{name}.json", pair.statement))
        written.append(directory.write(f"bundles/{name}{BUNDLE_SUFFIX}", pair.bundle))
    beside = pairs["provenance"].bundle
    written += [directory.write(f"{wheel.path}{BUNDLE_SUFFIX}", beside) for wheel in built.wheels]
    written.append(directory.write("trust/trusted_root.json", trusted_root))
    _remove_others(directory, {path.relative_to(directory.root).as_posix() for path in written})
    return written


def _attach(workspace: Workspace, built: Built, names: Iterable[str]) -> None:
    """Attach to each image the provenance and the bundles about it, and the provenance to each index over images."""
    directory = workspace.directory
    for sha256 in indexes_of(workspace):
        attach(
            directory / IMAGES,
            f"sha256:{sha256}",
            (directory / f"bundles/provenance{BUNDLE_SUFFIX}").read_bytes(),
        )
    for image in built.images:
        about = [name for name in names if name == "provenance" or name.startswith(f"{_stem(image)}.")]
        for name in sorted(about):
            bundle = (directory / f"bundles/{name}{BUNDLE_SUFFIX}").read_bytes()
            attach(directory / IMAGES, f"sha256:{image.sha256}", bundle)


def _stem(image: ReleaseImage) -> str:
    """How names of statements about an image begin."""
    return f"{image.target}.image"


def _remove_others(directory: ReleaseDirectory, keep: set[str]) -> None:
    for folder in ("statements", "bundles", "trust", "report"):
        directory.remove_except(folder, keep)


def _refuse_failed(evidence: Mapping[str, tuple[tuple[str, Evidence], ...]]) -> None:
    failed = [item for rows in evidence.values() for _path, item in rows if item.verdict is Verdict.FAILED]
    if failed:
        first = failed[0]
        raise GateError(
            f"{len(failed)} gates FAILED; first: {first.target} {first.gate}: {first.summary}",
            cause="a release with a failed gate is not signed",
            fix="mend what the gate names, then: nox -s build test sign",
        )


def _close(
    workspace: Workspace, built: Built, evidence: Mapping[str, tuple[tuple[str, Evidence], ...]]
) -> ReleaseManifest:
    directory, project = workspace.directory, workspace.declaration.project
    entries: dict[str, Entry] = {}

    def add(path: str, kind: Kind, *, target: str = "", describes: str = "") -> None:
        entries[path] = entry_for(directory, path, kind, target=target, describes=describes)

    add(built.build_lock, Kind.LOCK)
    for wheel in built.wheels:
        add(wheel.path, Kind.WHEEL, target=wheel.target)
        add(wheel.sbom, Kind.SBOM, target=wheel.target, describes=wheel.sha256)
        add(wheel.lock, Kind.LOCK)
        for path in wheel.code_objects:
            is_manifest = path.endswith("/manifest.json")
            add(path, Kind.KERNEL_MANIFEST if is_manifest else Kind.CODE_OBJECT, target=wheel.target)
        for path, _item in evidence[wheel.path]:
            add(path, Kind.EVIDENCE, target=wheel.target, describes=wheel.sha256)
    shared = collections.Counter(path for image in built.images for path in image.parts)
    for image in built.images:
        add(image.path, Kind.IMAGE, target=image.target)
        for path in image.parts:
            add(path, Kind.IMAGE_PART, target=image.target if shared[path] == 1 else "")
        add(image.sbom, Kind.SBOM, target=image.target, describes=image.sha256)
        add(image.lock, Kind.LOCK)
        if image.debian_lock:
            add(image.debian_lock, Kind.DEBIAN_LOCK)
        for path, _item in evidence[image.path]:
            add(path, Kind.EVIDENCE, target=image.target, describes=image.sha256)
    for path in indexes_of(workspace).values():
        add(path, Kind.IMAGE_PART)
    return close_release(
        directory,
        project=project.name,
        version=project.version,
        targets=[wheel.target for wheel in built.wheels],
        not_built=built.not_built,
        snapshot=built.snapshot,
        entries=entries.values(),
        levels=_levels(built, evidence),
        derived=DERIVED if built.images else (),
    )


def _levels(
    built: Built, evidence: Mapping[str, tuple[tuple[str, Evidence], ...]]
) -> dict[str, dict[str, str]]:
    """Target -> gate -> word; names of gates say whether they are about the wheel or the image."""
    words: dict[str, dict[str, str]] = {}
    artifacts: list[BuiltWheel | ReleaseImage] = [*built.wheels, *built.images]
    for artifact in artifacts:
        found = {
            item.gate: f"{item.verdict.value}@{item.level.value}" for _path, item in evidence[artifact.path]
        }
        words.setdefault(artifact.target, {}).update(found)
    return words


def make_statements(
    workspace: Workspace,
    built: Built,
    release: ReleaseManifest,
    evidence: Mapping[str, tuple[tuple[str, Evidence], ...]],
) -> dict[str, Statement]:
    """Name of the statement file (without suffix) -> statement; the same inputs give the same bytes."""
    statements = {"provenance": _provenance(workspace, built, release)}
    named: list[tuple[str, str, BuiltWheel | ReleaseImage]] = [
        (Path(wheel.path).name, Path(wheel.path).name, wheel) for wheel in built.wheels
    ]
    named += [(_stem(image), image_name(image.target), image) for image in built.images]
    for name, subject_name, artifact in named:
        subject = (Subject(name=subject_name, sha256=artifact.sha256),)
        items = [item for _path, item in evidence[artifact.path]]
        statements[f"{name}.sbom"] = Statement(
            subjects=subject,
            predicate_type=SBOM,
            predicate=sbom_predicate((workspace.directory / artifact.sbom).read_bytes()),
        )
        statements[f"{name}.test-result"] = Statement(
            subjects=subject, predicate_type=TEST_RESULT, predicate=TestResult.of(items).as_predicate()
        )
        scan = next((Scan.of(item) for item in items if item.gate in _AUDITS), None)
        if scan is not None:
            statements[f"{name}.vulnerabilities"] = Statement(
                subjects=subject, predicate_type=VULNS, predicate=scan.as_predicate()
            )
    return statements


def _provenance(workspace: Workspace, built: Built, release: ReleaseManifest) -> Statement:
    subjects = [Subject(name=NAME, sha256=digests.sha256_file(workspace.directory.manifest_path))]
    subjects += [Subject(name=entry.subject_name, sha256=entry.sha256) for entry in release.entries]
    dependencies = [
        Resource(name=name, digest={"sha256": sha256}) for name, sha256 in sorted(built.inputs.items())
    ]
    if built.commit:
        homepage = workspace.declaration.project.homepage
        dependencies.append(Resource(uri=f"git+{homepage}", digest={"gitCommit": built.commit}))
    dependencies += [
        Resource(name=f"toolchain/{wheel.target}", digest={"sha256": wheel.toolchain})
        for wheel in built.wheels
    ]
    dependencies += [
        Resource(name=f"image-inputs/{image.target}", digest={"sha256": image.inputs})
        for image in built.images
    ]
    provenance = Provenance(
        external_parameters={
            "project": release.project,
            "version": release.version,
            "targets": sorted(release.targets),
            "snapshot": release.snapshot,
        },
        internal_parameters={"machine": platform.machine(), "python": platform.python_version()},
        resolved_dependencies=tuple(dependencies),
        builder_id=BUILDER_ID,
        builder_version={"wheelmark": wheelmark.__version__},
    )
    return Statement(subjects=tuple(subjects), predicate_type=PROVENANCE, predicate=provenance.as_predicate())
