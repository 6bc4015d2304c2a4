"""Kernel declarations: the TOML that a kernel project keeps, read strictly into dataclasses.

The form is described in ``docs/reference/kernel-declarations.md``. What stands here is the shape of the file and
nothing of Triton: values stay as TOML gave them until ``variants`` lays matrix and overrides over them.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import fnmatch
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeVar

from wheelmark.errors import ConfigError
from wheelmark.targets import Target, known_ids

SCHEMA_VERSION = 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
"""Names of kernels, variants and labels: they become file names."""

OPTIONS = frozenset(
    {
        "num_warps",
        "num_stages",
        "num_ctas",
        "maxnreg",
        "enable_fp_fusion",
        "enable_reflect_ftz",
        "launch_pdl",
        "launch_cooperative_grid",
        "default_dot_input_precision",
        "max_num_imprecise_acc_default",
        "sanitize_overflow",
        "ptx_version",
        "ptx_options",
        "waves_per_eu",
        "matrix_instr_nonkdim",
        "kpack",
        "schedule_hint",
        "allow_flush_denorm",
    }
)
"""Compile options that decide code and hold no path; which of them a backend knows is asked of it."""

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_Item = TypeVar("_Item")


class ImportMode(enum.Enum):
    """How a kernel's module is imported."""

    PLAIN = "plain"
    """As it is."""
    SHIMMED = "shimmed"
    """With a recording driver and device queries that answer for the target."""


