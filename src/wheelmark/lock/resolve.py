"""Lock files are resolved from the index's metadata and written so that they are the same wherever it is done.

uv resolves; what it says is read as pins and written again in one form, sorted, under a header of two digests: of
the inputs (so that ``--check`` needs no network) and of the pins (so that an edit by hand is seen). Nothing is
downloaded but metadata: torch and its CUDA closure are gigabytes.

Each lock is resolved once for each CPU that it serves; a pin that all of them share has no marker, another one
says for which CPU it is. Pins that are there already are preferred, then those of locks resolved before it.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wheelmark import digests
from wheelmark.config import Declaration, HostArch
from wheelmark.errors import CommandError, LockError
from wheelmark.lock.plan import FOLDER, PYTHON, LockPlan, Torch, is_accelerator, plans
from wheelmark.packages import installer
from wheelmark.packages.index import PackageSources, read_sources
from wheelmark.packages.pins import Pin, header_field, parse_pins, read_pins, render_pins


class LockState(enum.Enum):
    """What became of a lock file, or what a check found."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    STALE = "stale"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockResult:
    """One lock file's result."""

    name: str
    path: Path
    state: LockState
    packages: int
    why: str = ""
    """Why it is stale."""


def lock_files(
    declaration: Declaration,
    *,
    check: bool = False,
    upgrade: bool = False,
    progress: Callable[[str], None] = lambda _line: None,
) -> tuple[LockResult, ...]:
    """Write, or check, every lock file of a project.

    Args:
        declaration: The project.
        check: Only say whether each file fits ``wheelmark.toml`` and ``pyproject.toml``; no network.
        upgrade: Take the newest versions instead of those that are locked.
        progress: Called with a line for people at each file.

    Raises:
        ConfigError: ``pyproject.toml`` cannot be used.
        LockError: The requirements have no solution (``lock-unsolvable``), or the index answers with what a lock
            cannot hold.
        ToolError: uv is not installed.
        CommandError: uv failed for another reason.
    """
    folder = declaration.root / FOLDER
    if check:
        return tuple(check_lock(plan, folder / plan.name) for plan in plans(declaration))
    uv = installer.require_uv()
    sources = read_sources().shared()
    folder.mkdir(exist_ok=True)
    earlier: dict[str, Pin] = {}
    results = []
    for plan in plans(declaration):
        progress(f"resolving {plan.name}")
        path = folder / plan.name
        resolver = _Resolver(
            uv=uv,
            sources=sources,
            plan=plan,
            preferred=_preferred(path, earlier, upgrade=upgrade),
            upgrade=upgrade,
        )
        pins = resolver.resolve()
        results.append(_write(path, plan, pins))
        for pin in pins:
            earlier.setdefault(pin.name, pin)
    return tuple(results)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Resolver:
    """One lock's resolution."""

    uv: Path
    sources: PackageSources
    plan: LockPlan
    preferred: tuple[Pin, ...]
    upgrade: bool

    def resolve(self) -> tuple[Pin, ...]:
        """The lock's pins over all its hosts."""
        return merge_hosts({host: self._resolve_host(host) for host in self.plan.hosts})

    def _resolve_host(self, host: HostArch) -> tuple[Pin, ...]:
        plan = self.plan
        if plan.torch in {Torch.NONE, Torch.INDEX}:
            return self._compile(plan.requirements, host)
        asked = {canonicalize_name(Requirement(text).name) for text in plan.requirements}
        closure = self._compile((f"torch=={plan.torch_version}",), host)
        excluded = [pin.name for pin in closure if is_accelerator(pin.name) and pin.name not in asked]
        pins = self._compile(plan.requirements, host, excluded=excluded)
        return with_torch(pins, plan)

    def _compile(
        self, requirements: Sequence[str], host: HostArch, excluded: Sequence[str] = ()
    ) -> tuple[Pin, ...]:
        with tempfile.TemporaryDirectory(prefix="wheelmark-lock-") as name:
            folder = Path(name)
            (folder / "requirements.in").write_text(
                "".join(f"{text}\n" for text in requirements), encoding="utf-8"
            )
            (folder / "excludes.txt").write_text("".join(f"{item}\n" for item in excluded), encoding="utf-8")
            output = folder / "lock.txt"
            here = [pin for pin in self.preferred if pin.applies({"platform_machine": host.value})]
            output.write_bytes(render_pins(dataclasses.replace(pin, marker="") for pin in here))
            arguments = [
                *("pip", "compile", "--quiet", "requirements.in", "--output-file", output.name),
                *(
                    "--generate-hashes",
                    "--no-emit-index-url",
                    "--no-header",
                    "--no-annotate",
                    "--strip-extras",
                ),
                *("--python", sys.executable, "--python-version", PYTHON),
                *("--python-platform", f"{host.value}-manylinux_2_28"),
                *("--only-binary", ":all:", "--index-strategy", "unsafe-best-match"),
                *(("--excludes", "excludes.txt") if excluded else ()),
                *(("--upgrade",) if self.upgrade else ()),
            ]
            try:
                installer.run_uv(self.uv, arguments, sources=self.sources, folder=folder, isolated=True)
            except CommandError as error:
                raise self._unsolvable(error, host) from error
            return parse_pins(output.read_text(encoding="utf-8"), name=self.plan.name)

    def _unsolvable(self, error: CommandError, host: HostArch) -> LockError | CommandError:
        if "no solution found" not in error.output.lower():
            return error
        return LockError(
            f"{self.plan.name} has no solution on {host.value}:\n{error.output.strip()}",
            cause="two requirements exclude each other, or a declared version is not on the index",
            fix="change [locks] in wheelmark.toml or the requirements in pyproject.toml",
            reason="lock-unsolvable",
        )


