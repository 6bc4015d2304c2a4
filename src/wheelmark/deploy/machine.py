"""What this machine is: CPU, C library, interpreter, torch, cards and their drivers.

Each question that gets no answer is a note, never an error: a machine without a card has no driver to ask. A driver
library is loaded in a process of its own with a time limit.

Sources: the AMD KFD topology in sysfs (``gfx_target_version`` is major * 10000 + minor * 100 + stepping, in decimal; an arch's
name has minor and stepping in hexadecimal), ``/proc/driver/nvidia/version``, ``/proc/cpuinfo``.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wheelmark.deploy.interpreter import Interpreter
from wheelmark.targets import Backend

_PROBE = Path(__file__).with_name("probe.py")
_TIMEOUT = 30.0
"""Seconds: a driver that is being loaded can take several."""
_VERSION = re.compile(r"(?<![\d.])\d{3,}\.\d+(?:\.\d+)?(?![\d.])")
_FEATURES = ("avx2", "avx512f", "sve")
_FILE_LIMIT = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """One accelerator that the driver shows to this process."""

    backend: Backend
    arch: str
    """``sm90``, ``gfx942``."""
    name: str = ""
    driver: str = ""
    """Version of the driver; empty where nothing says it."""
    cuda: str = ""
    """Newest CUDA version that the driver knows, ``12.8``; empty for ROCm."""

    def __str__(self) -> str:
        driver = f", driver {self.driver}" if self.driver else f", CUDA {self.cuda}" if self.cuda else ""
        return f"{self.arch}{f' ({self.name})' if self.name else ''}{driver}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """What a wheel has to fit."""

    arch: str
    """CPU: ``x86_64``, ``aarch64``."""
    glibc: str
    """``2.36``; empty where the C library is another."""
    python: str
    """Version of the interpreter that is installed into."""
    torch: str = ""
    """Version of torch there; empty where it is not installed."""
    cards: tuple[Card, ...] = ()
    features: tuple[str, ...] = ()
    """Of ``avx2``, ``avx512f``, ``sve``: what the CPU has."""
    notes: tuple[str, ...] = ()
    """Questions that got no answer, and why."""

    def as_json(self) -> dict[str, Any]:
        """The machine for ``--json``."""
        return {
            **dataclasses.asdict(self),
            "cards": [{**dataclasses.asdict(card), "backend": card.backend.value} for card in self.cards],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Places:
    """Where a machine is looked at; the defaults are the ones of Linux."""

    cuda: str = "libcuda.so.1"
    nvml: str = "libnvidia-ml.so.1"
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    timeout: float = _TIMEOUT


def detect(python: Interpreter, places: Places | None = None) -> Machine:
    """Look at this machine.

    Args:
        python: The interpreter that is installed into.
        places: Where to look.
    """
    places = places or Places()
    notes: list[str] = []
    cards = (*_nvidia(places, notes), *_amd(places, notes))
    if not cards:
        notes.append("no card of NVIDIA or AMD answers")
    return Machine(
        arch=python.arch,
        glibc=python.glibc,
        python=python.version,
        torch=python.packages.get("torch", ""),
        cards=cards,
        features=_features(places),
        notes=tuple(notes),
    )


def _nvidia(places: Places, notes: list[str]) -> tuple[Card, ...]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_PROBE), places.cuda, places.nvml],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=places.timeout,
        )
        # What a driver library prints stands before the answer.
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        notes.append(f"NVIDIA: the driver library gave no answer in {places.timeout:g} s")
        return ()
    except (OSError, ValueError, IndexError) as error:
        notes.append(f"NVIDIA: the driver library could not be asked: {error}")
        return ()
    if found is None:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
        notes.append(f"NVIDIA: the driver library ended the process that asked it ({ended})")
        return ()
    notes += found["notes"]
    driver = found["driver"] or _loaded_driver(places)
    return tuple(
        Card(backend=Backend.CUDA, arch=item["arch"], name=item["name"], driver=driver, cuda=found["cuda"])
        for item in found["cards"]
    )


def _loaded_driver(places: Places) -> str:
    """Version of the loaded kernel module, where NVML does not say it."""
    match = _VERSION.search(_text(places.proc / "driver" / "nvidia" / "version"))
    return match[0] if match else ""


def _amd(places: Places, notes: list[str]) -> tuple[Card, ...]:
    nodes = places.sys / "class" / "kfd" / "kfd" / "topology" / "nodes"
    driver = _text(places.sys / "module" / "amdgpu" / "version").strip()
    return tuple(
        Card(backend=Backend.ROCM, arch=arch, name=name, driver=driver)
        for arch, name in _amd_nodes(nodes, notes)
    )


def _amd_nodes(nodes: Path, notes: list[str]) -> Iterator[tuple[str, str]]:
    try:
        folders = sorted(nodes.iterdir(), key=lambda path: (len(path.name), path.name))
    except FileNotFoundError:
        return
    except OSError as error:
        notes.append(f"AMD: {nodes}: {error.strerror}")
        return
    for folder in folders:
        properties = dict(
            line.split(" ", 1) for line in _text(folder / "properties").splitlines() if " " in line
        )
        text = properties.get("gfx_target_version", "")
        if not text.isdecimal() or len(text) > 9:  # noqa: PLR2004 - digits of a 32-bit number
            notes.append(f"AMD: node {folder.name} does not say what it is")
            continue
        version = int(text)
        if version:  # a CPU is a node too, with version 0
            major, minor, stepping = version // 10_000, version // 100 % 100, version % 100
            yield f"gfx{major}{minor:x}{stepping:x}", _text(folder / "name").strip()


def _features(places: Places) -> tuple[str, ...]:
    for line in _text(places.proc / "cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"flags", "Features"}:
            words = set(value.split())
            return tuple(name for name in _FEATURES if name in words)
    return ()


def _text(path: Path) -> str:
    """A small file of the kernel's, or nothing."""
    try:
        with path.open("rb") as stream:
            return stream.read(_FILE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
