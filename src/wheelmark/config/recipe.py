"""Image recipes (`containers/*.toml`): what a container image is made of, as frozen dataclasses read from TOML.

A recipe may extend another one beside it: its tables' keys go over the other's, key by key; lists are replaced
whole. Nothing in a recipe is executed: packages are unpacked, wheels are laid out, files are written.
"""

from __future__ import annotations

import collections
import dataclasses
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark.config.reader import read_table
from wheelmark.errors import ConfigError

SCHEMA_VERSION = 1
_LOCK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.txt")
_SUITE = re.compile(r"[a-z][a-z0-9-]{0,99}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")
"""Debian policy, 5.6.1."""
_MAX_BYTES = 1 << 20
_LONGEST = 4096
_MOST_BYTES = 1 << 40
_DEEPEST = 4
_VERSION = re.compile(r"3\.[0-9]{1,2}")
_SITE = re.compile(r"/(usr|opt)/(.+/)?lib/.+")
_OURS = ("dev.wheelmark.", "org.opencontainers.image.")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Debian:
    """The operating system, from locked Debian packages. No maintainer script runs."""

    suite: str
    """For instance ``bookworm``."""
    packages: tuple[str, ...]
    """Names that are asked for; what they need comes with them."""
    suites: tuple[str, ...] = ()
    """Suites that packages come from; empty: ``suite`` with its ``-updates`` and ``-security``. All have to be there."""
    components: tuple[str, ...] = ("main",)
    """Of the archive: ``main``, ``contrib``, ``non-free``."""
    waived: tuple[str, ...] = ()
    """Packages that others need and that are left out on purpose; what does not work without them goes into ``drop``."""
    drop: tuple[str, ...] = ()
    """Paths that are left out: shell patterns over the path without its first ``/``; ``**`` goes over folders,
    and a pattern that ends in ``/**`` means the folder too."""
    keep: tuple[str, ...] = ()
    """Patterns of what stays although ``drop`` names it."""

    @property
    def all_suites(self) -> tuple[str, ...]:
        """The suites that packages come from."""
        return self.suites or (self.suite, f"{self.suite}-updates", f"{self.suite}-security")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """Instead of `[debian]`, an image by digest, whose layers stay below ours."""

    image: str
    """``registry/repository@sha256:…``: of one platform's manifest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PythonPlace:
    """The interpreter in the operating system."""

    version: str
    """Minor version, ``3.11``."""
    executable: str
    """Its path, absolute."""
    site: str
    """Where wheels are laid out, absolute."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The hash-locked closure below the payload."""

    lock: str
    """Lock file in ``lockfiles/``."""
    stand_in: str = ""
    """Lock file that is used where the closure's wheels are not fetched: everything else is then built and tested as it is,
    and the image is marked as not releasable. Empty: the closure is always fetched."""
    stand_in_without: tuple[str, ...] = ()
    """Packages of the stand-in that are left out of it: those that have no wheel for the image's platform."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """How the image runs, and how large it may be."""

    user: int = 65532
    """Numeric user and group that it runs as; never 0."""
    entrypoint: tuple[str, ...] = ()
    """Program and first arguments, without a shell; the program by its absolute path."""
    cmd: tuple[str, ...] = ()
    """Arguments that whoever starts it may replace."""
    env: tuple[str, ...] = ()
    """``NAME=value``."""
    labels: tuple[str, ...] = ()
    """``name=value``, besides those that are always there."""
    healthcheck: tuple[str, ...] = ()
    """Command, without a shell; for engines that run it (a Docker extension of the OCI configuration)."""
    working_dir: str = "/"
    """Where it starts; unless it is the root, the user's home, which the user owns."""
    budget: int = 0
    """Bytes that the layers may have, compressed, without the dependencies' layer; 0 is no limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageRecipe:
    """A whole recipe."""

    path: Path
    """The file (not a key of it)."""
    python: PythonPlace
    dependencies: Dependencies
    image: ImageSettings = dataclasses.field(default_factory=ImageSettings)
    debian: Debian | None = None
    base: Base | None = None


def load_recipe(path: Path) -> ImageRecipe:
    """Read a recipe with what it extends.

    Raises:
        ConfigError: It cannot be read, or says something that does not hold.
    """
    recipe = read_table(ImageRecipe, _tables(path, depth=0), where=path.name, given={"path": path})
    _check(recipe)
    return recipe


def _tables(path: Path, *, depth: int) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(f"{path.name} has more than {_MAX_BYTES:,} bytes", reason="recipe-setting")
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(
            f"cannot read the image recipe {path}: {error.strerror}", reason="unreadable"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not TOML: {error}", reason="toml-syntax") from error
    schema = tables.pop("schema", None)
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ConfigError(
            f"{path.name} has schema {schema!r}; this wheelmark reads {SCHEMA_VERSION}",
            fix=f"write `schema = {SCHEMA_VERSION}` at the top",
            reason="schema-version",
        )
    below = tables.pop("extends", "")
    if not below:
        return tables
    if not isinstance(below, str) or "/" in below or depth >= _DEEPEST:
        raise ConfigError(
            f"{path.name} extends {below!r}",
            cause="a recipe extends a file beside it, and not itself",
            reason="recipe-extends",
        )
    merged = _tables(path.with_name(below), depth=depth + 1)
    for name, table in tables.items():
        mine, theirs = table, merged.get(name)
        merged[name] = {**theirs, **mine} if isinstance(mine, dict) and isinstance(theirs, dict) else mine
    return merged


def _check(recipe: ImageRecipe) -> None:
    """What no single field's type says."""
    name, image = recipe.path.name, recipe.image
    for key, text in _texts(dataclasses.asdict(recipe)):
        if len(text) > _LONGEST or not text.isprintable():
            raise ConfigError(
                f"{name}: {key} holds {text[:80]!r}",
                cause=f"texts of a recipe are printable, with at most {_LONGEST:,} characters",
                reason="recipe-setting",
            )
    _check_names(recipe)
    if (recipe.debian is None) == (recipe.base is None):
        raise ConfigError(f"{name} needs either [debian] or [base]", reason="recipe-system")
    if recipe.base is not None and not _IMAGE.fullmatch(recipe.base.image):
        raise ConfigError(
            f"{name}: base.image {recipe.base.image!r} is not named by digest",
            fix="write registry/repository@sha256:…",
            reason="recipe-base",
        )
    if recipe.debian is not None and not recipe.debian.packages:
        raise ConfigError(f"{name}: debian.packages is empty", reason="recipe-system")
    if not 0 < image.user < 1 << 31:
        raise ConfigError(
            f"{name}: image.user {image.user} is not an ordinary user",
            fix="name a numeric user above 0",
            reason="recipe-user",
        )
    _check_python(recipe)
    _check_settings(name, image)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a recipe, with the key that it is of."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, key)


