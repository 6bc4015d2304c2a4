"""Every way in which a kernel cannot be launched, each an exception with its reason; nothing is launched and the process goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from wheelmark_kernels.contract.recording import (
    LARGE_SHARED,
    LIBRARY,
    Scene,
    Stage,
    differs,
    send,
    small_call,
    verdict,
)
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.errors import FALLBACK_VARIABLE, KernelUnavailable
from wheelmark_kernels.variants import read_code_objects

TOO_MUCH_SHARED: Final = 400_000
"""Bytes of shared memory a block that no card has."""


def _ordinary(scene: Scene) -> object:
    return send(scene.launcher(), small_call())


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One attempt that must be refused."""

    name: str
    reason: str
    attempt: Callable[[Scene], object] = _ordinary
    words: str = ""
    """What the message must say."""
    loads: bool = False
    """Whether the driver is asked to load an object at all."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings of the recording driver."""


def refusals(stage: Stage) -> Iterator[Case]:
    """Try each."""
    for group in (drivers, devices, objects, calls, junk, files):
        for refusal in group(stage):
            yield judge(stage, refusal)
    if stage.objects.backend == "cuda":
        for refusal in cuda_only(stage):
            yield judge(stage, refusal)


def judge(stage: Stage, refusal: Refusal) -> Case:
    """Make the attempt and judge what came of it."""
    problems = []
    with stage.scene(**refusal.environment) as scene:
        try:
            refusal.attempt(scene)
        except KernelUnavailable as error:
            problems += differs("reason", error.reason, refusal.reason)
            if refusal.words not in str(error):
                problems.append(f"the message does not say {refusal.words!r}: {error}")
            offered = FALLBACK_VARIABLE in str(error)
            problems += differs("a fallback is offered", offered, error.may_fall_back)
        except Exception as error:  # noqa: BLE001 (anything else is a finding)
            problems.append(f"raised {type(error).__name__}: {error}")
        else:
            problems.append("raised nothing")
        done = [item for item in scene.calls("launch") if item["result"] == 0]
        problems += differs("launches done", len(done), 0)
        problems += differs("the driver was asked to load", bool(scene.calls("load")), refusal.loads)
    return verdict(f"refusal-{refusal.name}", problems)


def drivers(stage: Stage) -> Iterator[Refusal]:
    """No driver, not a driver, and one that will not start."""
    yield Refusal(
        name="no-driver",
        reason="driver-missing",
        words="no-such-driver.so",
        environment={LIBRARY: "/no-such-driver.so"},
    )
    yield Refusal(
        name="not-a-driver",
        reason="driver-symbol",
        words=stage.names["init"],
        environment={LIBRARY: "libc.so.6"},
    )
    yield Refusal(
        name="driver-too-old",
        reason="driver-init",
        words="35 (insufficient driver)",
        environment={"FAKE_DRIVER_FAIL": f"{stage.names['init']}:35"},
    )
    yield Refusal(
        name="no-devices",
        reason="driver-init",
        words="100 (no device)",
        environment={"FAKE_DRIVER_DEVICES": "0"},
    )


def devices(stage: Stage) -> Iterator[Refusal]:
    """Devices that are not there, or are not what the wheel is for."""
    other = other_arch(stage)
    yield Refusal(
        name="no-such-device",
        reason="device",
        words="device 5",
        attempt=lambda scene: send(scene.launcher(), small_call(), device=5),
    )
    yield Refusal(
        name="other-arch",
        reason="arch",
        words=f"this wheel holds code for: {', '.join(stage.objects.archs)}",
        environment={"FAKE_DRIVER_ARCH": other},
    )
    yield Refusal(
        name="other-arch-on-the-second-device",
        reason="arch",
        words=f"device: {in_full(stage, other)}",
        attempt=lambda scene: send(scene.launcher(), small_call(), device=1),
        environment={"FAKE_DRIVER_ARCH": f"{stage.arch},{other}"},
    )
    yield Refusal(
        name="arch-of-the-object-alone",  # the launcher is asked to load for a device that the object is not for
        reason="arch",
        words=f"the code object is for {stage.objects.archs[0]}",
        attempt=lambda scene: scene.launcher().prepare(stage.objects.kernels["tbe_forward"][0], device=1),
        environment={"FAKE_DRIVER_ARCH": f"{stage.arch},{other}"},
    )


def objects(stage: Stage) -> Iterator[Refusal]:
    """Objects that the driver will not have, or that are not what the manifest says."""
    other = other_arch(stage)
    yield Refusal(
        name="object-refused",
        reason="object-refused",
        words="200 (invalid image)",
        loads=True,
        environment={"FAKE_DRIVER_FAIL": f"{stage.names['load']}:200"},
    )
    yield Refusal(
        name="object-of-another-arch",  # the manifest claims another architecture than the bytes have
        reason="object-refused",
        words="209 (no binary for this GPU)",
        loads=True,
        attempt=lambda scene: send(scene.launcher(arch=in_full(stage, other)), small_call()),
        environment={"FAKE_DRIVER_ARCH": other},
    )
    yield Refusal(
        name="no-entry",
        reason="entry-missing",
        words="another_kernel",
        loads=True,
        attempt=lambda scene: send(scene.launcher(entry="another_kernel"), small_call()),
    )
    yield Refusal(
        name="too-much-shared",
        reason="shared-memory",
        words=str(TOO_MUCH_SHARED),
        loads=True,
        attempt=lambda scene: send(scene.launcher(shared=TOO_MUCH_SHARED), small_call()),
    )


