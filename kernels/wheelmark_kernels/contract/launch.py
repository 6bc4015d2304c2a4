"""Check what the installed library's launcher asks of a driver, with a driver that records it and runs nothing.

Every variant of the wheel, on two devices: which one is chosen, its arguments byte for byte, scratch pointers, grid, threads, shared
memory, stream, context; and every refusal, each with its reason. It says that a kernel would be launched rightly, not that it computes
rightly. Exit code 3 where the package holds no code objects.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from wheelmark_kernels.contract import report
from wheelmark_kernels.contract.launch_refusals import refusals
from wheelmark_kernels.contract.recording import (
    FREE_SHARED,
    LARGE_SHARED,
    Stage,
    differs,
    embedding_call,
    passed_bytes,
    send,
    small_call,
    verdict,
)
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.contract.tbe_cases import DTYPES, INDEX_DTYPES, TbeCase
from wheelmark_kernels.errors import KernelUnavailable
from wheelmark_kernels.launch import Stream
from wheelmark_kernels.variants import read_code_objects

SOURCE: Final = Path(__file__).parents[1] / "triton_kernels" / "tbe_forward.py"
ALIGNED_DIM: Final = 64
OTHER_DIM: Final = 17
WIDE_DIM: Final = 300
"""More than two blocks of columns."""
STREAM: Final = 0x5EED0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the driver is and where it writes."""
    parser.add_argument("--driver", type=Path, required=True, help="the recording driver (shared object)")
    parser.add_argument("--log", type=Path, required=True, help="file that it appends each call to")


def run(arguments: argparse.Namespace) -> int:
    """Check everything and write the report."""
    try:
        objects = read_code_objects()
    except KernelUnavailable as error:
        if not error.may_fall_back:
            raise
        sys.stderr.write(f"{error.what}\n")
        return report.CANNOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(
            objects=objects,
            driver=arguments.driver.resolve(),
            log=arguments.log.resolve(),
            folder=Path(folder),
        )
        cases = [*launches(stage), *(clause(name, check, stage) for name, check in clauses(objects.backend))]
        cases += refusals(stage)
    return report.write_cases(
        arguments.report, cases, versions={**report.versions(), "code_objects": objects.target}
    )


def source_parameters() -> list[str]:
    """Names of the kernel's run-time parameters, read from its source without Triton: a witness beside the manifest."""
    source = SOURCE.read_text(encoding="utf-8")
    function = next(
        item
        for item in ast.parse(source).body
        if isinstance(item, ast.FunctionDef) and item.name == "tbe_forward"
    )
    return [item.arg for item in function.args.args if item.annotation is None]


