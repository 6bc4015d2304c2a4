"""Pull an image: verified by digest, its evidence kept for the hook, and handed to the container engine.

Plan (the numbers stand in the code):

0. What would be in the way at the end is found out first: a policy that speaks of no such image, a log, a bundle or a
   store that cannot be used, an engine that does not answer. Nothing is written or downloaded before.
1. The name is resolved to a digest, once. From here on nothing is asked for by a tag.
2. Of an index, the one image for this machine is chosen (``imagechoice``). It is copied with its evidence into a private layout, each blob
   hashed on its way.
3. That layout is verified under the policy. A refusal ends here: nothing is kept, and the engine was not asked.
4. The evidence is kept in the store.
5. The engine is given the same private bytes, and has to know them by the same digest.

Whatever ends it on the way (an error, Ctrl-C, SIGTERM) takes the private copies with it, and says in a note what stays. What
a process leaves that was killed is removed by the next pull.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.deploy.engine import Podman
from wheelmark.deploy.imagechoice import Candidate, check_platform, choose, target_of
from wheelmark.deploy.imagesource import ImageSource, open_source, read_small
from wheelmark.deploy.store import EvidenceStore, ImageEvidence
from wheelmark.errors import InputError, RegistryError, RejectedError, StateError, WheelmarkError
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, MAX_REFERRERS, Layout, LayoutWriter
from wheelmark.oci.reference import LayoutReference, Location, parse_reference
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.plainfiles import read_bounded
from wheelmark.targets import named_by
from wheelmark.verify import AuditLog, Policy, reasons, verify_image
from wheelmark.verify.artifact import Asked
from wheelmark.verify.bundle import LIMITS as BUNDLE_LIMITS
from wheelmark.verify.circumstances import Now, machine_clock, time_of
from wheelmark.verify.policy import Kind
from wheelmark.verify.verdict import Report, refusal

_BLOCK = 1 << 18
_NOT_IN_A_NAME = re.compile("[^a-z0-9]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PullRequest:
    """What somebody wants to have pulled.

    Raises:
        InputError: An engine has no such names (``registry-reference``).
    """

    location: Location
    target: str = ""
    """The target that it has to be for; empty: any, where the index has one image for this machine."""
    channel: str = ""
    bundles: tuple[Path, ...] = ()
    """Further bundles; each has to be about this image."""
    name: str = ""
    """How the engine is to name it (host, repository and tag); empty: as it was asked for."""
    plain_http: bool = False

    def __post_init__(self) -> None:
        if self.name:
            check_engine_name(self.name)

    @property
    def engine_name(self) -> str:
        """Host, repository and tag; of a layout, ``localhost/`` and the name of its folder."""
        if self.name:
            return self.name
        if isinstance(self.location, LayoutReference):
            folder = _NOT_IN_A_NAME.sub("-", self.location.path.absolute().name.lower()).strip("-") or "image"
            return f"localhost/{folder}:{self.location.tag or 'latest'}"
        # Without a tag, one that says what it is: `latest` would be a word that nobody gave.
        return f"{self.location.name}:{self.location.tag or self.location.digest.replace(':', '-')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pulled:
    """What was done."""

    report: Report
    """Of the verification; where it did not accept, nothing was kept and the engine was given nothing."""
    resolved: str
    """``sha256:<hex>`` that the name stood for."""
    digest: str
    """``sha256:<hex>`` of the image's manifest: what was verified, and what the engine has."""
    image_id: str = ""
    """sha256 of its configuration."""
    name: str = ""
    """Under which the engine has it; empty where it was not asked."""
    bundles: int = 0
    """Kept."""

    def as_json(self) -> dict[str, Any]:
        """The outcome for ``--json``."""
        return {
            "exit_code": int(self.report.exit_code),
            "resolved": self.resolved,
            "digest": self.digest,
            "image_id": self.image_id,
            "name": self.name,
            "bundles": self.bundles,
            "report": self.report.as_json(),
        }