def calls(stage: Stage) -> Iterator[Refusal]:
    """Calls that no variant fits, or that cannot be put to a driver."""
    call = small_call()
    doubles = replace(call, arguments={**call.arguments, "weights": torch.zeros(59, 64, dtype=torch.float64)})
    many = replace(call, arguments={**call.arguments, "batch": 1 << 31})
    short = replace(
        call, arguments={name: call.arguments[name] for name in call.arguments if name != "status"}
    )
    yield Refusal(
        name="no-variant-dtype",
        reason="no-variant",
        words="weights is a fp64 tensor",
        attempt=lambda scene: send(scene.launcher(), doubles),
    )
    yield Refusal(
        name="no-variant-range",
        reason="no-variant",
        words="batch is 2147483648",
        attempt=lambda scene: send(scene.launcher(), many),
    )
    yield Refusal(
        name="argument-missing",
        reason="no-variant",
        words="status is not given",
        attempt=lambda scene: send(scene.launcher(), short),
    )
    for name, bags in (("grid-empty", 0), ("grid-too-large", 1 << 31)):
        yield Refusal(
            name=name,
            reason="arguments",
            words=f"grid of {bags}",
            attempt=lambda scene, bags=bags: send(scene.launcher(), replace(call, bags=bags)),
        )
    yield Refusal(
        name="launch-failed",
        reason="launch",
        words="701 (out of resources)",
        loads=True,
        environment={"FAKE_DRIVER_FAIL": f"{stage.names['launch']}:701"},
    )


def junk(stage: Stage) -> Iterator[Refusal]:
    """A driver that answers success and nonsense: null handles, negative sizes, no name."""
    for step in ("arch", "load", "function", "static"):
        yield Refusal(
            name=f"junk-{step}",
            reason="driver-junk",
            loads=step != "arch",
            environment={"FAKE_DRIVER_JUNK": stage.names[step]},
        )


def cuda_only(stage: Stage) -> Iterator[Refusal]:
    """What only CUDA's driver can tell or be asked."""
    variant = stage.objects.kernels["tbe_forward"][0]
    *rest, last = variant.parameters
    short = replace(variant, parameters=tuple(rest))
    wide = replace(variant, parameters=(*rest, replace(last, dtype="i64")))
    yield Refusal(
        name="parameter-left-out",
        reason="parameters",
        loads=True,
        attempt=lambda scene: scene.launcher().prepare(short, device=0),
    )
    yield Refusal(
        name="parameter-too-wide",
        reason="parameters",
        words="has 4 bytes",
        loads=True,
        attempt=lambda scene: scene.launcher().prepare(wide, device=0),
    )
    yield Refusal(
        name="scratch-pointer-left-out",
        reason="parameters",
        loads=True,
        attempt=lambda scene: scene.launcher().prepare(replace(variant, scratch_pointers=1), device=0),
    )
    yield Refusal(
        name="attribute-refused",
        reason="shared-memory",
        words=str(LARGE_SHARED),
        loads=True,
        attempt=lambda scene: send(scene.launcher(shared=LARGE_SHARED), small_call()),
        environment={"FAKE_DRIVER_FAIL": "cuFuncSetAttribute:1"},
    )
    yield Refusal(
        name="junk-context",
        reason="driver-junk",
        environment={"FAKE_DRIVER_JUNK": "cuDevicePrimaryCtxRetain"},
    )


def files(stage: Stage) -> Iterator[Refusal]:
    """Files that are not those of the release: never loaded, and no fallback hides it."""
    call = small_call()
    good = next(
        item for item in stage.objects.kernels["tbe_forward"] if item.name == "fp32-i64-plain-aligned"
    ).file.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    contents = {
        "flipped-bit": bytes(flipped),
        "cut": good[:-1],
        "longer": good + b"\0",
        "short": good[:10],
        "empty": b"",
    }
    for name, content in contents.items():
        file = stage.folder / f"{name}.bin"
        file.write_bytes(content)
        yield Refusal(
            name=f"object-{name}",
            reason="digest",
            attempt=lambda scene, file=file: send(scene.launcher(file=file), call),
        )
    yield Refusal(
        name="object-gone",
        reason="object-missing",
        words="gone.bin",
        attempt=lambda scene: send(scene.launcher(file=stage.folder / "gone.bin"), call),
    )
    for name, text in (("garbage", "{"), ("other-schema", '{"schema": "x"}'), ("list", "[]")):
        folder = stage.folder / f"manifest-{name}"
        folder.mkdir()
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        yield Refusal(
            name=folder.name,
            reason="manifest",
            attempt=lambda _scene, folder=folder: read_code_objects(folder),
        )


def other_arch(stage: Stage) -> str:
    """An architecture that the wheel has no code for, as the recording driver spells it."""
    if stage.objects.backend == "cuda":
        return "80" if stage.arch != "80" else "90"
    return "gfx90a" if stage.arch != "gfx90a" else "gfx942"


def in_full(stage: Stage, arch: str) -> str:
    """The recording driver's spelling as the launcher has it: ``80`` is ``sm80``."""
    return f"sm{arch}" if stage.objects.backend == "cuda" else arch