class Tuning(enum.Enum):
    """How an autotuner's configs bind a declaration."""

    DECLARED = "declared"
    """Constants and options must be one of its configs, by value."""
    FREE = "free"
    """They need not be."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Element:
    """One element of a matrix axis."""

    label: str
    value: Any
    """What ``{axis}`` stands for."""
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a kernel's matrix."""

    name: str
    elements: tuple[Element, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Override:
    """Changes for some targets and variants."""

    targets: tuple[str, ...]
    where: Mapping[str, str]
    """Labels that a variant must have, by axis."""
    dtypes: Mapping[str, str]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    optional: bool
    exclude: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """What device queries answer under ``shimmed`` import."""

    targets: tuple[str, ...]
    name: str
    properties: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelDeclaration:
    """One ``[[kernel]]``."""

    name: str
    module: str
    attribute: str
    import_mode: ImportMode
    targets: tuple[str, ...]
    exclude: tuple[str, ...]
    optional: tuple[str, ...]
    variant: str
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    matrix: tuple[Axis, ...]
    skip: tuple[Mapping[str, str], ...]
    autotune: Tuning
    generic: bool
    overrides: tuple[Override, ...]

    def is_for(self, target: Target) -> bool:
        """Whether the kernel is compiled for ``target`` at all."""
        return target.is_gpu and matches(self.targets, target) and not matches(self.exclude, target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelDeclarations:
    """One kernel declaration file."""

    file: Path
    path: tuple[str, ...]
    """Folders for ``sys.path``, relative to the file's own."""
    preload: tuple[str, ...]
    devices: tuple[Device, ...]
    kernels: tuple[KernelDeclaration, ...]

    def folders(self, source_root: Path) -> tuple[Path, ...]:
        """Folders for ``sys.path``, absolute.

        Args:
            source_root: The project's source folder. Where the file is not in it, as when the sources of an
                installed wheel are asked for, it takes the place of the file's own folder.
        """
        root, own = source_root.resolve(), self.file.resolve().parent
        base = own if own.is_relative_to(root) else root
        return tuple(base / folder for folder in self.path)


def matches(patterns: Sequence[str], target: Target) -> bool:
    """Whether one of the patterns (``*``, ``?``) fits the target's id."""
    return any(fnmatch.fnmatchcase(str(target), pattern) for pattern in patterns)


def load_kernel_declaration(path: Path) -> KernelDeclarations:
    """Read and check one kernel declaration file.

    Raises:
        ConfigError: It cannot be read, or says something that does not hold. Reasons: ``unreadable``,
            ``toml-syntax``, ``schema-version``, ``unknown-key``, ``missing-key``, ``wrong-type``,
            ``unknown-choice``, ``kernel-name``, ``kernel-matrix``, ``unknown-target``, ``unsafe-path``.
    """
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not TOML: {error}", reason="toml-syntax") from error
    where = path.name
    schema = table.get("schema")
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ConfigError(
            f"{where} has schema {schema!r}; this wheelmark reads {SCHEMA_VERSION}",
            fix=f"write `schema = {SCHEMA_VERSION}` at the top",
            reason="schema-version",
        )
    top = _Table(table, where, ("schema", "project", "kernel", "device"))
    project = _Table(top.mapping("project"), f"{where}: project", ("path", "preload", "import"))
    mode = project.choice("import", ImportMode, ImportMode.PLAIN)
    kernels = top.tables("kernel", lambda item, at: _kernel(item, at, mode))
    if not kernels:
        _refuse(f"{where}: no [[kernel]]", "kernel-matrix")
    return KernelDeclarations(
        file=path,
        path=tuple(_folder(folder, f"{where}: project.path") for folder in project.texts("path", (".",))),
        preload=project.texts("preload", ()),
        devices=top.tables("device", _device),
        kernels=kernels,
    )


def _kernel(item: Any, where: str, mode: ImportMode) -> KernelDeclaration:
    keys = [field.name for field in dataclasses.fields(KernelDeclaration)]
    renamed = {"import_mode": "import", "overrides": "override"}
    table = _Table(item, where, tuple(renamed.get(key, key) for key in keys))
    name = _name(table.text("name"), f"{where}: name")
    table.where = where = f"{where.partition(':')[0]}: kernel {name}"
    axes = tuple(
        _axis(axis, elements, f"{where}: matrix.{axis}") for axis, elements in table.mapping("matrix").items()
    )
    for key in ("module", "attribute"):
        if _DOTTED.fullmatch(table.text(key)) is None:
            _refuse(f"{where}: {key} {table.text(key)!r} is no dotted name", "wrong-type")
    return KernelDeclaration(
        name=name,
        module=table.text("module"),
        attribute=table.text("attribute"),
        import_mode=table.choice("import", ImportMode, mode),
        targets=table.patterns("targets", ("*",)),
        exclude=table.patterns("exclude", ()),
        optional=table.patterns("optional", ()),
        variant=table.text("variant", "-".join("{" + axis.name + "}" for axis in axes) or "default"),
        arguments=table.mapping("arguments"),
        constants=table.mapping("constants"),
        options=_options(table),
        matrix=axes,
        skip=table.tables("skip", lambda value, at: _labels(value, axes, at)),
        autotune=table.choice("autotune", Tuning, Tuning.DECLARED),
        generic=table.flag("generic", default=True),
        overrides=table.tables("override", lambda value, at: _override(value, axes, at)),
    )


def _axis(name: str, elements: Any, where: str) -> Axis:
    if not isinstance(elements, list) or not elements:
        _refuse(f"{where} must be an array with at least one element", "kernel-matrix")
    axis = Axis(
        name=name,
        elements=tuple(_element(item, f"{where}[{index}]") for index, item in enumerate(elements)),
    )
    labels = [element.label for element in axis.elements]
    if len(set(labels)) != len(labels):
        _refuse(f"{where}: a label stands twice", "kernel-matrix")
    return axis


def _element(item: Any, where: str) -> Element:
    if not isinstance(item, dict):
        if not isinstance(item, str | int | float):
            _refuse(f"{where} must be a scalar or a table", "wrong-type")
        label = str(item).lower() if isinstance(item, bool) else str(item)
        return Element(label=_name(label, where), value=item, arguments={}, constants={}, options={})
    table = _Table(item, where, ("label", "value", "arguments", "constants", "options"))
    label = _name(table.text("label"), f"{where}: label")
    return Element(
        label=label,
        value=item.get("value", label),
        arguments=table.mapping("arguments"),
        constants=table.mapping("constants"),
        options=_options(table),
    )


def _override(item: Any, axes: Sequence[Axis], where: str) -> Override:
    table = _Table(item, where, tuple(field.name for field in dataclasses.fields(Override)))
    return Override(
        targets=table.patterns("targets", ("*",)),
        where=_labels(table.mapping("where"), axes, where),
        dtypes=_strings(table.mapping("dtypes"), f"{where}: dtypes"),
        arguments=table.mapping("arguments"),
        constants=table.mapping("constants"),
        options=_options(table),
        optional=table.flag("optional", default=False),
        exclude=table.flag("exclude", default=False),
    )


def _device(item: Any, where: str) -> Device:
    table = _Table(item, where, ("targets", "name", "properties"))
    return Device(
        targets=table.patterns("targets", ("*",)),
        name=table.text("name", ""),
        properties=table.mapping("properties"),
    )


def _labels(item: Any, axes: Sequence[Axis], where: str) -> Mapping[str, str]:
    labels = _strings(item, where)
    known = {axis.name: {element.label for element in axis.elements} for axis in axes}
    for axis, label in labels.items():
        if axis not in known:
            _unknown(axis, sorted(known), f"{where}: unknown axis")
        if label not in known[axis]:
            _unknown(label, sorted(known[axis]), f"{where}: unknown label of {axis}")
    return labels


def _options(table: _Table) -> Mapping[str, Any]:
    options = table.mapping("options")
    for name in options:
        if name not in OPTIONS:
            _unknown(name, sorted(OPTIONS), f"{table.where}: unknown option")
    return options


def _strings(item: Any, where: str) -> Mapping[str, str]:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        _refuse(f"{where} must be a table of strings", "wrong-type")
    return dict(item)


def _folder(text: str, where: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not text:
        _refuse(f"{where}: {text!r} must be a folder inside the project", "unsafe-path")
    return text


def _name(text: str, where: str) -> str:
    if NAME.fullmatch(text) is None:
        _refuse(f"{where}: {text!r} is no name (letters, digits, _ . + -; at most 100)", "kernel-name")
    return text


def _refuse(text: str, reason: str) -> NoReturn:
    raise ConfigError(text, reason=reason)


def _unknown(name: str, known: Sequence[str], what: str) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    raise ConfigError(
        f"{what} {name!r}",
        cause=f"did you mean {near[0]!r}?" if near else "",
        fix=f"known here: {', '.join(known)}",
        reason="unknown-key",
    )


class _Table:
    """A TOML table whose keys are all known, read by type."""

    def __init__(self, item: Any, where: str, keys: Sequence[str]) -> None:
        if not isinstance(item, dict):
            _refuse(f"{where} must be a table", "wrong-type")
        for key in item:
            if key not in keys:
                _unknown(key, sorted(keys), f"{where}: unknown key")
        self._item = item
        self.where = where

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self._item and default is None:
            _refuse(f"{self.where}: key {key!r} is missing", "missing-key")
        value = self._item.get(key, default)
        if not isinstance(value, str):
            _refuse(f"{self.where}: {key} must be a string", "wrong-type")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self._item.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            _refuse(f"{self.where}: {key} must be an array of strings", "wrong-type")
        return tuple(value)

    def patterns(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        patterns = self.texts(key, default)
        for pattern in patterns:
            if not fnmatch.filter(known_ids(), pattern):
                raise ConfigError(
                    f"{self.where}: {key}: no target fits {pattern!r}",
                    fix=f"targets are: {', '.join(known_ids())}",
                    reason="unknown-target",
                )
        return patterns

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._item.get(key, default)
        if not isinstance(value, bool):
            _refuse(f"{self.where}: {key} must be true or false", "wrong-type")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._item.get(key, {})
        if not isinstance(value, dict):
            _refuse(f"{self.where}: {key} must be a table", "wrong-type")
        return value

    def choice(self, key: str, kind: type[_Item], default: _Item) -> _Item:
        if key not in self._item:
            return default
        choices = [str(member.value) for member in kind]  # type: ignore[attr-defined]
        text = self.text(key)
        if text not in choices:
            near = difflib.get_close_matches(text, choices, n=1)
            raise ConfigError(
                f"{self.where}: {key}: {text!r} is none of {', '.join(choices)}",
                cause=f"did you mean {near[0]!r}?" if near else "",
                reason="unknown-choice",
            )
        return kind(text)  # type: ignore[call-arg]

    def tables(self, key: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        value = self._item.get(key, [])
        if not isinstance(value, list):
            _refuse(f"{self.where}: {key} must be an array of tables", "wrong-type")
        return tuple(read(item, f"{self.where}: {key}[{index}]") for index, item in enumerate(value))
