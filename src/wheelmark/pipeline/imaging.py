"""Images in the ``build`` stage: packages and wheels by their locks, one OCI layout with the image of each target.

1. What the locks name is fetched into pools, by sha256: inputs, shared between runs.  2. An image is built from it and from
the wheel that was just built, unless the one that lies there was made from the same inputs and still has its bytes.
3. Its description is written.  4. The layout lists exactly these images; blobs of others go.

A machine that cannot get the packages builds no images: each is then named as not built, and the release is partial.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.build.image import build_image, build_index
from wheelmark.build.image.fetch import fetch_wheels
from wheelmark.build.image.layers import builder_identity
from wheelmark.build.image.places import entries, put
from wheelmark.config import HostArch, TargetRow
from wheelmark.config.reader import read_table
from wheelmark.errors import CommandError, ConfigError, LockError
from wheelmark.lock.debian import DebianLock, fetch_packages, read_debian_lock
from wheelmark.manifest import IMAGES, NotBuilt, image_name
from wheelmark.oci import layout as layouts
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.types import Descriptor, ImageManifest, read_manifest
from wheelmark.pipeline.imageplan import PlannedImage
from wheelmark.pipeline.planning import PlannedTarget
from wheelmark.pipeline.progress import Progress
from wheelmark.pipeline.workspace import Workspace
from wheelmark.release import Step
from wheelmark.sbom import ImageContents, describe_image, validate
from wheelmark.targets import Target

PASSING = frozenset(
    {"debian-source", "debian-fetch", "debian-stale", "lock-unavailable", CommandError.reason}
)
"""Reasons of what a lock names and cannot be had here and now: the wheels are built all the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageLayer:
    """One layer, as the tables name it."""

    name: str
    """What it holds: ``system``, ``dependencies``, ``payload``."""
    sha256: str
    size: int
    """Bytes, compressed."""
    cached: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseImage:
    """One image of the release directory."""

    target: str
    path: str
    """Its manifest, relative to the release directory."""
    sha256: str
    """Of the manifest: the image's digest."""
    size: int
    """Bytes of its layers, compressed."""
    layers: tuple[ImageLayer, ...]
    parts: tuple[str, ...]
    """Configuration and layers, relative."""
    sbom: str
    """Its document, relative."""
    lock: str
    """Lock of its Python packages, relative."""
    debian_lock: str
    """Lock of its operating system, relative; empty where it stands on a base image."""
    wheel: str
    """The payload, relative."""
    inputs: str
    """sha256 of all that decides its digest: locks, recipe, payload, and the code that builds images."""
    stand_in: str
    """Why a stand-in takes the place of its dependencies; empty where it can be released."""
    seconds: float
    resumed: bool

    @property
    def is_releasable(self) -> bool:
        """Whether everything that its recipe names is in it."""
        return not self.stand_in

    @property
    def files(self) -> tuple[str, ...]:
        """Everything of it in the release directory but locks and payload, relative."""
        return (self.path, *self.parts, self.sbom)

    @property
    def locks(self) -> tuple[str, ...]:
        """Its locks, relative."""
        return tuple(path for path in (self.lock, self.debian_lock) if path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payload:
    """The wheel that goes into an image."""

    path: str
    """Relative to the release directory."""
    sha256: str
    sbom: str
    """Its document, relative."""


def build_images(
    workspace: Workspace,
    planned: Sequence[PlannedTarget],
    payloads: Mapping[str, Payload],
    progress: Progress,
) -> tuple[tuple[ReleaseImage, ...], tuple[NotBuilt, ...]]:
    """Build the image of each target that the plan says can have one.

    Args:
        workspace: Places and choices.
        planned: Targets whose wheels were built.
        payloads: Target -> its wheel.
        progress: Told what is done.

    Returns:
        The images, and those that could not be built here after all.

    Raises:
        LockError: Bytes differ from a lock; with ``--release``, also what a lock names cannot be had.
    """
    builder = _Builder(workspace, progress)
    images: list[ReleaseImage] = []
    absent: list[NotBuilt] = []
    for item in planned:
        if item.image is None or item.image.missing is not None:
            continue
        target = str(item.row.target)
        try:
            images.append(builder.image(item.row, item.image, payloads[target]))
        except (LockError, CommandError) as error:
            if workspace.release or error.reason not in PASSING:
                raise
            absent.append(NotBuilt(target=image_name(target), reason=error.what, fix=error.fix))
            progress.note(f"not built: {image_name(target)}: {error.what}; {error.fix}")
    _list(workspace, images)
    return tuple(images), tuple(absent)


class _Builder:
    """One run over the images; what several of them need is got once."""

    def __init__(self, workspace: Workspace, progress: Progress) -> None:
        self._workspace = workspace
        self._progress = progress
        self._layout = workspace.directory / IMAGES
        self._packages: dict[Path, tuple[DebianLock, Mapping[str, Path]]] = {}
        self._wheels: dict[tuple[Path, HostArch, tuple[str, ...]], tuple[Path, ...]] = {}
        self._intact: dict[str, bool] = {}

    def image(self, row: TargetRow, planned: PlannedImage, payload: Payload) -> ReleaseImage:
        """One image: the one that lies there, or a new one."""
        begun = time.monotonic()
        inputs = self._inputs(row, planned, payload)
        step = Step(name=f"image/{row.target}", inputs={"image": inputs, "sbom": payload.sbom})
        found = self._recalled(step)
        if found is not None and all(self._is_intact(path) for path in (found.path, *found.parts)):
            return dataclasses.replace(found, resumed=True, seconds=0.0)
        made = self._make(row, planned, payload, inputs)
        made = dataclasses.replace(made, seconds=round(time.monotonic() - begun, 3))
        self._workspace.steps.record(step, [self._workspace.directory / made.sbom], dataclasses.asdict(made))
        return made

    def _recalled(self, step: Step) -> ReleaseImage | None:
        """What the step made before; ``None`` where it has to be made, also because its record cannot be read."""
        record = self._workspace.steps.finished(step)
        try:
            return read_table(ReleaseImage, record.result, where=step.name) if record is not None else None
        except ConfigError:
            return None

    def _make(self, row: TargetRow, planned: PlannedImage, payload: Payload, inputs: str) -> ReleaseImage:
        workspace, directory = self._workspace, self._workspace.directory
        debian, packages = self._system(planned)
        dependencies = self._dependencies(planned, row)
        wheel = directory / payload.path
        built = build_image(
            planned.recipe,
            row,
            declaration=workspace.declaration,
            debian=debian,
            packages=packages,
            dependencies=dependencies,
            releasable=planned.is_releasable,
            payload=wheel,
            cache=workspace.cache,
            layout=self._layout,
            why=planned.stand_in,
            base=planned.base,
            progress=self._progress.note,
        )
        sha256 = built.digest.removeprefix("sha256:")
        manifest = self._manifest(sha256)
        document = describe_image(
            ImageContents(
                sha256=sha256,
                manifest=manifest,
                layer_names=[layer.name for layer in built.layers],
                recipe=planned.recipe,
                debian=debian,
                dependencies=dependencies,
                payload=wheel,
                payload_sbom=directory / payload.sbom,
                releasable=planned.is_releasable,
            ),
            declaration=workspace.declaration,
            row=row,
        )
        validate(document)
        sbom = directory.write(f"sbom/{row.target}.image.cdx.json", document)
        locks = [directory.take(planned.lock, f"locks/{planned.lock.name}")]
        if planned.debian_lock is not None:
            locks.append(directory.take(planned.debian_lock, f"locks/{planned.debian_lock.name}"))
        names = [path.relative_to(directory.root).as_posix() for path in (sbom, *locks)]
        return ReleaseImage(
            target=str(row.target),
            path=_blob(sha256),
            sha256=sha256,
            size=sum(layer.size for layer in built.layers),
            layers=tuple(
                ImageLayer(
                    name=layer.name,
                    sha256=layer.digest.removeprefix("sha256:"),
                    size=layer.size,
                    cached=layer.cached,
                )
                for layer in built.layers
            ),
            parts=tuple(sorted({_blob(item.sha256) for item in (manifest.config, *manifest.layers)})),
            sbom=names[0],
            lock=names[1],
            debian_lock=names[2] if planned.debian_lock is not None else "",
            wheel=payload.path,
            inputs=inputs,
            stand_in=planned.stand_in,
            seconds=0.0,
            resumed=False,
        )

    def _inputs(self, row: TargetRow, planned: PlannedImage, payload: Payload) -> str:
        recipe = json.loads(json.dumps(dataclasses.asdict(planned.recipe), default=str)) | {"path": ""}
        project = self._workspace.declaration.project
        return digests.sha256(
            digests.canonical_json(
                {
                    "target": str(row.target),
                    "recipe": recipe,
                    "project": json.loads(json.dumps(dataclasses.asdict(project), default=str)),
                    "payload": payload.sha256,
                    "lock": digests.sha256_file(planned.lock),
                    "debian": digests.sha256_file(planned.debian_lock) if planned.debian_lock else "",
                    "releasable": planned.is_releasable,
                    "builder": builder_identity(),
                }
            )
        )

    def _system(self, planned: PlannedImage) -> tuple[DebianLock | None, Mapping[str, Path]]:
        path = planned.debian_lock
        if path is None:
            return None, {}
        if path not in self._packages:
            lock = read_debian_lock(path)
            pool = self._workspace.debian_pool
            self._packages[path] = (lock, fetch_packages(lock, pool=pool, progress=self._progress.note))
        return self._packages[path]

    def _dependencies(self, planned: PlannedImage, row: TargetRow) -> tuple[Path, ...]:
        key = (planned.lock, row.host, planned.without)
        if key not in self._wheels:
            self._wheels[key] = fetch_wheels(
                planned.lock,
                pool=self._workspace.wheel_pool,
                host=row.host,
                python_version=planned.recipe.python.version,
                without=planned.without,
                progress=self._progress.note,
            )
        return self._wheels[key]

    def _manifest(self, sha256: str) -> ImageManifest:
        return read_manifest((self._workspace.directory / _blob(sha256)).read_bytes())

    def _is_intact(self, path: str) -> bool:
        """Whether a blob still has the bytes of its name; looked at once, since several images share one."""
        if path not in self._intact:
            file = self._workspace.directory / path
            self._intact[path] = (
                file.is_file() and not file.is_symlink() and digests.sha256_file(file) == file.name
            )
        return self._intact[path]


def _list(workspace: Workspace, images: Sequence[ReleaseImage]) -> None:
    """Leave a layout of exactly these images, and an index over those of one backend for several platforms."""
    root = workspace.directory / IMAGES
    if not images:
        workspace.directory.remove_except(IMAGES, set())
        return
    wanted = {image.target: image.sha256 for image in images}
    together = _together(workspace, images)
    _keep(
        root, lambda item: _is_wanted(item, wanted) or item.annotations.get(types.REFERENCE, "") in together
    )
    for name, targets in together.items():
        build_index(root, name, targets)


def _is_wanted(item: Descriptor, wanted: Mapping[str, str]) -> bool:
    """Whether an entry is one of these images, or the index of what refers to one."""
    tag = item.annotations.get(types.REFERENCE, "")
    return wanted.get(tag) == item.sha256 or tag in {types.fallback_tag(sha256) for sha256 in wanted.values()}


def _together(workspace: Workspace, images: Sequence[ReleaseImage]) -> dict[str, list[str]]:
    """Backend -> its targets, where their images run on several CPUs, one each."""
    found: dict[str, dict[str, HostArch]] = {}
    for image in images:
        target = Target.parse(image.target)
        host = workspace.declaration.row(target).host
        found.setdefault(target.backend.value, {})[image.target] = host
    return {name: list(hosts) for name, hosts in found.items() if 1 < len(hosts) == len(set(hosts.values()))}


def detach(workspace: Workspace) -> None:
    """Take everything from the layout that refers to images: a release closes without it, and signing puts it back."""
    _keep(
        workspace.directory / IMAGES,
        lambda item: not item.annotations.get(types.REFERENCE, "").startswith(types.fallback_tag("")),
    )


DERIVED = frozenset({f"{IMAGES}/{layouts.INDEX}", f"{IMAGES}/{layouts.MARK}"})
"""Files of the layout that follow from what it holds, relative to the release directory."""


def indexes_of(workspace: Workspace) -> dict[str, str]:
    """sha256 of each index over images in the layout -> its path in the release."""
    return {
        item.sha256: _blob(item.sha256)
        for item in entries(workspace.directory / IMAGES)
        if item.is_index and not types.is_fallback_tag(item.annotations.get(types.REFERENCE, ""))
    }


def _keep(root: Path, keep: Callable[[Descriptor], bool]) -> None:
    """Keep only some entries of the layout's list, and the blobs that they lead to."""
    listed = entries(root)
    kept = [item for item in listed if keep(item)]
    if kept and len(kept) != len(listed):
        LayoutWriter(root).finish(kept)
        put(root, kept[0])


def _blob(sha256: str) -> str:
    return f"{IMAGES}/{layouts.BLOBS}/{sha256}"
