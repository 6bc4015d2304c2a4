"""The model of ``wheelmark.toml``: frozen dataclasses, one a table.

Precedence of a setting is explicit: default < file < environment (``WHEELMARK_*``) < command line.
"""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path

from wheelmark.errors import ConfigError
from wheelmark.targets import Target


class HostArch(enum.Enum):
    """The CPU of the machine that a wheel is installed on."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


class TorchBuild(enum.Enum):
    """Which build of torch a target's runtime lock holds."""

    CPU = "cpu"
    """torch's CPU wheel; its hash is declared, since it is not on the ordinary index."""
    DEFAULT = "default"
    """The index's own torch, with its CUDA closure."""
    ROCM = "rocm"
    """torch is left out of the lock and ``torch.version.hip`` is checked when installed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """The distribution that is released."""

    name: str
    """Distribution name, as in METADATA."""
    version: str
    """Public version (PEP 440), without a local label."""
    import_name: str
    """The Python package inside ``source``."""
    source: Path
    """Folder with the package, its native sources and kernel declarations."""
    summary: str
    license: str
    """SPDX expression."""
    license_files: tuple[Path, ...]
    """Relative to ``source``."""
    supplier: str
    """Organisation named in SBOMs."""
    homepage: str
    requires_python: str
    dependencies: tuple[str, ...]
    """Requirements besides torch (PEP 508), written into METADATA."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetRow:
    """One row of the targets table: one wheel."""

    target: Target
    host: HostArch
    platform: str
    """Platform tag without the CPU, for instance ``manylinux_2_28``."""
    local: str
    """Local version label of the wheel (PEP 440), for instance ``sm90``."""
    torch: str
    """torch versions that it works with (PEP 440 specifier set)."""
    torch_build: TorchBuild
    gates: tuple[str, ...]
    """Names of the gates that run on it, in order."""
    image: Path | None = None
    """Image recipe (``containers/…``); without one the target has no image."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernels:
    """Where the Triton kernels are declared."""

    declarations: tuple[Path, ...]
    """Kernel declaration files, relative to the project's ``source``."""
    workers: int = 0
    """Worker processes; 0 means one for each CPU."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Native:
    """The C++ library on LibTorch's stable ABI."""

    library: Path
    """The shared object, relative to the wheel's root."""
    sources: tuple[Path, ...]
    """C++ files, relative to the project's ``source``, compiled in this order."""
    include: tuple[Path, ...] = ()
    """Include folders, relative to the project's ``source``; their headers are hashed into the build key."""
    torch_target: str = "2.10"
    """Oldest torch that the library loads into (becomes TORCH_TARGET_VERSION)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Locks:
    """What the locks pin besides what the index says."""

    torch: str
    """The torch version that is locked and tested with."""
    torch_cpu_sha256: str
    """Digest of torch's CPU wheel for the build machine (it is not on the ordinary index)."""
    triton: str
    """The Triton version that kernels are compiled with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerformanceGate:
    """Paired ratio against the reference implementation, both sides interleaved in one run."""

    module: str
    """Importable module, in the installed wheel, that names the cases (see docs: gates)."""
    max_ratio: float
    """Fail when the whole confidence interval of time(ours) / time(reference) lies above this."""
    pairs: int = 30
    """Interleaved pairs a case."""
    confidence: float = 0.95
    baseline: Path | None = None
    """Committed JSON of static figures (registers, spills, shared memory, code size) for GPU targets."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrectnessGate:
    """The contract that the installed wheel is held to."""

    module: str
    """Importable module, in the installed wheel, that names the cases (see docs: gates)."""
    dispatch: tuple[str, ...]
    """CPU dispatch paths, each forced in turn through ``dispatch_variable``; empty: the library has one path."""
    dispatch_variable: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditGate:
    """Where advisories come from."""

    service: str = "none"
    """``none`` (the gate is UNCHECKED), ``online``, or a folder of OSV files with a manifest."""
    max_age_days: int = 30
    """Oldest advisory data that counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gates:
    """Settings of the gates."""

    size_budget: int
    """Bytes that one wheel may have."""
    correctness: CorrectnessGate
    performance: PerformanceGate
    audit: AuditGate = dataclasses.field(default_factory=AuditGate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """A whole ``wheelmark.toml``."""

    root: Path
    """The folder that holds the file (not a key of it)."""
    project: Project
    targets: tuple[TargetRow, ...]
    kernels: Kernels
    native: Native
    locks: Locks
    gates: Gates

    def row(self, target: Target) -> TargetRow:
        """The row of one target.

        Raises:
            ConfigError: The table has no such row.
        """
        for row in self.targets:
            if row.target == target:
                return row
        raise ConfigError(
            f"wheelmark.toml has no target {target}",
            fix=f"name one of: {', '.join(str(row.target) for row in self.targets)}",
            reason="undeclared-target",
        )
