"""From compiled bytes to a variant of the manifest: read what the bytes say, and hold it against the arch's limits.

``triton.compile`` succeeds for kernels that no card of the arch can launch: it asks only when it loads them. Here
shared memory, registers, threads and tensor memory are checked when they are built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from wheelmark import digests
from wheelmark.binaries.codeobject import CodeObject, KernelFacts, read_code_object
from wheelmark.binaries.drivers import NO_FLOOR, driver_floor
from wheelmark.binaries.kernelmanifest import (
    Assumption,
    ObjectFile,
    Parameter,
    ParameterKind,
    Relation,
    Variant,
)
from wheelmark.errors import InputError
from wheelmark.targets import Backend, Target

SCRATCH_POINTERS = 2
"""Triton 3.7's launch ABI: pointers to global and to profile scratch memory follow the arguments."""
TENSOR_MEMORY_COLUMNS = 512
"""Of sm_100 (``triton/compiler/compiler.py``: ``max_tmem_size``)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """A variant that was not built, and why."""

    target: Target
    kernel: str
    variant: str
    reason: str
    """Stable code: see docs/reference/kernel-declarations.md."""
    text: str
    optional: bool
    """Whether the declaration lets it be absent on this target."""

    def __str__(self) -> str:
        return f"{self.kernel}, variant {self.variant}, for {self.target}: {self.text} [{self.reason}]"


class Unfit(Exception):  # noqa: N818 - becomes a Refusal
    """Bytes that cannot be shipped for the target.

    Args:
        reason: Of the refusal.
        text: What is needed and what the limit is.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def describe_object(
    *,
    name: str,
    file: str,
    target: Target,
    data: bytes,
    facts: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> Variant:
    """The manifest's entry for one code object.

    Args:
        name: The variant.
        file: The object's file name.
        target: What it was compiled for.
        data: The object's bytes: registers, spills, static shared memory, code size and toolkit are read here.
        facts: Parameters, constants, assumptions and options, from the worker.
        metadata: What only the compiler knows: entry, warps, dynamic shared memory, scratch, PTX version.

    Raises:
        Unfit: Zero bytes, another arch, no such entry, or more than the arch has.
    """
    kernel, code = _read(data, target, str(metadata["entry"]))
    for reason, text in _over_limits(target, kernel, metadata):
        raise Unfit(reason, text)
    floor = NO_FLOOR
    if target.backend is Backend.CUDA:
        try:
            floor = driver_floor(toolkit=code.toolkit, ptx=metadata["ptx_version"])
        except InputError as error:
            raise Unfit("kernel-object", error.what) from error
    return Variant(
        name=name,
        object=ObjectFile(file=file, sha256=digests.sha256(data), size=len(data)),
        entry=kernel.name,
        arch=code.arch,
        arch_suffix=code.suffix,
        num_warps=metadata["num_warps"],
        warp_size=kernel.warp_size,
        shared=metadata["shared"],
        static_shared=kernel.static_shared,
        registers=kernel.registers,
        spill_stores=kernel.spill_stores,
        spill_loads=kernel.spill_loads,
        code_size=kernel.code_size,
        ptx_version=metadata["ptx_version"],
        toolkit=code.toolkit,
        min_driver=floor.driver,
        min_driver_basis=floor.basis,
        global_scratch=metadata["global_scratch"],
        profile_scratch=metadata["profile_scratch"],
        scratch_pointers=SCRATCH_POINTERS,
        parameters=tuple(
            Parameter(name=item["name"], kind=ParameterKind(item["kind"]), dtype=item["dtype"])
            for item in facts["parameters"]
        ),
        constants=facts["constants"],
        assumes=tuple(
            Assumption(argument=item["argument"], relation=Relation(item["is"]), value=item.get("value"))
            for item in facts["assumes"]
        ),
        options=facts["options"],
    )


def _read(data: bytes, target: Target, entry: str) -> tuple[KernelFacts, CodeObject]:
    if not data:
        raise Unfit("kernel-empty", "the compiler gave zero bytes")
    try:
        code = read_code_object(data)
    except InputError as error:
        raise Unfit("kernel-object", error.what) from error
    if code.arch != target.arch or code.kind.value != target.code_object:
        raise Unfit("kernel-arch", f"the object is a {code.kind.value} for {code.arch}")
    kernel = code.kernel(entry)
    if kernel is None:
        raise Unfit("kernel-object", f"the object has no entry {entry}")
    return kernel, code


def _over_limits(
    target: Target, kernel: KernelFacts, metadata: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    limits = target.limits
    if limits is None:
        raise Unfit("kernel-arch", f"no limits are known for {target}")
    word = "shared memory" if target.backend is Backend.CUDA else "LDS"
    # In an hsaco of Triton's both are dynamic; a static part comes on top of what is passed at launch.
    shared = metadata["shared"] + kernel.static_shared
    if shared > limits.shared_memory:
        yield (
            "kernel-shared",
            f"it needs {shared:,} bytes of {word} a block; {target.arch} has {limits.shared_memory:,}",
        )
    if kernel.registers > limits.registers:
        yield (
            "kernel-registers",
            f"it needs {kernel.registers} registers a thread; {target.arch} has {limits.registers}",
        )
    threads = metadata["num_warps"] * limits.warp
    if threads > limits.threads:
        yield (
            "kernel-threads",
            (
                f"{metadata['num_warps']} warps of {limits.warp} are {threads:,} threads a block; "
                f"{target.arch} has {limits.threads:,}"
            ),
        )
    if kernel.max_threads and threads > kernel.max_threads:
        yield (
            "kernel-threads",
            f"it launches {threads:,} threads a block, and the object was compiled for {kernel.max_threads:,}",
        )
    if metadata["tensor_memory"] > TENSOR_MEMORY_COLUMNS:
        yield (
            "kernel-tensor-memory",
            f"it needs {metadata['tensor_memory']} columns of tensor memory; there are {TENSOR_MEMORY_COLUMNS}",
        )