def _check_names(recipe: ImageRecipe) -> None:
    """Names of files, packages and variables are such, each of them once."""
    name, image, needs = recipe.path.name, recipe.image, recipe.dependencies
    for text in (needs.lock, needs.stand_in):
        if text and not _LOCK.fullmatch(text):
            raise ConfigError(
                f"{name}: {text!r} is no lock file",
                cause="lock files lie in lockfiles/ and are named without a folder",
                reason="recipe-lock",
            )
    debian = recipe.debian
    if debian is not None:
        if not _SUITE.fullmatch(debian.suite):
            raise ConfigError(f"{name}: {debian.suite!r} is no suite of Debian", reason="recipe-debian")
        for text in (*debian.packages, *debian.waived):
            if not _PACKAGE.fullmatch(text):
                raise ConfigError(f"{name}: {text!r} is no name of a Debian package", reason="recipe-debian")
    lists = {
        "debian.packages": debian.packages if debian else (),
        "image.env": [text.partition("=")[0] for text in image.env],
        "image.labels": [text.partition("=")[0] for text in image.labels],
    }
    for key, items in lists.items():
        twice = [item for item, count in collections.Counter(items).items() if count > 1]
        if twice:
            raise ConfigError(f"{name}: {key} names {twice[0]!r} twice", reason="recipe-setting")
    if not 0 <= image.budget <= _MOST_BYTES:
        raise ConfigError(
            f"{name}: image.budget {image.budget} is no number of bytes", reason="recipe-setting"
        )


def _check_python(recipe: ImageRecipe) -> None:
    name = recipe.path.name
    for path in (recipe.python.site, recipe.python.executable, recipe.image.working_dir):
        if not path.startswith("/") or posixpath.normpath(path) != path:
            raise ConfigError(
                f"{name}: {path!r} is no absolute path in its one spelling", reason="recipe-path"
            )
    if not _VERSION.fullmatch(recipe.python.version):
        raise ConfigError(
            f"{name}: python.version {recipe.python.version!r} is no minor version",
            fix='write "3.11"',
            reason="recipe-python",
        )
    if not _SITE.match(recipe.python.site):
        raise ConfigError(
            f"{name}: python.site {recipe.python.site!r} is no folder for modules",
            cause="scripts and data go beside its lib folder, and /lib is a link into /usr",
            fix='write "/usr/local/lib/python3.11/dist-packages"',
            reason="recipe-path",
        )


def _check_settings(name: str, image: ImageSettings) -> None:
    for program in (image.entrypoint[:1], image.healthcheck[:1]):
        if program and not program[0].startswith("/"):
            raise ConfigError(
                f"{name}: {program[0]!r} is no absolute path",
                cause="no shell looks programs up",
                reason="recipe-path",
            )
    for text in image.labels:
        if text.startswith(_OURS):
            raise ConfigError(
                f"{name}: the label {text.partition('=')[0]} is written by the builder",
                reason="recipe-setting",
            )
    for text in (*image.env, *image.labels):
        if not text.partition("=")[1] or not text.partition("=")[0]:
            raise ConfigError(f"{name}: {text!r} is not name=value", reason="recipe-setting")
