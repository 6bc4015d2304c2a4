"""One image: its layers from locked inputs, its documents, and its place in the layout that all targets share.

1. Operating system: locked Debian packages, or the layers of a base image by digest.
2. Dependencies: the wheels of the hash-locked closure.
3. Payload: our wheel.
4. Configuration and manifest; blobs into the layout, the index last.

Nothing is executed and nobody's rights are needed, so an image for another CPU is made like one's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from wheelmark import digests
from wheelmark.build.image import document, places, system
from wheelmark.build.image.base import read_base
from wheelmark.build.image.debian import unpack
from wheelmark.build.image.document import ARCHITECTURES, BaseImage
from wheelmark.build.image.layers import BuiltLayer, make_layer
from wheelmark.build.image.paths import Patterns
from wheelmark.build.image.tree import Tree
from wheelmark.build.image.wheels import lay_out
from wheelmark.build.wheel import wheel_name
from wheelmark.config import Declaration, TargetRow
from wheelmark.config.recipe import ImageRecipe
from wheelmark.errors import BuildError
from wheelmark.lock.debian import DebianLock
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.targets import Target

SYSTEM, DEPENDENCIES, PAYLOAD = "system", "dependencies", "payload"
_NOT_SAID = "a stand-in lies in the image in place of its recipe's dependencies"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image in a layout."""

    target: Target
    digest: str
    """``sha256:…`` of its manifest."""
    size: int
    """Bytes of configuration and layers, compressed."""
    layers: tuple[BuiltLayer, ...]
    """Bottom first."""
    config_digest: str
    descriptor: Descriptor
    """As it stands in the layout's index."""
    releasable: bool
    why: str
    """Why it is not releasable; empty where it is."""

    def layer(self, name: str) -> BuiltLayer:
        """The layer of a name.

        Raises:
            BuildError: It has none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise BuildError(f"the image of {self.target} has no layer {name}", reason="image-layer")

    @property
    def without_dependencies(self) -> int:
        """Bytes of the layers, compressed, without the dependencies' one: what ``image.budget`` bounds."""
        return sum(layer.size for layer in self.layers if layer.name != DEPENDENCIES)