def pull(
    request: PullRequest,
    policy: Policy,
    *,
    store: EvidenceStore,
    engine: Podman | None,
    now: Now = machine_clock,
    source: ImageSource | None = None,
    audit_log: AuditLog | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> Pulled:
    """Verify an image, keep its evidence, and hand it to the engine.

    Args:
        request: What is wanted.
        policy: Whom to trust and what to ask for; loaded strictly.
        store: Where evidence is kept; its memory is what this machine has seen.
        engine: What starts containers here; ``None``: evidence alone is wanted, be it for another platform.
        now: The verifier's clock, with a zone; if not given, this machine's when the image is there.
        source: Where images are; of the request's location if not given.
        audit_log: Where the report is written down, before anything is kept.
        progress: Called with a line for people at each step.

    Raises:
        InputError: There is no such image, or what is there is malformed.
        ConfigError: The policy speaks of no such image, or store or log cannot be used.
        MachineError: There is no image for this machine, or several (``image-choice``).
        RegistryError: The registry cannot be reached, or lies about a digest.
        StateError: No room (``image-write``, ``store-write``).
        ToolError: There is no engine (``engine-absent``).
        CommandError, RejectedError: As ``Podman.take``; a note says that evidence is kept by then.
    """
    place = source or open_source(request.location, plain_http=request.plain_http)
    given = _check_first(request, policy, engine=engine, audit_log=audit_log)  # 0
    resolved = place.resolve()  # 1
    so_far = _SoFar("this run kept no evidence, and asked no engine")
    with so_far.noted(), store.private_copies() as folder:
        copy = _Copy(place, folder / "image", progress)
        try:
            image = copy.take(resolved, request.target, any_platform=engine is None)  # 2
        except InputError as error:
            if (
                error.reason not in reasons.TABLE
                or reasons.answer_of(error.reason) is not reasons.Answer.REJECT
            ):
                raise
            report = _refused(request, policy, error)  # bytes that are not what their digests say
            if audit_log is not None:
                audit_log.append(report, now=time_of(now))
            return Pulled(report=report, resolved=resolved.digest, digest=resolved.digest)
        report = verify_image(  # 3
            copy.path,
            policy,
            now=now,
            bundles=request.bundles,
            reference=image.digest,
            target=request.target,
            asked=Asked(
                index=resolved.sha256 if resolved.is_index else "", target=named_by(request.location.tag)
            ),
            channel=request.channel,
            memory=store.memory(),
            audit_log=audit_log,
            cache=store.cache(),
        )
        report = dataclasses.replace(report, path=str(request.location))
        done = Pulled(report=report, resolved=resolved.digest, digest=image.digest)
        if not report.accepted:
            return done
        evidence = copy.evidence(image, str(request.location), given)
        alone = copy.alone(image, folder / f"pull-{secrets.token_hex(8)}")
        _keep(store, evidence, progress)  # 4
        so_far.text = (
            f"the evidence of {image.digest} is kept in {store.directory}: run the same command again to finish, "
            f"or take it back with wheelmark hook forget {image.digest} --store {shlex.quote(str(store.directory))}"
        )
        image_id = digests.sha256(evidence.config)
        done = dataclasses.replace(done, image_id=image_id, bundles=len(evidence.bundles))
        if engine is None:
            return done
        progress(f"{image.digest}: given to {engine.command[0]}")
        engine.take(alone, digest=image.digest, image_id=image_id, name=request.engine_name)  # 5
        return dataclasses.replace(done, name=request.engine_name)


class _SoFar:
    """What stays when this ends early, as a note on whatever ends it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except (WheelmarkError, KeyboardInterrupt) as error:
            error.add_note(self.text)
            raise


def _check_first(
    request: PullRequest, policy: Policy, *, engine: Podman | None, audit_log: AuditLog | None
) -> Mapping[str, bytes]:
    """What can be known before anything is written; the bundles that were given, by digest."""
    if request.target or not any(
        rule.kind is Kind.IMAGE and rule.channel == request.channel for rule in policy.requirements
    ):
        policy.requirement(Kind.IMAGE, request.target, channel=request.channel)
    if audit_log is not None:
        audit_log.check_ready()
    given = [read_bounded(path, BUNDLE_LIMITS.size) for path in request.bundles]
    if engine is not None:
        engine.check()
    return {digests.sha256(data): data for data in given}


def _keep(store: EvidenceStore, evidence: ImageEvidence, progress: Callable[[str], None]) -> None:
    """Keep it, in place of what was kept before, be that readable or not."""
    try:
        store.find(evidence.sha256)
    except RejectedError as error:
        progress(f"sha256:{evidence.sha256}: replaced in the store: {error.what}")
    store.keep(evidence)


def _refused(request: PullRequest, policy: Policy, error: InputError) -> Report:
    where = str(request.location)
    verdict = refusal(where, error.reason, error.what)
    return Report(path=where, policy=policy.source, verdicts=(verdict,), policy_sha256=policy.sha256)


class _Copy:
    """A private layout with one image, the indexes that hold it, and what refers to these."""

    def __init__(self, source: ImageSource, path: Path, progress: Callable[[str], None]) -> None:
        self.path = path
        self._source = source
        self._writer = LayoutWriter(path)
        self._progress = progress

    def take(self, resolved: Descriptor, target: str, *, any_platform: bool) -> Descriptor:
        """Copy; the manifest of the image."""
        above, image = self._choose(resolved, target, any_platform=any_platform)
        manifest = types.read_manifest(self._document(image), what=f"manifest {image.digest}")
        for item in (manifest.config, *manifest.layers):
            self._progress(f"{item.digest}: {item.size:,} bytes")
            self._blob(item)
            if item is manifest.config and not any_platform and item.size <= types.CONFIG_LIMIT:
                check_platform(image, read_bounded(self.path / BLOBS / item.sha256, types.CONFIG_LIMIT))
        tops = above or [image]
        for about in (*above, image):
            tops = [*tops, *self._referrers(about)]
        self._writer.finish([dataclasses.replace(item, annotations={}) for item in tops])
        return image

    def _choose(
        self, resolved: Descriptor, target: str, *, any_platform: bool
    ) -> tuple[list[Descriptor], Descriptor]:
        """The indexes on the way, outermost first, and the image for this machine."""
        if not resolved.is_index:
            above = list(self._source.holders(resolved.sha256))
            for item in above:
                self._document(item)
            return above, resolved
        found = choose(
            [Candidate(way=tuple(way), read_target=self._target) for way in self._ways([resolved])],
            asked=resolved.digest,
            target=target,
            any_platform=any_platform,
        )
        return list(found.way[:-1]), found.image

    def _ways(self, way: list[Descriptor]) -> list[list[Descriptor]]:
        """Every way from an index down to a manifest."""
        if len(way) > types.MAX_NESTING:
            raise InputError("indexes are nested too deep", reason="input-limit")
        found: list[list[Descriptor]] = []
        for item in types.read_index(self._document(way[-1]), what=f"index {way[-1].digest}").manifests:
            if item.is_index:
                found += self._ways([*way, item])
            elif item.is_manifest and not item.artifact_type:
                found.append([*way, item])
        return found

    def _target(self, image: Descriptor) -> str:
        """What the label of an image's configuration says; the image need not be the one that is taken, nor be there."""
        try:
            manifest = types.read_manifest(self._source.document(image), what=f"manifest {image.digest}")
            if manifest.config.media_type != types.CONFIG:
                return ""
            return target_of(read_small(self._source, manifest.config, types.CONFIG_LIMIT))
        except (InputError, RegistryError) as error:
            if error.reason not in {"image-missing", "registry-missing"}:
                raise
            return ""

    def _referrers(self, about: Descriptor) -> list[Descriptor]:
        """Copy the bundles that refer to an image or index; their manifests."""
        found = self._source.referrers(about.sha256)
        if len(found) > MAX_REFERRERS:
            raise InputError(f"more than {MAX_REFERRERS:,} referrers of {about.digest}", reason="input-limit")
        kept: list[Descriptor] = []
        for item in found:
            if not item.is_manifest:
                continue
            data = self._source.document(item)
            manifest = types.read_manifest(data, what=f"manifest {item.digest}")
            if (
                manifest.kind != types.BUNDLE
                or manifest.subject is None
                or manifest.subject.sha256 != about.sha256
            ):
                continue
            self._writer.add(data, types.MANIFEST)
            for blob in (manifest.config, *manifest.layers):
                self._writer.add(read_small(self._source, blob, BUNDLE_LIMITS.size), blob.media_type)
            kept.append(item)
        return kept

    def _document(self, descriptor: Descriptor) -> bytes:
        data = self._source.document(descriptor)
        self._writer.add(data, descriptor.media_type)
        return data

    def _blob(self, descriptor: Descriptor) -> None:
        path = self.path / BLOBS / descriptor.sha256
        if path.exists():
            return
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path.parent)
            with os.fdopen(handle, "wb") as stream, self._source.open_blob(descriptor) as blob:
                while data := blob.read(_BLOCK):
                    stream.write(data)
                blob.check()
            Path(temporary).replace(path)
        except OSError as error:
            raise StateError(
                f"cannot write {path}: {error.strerror}",
                fix="free some space, or name a store elsewhere with --store",
                reason="image-write",
            ) from error

    def evidence(self, image: Descriptor, reference: str, given: Mapping[str, bytes]) -> ImageEvidence:
        """What is kept of the image after it was accepted; from the copy, and from nowhere else."""
        layout = Layout(self.path)
        found = layout.resolve(image.digest)
        bundles = {
            manifest.layers[0].sha256: layout.document(manifest.layers[0], limit=BUNDLE_LIMITS.size)
            for _descriptor, manifest in layout.referrers([image.sha256, *found.indexes])
            if manifest.kind == types.BUNDLE
        }
        bundles |= given
        manifest = layout.read_manifest(found.descriptor)
        return ImageEvidence(
            sha256=image.sha256,
            manifest=layout.document(found.descriptor),
            config=layout.document(manifest.config, limit=types.CONFIG_LIMIT),
            indexes={sha256: self._index(sha256) for sha256 in found.indexes},
            bundles=bundles,
            reference=reference,
        )

    def _index(self, sha256: str) -> bytes:
        return read_bounded(self.path / BLOBS / sha256, types.DOCUMENT_LIMIT)

    def alone(self, image: Descriptor, path: Path) -> Path:
        """A layout of the image and nothing else, for the engine: the same files under second names."""
        layout = Layout(self.path)
        manifest: ImageManifest = layout.read_manifest(image)
        writer = LayoutWriter(path)
        try:
            for item in (image, manifest.config, *manifest.layers):
                if not (path / BLOBS / item.sha256).exists():
                    os.link(self.path / BLOBS / item.sha256, path / BLOBS / item.sha256)
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror}", reason="image-write") from error
        writer.finish([types.Descriptor(media_type=image.media_type, sha256=image.sha256, size=image.size)])
        return path


def check_engine_name(text: str) -> None:
    """Refuse a name that an engine cannot give an image: host and repository, a tag or none, no digest.

    Raises:
        InputError: Reason ``registry-reference``.
    """
    if parse_reference(text).digest:
        raise InputError(
            f"{text[:200]!r} is no name to give: it has a digest",
            fix="write HOST/REPOSITORY[:TAG]",
            reason="registry-reference",
        )


def default_engine(text: str) -> Podman | None:
    """The engine that a command line names: ``podman``, with arguments of its own, or ``none``.

    Raises:
        ValueError: A quote is left open, or there is nothing.
    """
    words: Sequence[str] = shlex.split(text)
    if not words:
        raise ValueError(text)
    return None if words == ["none"] else Podman(words)
