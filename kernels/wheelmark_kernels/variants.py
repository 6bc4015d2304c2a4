"""What the precompiled kernels in this wheel are, and which of them fits a call: the payload's reader of the kernel manifest.

The manifest (`code_objects/manifest.json`, schema https://wheelmark.dev/kernel-manifest/v1) is written by whoever built the wheel;
it says of each object for which architecture it is, what it takes, and what it assumes. A variant may be launched only if every
one of its assumptions holds. Of those, the one with the most wins (it was compiled for the most particular case); the first in
the manifest's order where several have as many. Nothing here touches torch, a driver or a device.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from wheelmark_kernels import installed
from wheelmark_kernels.errors import KernelUnavailable

SCHEMA: Final = "https://wheelmark.dev/kernel-manifest/v1"
FOLDER: Final = Path(__file__).with_name("code_objects")
"""Where a wheel for a card keeps its objects; a wheel for a CPU has none."""
BACKENDS: Final = {"cuda": "cuda", "rocm": "rocm"}
"""Backends of a target id that have code objects, and the driver's name for the launcher."""

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_RANGES: Final = {
    **{f"i{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (0, (1 << bits) - 1) for bits in (1, 8, 16, 32, 64)},
    "i1": (0, 1),
}
_PLAIN_LAUNCH: Final = {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False}
"""Options that ask for another kind of launch than the launcher makes, and the values that do not."""
_FLOATS: Final = frozenset({"fp32", "fp64"})
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """A tensor argument, as far as assumptions ask."""

    address: int
    dtype: str
    """Triton's name of its elements: ``fp16``, ``i64``."""
    size: int
    """Bytes of storage that can be reached from the address."""


Argument = Pointer | int | float | bool | None
"""A value that a kernel is called with: a tensor, a number, or nothing."""


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What has to hold of one argument for a variant to be right."""

    argument: str
    relation: str
    value: str | int | float | bool | None = None
    free: bool = False
    """The argument is one of the variant's own constants: right unless the call names another value."""

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for assumptions that hold together; 1, 1.0 and True are three values."""
        return self.argument, self.relation, type(self.value), self.value, self.free

    def holds(self, arguments: Mapping[str, Argument]) -> bool:
        """Whether it holds of a call; a relation that is not known never does.

        Args:
            arguments: The call's arguments, by parameter name.
        """
        if self.argument not in arguments:
            return self.free
        check = _RELATIONS.get(self.relation)
        return check is not None and check(arguments[self.argument], self.value)

    def failure(self, arguments: Mapping[str, Argument]) -> str:
        """Why it does not hold of a call, in one clause."""
        if self.argument not in arguments:
            return f"{self.argument} is not given"
        if self.relation not in _RELATIONS:
            return f"{self.argument}: {self.relation!r} is not a relation that this version knows"
        value = arguments[self.argument]
        wanted = {
            "dtype": f"of dtype {self.value}",
            "divisible_by": f"divisible by {self.value}",
            "none": "absent",
            "equal": f"{self.value!r}",
            "fits": f"in the range of {self.value}",
            "bytes_below": f"smaller than {self.value} bytes",
        }[self.relation]
        return f"{self.argument} is {_describe(value)}, it would have to be {wanted}"


def _describe(value: Argument) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Pointer):
        return f"a {value.dtype} tensor of {value.size} bytes at address {value.address:#x}"
    return repr(value)


def _is_dtype(value: Argument, wanted: Any) -> bool:
    if isinstance(value, Pointer):
        return bool(value.dtype == wanted)
    return isinstance(value, float) and wanted in _FLOATS


def _is_divisible(value: Argument, by: Any) -> bool:
    if not isinstance(by, int) or isinstance(by, bool) or by < 1:
        return False
    number = value.address if isinstance(value, Pointer) else value
    return isinstance(number, int) and not isinstance(number, bool) and number % by == 0


def _is_equal(value: Argument, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted


def _fits(value: Argument, dtype: Any) -> bool:
    # A bool is an integer of one bit; where a kernel takes it as a wider one, it fits.
    if not isinstance(value, int) or dtype not in _RANGES:
        return False
    least, most = _RANGES[dtype]
    return least <= value <= most


def _is_below(value: Argument, limit: Any) -> bool:
    return isinstance(value, Pointer) and isinstance(limit, int) and value.size < limit


_RELATIONS: Final = {
    "dtype": _is_dtype,
    "divisible_by": _is_divisible,
    "none": lambda value, _: value is None,
    "equal": _is_equal,
    "fits": _fits,
    "bytes_below": _is_below,
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One argument that is passed at launch."""

    name: str
    kind: str
    """``pointer`` or ``scalar``."""
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One compiled form of a kernel."""

    kernel: str
    name: str
    backend: str
    file: Path
    sha256: str
    entry: str
    arch: str
    num_warps: int
    warp_size: int
    shared: int
    """Bytes of dynamic shared memory."""
    global_scratch: int
    """Bytes of scratch for each block of the grid."""
    profile_scratch: int
    scratch_pointers: int
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Any]
    assumes: tuple[Assumption, ...]
    min_driver: str

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.num_warps * self.warp_size

    @property
    def layout(self) -> str:
        """The parameters as the launcher takes them: ``pointer,pointer,i64``."""
        return ",".join(item.dtype if item.kind == "scalar" else "pointer" for item in self.parameters)

    def failures(self, arguments: Mapping[str, Argument]) -> list[str]:
        """Why the variant does not fit a call: one clause for each assumption that does not hold."""
        return [item.failure(arguments) for item in self.assumes if not item.holds(arguments)]


@dataclass(frozen=True, kw_only=True)
class CodeObjects:
    """All precompiled kernels of a wheel."""

    target: str
    """``cuda-sm90``."""
    kernels: Mapping[str, tuple[Variant, ...]]

    @property
    def backend(self) -> str:
        """``cuda`` or ``rocm``."""
        return self.target.partition("-")[0]

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures that there is code for, sorted."""
        return tuple(sorted({item.arch for variants in self.kernels.values() for item in variants}))

    def choose(self, kernel: str, arguments: Mapping[str, Argument], *, arch: str) -> Variant:
        """Choose the variant to launch.

        Args:
            kernel: The kernel's name in the manifest.
            arguments: The call's arguments, by parameter name; ``None`` for one that is not given.
            arch: Architecture of the device, whole: code for another one never runs on it.

        Raises:
            KernelUnavailable: There is no code for this architecture (``arch``), no such kernel (``manifest``), or no
                variant whose assumptions all hold (``no-variant``; the message names those of the nearest).
        """
        table = self._tables.get((kernel, arch))
        if table is None:
            table = self._tables[kernel, arch] = self._table(kernel, arch)
        chosen = table.choose(arguments)
        if chosen is not None:
            return chosen
        here = table.variants
        failures = {item.name: item.failures(arguments) for item in here}
        nearest = sorted(here, key=lambda item: len(failures[item.name]))[:_SHOWN]
        reasons = "; ".join(f"{item.name}: {', and '.join(failures[item.name])}" for item in nearest)
        raise KernelUnavailable(
            f"none of the {len(here)} variants of {kernel} fits this call. Nearest: {reasons}",
            reason="no-variant",
            device_arch=arch,
            available=self.archs,
        )

    @cached_property
    def _tables(self) -> dict[tuple[str, str], _Table]:
        return {}

    def _table(self, kernel: str, arch: str) -> _Table:
        variants = self.kernels.get(kernel, ())
        if not variants:
            raise KernelUnavailable(
                f"the kernel manifest lists no kernel {kernel}",
                reason="manifest",
                device_arch=arch,
                available=self.archs,
            )
        here = tuple(item for item in variants if item.arch == arch)
        if not here:
            raise KernelUnavailable(
                f"there is no code of {kernel} for this device's architecture",
                reason="arch",
                device_arch=arch,
                available=tuple(sorted({item.arch for item in variants})),
            )
        return _Table(here)


class _Table:
    """The variants of one kernel for one architecture, and their distinct assumptions: they share most, and each is looked at once.

    Args:
        variants: In the manifest's order.
    """

    def __init__(self, variants: tuple[Variant, ...]) -> None:
        self.variants = variants
        distinct = {item.key: item for variant in variants for item in variant.assumes}
        bits = {key: 1 << number for number, key in enumerate(distinct)}
        self._assumptions = [(bits[key], item) for key, item in distinct.items()]
        # Most assumptions first; the sort is stable, so the manifest's order decides between equals.
        ordered = sorted(variants, key=lambda item: -len(item.assumes))
        self._needed = [(sum({bits[item.key] for item in variant.assumes}), variant) for variant in ordered]
        self._chosen: dict[int, Variant | None] = {}

    def choose(self, arguments: Mapping[str, Argument]) -> Variant | None:
        """The variant with the most assumptions, all of which hold."""
        holding = 0
        for bit, item in self._assumptions:
            if item.holds(arguments):
                holding |= bit
        if holding not in self._chosen:
            fitting = (variant for needed, variant in self._needed if needed & holding == needed)
            self._chosen[holding] = next(fitting, None)
        return self._chosen[holding]


def read_code_objects(folder: Path = FOLDER) -> CodeObjects:
    """Read the manifest of the kernels in `folder`; the objects themselves are read when they are loaded.

    Its digest stands in the receipt of the installation, where there is one; theirs stand in it, and are compared over the
    bytes that the driver gets.

    Raises:
        KernelUnavailable: There is none (``arch``), it cannot be read (``object-missing``), it cannot be understood
            (``manifest``), or it is not the one that was installed (``digest``).
    """
    path = folder / "manifest.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise KernelUnavailable(
            "this wheel holds no code for cards: it is a wheel for the CPU", reason="arch"
        ) from None
    except OSError as error:
        raise KernelUnavailable(
            f"the kernel manifest cannot be read: {error}", reason="object-missing"
        ) from error
    try:
        installed.check(path)
    except installed.FileChanged as error:
        raise KernelUnavailable(str(error), reason="digest") from error
    try:
        return _read(json.loads(data), folder)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KernelUnavailable(
            f"the kernel manifest cannot be understood: {type(error).__name__}: {error}", reason="manifest"
        ) from error


