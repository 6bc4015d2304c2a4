"""The C++ compiler of a native library: which one, for which CPU, and a digest of all of it that decides bytes.

The ordinary compiler of the machine builds for the machine's own CPU, and Debian's cross compiler for the
other. ``CXX`` names another for the machine's own CPU, ``WHEELMARK_CXX_AARCH64`` or ``WHEELMARK_CXX_X86_64``
for that CPU, whichever machine it runs on.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.config import HostArch
from wheelmark.errors import CommandError, ToolError

OLDEST_GCC = 11
"""AVX-512 intrinsics, C++17 and prefix maps as this room uses them are tested from here on."""

_PROGRAMS = ("cc1plus", "as", "collect2", "ld")
# What the linker copies into a shared object, or takes symbol versions from.
_LINKED = (
    "crti.o", "crtbeginS.o", "crtendS.o", "crtn.o", "libgcc.a", "libgcc_s.so.1",
    "libstdc++.so", "libm.so.6", "libc.so.6", "libc_nonshared.a",
)  # fmt: skip
# Set by a user, these change what a compiler reads; a build that depends on them is not reproducible.
_CLEARED = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CFLAGS", "CXXFLAGS", "LDFLAGS",
)  # fmt: skip
_PACKAGES = {
    HostArch.X86_64: ("g++-x86-64-linux-gnu", "gcc-c++-x86_64-linux-gnu"),
    HostArch.AARCH64: ("g++-aarch64-linux-gnu", "gcc-c++-aarch64-linux-gnu"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler that was found and asked who it is."""

    host: HostArch
    """The CPU that it compiles for."""
    command: tuple[str, ...]
    """How it is run: the program's path, and leading arguments where ``CXX`` holds some."""
    version: str
    """``12.2.0``."""
    description: str
    """The first line of ``--version``, without the program's name: ``(Debian 12.2.0-14) 12.2.0``."""
    linker: str
    """The first line of the linker's ``--version``."""
    machine: str
    """``x86_64-linux-gnu``."""
    digest: str
    """sha256 over the compiler's programs and the files that its linker puts into a library."""


def find_compiler(host: HostArch, *, environ: Mapping[str, str] | None = None) -> Compiler:
    """The compiler for ``host`` on this machine.

    Args:
        host: The CPU that the library is for.
        environ: Environment variables; the process's own by default.

    Raises:
        ToolError: None is there (``compiler-missing``), it is too old (``compiler-old``), is not GCC
            (``compiler-kind``), or compiles for another CPU (``compiler-target``).
        CommandError: It is there and cannot say its version.
    """
    command = _command(host, os.environ if environ is None else environ)
    program = shutil.which(command[0])
    if program is None:
        debian, fedora = ("g++", "gcc-c++") if host.value == platform.machine() else _PACKAGES[host]
        raise ToolError(
            f"no C++ compiler for {host.value}: {command[0]} is not on PATH",
            cause="it is not installed",
            fix=f"apt-get install {debian}   (Fedora: dnf install {fedora}), or set {_variable(host)}",
            reason="compiler-missing",
        )
    return _ask(host, (str(Path(program).absolute()), *command[1:]))


def compiler_environment() -> dict[str, str]:
    """The environment that compilers run in: the process's, without what changes their output.

    Messages are in English, and ``SOURCE_DATE_EPOCH`` is the zip epoch, so that no clock is read.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    kept = {name: value for name, value in kept.items() if not name.startswith(("LC_", "GCC_"))}
    return {**kept, "LC_ALL": "C", "LANG": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "315532800"}


def run_tool(command: Sequence[str], *, cwd: Path | None = None, cause: str = "", fix: str = "") -> str:
    """Run a compiler or linker and give back what it printed.

    Raises:
        CommandError: It failed; its own output is in the message.
        ToolError: It could not be started (``compiler-missing``).
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=compiler_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        raise ToolError(f"cannot run {command[0]}: {error.strerror}", reason="compiler-missing") from error
    output = done.stdout.decode("utf-8", errors="replace")
    if done.returncode:
        raise CommandError(command, done.returncode, output, cause=cause, fix=fix)
    return output


def _variable(host: HostArch) -> str:
    return "CXX" if host.value == platform.machine() else f"WHEELMARK_CXX_{host.name}"


def _command(host: HostArch, environ: Mapping[str, str]) -> tuple[str, ...]:
    own = host.value == platform.machine()
    named = environ.get(f"WHEELMARK_CXX_{host.name}", "") or (environ.get("CXX", "") if own else "")
    if not named.strip():
        return ("g++",) if own else (f"{host.value.replace('_', '-')}-linux-gnu-g++",)
    try:
        return tuple(shlex.split(named))
    except ValueError as error:
        raise ToolError(
            f"{_variable(host)} is not a command line: {named!r}", cause=str(error), reason="compiler-missing"
        ) from error


@functools.cache
def _ask(host: HostArch, command: tuple[str, ...]) -> Compiler:
    machine = run_tool([*command, "-dumpmachine"]).strip()
    if machine.split("-")[0] != host.value:
        raise ToolError(
            f"{command[0]} compiles for {machine}, not for {host.value}",
            fix=f"set {_variable(host)} to a compiler for {host.value}",
            reason="compiler-target",
        )
    first = run_tool([*command, "--version"]).splitlines()[0]
    if "clang" in first:
        raise ToolError(
            f"{command[0]} is clang; native libraries are built with GCC",
            cause="the symbol floor and the prefix maps are tested with GCC only",
            fix=f"unset {_variable(host)}, or set it to g++",
            reason="compiler-kind",
        )
    version = run_tool([*command, "-dumpfullversion"]).strip()
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < OLDEST_GCC:
        raise ToolError(
            f"{command[0]} is GCC {version}; the oldest that is supported is {OLDEST_GCC}",
            fix=f"set {_variable(host)} to a newer g++",
            reason="compiler-old",
        )
    programs = {name: _print(command, f"-print-prog-name={name}") for name in _PROGRAMS}
    linker = run_tool([str(programs["ld"]), "--version"]).splitlines()[0]
    return Compiler(
        host=host,
        command=command,
        version=version,
        description=first.partition(" ")[2],
        linker=linker,
        machine=machine,
        digest=_identity(command, machine=machine, version=first.partition(" ")[2], programs=programs),
    )


def _identity(command: tuple[str, ...], *, machine: str, version: str, programs: Mapping[str, Path]) -> str:
    linked = {name: _print(command, f"-print-file-name={name}") for name in _LINKED}
    lines = [f"machine {machine}", f"version {version}", f"arguments {shlex.join(command[1:])}"]
    for name, path in [("driver", Path(command[0])), *programs.items(), *linked.items()]:
        # A C library that keeps no such file (libc_nonshared.a, from glibc 2.34 only where needed) is told apart.
        lines.append(f"{name} {digests.sha256_file(path) if path.is_file() else 'absent'}")
    return digests.sha256("\n".join(lines).encode())


def _print(command: tuple[str, ...], option: str) -> Path:
    named = Path(run_tool([*command, option]).strip())
    return named if named.is_absolute() else Path(shutil.which(named) or named)
