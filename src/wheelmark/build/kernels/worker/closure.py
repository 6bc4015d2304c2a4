"""One digest for a kernel's source and all that it calls.

Triton's own `cache_key` follows the same references, but mixes line numbers in and leaves some values out
(constants reached through a module, values of defaults). Here neither a path nor a line number enters, and what
cannot be described is refused: a key that leaves something out would return old code.
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import enum
import hashlib
import inspect
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from triton.language.core import constexpr, dtype
from triton.runtime.jit import DependenciesFinder, JITCallable


class Unknowable(Exception):  # noqa: N818 - not an error of ours: a value
    """A value that has no stable description."""


class _Reader(DependenciesFinder):  # type: ignore[misc]
    """Triton's own visitor, writing down what one function refers to."""

    def __init__(self, function: Any) -> None:
        super().__init__(
            name=function._fn_name,  # noqa: SLF001 - as Triton's cache_key does
            globals=function.__globals__,
            nonlocals=inspect.getclosurevars(function.fn).nonlocals,
            src=function.src,
        )
        self.callees: list[Any] = []
        self.values: list[list[Any]] = []

    def _update_hash(self, func: Any) -> None:
        self.callees.append(func)

    def record_reference(self, val: Any, var_dict: Any = None, name: Any = None) -> None:
        if _is_value(val):
            self.values.append([name or "", describe(val)])
            return
        super().record_reference(val, var_dict, name)


def _is_value(value: Any) -> bool:
    if value is None or isinstance(value, ModuleType | JITCallable):
        return False
    if getattr(value, "__triton_builtin__", False) or getattr(value, "__triton_aggregate__", False):
        return False
    if getattr(value, "__module__", "") == "triton.language.extra.libdevice":
        return False
    return not callable(value) or isinstance(value, constexpr | dtype)


def describe(value: Any) -> Any:
    """`value` as JSON that is equal in every process where the value is.

    Raises:
        Unknowable: It has no such form.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    for kinds, described in _DESCRIPTIONS:
        if isinstance(value, kinds):
            return described(value)
    name, text = f"{type(value).__module__}.{type(value).__qualname__}", repr(value)
    if " at 0x" in text:
        raise Unknowable(name)
    return {"repr": [name, text]}


_DESCRIPTIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float, lambda value: {"float": value.hex()}),
    (constexpr, lambda value: {"constexpr": describe(value.value)}),
    (dtype, lambda value: {"dtype": str(value)}),
    (enum.Enum, lambda value: {"enum": [type(value).__qualname__, value.name]}),
    (tuple | list, lambda value: {type(value).__name__: [describe(item) for item in value]}),
    (dict, lambda value: {"dict": [[describe(key), describe(item)] for key, item in value.items()]}),
    (JITCallable, lambda value: {"function": source_digest(value)}),
    (type, lambda value: {"type": f"{value.__module__}.{value.__qualname__}"}),
)


def source_digest(function: Any) -> str:
    """The sha256 over the source of `function` and of everything that it reaches.

    Args:
        function: A `JITFunction` or another of Triton's callables.

    Raises:
        Unknowable: A global or default that it reads has no stable description.
    """
    entries: dict[str, Any] = {}
    waiting = [function]
    while waiting:
        current = waiting.pop()
        name = f"{current.__module__}.{current.__qualname__}"
        entry, callees = _entry(current)
        # Functions made by a factory share a name: they are told apart by what they are.
        key = f"{name}:{_sha256(entry)}"
        if key not in entries:
            entries[key] = entry
            waiting += callees
    root = f"{function.__module__}.{function.__qualname__}"
    return _sha256({"root": root, "functions": sorted(entries.items())})


def _entry(function: Any) -> tuple[Any, list[Any]]:
    reader = _Reader(function)
    reader.visit(function.parse())
    defaults = {
        name: describe(parameter.default)
        for name, parameter in function.signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty and not isinstance(parameter.default, JITCallable)
    }
    called = [
        parameter.default
        for parameter in function.signature.parameters.values()
        if isinstance(parameter.default, JITCallable)
    ]
    # The same global read twice is one fact; the order of reading is the source's, which is hashed as such.
    values = sorted({json.dumps(value) for value in reader.values})
    entry = {
        "source": function.src,
        "noinline": bool(getattr(function, "noinline", False)),
        "values": values,
        "defaults": defaults,
    }
    return entry, [*reader.callees, *called]


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