def _read(value: Any, folder: Path) -> CodeObjects:
    if value["schema"] != SCHEMA:
        raise ValueError(f"its schema is {value['schema']!r}, known is {SCHEMA}")
    target = value["target"]
    backend, _, arch = target.partition("-")
    if backend not in BACKENDS or not arch:
        raise ValueError(f"its target is {target!r}")
    kernels = {
        kernel["name"]: tuple(
            _read_variant(item, kernel=kernel["name"], backend=backend, folder=folder)
            for item in kernel["variants"]
        )
        for kernel in value["kernels"]
    }
    return CodeObjects(target=target, kernels=kernels)


def _read_variant(value: Any, *, kernel: str, backend: str, folder: Path) -> Variant:
    file = value["object"]["file"]
    if not _FILE.fullmatch(file):
        raise ValueError(f"an object's file is {file!r}")
    for name, plain in _PLAIN_LAUNCH.items():
        if value["options"].get(name, plain) != plain:
            raise ValueError(f"{value['name']} needs {name}={value['options'][name]!r} at launch")
    texts = {name: value[name] for name in ("name", "entry", "arch", "min_driver")}
    numbers = {
        name: value[name]
        for name in (
            "num_warps",
            "warp_size",
            "shared",
            "global_scratch",
            "profile_scratch",
            "scratch_pointers",
        )
    }
    for name, text in {**texts, "sha256": value["object"]["sha256"]}.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} is no string")
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < 1 << 31:
            raise ValueError(f"{name} is {number!r}")
    return Variant(
        kernel=kernel,
        backend=backend,
        file=folder / file,
        sha256=value["object"]["sha256"],
        **texts,
        **numbers,
        parameters=tuple(
            Parameter(name=item["name"], kind=item["kind"], dtype=item["dtype"])
            for item in value["parameters"]
        ),
        constants=dict(value["constants"]),
        assumes=tuple(
            Assumption(
                argument=item["argument"],
                relation=item["is"],
                value=item.get("value"),
                free=item["argument"] in value["constants"] and item["is"] in {"equal", "none"},
            )
            for item in value["assumes"]
        ),
    )
