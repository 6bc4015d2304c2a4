"""Run a project's own wrapper and write down each launch instead of making it.

The wrapper gets CPU tensors from whoever wrote the call; Triton's `run` is replaced, so that nothing is compiled
or launched. Every config of a tuner counts as a launch: which of them is best is not known here.
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import triton.language as tl
from triton._utils import canonicalize_dtype
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITCallable, JITFunction

from .resolve import Refused


@contextlib.contextmanager
def recording(launches: list[dict[str, Any]]) -> Iterator[None]:
    """Append to `launches` what would be launched while this is open."""
    saved = JITFunction.run, Autotuner.run, Heuristics.run
    heuristics = Heuristics.run
    outermost: list[Any] = []
    """The kernel object that the project itself ran: what a declaration has to name."""

    @contextlib.contextmanager
    def within(layer: Any) -> Iterator[None]:
        outermost.append(layer)
        try:
            yield
        finally:
            outermost.pop()

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        del grid, warmup
        with within(self):
            launches.append(_launch(self, outermost[0], args, kwargs))

    def run_all(self: Any, *args: Any, **kwargs: Any) -> None:
        with within(self):
            for config in self.configs:
                self.fn.run(*args, **{**kwargs, **config.all_kwargs()})

    def run_heuristics(self: Any, *args: Any, **kwargs: Any) -> None:
        with within(self):
            heuristics(self, *args, **kwargs)

    JITFunction.run, Autotuner.run, Heuristics.run = run, run_all, run_heuristics
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run, Heuristics.run = saved


def _launch(function: Any, outermost: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = {parameter.name for parameter in function.params}
    bound = function.signature.bind(*args, **{name: value for name, value in kwargs.items() if name in names})
    bound.apply_defaults()
    arguments: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for parameter in function.params:
        value = bound.arguments[parameter.name]
        if parameter.is_constexpr:
            constants[parameter.name] = _constant(parameter.name, value)
        else:
            arguments[parameter.name] = _argument(parameter.name, value)
    module, attribute = _place(function, outermost)
    return {
        "module": module,
        "attribute": attribute,
        "arguments": arguments,
        "constants": constants,
        "options": {name: value for name, value in kwargs.items() if name not in names},
    }


def _place(function: Any, found: Any) -> tuple[str, str]:
    """Module and name under which a kernel object stands; the module of its function is looked at first."""
    home = function.__module__
    for module in (home, *sorted(sys.modules.keys() - {home})):
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if value is found:
                return module, name
    raise Refused(
        "kernel-capture", f"what wraps {home}.{function.__qualname__} stands in no module under a name"
    )


def _argument(name: str, value: Any) -> Any:
    if value is None:
        return "none"
    if isinstance(value, bool | int | float):
        return value
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        flags = [] if value.data_ptr() % 16 == 0 else ["unaligned"]
        flags += ["large"] if value.untyped_storage().size() >= 2**31 else []
        return " ".join([f"*{canonicalize_dtype(value.dtype)}", *flags])
    raise Refused("kernel-capture", f"argument {name}: a {type(value).__name__} cannot be declared")


def _constant(name: str, value: Any) -> Any:
    value = value.value if isinstance(value, tl.constexpr) else value
    if value is inspect.Parameter.empty:
        raise Refused("kernel-capture", f"constant {name} has no value")
    if value is None:
        return {"none": True}
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tl.dtype):
        return {"dtype": canonicalize_dtype(value)}
    if isinstance(value, tuple | list):
        return {"tuple": [_constant(name, item) for item in value]}
    if isinstance(value, JITCallable):
        return {"object": f"{value.__module__}:{value.__qualname__}"}
    raise Refused("kernel-capture", f"constant {name}: a {type(value).__name__} cannot be declared")
