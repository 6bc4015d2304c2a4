"""The part of ``nox -s bench -- images`` about the hook: what a start costs with it, and the hook alone."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import hooking
from forging import forging
from hooking import GOOD, Host
from wheelmark.trust import state

_KEEP_STATE = """{"version": "1.0.0", "hook": {"path": "/bin/sh", "args": ["sh", "-c", "cat > %s"]},
"when": {"always": true}, "stages": ["createRuntime"]}
"""


def hook(folder: Path, *, rounds: int) -> list[str]:
    """Starts of one image in turns, and the hook's own time.

    Args:
        folder: To work in.
        rounds: Pairs.
    """
    folder.mkdir(parents=True)
    home = folder / "state"
    with forging(home) as forge, pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(home))
        program = hooking.compile_program(folder)
        with hooking.opened(program, (home, forge), "overlay" if _has_overlay(folder) else "vfs") as host:
            host.install()
            host.pull(host.layout("good"), GOOD)
            pairs = [_pair(host, first=bool(number % 2)) for number in range(rounds)]
            alone = [_alone(host) for _ in range(rounds)]
            bare = [_timed([sys.executable, "-I", "-c", "pass"], b"") for _ in range(rounds)]
    more = [with_hook - without for with_hook, without in pairs]
    return [
        "| what | seconds, median | seconds, slowest | CPU seconds, median |",
        "| --- | --- | --- | --- |",
        _row("`podman run` with the hook (runc)", [item for item, _ in pairs]),
        _row("`podman run` without it", [item for _, item in pairs]),
        _row("difference of each pair", more),
        _row("the hook alone", [wall for wall, _ in alone], [cpu for _, cpu in alone]),
        _row("`python -I -c pass`", [wall for wall, _ in bare], [cpu for _, cpu in bare]),
        "",
        f"{rounds} pairs; the aim is 0.5 s for the hook.",
    ]


def _row(name: str, walls: Sequence[float], cpus: Sequence[float] = ()) -> str:
    cpu = f"{statistics.median(cpus):.2f}" if cpus else ""
    return f"| {name} | {statistics.median(walls):.2f} | {max(walls):.2f} | {cpu} |"


def _pair(host: Host, *, first: bool) -> tuple[float, float]:
    """Wall seconds of a start with the hook and of one without, in either order."""
    taken: dict[bool, float] = {}
    for hooked in (first, not first):
        options = ("--hooks-dir", host.folder / "hooks") if hooked else ()
        begun = time.perf_counter()
        done = host.podman(*options, "run", "--rm", GOOD)
        taken[hooked] = time.perf_counter() - begun
        if done.code:
            raise SystemExit(f"podman run ended with {done.code}\n{done.err}")
    return taken[True], taken[False]


def _alone(host: Host) -> tuple[float, float]:
    """Wall and CPU seconds of the hook, for a container that its engine has just made."""
    kept = host.folder / "state.json"
    if not kept.exists():
        aside = host.folder / "aside"
        aside.mkdir()
        (aside / "keep.json").write_text(_KEEP_STATE % kept, encoding="utf-8")
        for command in (("create", "--name", "kept", GOOD), ("init", "kept")):
            done = host.podman("--hooks-dir", aside, *command)
            if done.code:
                raise SystemExit(f"podman {command[0]} ended with {done.code}\n{done.err}")
    command = ["/bin/sh", str(host.setup().launcher_path)]
    return _timed(command, kept.read_bytes())


def _timed(command: Sequence[str], data: bytes) -> tuple[float, float]:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}\n{done.stderr.decode()}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _has_overlay(folder: Path) -> bool:
    """Whether overlays can be mounted here, which is what podman takes then."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(exist_ok=True)
    options = ",".join(f"{name}dir={folder / name}" for name in ("lower", "upper", "work"))
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(folder / "merged")]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(folder / "merged")], check=True)
    return True
