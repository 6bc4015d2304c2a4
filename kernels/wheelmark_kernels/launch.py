"""Launches the precompiled kernels: the variant that fits, its bytes checked, on the caller's device and stream.

The native library opens the driver, compares the sha256 of an object with the manifest's over the very bytes that it hands to the
driver, and queues the kernel. Whatever goes wrong is a `KernelUnavailable` with a reason; the process goes on.

Settings, read at each call from the environment:
    WHEELMARK_KERNELS_FALLBACK=1   plain PyTorch answers, with one warning, where no kernel can be launched
    WHEELMARK_KERNELS_CHECK=0      bad values are not reported on a card. They are never read through; a bag with a bad offset is empty,
                                   a row outside its table counts as zeros. Without it each call waits for the kernel to end.
    WHEELMARK_DRIVER_LIBRARY=FILE  the driver library to open
"""

from __future__ import annotations

import os
import re
import struct
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Final, NoReturn, TypeVar

import torch
from torch import Tensor

from wheelmark_kernels import reference
from wheelmark_kernels.errors import FALLBACK_VARIABLE, KernelUnavailable
from wheelmark_kernels.variants import Argument, CodeObjects, Pointer, Variant, read_code_objects

CHECK_VARIABLE: Final = "WHEELMARK_KERNELS_CHECK"

Value = Tensor | int | float | bool | None
"""What a kernel's argument may be."""

_DTYPES: Final = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}
_REASON: Final = re.compile(r"\[wheelmark:([a-z-]+)\] ([^\n]*)")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Where a kernel runs."""

    device: int
    """Ordinal of the device, as PyTorch and the driver count it."""
    handle: int = 0
    """The driver's stream; 0 is the default one."""


class Launcher:
    """Launches the kernels of one set of code objects; safe to use from several threads.

    Args:
        objects: What there is to launch.
    """

    def __init__(self, objects: CodeObjects) -> None:
        self.objects = objects
        self._handles: dict[tuple[str, str], int] = {}
        self._archs: dict[int, str] = {}
        self._lock = threading.Lock()

    def arch(self, device: int) -> str:
        """Architecture of a device, as the driver says it: ``sm90``, ``gfx942``.

        Raises:
            KernelUnavailable: There is no driver or no such device.
        """
        if device not in self._archs:
            self._archs[device] = self._call(
                lambda: torch.ops.wheelmark.device_arch(self.objects.backend, device)
            )
        return self._archs[device]

    def choose(self, kernel: str, arguments: Mapping[str, Value], *, device: int) -> Variant:
        """The variant that fits these arguments on this device (see `CodeObjects.choose`)."""
        facts = {name: _fact(value) for name, value in arguments.items()}
        return self.objects.choose(kernel, facts, arch=self.arch(device))

    def launch(
        self,
        kernel: str,
        arguments: Mapping[str, Value],
        *,
        grid: Callable[[Mapping[str, Any]], tuple[int, int, int]],
        stream: Stream,
        allocate: Callable[[int], Tensor],
    ) -> Variant:
        """Queue a kernel.

        Args:
            kernel: Its name in the manifest.
            arguments: All of its run-time arguments, by parameter name. The caller keeps the tensors alive until the
                stream has passed the launch.
            grid: From the chosen variant's constants to the number of blocks on each axis.
            stream: Where.
            allocate: Makes a byte tensor on the device, for a kernel that needs scratch memory.

        Returns:
            The variant that was launched.

        Raises:
            KernelUnavailable: With the reason, before anything is queued.
        """
        variant = self.choose(kernel, arguments, device=stream.device)
        handle = self._handle(variant)
        values = [_passed(variant, item.name, item.dtype, arguments) for item in variant.parameters]
        blocks = grid(variant.constants)
        scratch = [
            allocate(size * prod(blocks)).data_ptr() if size else 0
            for size in (variant.global_scratch, variant.profile_scratch)[: variant.scratch_pointers]
        ]
        self._call(
            lambda: torch.ops.wheelmark.launch(
                handle, stream.device, list(blocks), stream.handle, values, scratch
            ),
            device=stream.device,
        )
        return variant

    def prepare(self, variant: Variant, *, device: int) -> None:
        """Load a variant's code object now: a refusal comes before any work, and the first launch is as fast as the rest."""
        handle = self._handle(variant)
        self._call(lambda: torch.ops.wheelmark.prepare(handle, device), device=device)

    def _handle(self, variant: Variant) -> int:
        key = (variant.kernel, variant.name)
        with self._lock:
            if key not in self._handles:
                self._handles[key] = self._read(variant)
            return self._handles[key]

    def _read(self, variant: Variant) -> int:
        try:
            data = bytearray(variant.file.read_bytes())
        except OSError as error:
            raise KernelUnavailable(
                f"the code object {variant.file.name} cannot be read: {error}", reason="object-missing"
            ) from error
        if not data:
            raise KernelUnavailable(f"the code object {variant.file.name} is empty", reason="digest")
        image = torch.frombuffer(data, dtype=torch.uint8)
        return self._call(
            lambda: torch.ops.wheelmark.code_object(
                image,
                variant.sha256,
                variant.backend,
                variant.arch,
                variant.entry,
                variant.layout,
                variant.scratch_pointers,
                variant.threads,
                variant.shared,
            )
        )

    def _call(self, operator: Callable[[], _Result], *, device: int | None = None) -> _Result:
        try:
            return operator()
        except RuntimeError as error:
            found = _REASON.search(str(error))
            if found is None:
                raise
            raise KernelUnavailable(
                found[2],
                reason=found[1],
                device_arch=self._archs.get(device, "") if device is not None else "",
                available=self.objects.archs,
            ) from error


