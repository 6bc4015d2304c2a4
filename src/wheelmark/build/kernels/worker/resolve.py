"""From a declared variant and the imported kernel object to what the compiler is called with.

This does what `JITFunction.run`, `Autotuner.run` and `Heuristics.run` do before they compile: unwrap, take a
config, evaluate heuristics, and specialise each parameter; but from declared examples, not from a launch.
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import dataclasses
import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITCallable, JITFunction

from .closure import Unknowable, describe
from .shims import ExampleTensor

_MISSING = object()
_DIVISIBILITY = ["tt.divisibility", 16]
_RANGE = ["tt.pointer_range", 32]
_OPTIONS = (
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
    "debug",
)
"""Options that are written down with a variant."""


class Refused(Exception):  # noqa: N818 - a value for the other side, not an error of ours
    """A variant that cannot be compiled as declared."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Resolved:
    """What the compiler is called with, and what a launcher has to know."""

    function: Any
    signature: dict[str, str]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], list[list[Any]]]
    options: Any
    """The backend's own options object."""
    facts: dict[str, Any]
    """Parameters, constants, assumptions and options as the manifest has them."""
    key: Any
    """JSON over all that decides the code, besides source, toolchain and arch."""


def find(module: str, attribute: str) -> Any:
    """Import a module and take the kernel object from it.

    Raises:
        Refused: It cannot be imported, or has no such attribute.
    """
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = inspect.getattr_static(found, name) if isinstance(found, type) else getattr(found, name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Refused("kernel-import", f"{module}:{attribute}: {type(error).__name__}: {error}") from error
    return found.__func__ if isinstance(found, staticmethod) else found


def unwrap(found: Any) -> tuple[Any, list[Any]]:
    """The JIT function inside a kernel object, and its wrappers from the outermost in.

    Raises:
        Refused: There is none.
    """
    layers: list[Any] = []
    current = found
    while not isinstance(current, JITCallable):
        layers.append(current)
        current = getattr(current, "fn", None)
        if current is None or len(layers) > 16:  # noqa: PLR2004 - nobody wraps a kernel that often
            raise Refused("kernel-import", f"a {type(found).__name__} is no Triton kernel")
    if not isinstance(current, JITFunction):
        raise Refused("kernel-import", f"a {type(current).__name__} is no kernel that can be launched")
    return current, layers


def resolve(found: Any, variant: dict[str, Any], backend: Any, *, free: bool) -> Resolved:
    """Specialise a kernel as a declared variant says.

    Args:
        found: The kernel object.
        variant: `arguments`, `constants` and `options` from the declaration.
        backend: Triton's backend for the target.
        free: Whether configs of a tuner do not bind.

    Raises:
        Refused: Something declared does not fit the kernel.
    """
    function, layers = unwrap(found)
    arguments, options = variant["arguments"], dict(variant["options"])
    constants = {name: _constant(value) for name, value in variant["constants"].items()}
    _check_names(function, arguments, constants)
    values = {**constants, **options}
    for layer in layers:
        if isinstance(layer, Autotuner) and not free:
            values.update(_config(layer, values))
        elif isinstance(layer, Heuristics):
            values.update(_heuristics(layer, _examples(arguments), values, {*constants, *options}))
    names = {parameter.name for parameter in function.params}
    options = {
        "num_warps": 4,
        "enable_fp_fusion": True,
        **{k: v for k, v in values.items() if k not in names},
    }
    constants = {name: value for name, value in values.items() if name in names}
    parsed = _options(backend, options, debug=bool(function.debug))
    return _specialise(function, arguments, constants, parsed)


def _check_names(function: Any, arguments: dict[str, Any], constants: dict[str, Any]) -> None:
    parameters = {parameter.name: parameter for parameter in function.params}
    for name in (*arguments, *constants):
        if name not in parameters:
            known = ", ".join(parameters)
            raise Refused("kernel-argument", f"{name} is no parameter of {function.__name__}({known})")
    for name in arguments:
        if parameters[name].is_constexpr:
            raise Refused("kernel-argument", f"{name} is a tl.constexpr: declare it under constants")
    for name in constants:
        if not parameters[name].is_constexpr:
            raise Refused("kernel-argument", f"{name} is no tl.constexpr: declare it under arguments")


def _examples(arguments: dict[str, Any]) -> dict[str, Any]:
    examples: dict[str, Any] = {}
    for name, argument in arguments.items():
        if argument["kind"] == "none":
            examples[name] = None
        elif argument["kind"] == "pointer":
            examples[name] = ExampleTensor(
                argument["dtype"], argument["itemsize"], argument["shape"], aligned=argument["divisible"]
            )
        elif argument["value"] is not None:
            examples[name] = argument["value"]
    return examples


def _config(tuner: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The one config that agrees with what is declared, as the values that it adds."""
    agreeing = []
    for config in tuner.configs:
        values = config.all_kwargs()
        if all(_same(given.get(name, value), value) for name, value in values.items()):
            agreeing.append((values, config))
    distinct = {str(sorted(values.items(), key=lambda item: item[0])) for values, _ in agreeing}
    if len(distinct) != 1:
        known = "; ".join(str(config) for config in tuner.configs)
        many = "no config agrees" if not distinct else f"{len(distinct)} configs agree"
        raise Refused("kernel-config", f"{many} with {_shown(given)}; the tuner has: {known}")
    values, config = agreeing[0]
    if config.pre_hook is not None:
        raise Refused(
            "kernel-pre-hook", f"config {config} has a pre_hook, which would have to run at each launch"
        )
    if "ir_override" in values:
        raise Refused("kernel-config", f"config {config} replaces the IR by a file")
    return dict(values)


def _heuristics(
    layer: Any, examples: dict[str, Any], values: dict[str, Any], declared: set[str]
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, rule in layer.values.items():
        try:
            value = rule({**examples, **values, **results})
        except Exception as error:
            hint = f" (no example value for {error.args[0]}?)" if isinstance(error, KeyError) else ""
            raise Refused(
                "kernel-heuristic", f"heuristic of {name} failed: {type(error).__name__}: {error}{hint}"
            ) from error
        if name in declared and not _same(values[name], value):
            raise Refused(
                "kernel-heuristic", f"{name} is declared as {values[name]!r}, its heuristic gives {value!r}"
            )
        results[name] = value
    return results


def _same(one: Any, other: Any) -> bool:
    # True == 1 in Python, but they are different constants of a kernel.
    return one is other or (type(one) is type(other) and bool(one == other))


def _shown(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "nothing"


def _options(backend: Any, options: dict[str, Any], *, debug: bool) -> Any:
    known = backend.parse_options({}).__dataclass_fields__
    for name in options:
        if name not in known:
            raise Refused("kernel-option", f"{name} is neither a parameter nor an option of this backend")
    try:
        return backend.parse_options({**options, "debug": debug})
    except Exception as error:
        raise Refused("kernel-option", f"{type(error).__name__}: {error}") from error


def _specialise(
    function: Any, arguments: dict[str, Any], constants: dict[str, Any], options: Any
) -> Resolved:
    signature: dict[str, str] = {}
    values: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    parameters: list[dict[str, Any]] = []
    named: dict[str, Any] = {}
    assumes: list[dict[str, Any]] = []
    for parameter in function.params:
        name, place = parameter.name, (parameter.num,)
        if parameter.is_constexpr:
            value = _unwrapped(constants.get(name, parameter.default))
            if value is inspect.Parameter.empty:
                raise Refused("kernel-argument", f"constant {name} has no value")
            signature[name], values[place] = "constexpr", value
            named[name] = _scalar(value)
            assumes.append({"argument": name, "is": "equal", "value": named[name]})
            continue
        argument = arguments.get(name, _MISSING)
        if argument is _MISSING:
            argument = _default(parameter)
        argument = _obeying(parameter, argument)
        if argument["kind"] == "none" or argument["equal"]:
            value = None if argument["kind"] == "none" else argument["value"]
            signature[name], values[place] = "constexpr", value
            assumes.append(
                {"argument": name, "is": "none"}
                if value is None
                else {"argument": name, "is": "equal", "value": value}
            )
            continue
        pointer = argument["kind"] == "pointer"
        star = ("*k" if parameter.is_const else "*") if pointer else ""
        signature[name] = star + argument["dtype"]
        marks = [_DIVISIBILITY] * argument["divisible"] + [_RANGE] * argument["below_range"]
        if marks:
            attributes[place] = marks
        parameters.append({"name": name, "kind": argument["kind"], "dtype": argument["dtype"]})
        assumes += _assumptions(name, argument)
    written = {name: getattr(options, name) for name in _OPTIONS if hasattr(options, name)}
    return Resolved(
        function=function,
        signature=signature,
        constants=values,
        attributes=attributes,
        options=options,
        facts={"parameters": parameters, "constants": named, "assumes": assumes, "options": written},
        key=_key(function, signature, values, attributes, options),
    )


def _key(
    function: Any,
    signature: dict[str, str],
    values: dict[tuple[int, ...], Any],
    attributes: dict[tuple[int, ...], list[list[Any]]],
    options: Any,
) -> Any:
    """All that decides the code besides source, toolchain and arch, as JSON."""
    leaves = {function.arg_names[place[0]]: value for place, value in values.items()}
    proxy = SimpleNamespace(constants=leaves, signature=signature)  # what Triton gives a kernel's `repr=`
    try:
        return {
            "entry": function.repr(proxy),
            "gluon": function.is_gluon(),
            "signature": list(signature.items()),
            "constants": [[name, describe(value)] for name, value in leaves.items()],
            "attributes": sorted([place[0], marks] for place, marks in attributes.items()),
            # Paths of bitcode libraries are no facts; their contents are in the toolchain's digest.
            "options": {
                name: describe(value)
                for name, value in sorted(vars(options).items())
                if name != "extern_libs"
            },
        }
    except Unknowable as error:
        raise Refused("kernel-global", f"a constant of type {error} has no stable description") from error


def _default(parameter: Any) -> dict[str, Any]:
    value = parameter.default
    plain = {"divisible": False, "below_range": False, "equal": False, "value": value}
    if value is None:
        return {"kind": "none", **plain}
    if isinstance(value, bool):
        return {"kind": "scalar", "dtype": "u1", **plain}
    if isinstance(value, int):
        return {"kind": "scalar", "dtype": "i32" if -(2**31) <= value < 2**31 else "i64", **plain}
    if isinstance(value, float):
        return {"kind": "scalar", "dtype": "fp32", **plain}
    raise Refused("kernel-argument", f"argument {parameter.name} is not declared")


def _obeying(parameter: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """The argument as far as the kernel's own marks let it be specialised."""
    argument = dict(argument)
    if argument["kind"] == "none":
        return argument
    annotated = parameter.annotation_type.replace("*k", "*")
    declared = ("*" if argument["kind"] == "pointer" else "") + argument["dtype"]
    if annotated and annotated != declared:
        if argument["kind"] == "pointer" or argument["value"] is None or annotated.startswith("*"):
            raise Refused(
                "kernel-argument", f"{parameter.name} is annotated {annotated}, declared as {declared}"
            )
        argument["dtype"] = annotated
    if parameter.do_not_specialize:
        argument.update(divisible=False, below_range=False, equal=False)
    if parameter.do_not_specialize_on_alignment or argument["dtype"][:2] in {"fp", "bf", "u1"}:
        argument["divisible"] = argument["divisible"] and (
            argument["kind"] == "pointer" and not parameter.do_not_specialize_on_alignment
        )
    if annotated:
        # With an annotation the launcher keeps the type and never makes a constant of it.
        argument["equal"] = False
    return argument


def _assumptions(name: str, argument: dict[str, Any]) -> list[dict[str, Any]]:
    integer = argument["kind"] == "scalar" and argument["dtype"][:2] not in {"fp", "bf", "u1", "i1"}
    word = "fits" if integer else "dtype"
    found: list[dict[str, Any]] = [{"argument": name, "is": word, "value": argument["dtype"]}]
    if argument["divisible"]:
        found.append({"argument": name, "is": "divisible_by", "value": 16})
    if argument["below_range"]:
        found.append({"argument": name, "is": "bytes_below", "value": 2**31})
    return found


def _constant(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "dtype":
        return tl.dtype("int1" if inner in {"i1", "u1"} else _long(inner))
    if kind == "tuple":
        return tuple(_constant(item) for item in inner)
    if kind == "object":
        module, _, attribute = inner.partition(":")
        return _unwrapped(find(module, attribute))
    return None


def _long(dtype: str) -> str:
    """Triton's `tl.dtype` takes `int32` and `fp16`, signatures take `i32` and `fp16`."""
    return f"int{dtype[1:]}" if dtype[0] == "i" else f"uint{dtype[1:]}" if dtype[0] == "u" else dtype


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _scalar(value: Any) -> Any:
    """A constant as the manifest writes it: a JSON scalar."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tl.dtype):
        return str(value)
    if isinstance(value, JITCallable):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, tuple):
        return "(" + ", ".join(str(_scalar(item)) for item in value) + ")"
    return str(value)
