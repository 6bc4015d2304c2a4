"""``sbom/components.toml``: suppliers, licences and requirements that no file of a build states. Kept by hand.

A component that it does not name is described without supplier and licence, which CycloneDX reads as unknown.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from wheelmark.errors import ConfigError

NAME = Path("sbom") / "components.toml"
_SCHEMA = 1
_TABLES = ("packages", "native")
_KEYS = frozenset({"supplier", "license", "requires"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one component."""

    supplier: str = ""
    license: str = ""
    """SPDX expression; empty where it is not known."""
    requires: tuple[str, ...] = ()
    """Normalized names of locked packages that it needs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The whole file."""

    packages: Mapping[str, Facts]
    """By normalized name."""
    native: Mapping[str, Facts]
    """Compilers, what they put into a library, and system libraries."""

    def package(self, name: str) -> Facts:
        """What is known of a locked package."""
        return self.packages.get(canonicalize_name(name), Facts())

    def component(self, name: str) -> Facts:
        """What is known of a native component."""
        return self.native.get(name, Facts())


def read_inputs(root: Path) -> Inputs:
    """Read a project's ``sbom/components.toml``; without the file nothing is known.

    Raises:
        ConfigError: Not TOML, another schema, an unknown key, or no SPDX expression (``sbom-inputs``).
    """
    path = root / NAME
    if not path.is_file():
        return Inputs(packages={}, native={})
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refusal(f"is not TOML: {error}") from error
    if value.pop("schema", None) != _SCHEMA:
        raise _refusal(f"has not schema = {_SCHEMA}")
    if unknown := sorted(set(value) - set(_TABLES)):
        raise _refusal(f"has the unknown table {unknown[0]!r}")
    packages, native = (_table(value.get(name, {}), name) for name in _TABLES)
    for name, facts in packages.items():
        for other in (name, *facts.requires):
            if other != canonicalize_name(other):
                raise _refusal(f"packages.{name}: write {canonicalize_name(other)}, not {other}")
    return Inputs(packages=packages, native=native)


def _table(value: Any, where: str) -> dict[str, Facts]:
    if not isinstance(value, dict):
        raise _refusal(f"{where} is no table")
    return {name: _facts(item, f"{where}.{name}") for name, item in value.items()}


def _facts(value: Any, where: str) -> Facts:
    if not isinstance(value, dict) or set(value) - _KEYS:
        raise _refusal(f"{where} may hold {', '.join(sorted(_KEYS))} and nothing else")
    supplier, expression, requires = (
        value.get("supplier", ""),
        value.get("license", ""),
        value.get("requires", []),
    )
    if not isinstance(supplier, str) or not isinstance(expression, str):
        raise _refusal(f"{where}: supplier and license are strings")
    if not isinstance(requires, list) or not all(isinstance(name, str) for name in requires):
        raise _refusal(f"{where}: requires is an array of names")
    return Facts(
        supplier=supplier,
        license=license_expression(expression, where) if expression else "",
        requires=tuple(requires),
    )


def license_expression(text: str, where: str) -> str:
    """The canonical spelling of an SPDX expression.

    Raises:
        ConfigError: It is none (``sbom-inputs``).
    """
    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression as error:
        raise ConfigError(
            f"{where}: {text!r} is no SPDX licence expression",
            cause=str(error),
            fix="use identifiers of the SPDX list, or LicenseRef-<name>",
            reason="sbom-inputs",
        ) from error


def _refusal(why: str) -> ConfigError:
    return ConfigError(f"{NAME.as_posix()} {why}", fix=f"correct {NAME.as_posix()}", reason="sbom-inputs")
