"""Scenes for the launch contract: the installed library, a recording driver of its own, and what it wrote down."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from wheelmark_kernels import launch
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.contract.tbe_cases import TbeCase, make_inputs
from wheelmark_kernels.launch import Launcher, Stream, TbeCall
from wheelmark_kernels.variants import CodeObjects, Variant

FREE_SHARED: Final = 49_152
"""Bytes of shared memory a block that need no permission on CUDA."""
LARGE_SHARED: Final = 60_000
"""More than that, and less than any card has."""
LIBRARY: Final = "WHEELMARK_DRIVER_LIBRARY"

CUDA: Final = {
    "init": "cuInit",
    "load": "cuModuleLoadData",
    "function": "cuModuleGetFunction",
    "arch": "cuDeviceGetAttribute",
    "static": "cuFuncGetAttribute",
    "enter": "cuCtxSetCurrent",
    "launch": "cuLaunchKernel",
}
ROCM: Final = {
    "init": "hipInit",
    "load": "hipModuleLoadData",
    "function": "hipModuleGetFunction",
    "arch": "hipGetDevicePropertiesR0600",
    "static": "hipFuncGetAttribute",
    "enter": "hipSetDevice",
    "launch": "hipModuleLaunchKernel",
}
"""What each step is called by the two drivers."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What every scene is played with."""

    objects: CodeObjects
    driver: Path
    """The recording driver; each scene opens a copy, so that nothing is loaded or initialised in it yet."""
    log: Path
    folder: Path
    """For copies."""

    @property
    def names(self) -> Mapping[str, str]:
        """The driver's functions by what they do."""
        return CUDA if self.objects.backend == "cuda" else ROCM

    @property
    def arch(self) -> str:
        """The wheel's architecture in the recording driver's spelling: ``90``, ``gfx942``."""
        return spelled(self.objects.target.partition("-")[2])

    @contextmanager
    def scene(self, **environment: str) -> Iterator[Scene]:
        """Open a fresh driver with two devices of the wheel's architecture.

        Args:
            **environment: More variables for the recording driver, or others in place of those.
        """
        number = sum(1 for _ in self.folder.glob("*.so"))
        copy = self.folder / f"driver{number}.so"
        shutil.copyfile(self.driver, copy)
        self.log.touch()
        wanted = {
            LIBRARY: str(copy),
            "FAKE_DRIVER_LOG": str(self.log),
            "FAKE_DRIVER_DEVICES": "2",
            "FAKE_DRIVER_ARCH": self.arch,
            "FAKE_DRIVER_FAIL": "",
            "FAKE_DRIVER_JUNK": "",
            "FAKE_DRIVER_OLD": "",
            **environment,
        }
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield Scene(stage=self, start=self.log.stat().st_size)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One run with one driver."""

    stage: Stage
    start: int
    """Where its part of the log begins."""

    def calls(self, step: str = "") -> list[dict[str, Any]]:
        """What the driver was called with: everything, or the calls of one step (``load``, ``launch``)."""
        with self.stage.log.open(encoding="utf-8") as log:
            log.seek(self.start)
            found = [json.loads(line) for line in log]
        return [call for call in found if not step or call["call"] == self.stage.names[step]]

    def launcher(self, **changes: Any) -> Launcher:
        """A launcher of the wheel's code objects; `changes` replace members of every variant."""
        objects = self.stage.objects
        if changes:
            kernels = {
                name: tuple(replace(variant, **changes) for variant in variants)
                for name, variants in objects.kernels.items()
            }
            objects = replace(objects, kernels=kernels)
        return Launcher(objects)


def spelled(arch: str) -> str:
    """An architecture as the recording driver wants it: ``sm90`` is ``90``."""
    return arch.removeprefix("sm")


def embedding_call(case: TbeCase, *, shift: int = 0) -> TbeCall:
    """The arguments of an embedding lookup; CPU tensors stand for device memory.

    Args:
        case: What to look up.
        shift: Elements by which the rows begin beside the allocation's start, to spoil its alignment.
    """
    inputs = make_inputs(case)
    weights = inputs.weights
    if shift:
        room = torch.empty(weights.numel() + shift, dtype=weights.dtype)
        room[shift:] = weights.flatten()
        weights = room[shift:].view(weights.shape)
    return launch.tbe_call(weights, *inputs.positional[1:], mean=case.mean)


def send(launcher: Launcher, call: TbeCall, *, device: int = 0, stream: int = 0) -> Variant:
    """Launch the embedding kernel as the operator does."""
    return launcher.launch(
        "tbe_forward",
        call.arguments,
        grid=call.grid,
        stream=Stream(device=device, handle=stream),
        allocate=scratch,
    )


def small_call() -> TbeCall:
    """An ordinary call, that a variant of every wheel fits."""
    return embedding_call(TbeCase(dim=64))


def scratch(size: int) -> Tensor:
    """Stands for scratch memory on the device."""
    return torch.empty(size, dtype=torch.uint8)


def passed_bytes(call: TbeCall, variant: Variant) -> list[str]:
    """The bytes that each parameter must have at launch, in hexadecimal: little-endian, in its own width, scratch last."""
    found = []
    for item in variant.parameters:
        value = call.arguments[item.name]
        number = value.data_ptr() if isinstance(value, Tensor) else int(value or 0)
        width = 8 if item.kind == "pointer" else int(item.dtype[1:]) // 8
        found.append(number.to_bytes(width, "little", signed=item.kind == "scalar").hex())
    return found + ["00" * 8] * variant.scratch_pointers


def differs(what: str, found: object, due: object) -> list[str]:
    """A problem in one sentence, or none."""
    return [] if found == due else [f"{what} is {found}, due is {due}"]


def verdict(name: str, problems: list[str], dtype: str = "") -> Case:
    """A case that passes if there are no problems."""
    return Case(name=f"launch/{name}", dtype=dtype, passed=not problems, message="; ".join(problems)[:600])