def _fact(value: Value) -> Argument:
    if not isinstance(value, Tensor):
        return value
    reachable = value.untyped_storage().nbytes() - value.storage_offset() * value.element_size()
    return Pointer(address=value.data_ptr(), dtype=_DTYPES.get(value.dtype, str(value.dtype)), size=reachable)


def _passed(variant: Variant, name: str, dtype: str, arguments: Mapping[str, Value]) -> int:
    """An argument as the launcher takes it: an address, an integer, or the bit pattern of a float."""
    if name not in arguments:
        raise KernelUnavailable(
            f"the variant {variant.name} takes {name}, which this call does not give", reason="arguments"
        )
    value = arguments[name]
    if value is None:
        return 0
    if isinstance(value, Tensor):
        return value.data_ptr()
    if dtype == "fp32":
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    if dtype == "fp64":
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return int(value)


@dataclass(frozen=True, kw_only=True)
class TbeCall:
    """One call of the kernel ``tbe_forward``: the same for a card, the recording driver and the interpreter."""

    out: Tensor
    """fp32 [B, T*D]; the kernel writes every element."""
    status: Tensor
    """int32 [3]: an index outside its table, bad offsets, bad table offsets."""
    arguments: Mapping[str, Value]
    bags: int
    dim: int

    def grid(self, constants: Mapping[str, Any]) -> tuple[int, int, int]:
        """A block for each bag and each ``BLOCK_D`` of its columns."""
        return self.bags, -(-self.dim // int(constants["BLOCK_D"])), 1


def tbe_call(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    *,
    mean: bool,
) -> TbeCall:
    """Allocate the result and lay out the arguments; shapes and dtypes are those that `tbe.check_arguments` accepts."""
    tables, bags, dim = table_offsets.shape[0] - 1, offsets.shape[0] - 1, weights.shape[1]
    batch = bags // tables
    out = weights.new_empty((batch, tables * dim), dtype=torch.float32)
    status = weights.new_zeros(3, dtype=torch.int32)
    arguments: dict[str, Value] = {
        "out": out,
        "weights": weights,
        "table_offsets": table_offsets,
        "indices": indices,
        "offsets": offsets,
        "per_sample_weights": per_sample_weights,
        "status": status,
        "num_rows": weights.shape[0],
        "num_indices": indices.shape[0],
        "batch": batch,
        "dim": dim,
        "mean": int(mean),
    }
    return TbeCall(out=out, status=status, arguments=arguments, bags=bags, dim=dim)


def tbe_forward(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    mean: bool = False,
) -> Tensor:
    """The operator on a card; arguments as `tbe.check_arguments` accepts them, all contiguous.

    Returns:
        fp32 [B, T*D] on the device of `weights`.

    Raises:
        KernelUnavailable: No precompiled kernel can be launched, and no fallback is allowed.
        IndexError: An index outside its table.
        ValueError: Offsets or table offsets that do not run from 0 to the end without falling.
    """
    table_offsets = table_offsets.contiguous()
    call = tbe_call(weights, table_offsets, indices, offsets, per_sample_weights, mean=mean)
    if call.bags == 0:
        check_values(weights.shape[0], table_offsets, indices, offsets)
        return call.out
    try:
        _launch_on_card(call, weights.device)
    except KernelUnavailable as error:
        if os.environ.get(FALLBACK_VARIABLE) != "1" or not error.may_fall_back:
            raise
        _warn_once(error.reason, error.what)
        check_values(weights.shape[0], table_offsets, indices, offsets)
        return reference.tbe_forward(weights, table_offsets, indices, offsets, per_sample_weights, mean=mean)
    # Reading the answer waits for the kernel, which a stream that is being captured must not do.
    if (
        os.environ.get(CHECK_VARIABLE) != "0"
        and not torch.cuda.is_current_stream_capturing()
        and any(call.status.tolist())
    ):
        check_values(weights.shape[0], table_offsets, indices, offsets)
        _refuse(
            RuntimeError,
            "a bad value was found by the kernel, but no longer is: the arguments changed during the call",
        )
    return call.out


def _launch_on_card(call: TbeCall, device: torch.device) -> None:
    launcher = _launcher()
    backend = "rocm" if torch.version.hip is not None else "cuda"
    if launcher.objects.backend != backend:
        raise KernelUnavailable(
            f"this wheel is for {launcher.objects.target}, and this PyTorch is built for {backend}",
            reason="arch",
            available=launcher.objects.archs,
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    launcher.launch(
        "tbe_forward",
        call.arguments,
        grid=call.grid,
        stream=Stream(device=index, handle=torch.cuda.current_stream(index).cuda_stream),
        allocate=lambda size: torch.empty(size, dtype=torch.uint8, device=device),
    )


@cache
def _launcher() -> Launcher:
    return Launcher(read_code_objects())


@cache
def _warn_once(reason: str, what: str) -> None:
    warnings.warn(
        f"wheelmark_kernels: plain PyTorch runs instead of a precompiled kernel: [{reason}] {what}",
        RuntimeWarning,
        stacklevel=3,
    )


def check_values(num_rows: int, table_offsets: Tensor, indices: Tensor, offsets: Tensor) -> None:
    """Check on the host what the CPU operator checks before it reads: offsets and indices.

    Args:
        num_rows: Rows of all tables.
        table_offsets: int64 [T + 1].
        indices: [N].
        offsets: [T*B + 1].

    Raises:
        ValueError: Offsets or table offsets that do not run from 0 to the end without falling.
        IndexError: An index outside its table.
    """
    starts, places, bounds = (tensor.cpu().long() for tensor in (table_offsets, indices, offsets))
    _check_offsets("table_offsets", starts, num_rows, "the number of rows")
    _check_offsets("offsets", bounds, places.shape[0], "the number of indices")
    tables = starts.shape[0] - 1
    bags = torch.repeat_interleave(torch.arange(bounds.shape[0] - 1), bounds.diff())
    table = bags // max((bounds.shape[0] - 1) // tables, 1)
    rows = starts.diff()[table]
    outside = ((places < 0) | (places >= rows)).nonzero()
    if outside.shape[0]:
        at = int(outside[0])
        _refuse(
            IndexError,
            f"indices[{at}] is {int(places[at])}, outside table {int(table[at])}, which has {int(rows[at])} rows: "
            "indices count from 0 within their table",
        )


def _check_offsets(name: str, values: Tensor, total: int, total_name: str) -> None:
    if values[0] != 0:
        _refuse(ValueError, f"{name}[0] is {int(values[0])}: the first must be 0")
    falls = (values.diff() < 0).nonzero()
    if falls.shape[0]:
        at = int(falls[0]) + 1
        _refuse(
            ValueError,
            f"{name}[{at}] is {int(values[at])}, less than the {int(values[at - 1])} before it: offsets must never fall",
        )
    if values[-1] != total:
        _refuse(
            ValueError,
            f"{name}[{values.shape[0] - 1}], the last, is {int(values[-1])}: it must be {total_name}, {total}",
        )


def _refuse(kind: type[Exception], text: str) -> NoReturn:
    raise kind(f"wheelmark::tbe_forward: {text}")
