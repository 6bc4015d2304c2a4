"""A small project with a recipe, packages and wheels, from which whole images are built."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import debmaking
import wheelmaking as make
from wheelmark.build.image import BuiltImage, build_image
from wheelmark.config import Declaration, HostArch, TargetRow
from wheelmark.config.recipe import Base, Debian, Dependencies, ImageRecipe, ImageSettings, PythonPlace
from wheelmark.lock.debian import DebianLock
from wheelmark.targets import Target

SITE = "usr/local/lib/python3.11/dist-packages"
SBOM = "demo_kernels-1.0+cpu.dist-info/sboms/demo.cdx.json"
RECIPE = ImageRecipe(
    path=Path("demo.toml"),
    python=PythonPlace(version="3.11", executable="/usr/bin/python3.11", site=f"/{SITE}"),
    dependencies=Dependencies(lock="runtime-cpu.txt"),
    debian=Debian(
        suite="bookworm",
        packages=("base-files",),
        drop=("usr/share/doc/**", "usr/share/ca-certificates/**"),
        keep=("usr/share/doc/*/copyright",),
    ),
    image=ImageSettings(
        entrypoint=("/usr/bin/python3.11",),
        cmd=("-m", "demo"),
        env=("LANG=C.UTF-8", "PATH=/usr/bin"),
        healthcheck=("/usr/bin/python3.11", "-c", "import demo"),
        working_dir="/home/nonroot",
    ),
)


@dataclasses.dataclass(kw_only=True)
class Draft:
    """The inputs of one image; a test may change any of them."""

    folder: Path
    recipe: ImageRecipe = RECIPE
    host: HostArch = HostArch.X86_64
    releasable: bool = True
    why: str = ""
    dependency: Mapping[str, bytes] = dataclasses.field(
        default_factory=lambda: {"needed.py": b"needed = 1\n"}
    )
    wheel: Path | None = None
    """The dependency, made elsewhere; made of ``dependency`` if not given."""
    payload: Mapping[str, bytes] = dataclasses.field(
        default_factory=lambda: {"demo_kernels/__init__.py": b"", SBOM: b"{}"}
    )
    base: Path | None = None
    packages: tuple[debmaking.Draft, ...] = ()
    layout: Path | None = None
    cache: Path | None = None

    @property
    def target(self) -> str:
        return f"cpu-{self.host.value}"

    @property
    def row(self) -> TargetRow:
        return dataclasses.replace(
            self._declaration.targets[0], target=Target.parse(self.target), host=self.host
        )

    @property
    def _declaration(self) -> Declaration:
        aside = self.folder / "declared"
        aside.mkdir(parents=True, exist_ok=True)
        return make.context(aside, {}).declaration

    def build(self) -> BuiltImage:
        declaration = self._declaration
        architecture = {HostArch.X86_64: "amd64", HostArch.AARCH64: "arm64"}[self.host]
        lock: DebianLock | None = None
        files: dict[str, Path] = {}
        if self.recipe.base is None:
            packages = self.packages or debmaking.system(architecture)
            lock, files = debmaking.lock(packages, self.folder / "debs", architecture=architecture)
        dependency = self.wheel or self.folder / "needed-1-py3-none-any.whl"
        if self.wheel is None:
            dependency.write_bytes(make.wheel_bytes(self.dependency, dependency.name))
        payload = self.folder / f"demo_kernels-1.0+cpu-py3-none-manylinux_2_28_{self.host.value}.whl"
        payload.write_bytes(make.wheel_bytes(self.payload, payload.name))
        return build_image(
            self.recipe,
            self.row,
            declaration=declaration,
            debian=lock,
            packages=files,
            dependencies=[dependency],
            releasable=self.releasable,
            payload=payload,
            cache=self.cache or self.folder / "cache",
            layout=self.layout or self.folder / "images",
            why=self.why,
            base=self.base,
        )


def on_base(digest: str) -> ImageRecipe:
    """The recipe on a base image."""
    return dataclasses.replace(RECIPE, debian=None, base=Base(image=f"registry.example/base@{digest}"))
