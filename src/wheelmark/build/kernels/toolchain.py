"""The compiler as a fact: Triton's files by digest, and the build environment that imports the project.

Hashing half a gigabyte for every build would take seconds, so the digests are those that the installer wrote: a
wheel's ``RECORD`` holds the sha256 of each file, and the wheel itself was installed by hash. What RECORD says of
the large files is checked by size.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import subprocess
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import CommandError, ToolError
from wheelmark.targets import Backend, Target

_QUERY = (
    "import json, sys, sysconfig; "
    "print(json.dumps([sysconfig.get_path('purelib'), '.'.join(map(str, sys.version_info[:2]))]))"
)
_LOCAL = re.compile(r"\.dist-info/(INSTALLER|REQUESTED|direct_url\.json|uv_cache\.json|RECORD)$")
"""Files that say how something was installed, not what it is."""
_PTXAS_VERSION = re.compile(r"V(\d+\.\d+\.\d+)")
_LLD_VERSION = re.compile(rb"Linker: LLD (\d+\.\d+\.\d+)")
_BLACKWELL = 100
"""From this SM on Triton uses its second assembler (``triton/backends/nvidia/compiler.py``, ``get_ptxas``)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilerFiles:
    """A build environment, as far as compiling kernels depends on it."""

    python: Path
    python_version: str
    """``3.11``."""
    triton: str
    """Version."""
    folder: Path
    """Triton's package folder."""
    digest: str
    """sha256 over the paths and digests of Triton's files; the same wherever it is installed."""
    environment: str
    """sha256 over all that is installed; differs between folders. For "nothing has changed" only."""

    def assembler_path(self, target: Target) -> Path:
        """The ``ptxas`` that Triton runs for a CUDA target."""
        second = target.backend is Backend.CUDA and int(target.arch[2:]) >= _BLACKWELL
        return self.folder / "backends" / "nvidia" / "bin" / ("ptxas-blackwell" if second else "ptxas")


def read_compiler(python: Path) -> CompilerFiles:
    """What the build environment of ``python`` compiles with.

    Raises:
        ToolError: Triton is not installed in it, or its files are not those of its RECORD (``toolchain``).
        CommandError: The interpreter does not run.
    """
    site, version = _query(python)
    records = sorted(site.glob("*.dist-info/RECORD"))
    tritons = [record for record in records if re.match(r"triton-\d", record.parent.name)]
    if len(tritons) != 1:
        raise ToolError(
            f"{'no' if not tritons else 'more than one'} triton is installed for {python}",
            cause="this is not the build environment",
            fix="let `nox -s build` make it from lockfiles/build.txt",
            reason="toolchain",
        )
    return CompilerFiles(
        python=python,
        python_version=version,
        triton=tritons[0].parent.name.removeprefix("triton-").removesuffix(".dist-info"),
        folder=site / "triton",
        digest=_triton_digest(tritons[0]),
        environment=digests.sha256(
            "".join(
                f"{digests.sha256_file(path)}  {path.relative_to(site).as_posix()}\n"
                for path in [*records, *sorted(site.glob("*.pth"))]
            ).encode()
        ),
    )


def assembler_version(compiler: CompilerFiles, target: Target, sample: bytes) -> str:
    """The manifest's word for what wrote a target's machine code.

    Args:
        compiler: The build environment.
        target: CUDA: its ``ptxas`` is asked. ROCm: the linker that is part of Triton named itself in the object.
        sample: One of the target's objects.

    Raises:
        ToolError: Neither says a version (``toolchain``).
    """
    if target.backend is Backend.ROCM:
        found = _LLD_VERSION.search(sample)
        if found is not None:
            return f"llvm {found[1].decode()}"
    else:
        said = _run([str(compiler.assembler_path(target)), "--version"])
        version = _PTXAS_VERSION.search(said)
        if version is not None:
            return f"ptxas {version[1]}"
    raise ToolError(f"the assembler for {target} does not say its version", reason="toolchain")


def _query(python: Path) -> tuple[Path, str]:
    site, version = json.loads(_run([str(python), "-I", "-c", _QUERY]))
    return Path(site), version


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{command[0]} does not run: {error}", reason="toolchain") from error
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout + done.stderr)
    return done.stdout


def _triton_digest(record: Path) -> str:
    site = record.parent.parent
    lines: list[str] = []
    for path, digest, size in csv.reader(io.StringIO(record.read_text("utf-8"))):
        # Console scripts hold the interpreter's path; what lies outside is not the compiler.
        if path.startswith("..") or path.endswith(".pyc") or _LOCAL.search(path):
            continue
        if not digest.startswith("sha256="):
            raise ToolError(f"triton's RECORD has no sha256 for {path}", reason="toolchain")
        file = site / path
        if not file.is_file() or file.stat().st_size != int(size):
            raise ToolError(
                f"triton's {path} is not the file of its RECORD",
                cause="the build environment was changed after it was installed",
                fix="remove the environment, and let `nox -s build` make it again",
                reason="toolchain",
            )
        lines.append(f"{digest}  {path}\n")
    return digests.sha256("".join(sorted(lines)).encode())
