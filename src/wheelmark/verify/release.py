"""A release directory, looked at whole: every file accounted for, hashed, and bound by a signature.

``gathering.gather`` is the edge (it walks, hashes, reads and establishes facts) and gives a value; ``judge`` is pure.
The order:

1. ``release.json`` in canonical form.
2. Every file under the directory is listed there, or has its place in the fixed layout; no links.
3. Every listed file has the digest and size that the manifest says.
4. Every bundle verifies; beside each lies its statement, byte for byte, and no statement without a bundle.
5. A trusted root beside them is the policy's own, or was before it was rotated; a bundle beside a wheel is a copy of the provenance.
6. The images' layout is what the listed images and the bundles make, and each image is read to its last byte.
7. The provenance is about exactly the files of the release and ``release.json``.
8. Each wheel and each image under the requirement for its target (see ``evaluate``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark import manifest
from wheelmark.attest.provenance import read_provenance
from wheelmark.errors import InputError
from wheelmark.manifest import Entry, Kind, ReleaseManifest
from wheelmark.oci import types
from wheelmark.verify.artifact import ArtifactFacts, WheelFacts
from wheelmark.verify.case import Attestation, Case
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.conditions.always import check_clock, check_denials
from wheelmark.verify.conditions.provenance import differing_parameters
from wheelmark.verify.conditions.statements import APART
from wheelmark.verify.evaluate import evaluate_artifact
from wheelmark.verify.facts import Facts
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.gathering import Release, gather
from wheelmark.verify.imagefacts import ImageFacts
from wheelmark.verify.policy import IMAGE_GATES, Policy, Predicate, Requirement, Signer
from wheelmark.verify.policy import Kind as RuleKind
from wheelmark.verify.signers import judge_signer
from wheelmark.verify.trail import Judgement, Trail
from wheelmark.verify.verdict import Accepted, Refusal, Report, Step, Verdict, refusal

_LAYOUT = {
    Kind.WHEEL: re.compile(r"wheels/[^/]+\.whl"),
    Kind.KERNEL_MANIFEST: re.compile(r"kernels/[^/]+/manifest\.json"),
    Kind.CODE_OBJECT: re.compile(r"kernels/[^/]+/[^/]+\.(?:cubin|hsaco)"),
    Kind.SBOM: re.compile(r"sbom/[^/]+\.cdx\.json"),
    Kind.LOCK: re.compile(r"locks/[^/]+\.txt"),
    Kind.DEBIAN_LOCK: re.compile(r"locks/debian-[a-z0-9]+\.json"),
    Kind.IMAGE: re.compile(r"images/blobs/sha256/[0-9a-f]{64}"),
    Kind.IMAGE_PART: re.compile(r"images/blobs/sha256/[0-9a-f]{64}"),
    Kind.EVIDENCE: re.compile(r"evidence/[^/]+/[^/]+\.json"),
}
"""Where each kind of file lies (``wheelmark.manifest``): the kind alone does not say what would be read from it."""


def verify_release_directory(
    path: Path, policy: Policy, *, circumstances: Circumstances, cache: FactsCache | None = None
) -> Report:
    """Verify a release directory.

    Args:
        path: The directory (``dist/``).
        policy: Whom to trust and what to ask for.
        circumstances: The clock, the channel, and what this machine has seen.
        cache: Facts of bundles from earlier runs.

    Raises:
        InputError: This is no release directory (``not-a-release``).
        ConfigError: The policy has no requirement for a target of the release.
    """
    if not os.path.isfile(path / manifest.NAME):  # noqa: PTH113 - Path.is_file raises for names that are too long
        raise InputError(
            f"{path} holds no {manifest.NAME}: it is no release directory, or not signed yet (`nox -s sign`)",
            reason="not-a-release",
        )
    try:
        release = gather(path, policy, cache=cache)
    except InputError as error:
        refused = refusal(manifest.NAME, error.reason, error.what)
        return Report(path=str(path), policy=policy.source, verdicts=(refused,))
    judged = judge(release, policy, circumstances)
    return Report(path=str(path), policy=policy.source, verdicts=judged.verdicts, steps=judged.steps)


def judge(release: Release, policy: Policy, circumstances: Circumstances) -> Judgement:
    """Verdicts on everything in a release; pure.

    Raises:
        ConfigError: The policy has no requirement for a target.
    """
    rules = {
        entry.path: policy.requirement(RuleKind.RELEASE, entry.target, channel=circumstances.channel)
        for kind in (Kind.WHEEL, Kind.IMAGE)
        for entry in release.manifest.of_kind(kind)
    }
    whole = _judge_whole(release, tuple(rules.values()), policy, circumstances)  # 7
    verdicts: list[Verdict] = [*release.refusals, *whole.verdicts]
    steps: list[Step] = list(whole.steps)
    for entry, artifact, refusals in _artifacts(release):  # 8
        judged = evaluate_artifact(_case(release, entry, artifact), rules[entry.path], policy, circumstances)
        verdicts += refusals
        verdicts += [item for item in judged.verdicts if not (refusals and isinstance(item, Accepted))]
        steps += judged.steps
    return Judgement(verdicts=tuple(verdicts), steps=tuple(steps))


def _artifacts(release: Release) -> Iterator[tuple[Entry, ArtifactFacts, list[Refusal]]]:
    """Wheels and images whose bytes were looked into, with what the release says otherwise of each."""
    for entry in release.manifest.of_kind(Kind.WHEEL):
        if (wheel := release.wheels.get(entry.path)) is not None:  # else gather said why
            yield entry, wheel, list(_wheel_in_release(release, entry, wheel))
    for entry in release.manifest.of_kind(Kind.IMAGE):
        if (image := release.images.get(entry.path)) is not None:
            yield entry, image, list(_image_in_release(release, entry, image))


def _judge_whole(
    release: Release, rules: Sequence[Requirement], policy: Policy, circumstances: Circumstances
) -> Judgement:
    """The verdict on ``release.json``, and on every bundle that is about something else or by somebody else."""
    expected = {entry.subject_name: entry.sha256 for entry in release.manifest.entries}
    expected[manifest.NAME] = release.manifest_sha256
    everybody = [signer.name for signer in policy.signers]
    trail = Trail(manifest.NAME, release.manifest_sha256, rule="always")
    check_clock(circumstances, trail)
    listed = [(entry.sha256, entry.path) for entry in release.manifest.entries]
    check_denials(policy, [*listed, (release.manifest_sha256, manifest.NAME)], trail)
    _check_completeness(release.manifest, rules, trail)
    refusals = [*trail.refusals, *_whole_refusals(release.manifest, rules)]
    for item in release.attestations:
        refusals += _strangers(item, expected)
        answer = judge_signer(item.facts, policy, everybody, circumstances, version=release.manifest.version)
        # Whose promotions and VEX count is the requirement's word; those by others count for nothing.
        if not isinstance(answer, Signer) and item.kind not in APART:
            refusals.append(refusal(item.path, answer[0], answer[1]))
    allowed = sorted(set(everybody).intersection(*(rule.signers for rule in rules)))
    provenance: list[tuple[Facts, Signer]] = []
    for item in release.attestations:
        statement = item.facts.statement
        answer = judge_signer(item.facts, policy, allowed, circumstances, version=release.manifest.version)
        if statement is None or statement.predicate_type != Predicate.PROVENANCE.uri:
            continue
        if isinstance(answer, Signer):
            provenance.append((item.facts, answer))
        refusals += _parameters(item, release.manifest)
        if lacks := sorted(set(expected) - {subject.name for subject in statement.subjects}):
            refusals.append(refusal(item.path, "subject-lacking", f"it is not about {', '.join(lacks)}"))
    if not provenance:
        refusals.append(refusal(manifest.NAME, "predicate-missing", "no provenance of a signer that counts"))
    if refusals:
        return Judgement(verdicts=tuple(refusals), steps=trail.steps)
    facts, signer = provenance[0]
    return Judgement(verdicts=(_accept_whole(release, facts, signer, policy),), steps=trail.steps)


def _parameters(item: Attestation, whole: ReleaseManifest) -> Iterator[Refusal]:
    """What the build was asked for, by the provenance, against what the release says that it is."""
    try:
        found = read_provenance(item.predicate)
    except InputError as error:
        yield refusal(item.path, error.reason, error.what)
    else:
        for text in differing_parameters(found, whole):
            yield refusal(item.path, "provenance-release", text)


def _check_completeness(whole: ReleaseManifest, rules: Sequence[Requirement], trail: Trail) -> None:
    """Whether the release may lack targets, or be of a tree with changes; every requirement of its wheels has a say."""
    condition = "allow_partial"
    if whole.partial:
        text = f"the release lacks {', '.join(item.target for item in whole.not_built)}"
        if not all(rule.allow_partial for rule in rules):
            trail.refuse(condition, text, reason="partial", rule="require")
        trail.settle(condition, f"{text}; the policy lets that pass", rule="require")
    condition = "allow_snapshot"
    if whole.snapshot:
        text = "built from a tree with uncommitted changes"
        if not all(rule.allow_snapshot for rule in rules):
            trail.refuse(condition, text, reason="snapshot", rule="require")
        trail.settle(condition, f"{text}; the policy lets that pass", rule="require")


def _whole_refusals(whole: ReleaseManifest, rules: Sequence[Requirement]) -> Iterator[Refusal]:
    if not rules:
        yield refusal(manifest.NAME, "wheel-absent", "the release holds no wheel")
    for entry in whole.entries:
        if not _LAYOUT[entry.kind].fullmatch(entry.path):
            yield refusal(entry.path, "unaccounted-file", f"a {entry.kind.value} does not lie there")
        elif entry.kind in {Kind.IMAGE, Kind.IMAGE_PART} and PurePosixPath(entry.path).name != entry.sha256:
            yield refusal(entry.path, "image-blob", f"a blob of that name has not the sha256 {entry.sha256}")
    if strangers := sorted(set(whole.levels) - set(whole.targets)):
        yield refusal(
            manifest.NAME, "levels", f"levels of {', '.join(strangers)}, which the release does not hold"
        )
    images = [entry.target for entry in whole.of_kind(Kind.IMAGE)]
    built = {*whole.targets, *(manifest.image_name(target) for target in images)}
    if both := sorted({item.target for item in whole.not_built} & built):
        yield refusal(manifest.NAME, "release-target", f"{', '.join(both)}: both built and not built")
    if len(set(images)) != len(images) or not set(images) <= set(whole.targets):
        yield refusal(
            manifest.NAME, "release-target", "an image for no target of the release, or two for one"
        )
    if set(whole.targets) != {entry.target for entry in whole.of_kind(Kind.WHEEL)}:
        yield refusal(manifest.NAME, "release-target", "the targets listed are not those of the wheels")


def _accept_whole(release: Release, facts: Facts, signer: Signer, policy: Policy) -> Accepted:
    whole, root = release.manifest, policy.root(facts.root)
    lacks = ", ".join(item.target for item in whole.not_built)
    return Accepted(
        subject=manifest.NAME,
        sha256=release.manifest_sha256,
        level=root.level,
        root=root.name,
        signer=signer.name,
        identity=facts.identity or facts.key_id,
        issuer=facts.issuer,
        time=facts.time,
        predicates=(Predicate.PROVENANCE.uri,),
        notes=(
            *([f"partial: lacks {lacks}"] if whole.partial else []),
            *(["a snapshot of a tree with uncommitted changes"] if whole.snapshot else []),
        ),
    )


def _strangers(item: Attestation, expected: Mapping[str, str]) -> Iterator[Refusal]:
    """Subjects of a statement that are no file of this release."""
    statement = item.facts.statement
    if statement is None:
        yield refusal(item.path, "statement-expected", "a bare signature has no place in a release")
        return
    for subject in statement.subjects:
        if subject.name not in expected:
            code = "subject-name" if subject.sha256 in expected.values() else "subject-extra"
            yield refusal(item.path, code, f"about {subject.name!r}, which the release does not hold")
        elif expected[subject.name] != subject.sha256:
            yield refusal(
                item.path,
                "subject-digest",
                f"about {subject.name} with sha256 {subject.sha256}; it has another",
            )


def _case(release: Release, entry: Entry, artifact: ArtifactFacts) -> Case:
    about = [item for item in release.manifest.entries if item.describes == entry.sha256]
    sboms = [item.path for item in about if item.kind is Kind.SBOM]
    return Case(
        artifact=artifact,
        target=entry.target,
        attestations=release.attestations,
        documents=tuple(release.documents.get(path, b"") for path in sboms),
        evidence_files={
            PurePosixPath(item.path).stem: item.sha256 for item in about if item.kind is Kind.EVIDENCE
        },
        levels={
            gate: word
            for gate, word in release.manifest.levels.get(entry.target, {}).items()
            if gate.startswith(IMAGE_GATES) is artifact.is_image
        },
        release_sha256=release.manifest_sha256,
        project=release.manifest.project,
    )


def _wheel_in_release(release: Release, entry: Entry, wheel: WheelFacts) -> Iterator[Refusal]:
    """What a wheel's own bytes say against what the release says of it."""
    if wheel.problems:
        return  # its bytes say nothing that could be compared
    whole = release.manifest
    backend, _, arch = entry.target.partition("-")
    if backend == "cpu" and not wheel.runs_on(arch):
        yield refusal(
            entry.path,
            "release-target",
            f"a wheel for {', '.join(wheel.platforms)} under target {entry.target}",
        )
    if wheel.kernels is not None and str(wheel.kernels.target) != entry.target:
        yield refusal(
            entry.path,
            "kernel-manifest-target",
            f"its kernels are for {wheel.kernels.target}; the release says {entry.target}",
        )
    if wheel.kernels is None and not entry.target.startswith("cpu-"):
        yield refusal(entry.path, "kernel-manifest-missing", f"a wheel for {entry.target} without kernels")
    if canonicalize_name(wheel.distribution) != canonicalize_name(whole.project) or not _same_release(
        wheel.version, whole.version
    ):
        yield refusal(
            entry.path,
            "wheel-name",
            f"it is {wheel.distribution} {wheel.version}; the release is {whole.project} {whole.version}",
        )
    copies = {
        item.path: item.sha256
        for item in whole.entries
        if item.kind in {Kind.KERNEL_MANIFEST, Kind.CODE_OBJECT} and item.target == entry.target
    }
    own = {f"kernels/{entry.target}/{name}": sha256 for name, sha256 in wheel.kernel_files.items()}
    if copies != own:
        yield refusal(
            entry.path, "kernel-copy", f"kernels/{entry.target}/ does not hold the wheel's own code objects"
        )


def _image_in_release(release: Release, entry: Entry, image: ImageFacts) -> Iterator[Refusal]:
    """What an image's own bytes say against what the release says of it."""
    if image.problems:
        return
    if image.target != entry.target:
        said = image.labels.get(types.TARGET_LABEL, "")[:100] or "no target"
        text = f"its label says {said}; the release says {entry.target}"
        yield refusal(entry.subject_name, "image-target", text)
    if not _same_release(image.version, release.manifest.version):
        text = f"its label says version {image.version[:100]!r}; the release is {release.manifest.version}"
        yield refusal(entry.subject_name, "image-target", text)


def _same_release(version: str, release: str) -> bool:
    try:
        return Version(version).public == Version(release).public
    except InvalidVersion:
        return False
