"""What an arch has not is refused when it is built: the compiler does not ask."""

import dataclasses
from typing import Any

import pytest

from wheelmark.binaries.facts import KernelFacts
from wheelmark.build.kernels import objects
from wheelmark.build.kernels.objects import Unfit, describe_object
from wheelmark.targets import GPU_LIMITS, Target

FACTS = KernelFacts(
    name="f",
    registers=32,
    scalar_registers=0,
    spill_stores=0,
    spill_loads=0,
    static_shared=0,
    stack=0,
    max_threads=0,
    required_threads=0,
    warp_size=32,
    code_size=100,
    parameter_bytes=0,
    parameters=(),
)
METADATA: dict[str, Any] = {"num_warps": 4, "shared": 0, "tensor_memory": 0}


def refusals(target: str, metadata: dict[str, Any], **facts: Any) -> list[tuple[str, str]]:
    return list(
        objects._over_limits(Target(target), dataclasses.replace(FACTS, **facts), {**METADATA, **metadata})
    )


@pytest.mark.parametrize("arch", GPU_LIMITS)
def test_every_arch_holds_its_limits_exactly(arch: str) -> None:
    target = f"{'cuda' if arch.startswith('sm') else 'rocm'}-{arch}"
    limits = GPU_LIMITS[arch]
    most = {"shared": limits.shared_memory, "num_warps": limits.threads // limits.warp}
    assert refusals(target, most, registers=limits.registers) == []
    assert [reason for reason, _ in refusals(target, {"shared": limits.shared_memory + 1})] == [
        "kernel-shared"
    ]
    assert [reason for reason, _ in refusals(target, {"shared": limits.shared_memory}, static_shared=1)] == [
        "kernel-shared"
    ]
    assert [reason for reason, _ in refusals(target, {}, registers=limits.registers + 1)] == [
        "kernel-registers"
    ]
    warps = limits.threads // limits.warp + 1
    assert [reason for reason, _ in refusals(target, {"num_warps": warps})] == ["kernel-threads"]


def test_text_names_arch_need_and_limit() -> None:
    ((_, text),) = refusals("rocm-gfx90a", {"shared": 81920})
    assert text == "it needs 81,920 bytes of LDS a block; gfx90a has 65,536"
    ((_, text),) = refusals("rocm-gfx942", {"num_warps": 32})
    assert text == "32 warps of 64 are 2,048 threads a block; gfx942 has 1,024"


def test_threads_that_the_object_was_not_compiled_for() -> None:
    assert [reason for reason, _ in refusals("cuda-sm90", {}, max_threads=64)] == ["kernel-threads"]


def test_tensor_memory() -> None:
    assert [reason for reason, _ in refusals("cuda-sm100", {"tensor_memory": 513})] == [
        "kernel-tensor-memory"
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "kernel-empty"), (b"\x7fELF", "kernel-object"), (b"no elf at all", "kernel-object")],
)
def test_bytes_that_are_no_code_object(data: bytes, reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        describe_object(
            name="v", file="f.cubin", target=Target("cuda-sm90"), data=data, facts={}, metadata={"entry": "f"}
        )
    assert caught.value.reason == reason