def with_torch(pins: Iterable[Pin], plan: LockPlan) -> tuple[Pin, ...]:
    """A closure with torch as the plan wants it: by the declared hash only, or left out."""
    kept = [pin for pin in pins if pin.name != "torch"]
    if plan.torch is Torch.CPU:
        kept.append(Pin(name="torch", version=plan.torch_wheel_version, hashes=(plan.torch_sha256,)))
    return tuple(sorted(kept, key=lambda pin: pin.name))


def merge_hosts(resolved: Mapping[HostArch, Sequence[Pin]]) -> tuple[Pin, ...]:
    """One closure for several CPUs: what differs between them gets a marker that names the CPU."""
    places: dict[Pin, list[HostArch]] = {}
    for host, pins in resolved.items():
        for pin in pins:
            places.setdefault(pin, []).append(host)
    merged = [
        pin
        if len(hosts) == len(resolved)
        else dataclasses.replace(pin, marker=f'platform_machine == "{host.value}"')
        for pin, hosts in places.items()
        for host in (hosts[:1] if len(hosts) == len(resolved) else hosts)
    ]
    return tuple(sorted(merged, key=lambda pin: (pin.name, pin.marker)))


def _preferred(path: Path, earlier: Mapping[str, Pin], *, upgrade: bool) -> tuple[Pin, ...]:
    """The file's own pins, with their hashes if nobody changed it by hand, then the pins of earlier locks.

    Kept hashes keep a lock the same when a project adds files to a version that is already locked. torch's are
    never kept: one lock holds the CPU wheel's, another the index's.
    """
    own: list[Pin] = []
    if not upgrade:
        try:
            own = list(read_pins(path))
        except LockError:
            own = []  # absent or damaged: resolved afresh
    intact = header_field(path, "pins") == f"sha256:{_pins_digest(own)}"
    kept = [pin if intact and pin.name != "torch" else dataclasses.replace(pin, hashes=()) for pin in own]
    named = {pin.name for pin in kept}
    return (
        *kept,
        *(dataclasses.replace(pin, hashes=()) for pin in earlier.values() if pin.name not in named),
    )


def _pins_digest(pins: Iterable[Pin]) -> str:
    return digests.sha256(render_pins(pins))


def _write(path: Path, plan: LockPlan, pins: tuple[Pin, ...]) -> LockResult:
    header = [
        f"{plan.name}: {plan.about}",
        "written by `wheelmark lock`; not edited by hand",
        f"inputs: sha256:{plan.inputs}",
        f"pins: sha256:{_pins_digest(pins)}",
    ]
    data = render_pins(pins, header=header)
    same = path.exists() and path.read_bytes() == data
    if not same:
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        partial.write_bytes(data)
        partial.replace(path)
    state = LockState.UNCHANGED if same else LockState.WRITTEN
    return LockResult(name=plan.name, path=path, state=state, packages=len(pins))


def check_lock(plan: LockPlan, path: Path) -> LockResult:
    """Whether a lock file fits its plan, without a network."""
    why, count = "", 0
    try:
        pins = read_pins(path)
    except LockError as error:
        why = error.what
    else:
        count = len(pins)
        if header_field(path, "inputs") != f"sha256:{plan.inputs}":
            why = "its inputs changed since it was written (wheelmark.toml or pyproject.toml)"
        elif header_field(path, "pins") != f"sha256:{_pins_digest(pins)}":
            why = "its pins were changed by hand"
    state = LockState.STALE if why else LockState.UNCHANGED
    return LockResult(name=plan.name, path=path, state=state, packages=count, why=why)
