"""Reading ``wheelmark.toml`` into the model: strictly, with a suggestion for each unknown key.

The reader is driven by the dataclasses alone. Types that it knows: ``str``, ``int``, ``float``, ``bool``,
``Path`` (relative, inside the project), enums (by value), ``Target``, ``X | None``, ``tuple[X, ...]`` and
dataclasses of these.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
import types
import typing
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from wheelmark import digests, stricttoml
from wheelmark.config.model import Declaration
from wheelmark.errors import ConfigError, InputError
from wheelmark.plainfiles import read_named
from wheelmark.targets import Backend, Target

FILE_NAME = "wheelmark.toml"
SCHEMA_VERSION = 1
_MAX_BYTES = 1 << 18
"""Bytes of a declaration."""
_T = typing.TypeVar("_T")
GATES = ("abi", "coverage", "size", "repeat", "correctness", "performance", "audit")
"""Gates that exist, in the order in which they run."""


def find_declaration(start: Path) -> Path:
    """The ``wheelmark.toml`` in ``start`` or the nearest folder above it.

    Raises:
        ConfigError: There is none (reason ``no-declaration``).
    """
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigError(
        f"no {FILE_NAME} in {start} or above it",
        cause="the command runs outside a project",
        fix=f"change into the project, or write a {FILE_NAME} (docs/your-project.md)",
        reason="no-declaration",
    )


def load_declaration(path: Path) -> Declaration:
    """Read and check one ``wheelmark.toml``.

    Raises:
        ConfigError: It cannot be read, or says something that does not hold.
    """
    data = read_named(path, _MAX_BYTES + 1, reason="unreadable")
    return parse_declaration(data, root=path.resolve().parent)


def parse_declaration(data: bytes, *, root: Path) -> Declaration:
    """The declaration that TOML ``data`` makes, for a project in the folder ``root``.

    Raises:
        ConfigError: Syntax, an unknown or absent key, a wrong type, or a value that does not hold.
    """
    try:
        table = stricttoml.loads(data, limit=_MAX_BYTES)
    except InputError as error:
        raise ConfigError(f"{FILE_NAME} {error.what}", reason=error.reason) from error
    schema = table.pop("schema", None)
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ConfigError(
            f"{FILE_NAME} has schema {schema!r}; this wheelmark reads {SCHEMA_VERSION}",
            fix=f"write `schema = {SCHEMA_VERSION}` at the top",
            reason="schema-version",
        )
    declaration = read_table(Declaration, table, where=FILE_NAME, given={"root": root})
    _check(declaration)
    return declaration


def read_table(kind: type[_T], table: Any, *, where: str, given: dict[str, Any] | None = None) -> _T:
    """Read a TOML table into the dataclass ``kind``.

    Args:
        kind: The dataclass.
        table: What TOML made of the table.
        where: How messages name the place, for instance ``wheelmark.toml: gates.audit``.
        given: Fields that do not come from the table.

    Raises:
        ConfigError: Reasons ``unknown-key``, ``missing-key``, ``wrong-type``.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table", reason="wrong-type")
    given = given or {}
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in given}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.6)
            raise ConfigError(
                f"{where}: unknown key {key!r}",
                cause=f"did you mean {near[0]!r}?" if near else "",
                fix=f"keys here are: {', '.join(sorted(fields))}",
                reason="unknown-key",
            )
    hints = typing.get_type_hints(kind)
    absent = [name for name, field in fields.items() if name not in table and is_required(field)]
    if absent:
        are = "keys {} are" if len(absent) > 1 else "key {} is"
        raise ConfigError(
            f"{where}: {are.format(', '.join(map(repr, absent)))} missing",
            fix="write what docs/reference/wheelmark-toml.md says of them",
            reason="missing-key",
        )
    values = dict(given)
    for name in fields:
        if name in table:
            values[name] = _value(hints[name], table[name], where=f"{where}: {name}")
    return kind(**values)


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a field of the model has no default: the file has to say it."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(kind: Any, value: Any, *, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        (kind,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
        return _value(kind, value, where=where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where} must be an array", reason="wrong-type")
        item = typing.get_args(kind)[0]
        return tuple(_value(item, member, where=f"{where}[{index}]") for index, member in enumerate(value))
    if dataclasses.is_dataclass(kind) and kind is not Target:
        return read_table(typing.cast("type[Any]", kind), value, where=where)
    return _scalar(kind, value, where=where)


