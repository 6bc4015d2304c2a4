"""The part of ``nox -s bench -- images`` about the hook: what a start costs with it, and the hook alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from figures import spread

import hooking
from forging import forging
from hooking import GOOD, Host
from wheelmark.trust import state

_SPENT = Path(__file__).with_name("spent.py")
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
            for hooked in (True, False):  # once, so that all is in memory
                _start(host, hooked=hooked)
            pairs = [_pair(host, first=bool(number % 2)) for number in range(rounds)]
            alone, bare = _alone(host, rounds)
    with_hook, without = [first for first, _ in pairs], [second for _, second in pairs]
    more = [(first[0] - second[0], first[1] - second[1]) for first, second in pairs]
    return [
        "| what | wall seconds: median (range) | CPU seconds: median (range) | aim |",
        "| --- | --- | --- | --- |",
        _row("`podman run` with the hook (runc)", with_hook),
        _row("`podman run` without it", without),
        _row("difference of each pair", more, "0.5 s"),
        _row("the hook's program alone", alone),
        _row("`python3 -I -c pass`", bare),
        "",
        f"{rounds} pairs, in turns. CPU seconds are those of everything that was started: podman, its monitor, runc, the hook.",
    ]


def _row(name: str, figures: Sequence[tuple[float, float]], aim: str = "") -> str:
    return f"| {name} | {spread([wall for wall, _ in figures])} | {spread([cpu for _, cpu in figures])} | {aim} |"


def _pair(host: Host, *, first: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    """Wall and CPU seconds of a start with the hook and of one without, made in either order."""
    taken = {hooked: _start(host, hooked=hooked) for hooked in (first, not first)}
    return taken[True], taken[False]


def _start(host: Host, *, hooked: bool) -> tuple[float, float]:
    options = ("--hooks-dir", str(host.folder / "hooks")) if hooked else ()
    return _timed([*host.engine, *options, "run", "--rm", GOOD])


def _alone(host: Host, rounds: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The hook for a container that its engine has just made, in turns with an interpreter that does nothing."""
    kept = host.folder / "state.json"
    aside = host.folder / "aside"
    aside.mkdir()
    (aside / "keep.json").write_text(_KEEP_STATE % kept, encoding="utf-8")
    for command in (("create", "--name", "kept", GOOD), ("init", "kept")):
        done = host.podman("--hooks-dir", aside, *command)
        if done.code:
            raise SystemExit(f"podman {command[0]} ended with {done.code}\n{done.err}")
    program = ["/bin/sh", str(host.setup().launcher_path)]
    alone, bare = [], []
    for _ in range(rounds):
        alone.append(_timed(program, kept))
        bare.append(_timed([sys.executable, "-I", "-c", "pass"]))
    return alone, bare


def _timed(command: Sequence[str], given: Path = Path(os.devnull)) -> tuple[float, float]:
    """Wall and CPU seconds of a command and of all that it left behind."""
    with given.open("rb") as stream:
        done = subprocess.run(
            [sys.executable, "-I", str(_SPENT), *command], stdin=stream, capture_output=True, check=True
        )
    found = json.loads(done.stdout)
    if found["code"]:
        raise SystemExit(f"{' '.join(command)}\nended with {found['code']}\n{found['err']}")
    return found["seconds"], found["cpu"]


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
