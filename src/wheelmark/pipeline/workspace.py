"""Where one run works: the project, its release directory and the caches.

Precedence: command line > environment (``WHEELMARK_DIST``, ``WHEELMARK_CACHE``) > the project's own folders.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from wheelmark import strictjson
from wheelmark.config import Declaration, find_declaration, load_declaration
from wheelmark.errors import InputError
from wheelmark.release import ReleaseDirectory, Steps
from wheelmark.targets import Target

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workspace:
    """The places and choices of one run."""

    declaration: Declaration
    directory: ReleaseDirectory
    cache: Path
    """Compiled kernels and native libraries, by content."""
    environments: Path
    """Locked environments, by lock."""
    named: tuple[Target, ...]
    """Targets that were asked for by name; empty: all that this machine can build."""
    release: bool
    """Nothing may be missing: a target that cannot be built is an error."""
    snapshot: bool
    """A tree with uncommitted changes is allowed, and marked."""
    images: bool = True
    """Images are built for the targets that have a recipe."""

    @property
    def steps(self) -> Steps:
        """Records of finished steps."""
        return Steps(self.directory.state / "steps", self.directory.root)

    @property
    def source(self) -> Path:
        """The payload's folder."""
        return self.declaration.root / self.declaration.project.source

    @property
    def debian_pool(self) -> Path:
        """Debian packages by sha256: inputs, kept with the environments."""
        return self.environments / "debian"

    @property
    def wheel_pool(self) -> Path:
        """Wheels of dependencies by sha256, likewise."""
        return self.environments / "wheels"

    @property
    def build_lock(self) -> Path:
        """Lock of the build environment."""
        return self.declaration.root / "lockfiles" / "build.txt"

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Leave a JSON object for later stages, beside the release directory; wholly or not at all."""
        path = self.directory.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(value, indent=2, sort_keys=True), encoding="utf-8")
        partial.replace(path)

    def recall(self, name: str) -> Mapping[str, Any] | None:
        """What an earlier stage left; ``None`` where there is nothing that can be read."""
        try:
            return strictjson.load_object((self.directory.state / name).read_bytes(), what=name)
        except (OSError, InputError):
            return None


def open_workspace(
    *,
    project: Path | None = None,
    dist: Path | None = None,
    cache: Path | None = None,
    environments: Path | None = None,
    targets: Sequence[str] = (),
    release: bool = False,
    snapshot: bool = False,
    images: bool = True,
) -> Workspace:
    """The workspace that the command line and the environment name.

    Raises:
        ConfigError: No declaration, or a target that does not exist.
    """
    declaration = load_declaration(find_declaration(project or Path.cwd()))
    cache = cache or _from_environment("WHEELMARK_CACHE") or declaration.root / ".wheelmark"
    dist = dist or _from_environment("WHEELMARK_DIST") or declaration.root / "dist"
    named = tuple(dict.fromkeys(Target.parse(text.strip()) for text in targets if text.strip()))
    for target in named:
        declaration.row(target)
    return Workspace(
        declaration=declaration,
        directory=ReleaseDirectory(dist),
        cache=cache.resolve(),
        environments=(environments or cache).resolve(),
        named=named,
        release=release,
        snapshot=snapshot,
        images=images,
    )


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def holding(
    stage: Callable[Concatenate[Workspace, _P], _T],
) -> Callable[Concatenate[Workspace, _P], _T]:
    """A stage that holds the release directory while it runs.

    Raises:
        BusyError: Another run holds it.
    """

    @functools.wraps(stage)
    def held(workspace: Workspace, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with workspace.directory.held():
            return stage(workspace, *args, **kwargs)

    return held
