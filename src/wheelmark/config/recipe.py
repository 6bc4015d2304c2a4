"""Image recipes (`containers/*.toml`): what a container image is made of, as frozen dataclasses read from TOML.

A recipe may extend another one beside it: its tables' keys go over the other's, key by key; lists are replaced
whole. Nothing in a recipe is executed: packages are unpacked, wheels are laid out, files are written.
"""

from __future__ import annotations

import collections
import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark import stricttoml
from wheelmark.config.model import Declaration
from wheelmark.config.reader import read_table
from wheelmark.errors import ConfigError, InputError
from wheelmark.plainfiles import open_plain, read_start

SCHEMA_VERSION = 1
_LOCK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.txt")
_SUITE = re.compile(r"[a-z][a-z0-9-]{0,99}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")
"""Debian policy, 5.6.1."""
_MAX_BYTES = 1 << 20
_LONGEST = 4096
_MOST_BYTES = 1 << 40
_ONCE = ("packages", "suites", "components", "waived", "drop", "keep")
"""Lists of `[debian]` whose members stand once."""
_MOST_ITEMS = 1000
"""Members of one list."""
_BESIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.toml")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
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


def load_recipe(path: Path, *, root: Path | None = None) -> ImageRecipe:
    """Read a recipe with what it extends.

    Args:
        path: The recipe, a plain file.
        root: The project that it has to lie in, whatever links its folders are.

    Raises:
        ConfigError: It cannot be read, lies elsewhere (``recipe-outside``), or says something that does not hold.
    """
    _check_inside(path, root)
    tables: dict[str, Any] = {}
    for _file, above in reversed(_chain(path)):
        for name, table in above.items():
            mine, theirs = table, tables.get(name)
            tables[name] = {**theirs, **mine} if isinstance(mine, dict) and isinstance(theirs, dict) else mine
    recipe = read_table(ImageRecipe, tables, where=path.name, given={"path": path})
    _check(recipe)
    return recipe


def project_recipes(declaration: Declaration) -> tuple[Path, ...]:
    """Every file that the recipes of a declaration's targets are read from: they and what they extend, sorted.

    Raises:
        ConfigError: One cannot be read, or lies outside of the project.
    """
    found: set[Path] = set()
    for image in {row.image for row in declaration.targets if row.image is not None}:
        path = declaration.root / image
        _check_inside(path, declaration.root)
        found.update(file for file, _tables in _chain(path))
    return tuple(sorted(found))


def _check_inside(path: Path, root: Path | None) -> None:
    # Recipes extend files beside them, and no file of it may be a link: its folder decides for all of them.
    if root is not None and not path.parent.resolve().is_relative_to(root.resolve()):
        raise ConfigError(
            f"the image recipe {path} lies outside of the project",
            cause="one of its folders is a link to another place",
            fix="copy the recipe into the project",
            reason="recipe-outside",
        )


def _chain(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A recipe and what it extends, top first, each file with its tables."""
    found: list[tuple[Path, dict[str, Any]]] = []
    while True:
        tables = _read(path)
        below = tables.pop("extends", "")
        found.append((path, tables))
        if below == "":
            return found
        if not isinstance(below, str) or not _BESIDE.fullmatch(below):
            raise ConfigError(
                f"{path.name} extends {str(below)[:80]!r}",
                cause="a recipe extends a file beside it, named <name>.toml",
                reason="recipe-extends",
            )
        path = path.with_name(below)
        names = [file.name for file, _tables in found]
        if below in names or len(found) > _DEEPEST:
            raise ConfigError(
                f"recipes extend one another: {' → '.join([*names, below])}",
                cause=f"a recipe extends neither itself nor more than {_DEEPEST} others",
                reason="recipe-extends",
            )


def _read(path: Path) -> dict[str, Any]:
    """The tables of one file."""
    try:
        with open_plain(path) as stream:
            data = read_start(stream, path, _MAX_BYTES + 1)
    except InputError as error:
        cause = "a recipe is a plain file, and no link" if path.is_symlink() else ""
        raise ConfigError(f"image recipe: {error.what}", cause=cause, reason="unreadable") from error
    try:
        tables = stricttoml.loads(data, limit=_MAX_BYTES)
    except InputError as error:
        raise ConfigError(f"{path.name} {error.what}", reason=error.reason) from error
    schema = tables.pop("schema", None)
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ConfigError(
            f"{path.name} has schema {schema!r:.80}; this wheelmark reads {SCHEMA_VERSION}",
            fix=f"write `schema = {SCHEMA_VERSION}` at the top",
            reason="schema-version",
        )
    return tables


def _check(recipe: ImageRecipe) -> None:
    """What no single field's type says."""
    name, image = recipe.path.name, recipe.image
    for key, text in _texts(dataclasses.asdict(recipe), name):
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


def _texts(value: Any, recipe: str, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a recipe, with the key that it is of; a list that is too long is refused."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, recipe, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, tuple):
        if len(value) > _MOST_ITEMS:
            raise ConfigError(
                f"{recipe}: {key} has {len(value):,} members; {_MOST_ITEMS:,} are the most",
                reason="recipe-setting",
            )
        for inner in value:
            yield from _texts(inner, recipe, key)


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
        _check_debian(name, debian)
    lists = {
        **({f"debian.{key}": getattr(debian, key) for key in _ONCE} if debian else {}),
        "dependencies.stand_in_without": needs.stand_in_without,
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


def _check_debian(name: str, debian: Debian) -> None:
    """Suites, components and packages are named as Debian names them."""
    for text in (debian.suite, *debian.suites):
        if not _SUITE.fullmatch(text):
            raise ConfigError(f"{name}: {text!r} is no suite of Debian", reason="recipe-debian")
    for text in debian.components:
        if not _SUITE.fullmatch(text):
            raise ConfigError(f"{name}: {text!r} is no component of Debian", reason="recipe-debian")
    for text in (*debian.packages, *debian.waived):
        if not _PACKAGE.fullmatch(text):
            raise ConfigError(f"{name}: {text!r} is no name of a Debian package", reason="recipe-debian")


def _check_python(recipe: ImageRecipe) -> None:
    name = recipe.path.name
    for path in (recipe.python.site, recipe.python.executable, recipe.image.working_dir):
        if not _is_one_path(path):
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


def _is_one_path(text: str) -> bool:
    """Whether a path is absolute, without ``..`` and doubled slashes (two at the start are a place of their own to POSIX)."""
    return text.startswith("/") and not text.startswith("//") and posixpath.normpath(text) == text


def _check_settings(name: str, image: ImageSettings) -> None:
    for program in (image.entrypoint[:1], image.healthcheck[:1]):
        if program and not _is_one_path(program[0]):
            raise ConfigError(
                f"{name}: {program[0]!r} is no absolute path in its one spelling",
                cause="no shell looks programs up",
                reason="recipe-path",
            )
    for text in image.labels:
        if text.startswith(_OURS):
            raise ConfigError(
                f"{name}: the label {text.partition('=')[0]} is written by the builder",
                reason="recipe-setting",
            )
    for texts, key in ((image.env, _VARIABLE), (image.labels, _LABEL)):
        for text in texts:
            before, mark, _after = text.partition("=")
            if not mark or not key.fullmatch(before):
                raise ConfigError(
                    f"{name}: {text[:80]!r} is not name=value",
                    cause="names of variables are letters, digits and _; those of labels also . / -",
                    reason="recipe-setting",
                )