def launches(stage: Stage) -> Iterator[Case]:
    """Each variant by a call that only it fits best, then that there is no variant which no call reaches."""
    reached = set()
    order = source_parameters()
    with stage.scene() as scene:
        launcher = scene.launcher()
        for dtype, indices, weighted, (dim, shift) in itertools.product(
            DTYPES,
            INDEX_DTYPES,
            (False, True),
            ((ALIGNED_DIM, 0), (OTHER_DIM, 0), (ALIGNED_DIM, 1), (WIDE_DIM, 0)),
        ):
            case = TbeCase(dtype=dtype, indices=indices, dim=dim, weighted=weighted, mean=dim == WIDE_DIM)
            call = embedding_call(case, shift=shift)
            device = len(reached) % 2
            before = len(scene.calls("launch"))
            try:
                variant = send(launcher, call, device=device, stream=STREAM + device)
            except KernelUnavailable as error:
                yield verdict(f"{case.name}-shift{shift}", [str(error)], dtype)
                continue
            reached.add(variant.name)
            recorded = scene.calls("launch")[before:]
            rows = "aligned" if (dim, shift) == (ALIGNED_DIM, 0) else "any"
            problems = differs(
                "variant", variant.name, f"{dtype}-{indices}-{'weighted' if weighted else 'plain'}-{rows}"
            )
            names = [item.name for item in variant.parameters]
            problems += differs(
                "parameters", names, [name for name in order if call.arguments[name] is not None]
            )
            problems += differs("number of launches", len(recorded), 1)
            for item in recorded[:1]:
                due: dict[str, Any] = {
                    "result": 0,
                    "entry": variant.entry,
                    "device": device,
                    "grid": [call.bags, -(-dim // int(variant.constants["BLOCK_D"])), 1],
                    "block": [variant.threads, 1, 1],
                    "shared": variant.shared,
                    "stream": STREAM + device,
                    "parameters": passed_bytes(call, variant),
                }
                for name, value in due.items():
                    problems += differs(name, item[name], value)
            yield verdict(f"{case.name}-shift{shift}", problems, dtype)
    declared = {variant.name for variant in stage.objects.kernels["tbe_forward"]}
    yield verdict("every-variant", differs("variants reached", sorted(reached), sorted(declared)))


def clauses(backend: str) -> Iterator[tuple[str, Callable[[Stage], list[str]]]]:
    """What must hold of ordinary launches, beyond their arguments: name, and what finds the problems."""
    yield "two-devices", two_devices
    yield "eight-threads", eight_threads
    yield "prepare", prepared
    yield "global-scratch", global_scratch
    yield f"shared-{FREE_SHARED}", partial(shared_memory, amount=FREE_SHARED)
    yield f"shared-{LARGE_SHARED}", partial(shared_memory, amount=LARGE_SHARED)
    if backend == "cuda":
        yield "driver-without-parameter-records", old_driver


def clause(name: str, check: Callable[[Stage], list[str]], stage: Stage) -> Case:
    """Check one; a launch that is refused where it should not be is a problem like any other."""
    try:
        problems = check(stage)
    except (KernelUnavailable, IndexError, KeyError) as error:  # a call that was due is not in the record
        problems = [f"{type(error).__name__}: {error}"]
    return verdict(name, problems)


def two_devices(stage: Stage) -> list[str]:
    """A module is loaded once for each device; the kernel runs in the device's context, and the caller's context comes back."""
    with stage.scene() as scene:
        launcher = scene.launcher()
        for device in (0, 1, 0, 1):
            send(launcher, small_call(), device=device)
        sent = scene.calls("launch")
        problems = differs("devices loaded for", [item["device"] for item in scene.calls("load")], [0, 1])
        problems += differs("devices launched on", [item["device"] for item in sent], [0, 1, 0, 1])
        if stage.objects.backend == "cuda":
            contexts = [item["context"] for item in sent]
            problems += differs("contexts", contexts[:2], contexts[2:])
            problems += ["two devices have one context"] if contexts[0] == contexts[1] else []
            problems += differs("context left behind", scene.calls("enter")[-1]["context"], 0)
        else:
            problems += differs("device left behind", scene.calls("enter")[-1]["device"], 0)
    return problems


def eight_threads(stage: Stage) -> list[str]:
    """Eight threads on two devices: every launch arrives, and each device's module is loaded once."""
    errors: list[str] = []
    with stage.scene() as scene:
        launcher = scene.launcher()

        def work(device: int) -> None:
            try:
                for _ in range(20):
                    send(launcher, small_call(), device=device)
            except Exception as error:  # noqa: BLE001 (reported by the case)
                errors.append(str(error))

        threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        problems = errors[:1] + differs("launches", len(scene.calls("launch")), 160)
        problems += differs("loads", sorted(item["device"] for item in scene.calls("load")), [0, 1])
    return problems


def prepared(stage: Stage) -> list[str]:
    """``prepare`` loads and launches nothing; the launch that follows loads nothing."""
    call = small_call()
    with stage.scene() as scene:
        launcher = scene.launcher()
        launcher.prepare(launcher.choose("tbe_forward", call.arguments, device=1), device=1)
        problems = differs("loads after prepare", len(scene.calls("load")), 1)
        problems += differs("launches after prepare", len(scene.calls("launch")), 0)
        send(launcher, call, device=1)
        problems += differs("loads after the launch", len(scene.calls("load")), 1)
        problems += differs("launches", len(scene.calls("launch")), 1)
    return problems


def global_scratch(stage: Stage) -> list[str]:
    """A kernel that needs scratch memory gets it, for each block of the grid, in the first pointer after its parameters."""
    call = small_call()
    allocated: list[torch.Tensor] = []

    def allocate(size: int) -> torch.Tensor:
        allocated.append(torch.empty(size, dtype=torch.uint8))
        return allocated[-1]

    with stage.scene() as scene:
        launcher = scene.launcher(global_scratch=48, scratch_pointers=2)
        launcher.launch(
            "tbe_forward", call.arguments, grid=call.grid, stream=Stream(device=0), allocate=allocate
        )
        passed = scene.calls("launch")[0]["parameters"][-2:]
    pointers = [tensor.data_ptr().to_bytes(8, "little").hex() for tensor in allocated]
    problems = differs("scratch pointers", passed, [*pointers, "00" * 8])
    problems += differs("scratch bytes", [tensor.numel() for tensor in allocated], [48 * call.bags])
    return problems


def old_driver(stage: Stage) -> list[str]:
    """A CUDA driver that cannot tell a kernel's parameters (before 12.4) launches all the same."""
    with stage.scene(FAKE_DRIVER_OLD="1") as scene:
        send(scene.launcher(), small_call())
        return differs("launches", len(scene.calls("launch")), 1)


def shared_memory(stage: Stage, *, amount: int) -> list[str]:
    """More than 48 KiB is asked for on CUDA, and needs no asking on ROCm."""
    due = [(8, amount)] if amount > FREE_SHARED and stage.objects.backend == "cuda" else []
    with stage.scene() as scene:
        send(scene.launcher(shared=amount), small_call())
        asked = [
            (item["attribute"], item["value"])
            for item in scene.calls()
            if item["call"] == "cuFuncSetAttribute"
        ]
        problems = differs("attributes set", asked, due)
        problems += differs("shared", [item["shared"] for item in scene.calls("launch")], [amount])
    return problems