def _scalar(kind: Any, value: Any, *, where: str) -> Any:
    wanted: Any = kind if kind in {int, float, bool} else str
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ConfigError(
            f"{where} must be a {wanted.__name__}, not {type(value).__name__}", reason="wrong-type"
        )
    if kind is Target:
        return Target.parse(value)
    if kind is Path:
        return _path(value, where=where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        choices = [str(member.value) for member in kind]
        if value not in choices:
            near = difflib.get_close_matches(value, choices, n=1)
            raise ConfigError(
                f"{where}: {value!r} is none of {', '.join(choices)}",
                cause=f"did you mean {near[0]!r}?" if near else "",
                reason="unknown-choice",
            )
        return kind(value)
    return value


def _path(value: str, *, where: str) -> Path:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or not value:
        raise ConfigError(f"{where}: {value!r} must be a path inside the project", reason="unsafe-path")
    return Path(value)


def _check(declaration: Declaration) -> None:
    """What no single field's type says."""
    project = declaration.project
    try:
        version = Version(project.version)
        for text in project.dependencies:
            Requirement(text)
        SpecifierSet(project.requires_python)
    except (InvalidVersion, InvalidRequirement, InvalidSpecifier) as error:
        raise ConfigError(f"{FILE_NAME}: project: {error}", reason="pep440") from error
    if version.local is not None or str(version) != project.version:
        raise ConfigError(
            f"{FILE_NAME}: project.version {project.version!r} must be a normalized public version",
            fix=f"write {version.public!r}; the local label is a column of the targets table",
            reason="pep440",
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", project.import_name):
        raise ConfigError(f"{FILE_NAME}: {project.import_name!r} is no package name", reason="import-name")
    if not digests.is_sha256(declaration.locks.torch_cpu_sha256):
        raise ConfigError(f"{FILE_NAME}: locks.torch_cpu_sha256 is no sha256", reason="digest")
    if not declaration.targets:
        raise ConfigError(
            f"{FILE_NAME}: the targets table is empty",
            cause="a release without targets would pass every gate",
            fix="declare at least one [[targets]] row",
            reason="empty-matrix",
        )
    _check_rows(declaration)


def _check_rows(declaration: Declaration) -> None:
    names: dict[tuple[str, str, str], Target] = {}
    seen: set[Target] = set()
    for row in declaration.targets:
        where = f"{FILE_NAME}: target {row.target}"
        if row.target in seen:
            raise ConfigError(f"{where} stands twice", reason="duplicate-target")
        seen.add(row.target)
        if row.target.backend is Backend.CPU and row.target.arch != row.host.value:
            raise ConfigError(f"{where} has host {row.host.value}", reason="host-mismatch")
        try:
            SpecifierSet(row.torch)
            label = Version(f"{declaration.project.version}+{row.local}").local
        except (InvalidSpecifier, InvalidVersion) as error:
            raise ConfigError(f"{where}: {error}", reason="pep440") from error
        wheel = (label or "", row.platform, row.host.value)
        if wheel in names:
            raise ConfigError(
                f"{where} and {names[wheel]} would have the same wheel file name",
                fix="give each target its own local label",
                reason="duplicate-label",
            )
        names[wheel] = row.target
        unknown = [name for name in row.gates if name not in GATES]
        if unknown or not row.gates:
            raise ConfigError(
                f"{where}: " + (f"unknown gate {unknown[0]!r}" if unknown else "no gates"),
                fix=f"name some of: {', '.join(GATES)}",
                reason="unknown-gate",
            )
