"""``wheelmark doctor``: what this machine lacks, for what, and the command that mends it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

NAME = "doctor"
HELP = "say what this machine lacks for what, with the command that mends it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    """One thing that some stage needs."""

    name: str
    needed_for: str
    required: bool
    """Whether ``nox -s build test sign`` cannot do without it."""
    look: Callable[[], str]
    """What was found, or the empty string."""
    fix: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the project is."""
    parser.add_argument("--project", type=Path, default=Path(), help="folder of wheelmark.toml")


def needs() -> tuple[Need, ...]:
    """Everything that is looked for, most necessary first."""
    from wheelmark.build.native import find_compiler
    from wheelmark.config import HostArch
    from wheelmark.confinement import obstacle
    from wheelmark.errors import ToolError
    from wheelmark.gates.fake_driver import find_c_compiler
    from wheelmark.lock.debian.fetch import POOL_VARIABLE
    from wheelmark.lock.debian.machine import SNAPSHOT_VARIABLE

    def compiler(host: HostArch) -> str:
        try:
            return find_compiler(host).version
        except ToolError:
            return ""

    own = "g++" if platform.machine() == "x86_64" else "g++-x86-64-linux-gnu"
    return (
        Need(
            name="Python 3.11 or newer",
            needed_for="everything",
            required=True,
            look=lambda: platform.python_version() if sys.version_info >= (3, 11) else "",
            fix="install Python 3.11",
        ),
        Need(
            name="C++ compiler for x86_64",
            needed_for="build: every x86_64 target",
            required=True,
            look=lambda: compiler(HostArch.X86_64),
            fix=f"apt-get install {own}",
        ),
        Need(
            name="C compiler",
            needed_for="test: the recording driver of the launch contract",
            required=True,
            look=lambda: "".join(_version(program) for program in find_c_compiler()[:1]),
            fix="apt-get install gcc",
        ),
        Need(
            name="C++ compiler for aarch64",
            needed_for="build: cpu-aarch64",
            required=False,
            look=lambda: compiler(HostArch.AARCH64),
            fix="apt-get install g++-aarch64-linux-gnu",
        ),
        Need(
            name="Debian packages",
            needed_for="build: without them no image from packages is built, and the release is partial",
            required=False,
            look=_debian_source,
            fix=f"add a Debian mirror to apt's sources, or set {SNAPSHOT_VARIABLE} or {POOL_VARIABLE}",
        ),
        Need(
            name="containers",
            needed_for="test: without podman and a runtime image-run is UNCHECKED",
            required=False,
            look=_containers,
            fix="apt-get install podman runc",
        ),
        Need(
            name="git",
            needed_for="sign: the revision in the provenance",
            required=False,
            look=lambda: _version("git"),
            fix="apt-get install git",
        ),
        Need(
            name="npm",
            needed_for="check: agreement with the JavaScript Sigstore client",
            required=False,
            look=lambda: _version("npm"),
            fix="apt-get install npm",
        ),
        Need(
            name="openssl",
            needed_for="check: agreement on RFC 3161 timestamps",
            required=False,
            look=lambda: _version("openssl", "version"),
            fix="apt-get install openssl",
        ),
        Need(
            name="namespaces",
            needed_for="build, test: a project's code cannot see the signing state",
            required=False,
            look=lambda: "" if obstacle() else "mount, process",
            fix="allow unprivileged user namespaces, or sign in another job (SECURITY.md)",
        ),
        Need(
            name="NVIDIA driver",
            needed_for="tests/gpu: evidence of level hardware",
            required=False,
            look=lambda: _version("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
            fix="run tests/gpu/run.py on a machine with the card",
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Look, print, and fail only where a required thing is absent."""
    from wheelmark.config import FILE_NAME
    from wheelmark.errors import Exit
    from wheelmark.pipeline.progress import table

    found = [(need, need.look()) for need in needs()]
    missing = [need for need, seen in found if not seen and need.required]
    declared = (args.project / FILE_NAME).is_file()
    if args.json:
        rows = [
            {
                "name": need.name,
                "needed_for": need.needed_for,
                "required": need.required,
                "found": seen,
                "fix": "" if seen else need.fix,
            }
            for need, seen in found
        ]
        print(json.dumps({"ok": not missing, "project": declared, "needs": rows}, indent=2))
    else:
        print(
            table(
                ("", "what", "needed for", "found, or what mends it"),
                [
                    (
                        "ok" if seen else ("MISSING" if need.required else "absent"),
                        need.name,
                        need.needed_for,
                        seen or need.fix,
                    )
                    for need, seen in found
                ],
            )
        )
        if not declared:
            where = args.project.absolute()
            print(f"\nnote: no {FILE_NAME} in {where}: this is about the machine alone, and no project's")
            print("  next step:    run it in the folder of one, or name that with --project")
    return int(Exit.TOOL if missing else Exit.OK)


def _containers() -> str:
    """Podman and the runtime that it would use, if both are there."""
    from wheelmark.gates.image.podman import preferred_runtime

    runtime, version = preferred_runtime(), _version("podman")
    return f"{version}, {runtime}" if version and runtime else ""


def _debian_source() -> str:
    """Where Debian packages come from here: a folder, a snapshot, or how many suites apt has."""
    from wheelmark.lock.debian import this_machine
    from wheelmark.lock.debian.fetch import POOL_VARIABLE

    if folder := os.environ.get(POOL_VARIABLE, ""):
        return folder
    machine = this_machine()
    if machine.snapshot:
        return "a snapshot"
    suites = list(dict.fromkeys(source.suite for source in machine.sources))
    return ", ".join(suites)[:60]


def _version(program: str, *arguments: str) -> str:
    if shutil.which(program) is None:
        return ""
    done = subprocess.run(
        [program, *(arguments or ("--version",))], capture_output=True, text=True, check=False, timeout=20
    )
    lines = done.stdout.strip().splitlines()
    return lines[0][:60] if done.returncode == 0 and lines else ""
