"""Check the precompiled kernels on this machine's card: the public operator on device tensors, against the float64 reference.

No fallback is allowed: a case passes only by the precompiled object for exactly this architecture. Exit code 3 where there is no card,
or PyTorch cannot use it.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch

import wheelmark_kernels
from wheelmark_kernels import launch
from wheelmark_kernels.contract import report
from wheelmark_kernels.contract.correctness import forward_cases
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.contract.tbe_cases import TbeCase, TbeInputs, judge, make_inputs
from wheelmark_kernels.errors import FALLBACK_VARIABLE
from wheelmark_kernels.variants import read_code_objects

DRIVER_FILE: Final = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's kernel module says its version."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the device."""
    parser.add_argument("--device", type=int, default=0, help="ordinal of the card (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Check everything and write the report."""
    if not torch.cuda.is_available():
        build = torch.version.cuda or torch.version.hip or "no card"
        sys.stderr.write(
            f"PyTorch {torch.__version__} (built for {build}) finds no card on this machine: nothing was run\n"
        )
        return report.CANNOT_RUN
    if arguments.device >= torch.cuda.device_count():
        sys.stderr.write(f"there is no card {arguments.device}: PyTorch finds {torch.cuda.device_count()}\n")
        return report.CANNOT_RUN
    os.environ.pop(FALLBACK_VARIABLE, None)
    device = torch.device("cuda", arguments.device)
    objects = read_code_objects()
    launcher = launch.Launcher(objects)
    cases = [launched(launcher, case, device) for case in forward_cases()]
    cases += [launched(launcher, case, device, shift=1) for case in shifted_cases()]
    cases += [
        every_variant(launcher, cases),
        same_bits(device),
        on_another_stream(device),
        captured(device),
        *bad_values(device),
    ]
    return report.write_cases(
        arguments.report,
        cases,
        device=describe(arguments.device, launcher),
        versions={**report.versions(), "code_objects": objects.target},
    )


def describe(device: int, launcher: launch.Launcher) -> dict[str, Any]:
    """The card, its driver and the machine, as evidence names them."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "arch": launcher.arch(device),
        "memory_bytes": properties.total_memory,
        "driver": DRIVER_FILE.read_text(encoding="utf-8").splitlines()[0] if DRIVER_FILE.is_file() else "",
        "driver_api": int(torch.ops.wheelmark.driver_version(launcher.objects.backend)),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def shifted_cases() -> Iterator[TbeCase]:
    """Calls whose rows do not begin at a multiple of 16 bytes although their length would allow it."""
    for dtype in ("fp32", "fp16", "bf16"):
        for indices in ("i32", "i64"):
            for weighted in (False, True):
                yield TbeCase(dtype=dtype, indices=indices, dim=64, weighted=weighted, label="shifted")


def _pool(inputs: TbeInputs, *, mean: bool = False) -> torch.Tensor:
    return wheelmark_kernels.tbe_forward(*inputs.positional, mode="mean" if mean else "sum")


def launched(launcher: launch.Launcher, case: TbeCase, device: torch.device, *, shift: int = 0) -> Case:
    """Check one result; the report's message names the variant that made it."""
    inputs = make_inputs(case).to(device)
    if shift:
        room = torch.empty(inputs.weights.numel() + shift, dtype=inputs.weights.dtype, device=device)
        room[shift:] = inputs.weights.flatten()
        inputs = TbeInputs(
            weights=room[shift:].view(inputs.weights.shape),
            table_offsets=inputs.table_offsets,
            indices=inputs.indices,
            offsets=inputs.offsets,
            per_sample_weights=inputs.per_sample_weights,
        )
    try:
        judged = judge(case, inputs, _pool(inputs, mean=case.mean), kind="hardware")
    except Exception as error:  # noqa: BLE001 (whatever comes is judged)
        return Case(
            name=f"hardware/{case.name}",
            dtype=case.dtype,
            passed=False,
            max_error=None,
            message=f"{type(error).__name__}: {str(error)[:400]}",
        )
    call = launch.tbe_call(*inputs.positional, mean=case.mean)
    name = ""
    if call.bags:
        name = launcher.choose("tbe_forward", call.arguments, device=device.index).name
    return Case(
        name=judged.name,
        dtype=judged.dtype,
        passed=judged.passed,
        max_error=judged.max_error,
        tolerance=judged.tolerance,
        worst_index=judged.worst_index,
        message=name,
    )


def every_variant(launcher: launch.Launcher, cases: list[Case]) -> Case:
    """Check that no variant of the wheel was left out."""
    declared = {variant.name for variant in launcher.objects.kernels["tbe_forward"]}
    missing = sorted(declared - {case.message for case in cases})
    return Case(
        name="hardware/every-variant",
        dtype="",
        passed=not missing,
        message=f"not run: {', '.join(missing)}" if missing else "",
    )


def _same(name: str, results: list[torch.Tensor]) -> Case:
    first = results[0].view(torch.int32)
    same = all(torch.equal(first, other.view(torch.int32)) for other in results[1:])
    return Case(
        name=f"hardware/{name}", dtype="fp16", passed=same, message="" if same else "the results differ"
    )


def _large(device: torch.device) -> TbeInputs:
    case = TbeCase(
        dtype="fp16", dim=128, table_rows=(3000, 7, 500), lengths=(3, 0, 40, 1) * 60, weighted=True
    )
    return make_inputs(case).to(device)


def same_bits(device: torch.device) -> Case:
    """Check that five runs give the same bits."""
    inputs = _large(device)
    return _same("same-bits", [_pool(inputs) for _ in range(5)])


def on_another_stream(device: torch.device) -> Case:
    """Check that the kernel runs on the caller's stream, after what was queued there before."""
    inputs = _large(device)
    expected = _pool(inputs)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # noqa: SLF001 (PyTorch's own tests delay a stream with it)
        late = TbeInputs(
            weights=inputs.weights.clone(),
            table_offsets=inputs.table_offsets,
            indices=inputs.indices,
            offsets=inputs.offsets,
            per_sample_weights=inputs.per_sample_weights,
        )
        found = _pool(late)
    stream.synchronize()
    return _same("another-stream", [expected, found])


def captured(device: torch.device) -> Case:
    """Check that a launch can be captured in a graph, and that replaying it reads the arguments anew."""
    inputs = _large(device)
    _pool(inputs)  # the object is loaded outside the capture
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.graph(graph):
        found = _pool(inputs)
    inputs.weights.mul_(2)
    graph.replay()
    torch.cuda.synchronize(device)
    return _same("graph", [_pool(inputs), found])


def bad_values(device: torch.device) -> Iterator[Case]:
    """Check that bad values raise what they raise on the CPU, and that the card works on afterwards."""
    good = make_inputs(TbeCase(dim=16)).to(device)

    def changed(name: str, position: int, value: int) -> TbeInputs:
        tensors = {
            "weights": good.weights,
            "table_offsets": good.table_offsets.clone(),
            "indices": good.indices.clone(),
            "offsets": good.offsets.clone(),
        }
        tensors[name][position] = value
        return TbeInputs(**tensors, per_sample_weights=None)

    bad: dict[str, tuple[type[Exception], str, TbeInputs]] = {
        "index-negative": (IndexError, "is -1, outside table 0", changed("indices", 5, -1)),
        "index-beyond": (IndexError, "is 13, outside table 0, which has 13 rows", changed("indices", 5, 13)),
        "index-huge": (IndexError, "outside table", changed("indices", 9, 2**62)),
        "offsets-start": (ValueError, "offsets[0] is 1", changed("offsets", 0, 1)),
        "offsets-fall": (ValueError, "offsets must never fall", changed("offsets", 3, 0)),
        "offsets-end": (ValueError, "the number of indices", changed("offsets", -1, 1 << 40)),
        "tables-end": (ValueError, "the number of rows", changed("table_offsets", -1, 1 << 40)),
    }
    for name, (error, words, inputs) in bad.items():
        yield _raises(name, error, words, lambda inputs=inputs: _pool(inputs))
    case = TbeCase(dim=16)
    yield judge(case, good, _pool(good), kind="hardware/after-bad-values")


def _raises(name: str, error: type[Exception], words: str, attempt: Callable[[], object]) -> Case:
    try:
        attempt()
    except Exception as raised:  # noqa: BLE001 (whatever comes is judged)
        right = type(raised) is error and words in str(raised)
        message = "" if right else f"raised {type(raised).__name__}: {str(raised)[:200]}"
    else:
        right, message = False, "raised nothing"
    return Case(name=f"hardware/refusal-{name}", dtype="", passed=right, message=message)
