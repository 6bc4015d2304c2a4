"""What a project sees of a device when its modules are imported on a machine that has none.

Stand-ins for tensors (heuristics look at them) and, for `import = "shimmed"`, a Triton driver and torch's device
queries that answer for the target and write down what was asked.
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

_TORCH = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "i1": "bool",
    "u1": "bool",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}


class NoLaunch(RuntimeError):  # noqa: N818 - says what happened
    """A kernel was launched while modules were imported."""


class ExampleTensor:
    """The example argument for a pointer: a shape and a dtype, and no storage."""

    is_cuda = True
    requires_grad = False

    def __init__(self, dtype: str, itemsize: int, shape: list[int] | None, *, aligned: bool) -> None:
        self._dtype = dtype
        self._itemsize = itemsize
        self._shape = shape
        self._aligned = aligned

    @property
    def dtype(self) -> Any:
        """The dtype, as a torch one; torch is imported only for who asks."""
        if importlib.util.find_spec("torch") is None:
            return self._dtype
        torch = importlib.import_module("torch")
        word = _TORCH.get(self._dtype, self._dtype.replace("i", "int").replace("u", "uint"))
        return getattr(torch, word)

    @property
    def shape(self) -> tuple[int, ...]:
        """As declared."""
        if self._shape is None:
            raise AttributeError("the declaration gives this pointer no shape")
        return tuple(self._shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """As torch's."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    def stride(self, dim: int | None = None) -> Any:
        """Of a contiguous tensor."""
        strides: list[int] = []
        step = 1
        for length in reversed(self.shape):
            strides.insert(0, step)
            step *= length
        return tuple(strides) if dim is None else strides[dim]

    def is_contiguous(self) -> bool:
        """Always."""
        return True

    def element_size(self) -> int:
        """Bytes."""
        return self._itemsize

    def data_ptr(self) -> int:
        """An address with the declared alignment."""
        return 4096 if self._aligned else 4096 + self._itemsize


class _Driver:
    """What Triton asks of an active driver, short of launching."""

    def __init__(self, target: GPUTarget, properties: dict[str, Any], asked: Callable[[str], None]) -> None:
        self._target = target
        self._asked = asked
        limits = {"max_shared_mem": 0, "multiprocessor_count": 0, "warpSize": target.warp_size, **properties}
        self.utils = SimpleNamespace(get_device_properties=lambda _device: limits)

    def get_current_target(self) -> GPUTarget:
        self._asked("triton.get_current_target")
        return self._target

    def get_current_device(self) -> int:
        self._asked("triton.get_current_device")
        return 0

    def get_active_torch_device(self) -> Any:
        self._asked("triton.get_active_torch_device")
        return importlib.import_module("torch").device("cuda", 0)

    def get_device_capability(self, _device: int = 0) -> tuple[int, int]:
        self._asked("triton.get_device_capability")
        return _capability(self._target)

    def get_current_stream(self, _device: int = 0) -> int:
        raise NoLaunch("a kernel was launched while its module was imported")

    def get_benchmarker(self) -> Any:
        return lambda *_args, **_kwargs: (_ for _ in ()).throw(NoLaunch("nothing can be timed here"))


@contextlib.contextmanager
def shimmed(target: GPUTarget, device: dict[str, Any], asked: Callable[[str], None]) -> Iterator[None]:
    """Answer device queries for `target` while this is open.

    Args:
        target: Triton's target.
        device: `name` and `properties` from the declaration.
        asked: Called with the name of each query.
    """
    properties = dict(device.get("properties", {}))
    driver.set_active(_Driver(target, properties, asked))
    saved: list[tuple[Any, str, Any]] = []
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        for holder, name, value in _torch_answers(torch, target, device, properties, asked):
            saved.append((holder, name, getattr(holder, name)))
            setattr(holder, name, value)
    try:
        yield
    finally:
        for holder, name, value in reversed(saved):
            setattr(holder, name, value)
        driver._active = None  # noqa: SLF001 - `reset_active` would look for a real one


def _torch_answers(
    torch: Any,
    target: GPUTarget,
    device: dict[str, Any],
    properties: dict[str, Any],
    asked: Callable[[str], None],
) -> list[tuple[Any, str, Any]]:
    major, minor = _capability(target)
    hip = target.backend == "hip"
    facts = SimpleNamespace(
        **{
            "name": device.get("name", ""),
            "major": major,
            "minor": minor,
            "warp_size": target.warp_size,
            "gcnArchName": str(target.arch) if hip else "",
            **properties,
        }
    )

    def answer(name: str, value: Any) -> Callable[..., Any]:
        def query(*_args: Any, **_kwargs: Any) -> Any:
            asked(f"torch.cuda.{name}")
            return value

        return query

    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": device.get("name", ""),
        "get_device_capability": (major, minor),
        "get_device_properties": facts,
    }
    shims = [(torch.cuda, name, answer(name, value)) for name, value in answers.items()]
    return [
        *shims,
        (torch.cuda, "device", lambda *_args, **_kwargs: contextlib.nullcontext()),
        (torch.version, "hip", "6.4" if hip else None),
        (torch.version, "cuda", None if hip else "12.8"),
    ]


def _capability(target: GPUTarget) -> tuple[int, int]:
    if target.backend == "cuda":
        return divmod(int(target.arch), 10)
    digits = str(target.arch)[3:]
    return int(digits[:-2]), int(digits[-2], 16)
