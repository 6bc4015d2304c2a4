"""From one declared kernel and one target to its variants: matrix, overrides, argument grammar, generic variants.

Pure: nothing here needs Triton, so that a plan and the coverage gate can say what has to be there.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from wheelmark import digests
from wheelmark.build.kernels.declaration import (
    NAME,
    OPTIONS,
    Element,
    KernelDeclaration,
    KernelDeclarations,
    Override,
    load_kernel_declaration,
    matches,
)
from wheelmark.errors import ConfigError
from wheelmark.targets import Backend, Target

DTYPES = {
    **{f"{letter}{bits}": bits // 8 for letter in "iu" for bits in (8, 16, 32, 64)},
    "i1": 1,
    "u1": 1,
    "fp16": 2,
    "bf16": 2,
    "fp32": 4,
    "fp64": 8,
    **dict.fromkeys(("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"), 1),
}
"""Bytes of an element, by Triton's dtype names."""

ALIGNMENT = 16
"""What Triton specialises addresses and integers on (``tt.divisibility``)."""
RANGE = 1 << 31
"""Bytes: below this a ROCm buffer instruction reaches a whole tensor (``tt.pointer_range = 32``)."""
GENERIC = "generic"

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_INTEGER = re.compile(r"[iu](8|16|32|64)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Argument:
    """One run-time argument: its type, an example value, and what may be assumed of it."""

    kind: str
    """``pointer``, ``scalar`` or ``none``."""
    dtype: str = ""
    value: int | float | bool | None = None
    """Example value of a scalar."""
    shape: tuple[int, ...] | None = None
    """Example shape of a pointer's tensor."""
    divisible: bool = False
    """Address or value is divisible by 16."""
    below_range: bool = False
    """Less than 2 GiB behind a pointer (ROCm only)."""
    equal: bool = False
    """A constant: the value itself is assumed."""

    @property
    def assumes_more(self) -> bool:
        """Whether more than the dtype is assumed."""
        return self.divisible or self.below_range or self.equal

    def as_json(self) -> dict[str, Any]:
        """The form in which a worker gets it."""
        return {**dataclasses.asdict(self), "shape": None if self.shape is None else list(self.shape)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredVariant:
    """One variant of a kernel for one target, as far as the declaration alone decides it."""

    name: str
    arguments: Mapping[str, Argument]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    optional: bool

    @property
    def is_generic(self) -> bool:
        """Whether nothing but dtypes and constants is assumed."""
        return not any(argument.assumes_more for argument in self.arguments.values())

    @property
    def dtypes_and_constants(self) -> bytes:
        """Equal for variants that one generic variant can stand in for."""
        types = {name: [argument.kind, argument.dtype] for name, argument in self.arguments.items()}
        return digests.canonical_json({"types": types, "constants": dict(self.constants)})


def load_all(declarations: Sequence[Path]) -> tuple[KernelDeclarations, ...]:
    """Read every declaration file of a project.

    Raises:
        ConfigError: As ``load_kernel_declaration``; or a kernel's name stands twice (``kernel-name``).
    """
    files = tuple(load_kernel_declaration(path) for path in declarations)
    seen: set[str] = set()
    for kernel in (kernel for file in files for kernel in file.kernels):
        if kernel.name in seen:
            _refuse(f"kernel {kernel.name} is declared twice", "kernel-name")
        seen.add(kernel.name)
    return files


def declared_variants(declarations: Sequence[Path], target: Target) -> Mapping[str, tuple[str, ...]]:
    """Names of the variants that have to be there, by kernel, for one target.

    Raises:
        ConfigError: A declaration says something that does not hold.
    """
    return {
        kernel.name: tuple(variant.name for variant in expand(kernel, target))
        for file in load_all(declarations)
        for kernel in file.kernels
        if kernel.is_for(target)
    }


def expand(kernel: KernelDeclaration, target: Target) -> tuple[DeclaredVariant, ...]:
    """All variants of ``kernel`` for ``target``, in declaration order; added generic ones stand last.

    Raises:
        ConfigError: Two variants have one name, a placeholder or a type is unknown, a generic variant is
            absent and must not be added, or none is left. Reasons ``kernel-name``, ``kernel-matrix``,
            ``kernel-argument``, ``kernel-constant``, ``unknown-key``, ``kernel-generic``.
    """
    if not kernel.is_for(target):
        return ()
    variants: list[DeclaredVariant] = []
    for combination in itertools.product(*(axis.elements for axis in kernel.matrix)):
        chosen = {axis.name: element for axis, element in zip(kernel.matrix, combination, strict=True)}
        if not any(_fits(labels, chosen) for labels in kernel.skip):
            variants += _variant(kernel, target, chosen)
    if not variants:
        _refuse(f"kernel {kernel.name}: no variant is left for {target}", "kernel-matrix")
    variants += _generic(kernel, target, variants)
    names = [variant.name for variant in variants]
    for name in names:
        if names.count(name) > 1:
            _refuse(
                f"kernel {kernel.name}: two variants for {target} are called {name}; "
                "the variant template has to tell them apart",
                "kernel-name",
            )
    return tuple(variants)


def _variant(
    kernel: KernelDeclaration, target: Target, chosen: Mapping[str, Element]
) -> Iterable[DeclaredVariant]:
    overrides = [
        item for item in kernel.overrides if matches(item.targets, target) and _fits(item.where, chosen)
    ]
    if any(item.exclude for item in overrides):
        return
    labels = {axis: element.label for axis, element in chosen.items()}
    values = {axis: element.value for axis, element in chosen.items()}
    name = str(_fill(kernel.variant, labels, f"kernel {kernel.name}: variant"))
    where = f"kernel {kernel.name}, variant {name}"
    if NAME.fullmatch(name) is None:
        _refuse(f"{where}: this is no name", "kernel-name")
    layers: list[KernelDeclaration | Element | Override] = [kernel, *chosen.values(), *overrides]
    raw_arguments, raw_constants, options = (
        _fill(
            {name: value for layer in layers for name, value in getattr(layer, part).items()}, values, where
        )
        for part in ("arguments", "constants", "options")
    )
    spelling = {old: new for item in overrides for old, new in item.dtypes.items()}
    both = sorted(raw_arguments.keys() & raw_constants.keys())
    if both:
        _refuse(f"{where}: {both[0]} is both an argument and a constant", "kernel-argument")
    # An element's table may have brought options in through a placeholder: the names are checked again.
    if options.keys() - OPTIONS:
        _refuse(f"{where}: unknown option {min(options.keys() - OPTIONS)}", "unknown-key")
    yield DeclaredVariant(
        name=name,
        arguments={
            key: _argument(value, target, spelling, f"{where}, argument {key}")
            for key, value in raw_arguments.items()
        },
        constants={
            key: _constant(value, spelling, f"{where}, constant {key}")
            for key, value in raw_constants.items()
        },
        options=options,
        optional=matches(kernel.optional, target) or any(item.optional for item in overrides),
    )


def _generic(
    kernel: KernelDeclaration, target: Target, variants: Sequence[DeclaredVariant]
) -> Iterable[DeclaredVariant]:
    served = {variant.dtypes_and_constants for variant in variants if variant.is_generic}
    for variant in variants:
        key = variant.dtypes_and_constants
        if key in served:
            continue
        if not kernel.generic:
            _refuse(
                f"kernel {kernel.name}: variant {variant.name} for {target} has no generic counterpart "
                "with the same dtypes and constants",
                "kernel-generic",
            )
        served.add(key)
        yield dataclasses.replace(
            variant,
            name=f"{variant.name}-{GENERIC}",
            arguments={
                name: dataclasses.replace(argument, divisible=False, below_range=False, equal=False)
                for name, argument in variant.arguments.items()
            },
        )


def _fits(labels: Mapping[str, str], chosen: Mapping[str, Element]) -> bool:
    return all(chosen[axis].label == label for axis, label in labels.items())


def _fill(value: Any, values: Mapping[str, Any], where: str) -> Any:
    """Put the matrix's values where ``{axis}`` stands, in any depth."""
    if isinstance(value, dict):
        return {key: _fill(item, values, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, values, where) for item in value]
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    if whole is not None and whole[1] is not None:
        return _look_up(whole[1], values, where)

    def text(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else str(_look_up(match[1], values, where))

    return _PLACE.sub(text, value)


def _look_up(axis: str, values: Mapping[str, Any], where: str) -> Any:
    if axis not in values:
        _refuse(f"{where}: {{{axis}}} is no axis of the matrix", "kernel-matrix")
    return values[axis]


def _argument(value: Any, target: Target, spelling: Mapping[str, str], where: str) -> Argument:
    table = (
        value if isinstance(value, dict) else {"type": value} if isinstance(value, str) else {"value": value}
    )
    unknown = table.keys() - {"type", "value", "shape", "equal", "assume"}
    if unknown:
        _refuse(f"{where}: unknown key {min(unknown)!r}", "unknown-key")
    words = str(table.get("type", "")).split()
    given = table.get("value")
    if words == ["none"] and len(table) == 1:
        return Argument(kind="none")
    if words and words[0].startswith("*"):
        if table.keys() & {"value", "equal", "assume"}:
            _refuse(f"{where}: a pointer has no value", "kernel-argument")
        return _pointer(words, table.get("shape"), target, spelling, where)
    if "shape" in table:
        _refuse(f"{where}: only a pointer has a shape", "kernel-argument")
    found = _scalar(words, given, equal=table.get("equal", False), spelling=spelling, where=where)
    return found if table.get("assume", True) is True else _without_assumptions(table, found, where)


def _without_assumptions(table: Mapping[str, Any], argument: Argument, where: str) -> Argument:
    """An example for heuristics only."""
    if table["assume"] is not False or "value" not in table or argument.equal:
        _refuse(f"{where}: assume = false goes with an example value", "kernel-argument")
    return dataclasses.replace(argument, divisible=False)


def _pointer(
    words: Sequence[str], shape: Any, target: Target, spelling: Mapping[str, str], where: str
) -> Argument:
    flags = set(words[1:])
    if flags - {"unaligned", "large"} or len(flags) != len(words) - 1:
        _refuse(f"{where}: flags of a pointer are `unaligned` and `large`", "kernel-argument")
    dtype = _dtype(words[0][1:], spelling, where)
    if shape is not None and (
        not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape)
    ):
        _refuse(f"{where}: shape must be an array of sizes", "kernel-argument")
    size = DTYPES[dtype]
    for length in shape or ():
        size *= length
    return Argument(
        kind="pointer",
        dtype=dtype,
        shape=None if shape is None else tuple(shape),
        divisible="unaligned" not in flags,
        below_range=target.backend is Backend.ROCM
        and "large" not in flags
        and (shape is None or size < RANGE),
    )


def _scalar(
    words: Sequence[str], value: Any, *, equal: Any, spelling: Mapping[str, str], where: str
) -> Argument:
    if value is not None and not isinstance(value, bool | int | float):
        _refuse(f"{where}: {value!r} is no example value", "kernel-argument")
    if value is None and not words:
        _refuse(f"{where}: neither a type nor a value", "kernel-argument")
    if words[1:] not in ([], ["div16"]):
        _refuse(f"{where}: the flag of a scalar is `div16`", "kernel-argument")
    dtype = _dtype(words[0], spelling, where) if words else _inferred(value, where)
    integer = _INTEGER.fullmatch(dtype) is not None
    if words[1:] and not integer:
        _refuse(f"{where}: only an integer is divisible by {ALIGNMENT}", "kernel-argument")
    if equal is not False and (equal is not True or type(value) is not int or value != 1):
        _refuse(
            f"{where}: equal = true goes with value = 1, which is all that Triton specialises",
            "kernel-argument",
        )
    if type(value) is int and integer and not _holds(dtype, value):
        _refuse(f"{where}: {value} does not fit {dtype}", "kernel-argument")
    divisible = bool(words[1:]) or (type(value) is int and integer and value % ALIGNMENT == 0)
    return Argument(kind="scalar", dtype=dtype, value=value, divisible=divisible and not equal, equal=equal)


def _inferred(value: Any, where: str) -> str:
    """The type that Triton's launcher gives a Python number (``specialize_impl``)."""
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, float):
        return "fp32"
    for dtype in ("i32", "i64", "u64"):
        if _holds(dtype, value):
            return dtype
    return _refuse(f"{where}: {value} fits no integer type", "kernel-argument")


def _holds(dtype: str, value: int) -> bool:
    bits = int(dtype[1:])
    low, high = (0, 1 << bits) if dtype[0] == "u" else (-(1 << (bits - 1)), 1 << (bits - 1))
    return low <= value < high


def _dtype(text: str, spelling: Mapping[str, str], where: str) -> str:
    dtype = spelling.get(text, text)
    if dtype not in DTYPES:
        raise ConfigError(
            f"{where}: unknown dtype {dtype!r}", fix=f"known: {', '.join(DTYPES)}", reason="kernel-argument"
        )
    return dtype


def _constant(value: Any, spelling: Mapping[str, str], where: str) -> Any:
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind == "dtype" and isinstance(inner, str):
            return {"dtype": _dtype(inner, spelling, where)}
        if kind == "none" and inner is True:
            return {"none": True}
        if kind == "tuple" and isinstance(inner, list):
            return {"tuple": [_constant(item, spelling, where) for item in inner]}
        if kind == "object" and isinstance(inner, str) and inner.count(":") == 1:
            return {"object": inner}
    return _refuse(f"{where}: {value!r} is no constant", "kernel-constant")


def _refuse(text: str, reason: str) -> NoReturn:
    raise ConfigError(text, reason=reason)
