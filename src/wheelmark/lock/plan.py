"""Which lock files a project has, and what goes into each: pure, from ``wheelmark.toml`` and ``pyproject.toml``.

Every project gets ``build.txt`` (compiles kernels, gives torch's headers) and one ``runtime-*.txt`` for each build of
torch in its targets table. The repository of the pipeline itself gets ``nox.txt``, ``tools.txt``, ``check.txt`` and
``cibuildwheel.txt`` too, from its own ``pyproject.toml``.
"""

from __future__ import annotations

import dataclasses
import enum
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from wheelmark import digests
from wheelmark.config import Declaration, HostArch, TorchBuild
from wheelmark.errors import ConfigError

FOLDER = "lockfiles"
PYTHON = "3.11"
"""The Python that locks are resolved for; every file of a version is hashed, so later ones install as well."""
_FORMAT = 1


class Torch(enum.Enum):
    """What a lock holds of torch."""

    NONE = "none"
    """Nothing was asked for."""
    CPU = "cpu"
    """The CPU wheel by its declared hash, and what it needs; none of the accelerator packages."""
    INDEX = "index"
    """The index's own build with all that it needs."""
    LEFT_OUT = "left-out"
    """What torch needs, without torch and without accelerator packages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockPlan:
    """The inputs of one lock file."""

    name: str
    """File name in ``lockfiles/``."""
    about: str
    """One line for its header."""
    requirements: tuple[str, ...]
    """PEP 508 requirements, sorted."""
    hosts: tuple[HostArch, ...]
    """CPUs that it has to install on."""
    torch: Torch = Torch.NONE
    torch_version: str = ""
    torch_sha256: str = ""
    """The only file of torch that may be installed; empty: the index's hashes."""

    @property
    def torch_wheel_version(self) -> str:
        """The version that the CPU wheel carries: PyTorch labels it ``+cpu``.

        The label is locked too: uv looks hashes up by the whole version, so ``torch==2.13.0`` would never find the
        hash of ``2.13.0+cpu`` (pip takes either).
        """
        return self.torch_version if "+" in self.torch_version else f"{self.torch_version}+cpu"

    @property
    def inputs(self) -> str:
        """sha256 of all that decides what is in the file, besides what the index holds."""
        return digests.sha256(
            digests.canonical_json(
                {
                    "format": _FORMAT,
                    "python": PYTHON,
                    "requirements": list(self.requirements),
                    "hosts": [host.value for host in self.hosts],
                    "torch": [self.torch.value, self.torch_version, self.torch_sha256],
                }
            )
        )


def is_accelerator(name: str) -> bool:
    """Whether a package of torch's closure is there for a GPU only: CUDA's packages, and Triton."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def runtime_name(build: TorchBuild) -> str:
    """File name of the runtime lock for a build of torch."""
    return f"runtime-{build.value}.txt"


def runtime_lock(root: Path, build: TorchBuild) -> Path:
    """The runtime lock of a project for a build of torch.

    Args:
        root: The folder of ``wheelmark.toml``.
        build: Which build of torch the target row names.
    """
    return root / FOLDER / runtime_name(build)


def plans(declaration: Declaration) -> tuple[LockPlan, ...]:
    """Every lock file of a project, in the order in which they are resolved (later ones prefer earlier pins).

    Raises:
        ConfigError: ``pyproject.toml`` cannot be read or has a malformed requirement.
    """
    return (*_pipeline_plans(declaration.root / "pyproject.toml"), *payload_plans(declaration))


def payload_plans(declaration: Declaration) -> tuple[LockPlan, ...]:
    """The lock files that a release is built from: run-time environments, and the one that compiles."""
    locks = declaration.locks
    needs = ("numpy", *declaration.project.dependencies)
    torch = f"torch=={locks.torch}"
    abouts = {
        TorchBuild.CPU: ("torch's CPU wheel, by its declared hash", Torch.CPU),
        TorchBuild.DEFAULT: ("the index's own torch", Torch.INDEX),
        TorchBuild.ROCM: ("what torch needs, without torch", Torch.LEFT_OUT),
    }
    found = []
    for build in TorchBuild:
        hosts = {row.host for row in declaration.targets if row.torch_build is build}
        if not hosts:
            continue
        about, kind = abouts[build]
        found.append(
            LockPlan(
                name=runtime_name(build),
                about=f"run-time environment: {about}",
                requirements=_sorted([torch, *needs]),
                hosts=tuple(host for host in HostArch if host in hosts),
                torch=kind,
                torch_version=locks.torch,
                torch_sha256=locks.torch_cpu_sha256 if kind is Torch.CPU else "",
            )
        )
    found.append(
        LockPlan(
            name="build.txt",
            about="build environment: compiles kernels, gives torch's headers, runs the interpreter",
            requirements=_sorted([torch, f"triton=={locks.triton}", *needs]),
            hosts=(HostArch.X86_64,),
            torch=Torch.CPU,
            torch_version=locks.torch,
            torch_sha256=locks.torch_cpu_sha256,
        )
    )
    return tuple(found)


def _pipeline_plans(path: Path) -> tuple[LockPlan, ...]:
    """Plans of the pipeline's own repository; none for a project that only uses it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path.name}: {error}", reason="pyproject") from error
    project = document.get("project", {})
    if project.get("name") != "wheelmark":
        return ()
    extra = _texts(project.get("optional-dependencies", {}), "build")
    core = [*_texts(project, "dependencies"), *extra]
    backend = [*_texts(document.get("build-system", {}), "requires"), "editables"]
    tools = [*core, *backend]
    groups = document.get("dependency-groups", {})
    development = _group(groups, "dev")
    runners = [text for text in extra if canonicalize_name(_requirement(text).name) in {"nox", "uv"}]
    about = {
        "nox.txt": ("what starts a session: nox and uv", runners),
        "tools.txt": ("what the pipeline runs with, and what installs it", tools),
        "check.txt": (
            "the tools, and what tests, types and docs are checked with",
            [*tools, *development, "numpy"],
        ),
        "cibuildwheel.txt": (
            "cibuildwheel, and the pip of the image that it runs in here",
            _group(groups, "wheels"),
        ),
    }
    return tuple(
        LockPlan(name=name, about=text, requirements=_sorted(requirements), hosts=tuple(HostArch))
        for name, (text, requirements) in about.items()
    )


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"pyproject.toml: {key} is not a list of requirements", reason="pyproject")
    return list(value)


def _group(groups: Mapping[str, Any], name: str) -> list[str]:
    """A dependency group with those that it includes (PEP 735; depth bounded by the number of groups)."""
    found: list[str] = []
    waiting, seen = [name], set[str]()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for item in groups.get(current, []):
            if isinstance(item, str):
                found.append(item)
            elif isinstance(item, dict) and isinstance(item.get("include-group"), str):
                waiting.append(item["include-group"])
            else:
                raise ConfigError(
                    f"pyproject.toml: dependency group {current} is malformed", reason="pyproject"
                )
    return found


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise ConfigError(f"{text!r} is no requirement (PEP 508): {error}", reason="requirement") from error


def _sorted(requirements: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({str(_requirement(text)) for text in requirements}))
