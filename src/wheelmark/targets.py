"""Hardware targets: ids that parse and print symmetrically, and what each backend and arch means.

A target id is ``<backend>-<arch>``: ``cpu-x86_64``, ``cuda-sm90``, ``rocm-gfx942``. What a project builds
for a target (torch range, lock, local version label, gates) is a row of its ``wheelmark.toml``; what the
hardware *is* stands here.

Limits come from NVIDIA's CCCL ``arch_traits.h`` (shared memory a block, opt-in; registers a thread; threads
a block) and from LLVM's AMDGPU tests (LDS). For AMD the unified VGPR file of gfx90a and later holds 512
registers a lane (AMDGPU usage guide, "Register file": VGPR + AGPR, in one file).
"""

from __future__ import annotations

import dataclasses
import enum
import re

from wheelmark.errors import ConfigError


class Backend(enum.Enum):
    """The software stack that runs a target's code."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one block (workgroup) of an arch may use."""

    shared_memory: int
    """Bytes of shared memory (CUDA, opt-in maximum) or LDS (ROCm)."""
    registers: int
    """32-bit registers a thread."""
    threads: int
    """Threads a block."""
    warp: int
    """Threads a warp or wavefront."""


GPU_LIMITS: dict[str, Limits] = {
    "sm80": Limits(shared_memory=166_912, registers=255, threads=1024, warp=32),
    "sm90": Limits(shared_memory=232_448, registers=255, threads=1024, warp=32),
    "sm100": Limits(shared_memory=232_448, registers=255, threads=1024, warp=32),
    "sm120": Limits(shared_memory=101_376, registers=255, threads=1024, warp=32),
    "gfx90a": Limits(shared_memory=65_536, registers=512, threads=1024, warp=64),
    "gfx942": Limits(shared_memory=65_536, registers=512, threads=1024, warp=64),
    "gfx950": Limits(shared_memory=163_840, registers=512, threads=1024, warp=64),
}
_ARCHS: dict[Backend, tuple[str, ...]] = {
    Backend.CPU: ("x86_64", "aarch64"),
    Backend.CUDA: tuple(arch for arch in GPU_LIMITS if arch.startswith("sm")),
    Backend.ROCM: tuple(arch for arch in GPU_LIMITS if arch.startswith("gfx")),
}
_ID = re.compile(r"(?P<backend>[a-z]+)-(?P<arch>[a-z0-9_]+)")


@dataclasses.dataclass(frozen=True, order=True)
class Target:
    """A backend and an arch.

    ``str(Target.parse(text)) == text`` for every id, and ``Target.parse(str(target)) == target``.
    """

    id: str

    def __post_init__(self) -> None:
        match = _ID.fullmatch(self.id)
        known = match is not None and any(
            backend.value == match["backend"] and match["arch"] in archs for backend, archs in _ARCHS.items()
        )
        if not known:
            raise ConfigError(
                f"unknown target {self.id!r}",
                cause="a target id is <backend>-<arch>",
                fix=f"use one of: {', '.join(known_ids())}",
                reason="unknown-target",
            )

    @classmethod
    def parse(cls, text: str) -> Target:
        """The target that ``text`` names.

        Raises:
            ConfigError: No such backend or arch (reason ``unknown-target``).
        """
        return cls(text)

    def __str__(self) -> str:
        return self.id

    @property
    def backend(self) -> Backend:
        """The software stack."""
        return Backend(self.id.partition("-")[0])

    @property
    def arch(self) -> str:
        """``x86_64``, ``sm90``, ``gfx942``."""
        return self.id.partition("-")[2]

    @property
    def is_gpu(self) -> bool:
        """Whether code objects are compiled for it."""
        return self.backend is not Backend.CPU

    @property
    def limits(self) -> Limits | None:
        """What a block may use; ``None`` for a CPU."""
        return GPU_LIMITS.get(self.arch)

    @property
    def code_object(self) -> str:
        """File suffix of its code objects: ``cubin``, ``hsaco``, or empty for a CPU."""
        return {Backend.CUDA: "cubin", Backend.ROCM: "hsaco", Backend.CPU: ""}[self.backend]


def named_by(name: str) -> str:
    """Id of the target that a tag or name of an image names: all of it, or what stands after a ``-``; empty if none.

    >>> named_by("1.0-cuda-sm90")
    'cuda-sm90'
    """
    return next((item for item in known_ids() if name == item or name.endswith(f"-{item}")), "")


def known_ids() -> tuple[str, ...]:
    """Every target id that Wheelmark knows, in table order."""
    return tuple(f"{backend.value}-{arch}" for backend, archs in _ARCHS.items() for arch in archs)