def build_image(
    recipe: ImageRecipe,
    row: TargetRow,
    *,
    declaration: Declaration,
    debian: DebianLock | None,
    packages: Mapping[str, Path],
    dependencies: Sequence[Path],
    releasable: bool,
    payload: Path,
    cache: Path,
    layout: Path,
    why: str = "",
    base: Path | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> BuiltImage:
    """Build the image of one target and put it into a layout, in place of an earlier one of that target.

    Args:
        recipe: What it is made of.
        row: The target's row.
        declaration: The project.
        debian: The lock of its operating system; ``None`` for a recipe with a base image.
        packages: The locked .deb files by sha256.
        dependencies: The wheels of its closure.
        releasable: Whether these are the recipe's own dependencies, all of them.
        payload: Our wheel.
        cache: The pipeline's cache; layers are kept in its folder ``images``.
        layout: The OCI layout, made where absent, added to otherwise.
        why: Why it is not releasable.
        base: A layout that holds the recipe's base image.
        progress: Called with a line for people when something has to be made.

    Raises:
        BuildError: Inputs do not belong together (``image-parts``), or one of the other modules' reasons.
        InputError: A wheel, a layer of the base image or the layout is refused.
        StateError: Cache or layout cannot be written (``image-write``).
    """
    _check_parts(recipe, row, declaration=declaration, debian=debian, payload=payload, base=base)
    below: tuple[BuiltLayer, ...] = ()
    based: BaseImage | None = None
    if recipe.base is not None and base is not None:
        based, below = read_base(base, recipe.base.image, platform=document.platform_of(row), cache=cache)
    own: list[BuiltLayer] = []
    if debian is not None:
        own.append(_system(recipe, debian, packages, cache=cache, progress=progress))
    own.append(_wheels(DEPENDENCIES, recipe, dependencies, cache=cache, progress=progress))
    own.append(_wheels(PAYLOAD, recipe, [payload], cache=cache, progress=progress))
    found = document.labels(recipe, row, declaration, why="" if releasable else why or _NOT_SAID, base=based)
    platform = document.platform_of(row, based)
    config = document.configuration(
        recipe.image,
        platform,
        labels=found,
        layers=[(layer.name, layer.diff_id) for layer in own],
        base=based,
    )
    layers = (*below, *own)
    writer = LayoutWriter(layout)
    for layer in layers:
        writer.add_file(layer.path, _descriptor(layer))
    manifest = ImageManifest(
        config=writer.add(config, types.CONFIG),
        layers=tuple(_descriptor(layer) for layer in layers),
        annotations=document.noted(found),
    )
    descriptor = writer.add(
        manifest.as_bytes(),
        types.MANIFEST,
        annotations={types.REFERENCE: str(row.target)},
        platform=platform,
    )
    places.put(layout, descriptor)
    return BuiltImage(
        target=row.target,
        digest=descriptor.digest,
        size=len(config) + sum(layer.size for layer in layers),
        layers=layers,
        config_digest=manifest.config.digest,
        descriptor=descriptor,
        releasable=releasable,
        why=found.get(types.REASON_LABEL, ""),
    )


def _descriptor(layer: BuiltLayer) -> Descriptor:
    return Descriptor(
        media_type=types.LAYER_GZIP, sha256=layer.digest.removeprefix("sha256:"), size=layer.size
    )


def _check_parts(
    recipe: ImageRecipe,
    row: TargetRow,
    *,
    declaration: Declaration,
    debian: DebianLock | None,
    payload: Path,
    base: Path | None,
) -> None:
    wrong = ""
    if (recipe.debian is None) != (debian is None):
        wrong = "the recipe has [debian] and no lock was given, or the other way round"
    elif (recipe.base is None) != (base is None):
        wrong = "the recipe has [base] and no layout was given, or the other way round"
    elif debian is not None and debian.architecture != ARCHITECTURES[row.host]:
        wrong = f"the Debian lock is for {debian.architecture}, the target for {ARCHITECTURES[row.host]}"
    elif payload.name != wheel_name(declaration, row):
        wrong = f"the payload is {payload.name}, and not {wheel_name(declaration, row)}"
    if wrong:
        raise BuildError(f"image of {row.target}: {wrong}", reason="image-parts")


def _system(
    recipe: ImageRecipe,
    lock: DebianLock,
    packages: Mapping[str, Path],
    *,
    cache: Path,
    progress: Callable[[str], None],
) -> BuiltLayer:
    """Step 1."""
    settings = recipe.debian
    drop = Patterns(settings.drop, settings.keep) if settings is not None else Patterns(())
    inputs: dict[str, Any] = {
        "architecture": lock.architecture,
        "packages": [[item.name, item.version, item.architecture, item.sha256] for item in lock.packages],
        "drop": list(settings.drop if settings else ()),
        "keep": list(settings.keep if settings else ()),
        "python": dataclasses.asdict(recipe.python),
        "user": recipe.image.user,
        "working_dir": recipe.image.working_dir,
    }

    def fill(tree: Tree) -> Mapping[str, Any]:
        unpacked = unpack(lock, packages, drop=drop, tree=tree)
        steps = system.prepare(tree, recipe, unpacked.certificates)
        return {
            "scripts": [dataclasses.asdict(script) for script in unpacked.scripts],
            "steps": [dataclasses.asdict(step) for step in steps],
        }

    return make_layer(SYSTEM, inputs, fill, cache=cache, progress=progress)


def _wheels(
    name: str, recipe: ImageRecipe, wheels: Sequence[Path], *, cache: Path, progress: Callable[[str], None]
) -> BuiltLayer:
    """Steps 2 and 3."""
    ordered = sorted(wheels, key=lambda path: canonicalize_name(path.name.partition("-")[0]))
    known = {path: digests.sha256_file(path) for path in ordered}
    inputs: dict[str, Any] = {
        "wheels": [[path.name, sha256] for path, sha256 in known.items()],
        "python": dataclasses.asdict(recipe.python),
    }

    def fill(tree: Tree) -> Mapping[str, Any]:
        for wheel in lay_out(ordered, recipe.python, tree):
            if wheel.sha256 != next(known[path] for path in ordered if path.name == wheel.file_name):
                raise BuildError(f"{wheel.file_name} changed while it was read", reason="image-source")
        return {}

    return make_layer(name, inputs, fill, cache=cache, progress=progress)
