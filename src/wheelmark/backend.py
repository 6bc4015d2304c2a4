"""The PEP 517 build backend: the same wheel, for who builds with pip, build or cibuildwheel.

A ``pyproject.toml`` in a project's source folder names it::

    [build-system]
    requires = ["wheelmark[build]"]
    build-backend = "wheelmark.backend"

It only hands on: what is built stands in ``wheelmark.toml``, in that folder or above it; kernels, native library, SBOM
and archive are made by ``wheelmark.build`` and ``wheelmark.sbom``, as ``wheelmark build`` makes them. The interpreter that
runs it is the build environment: it has to hold torch (headers) and, for a GPU, triton as ``lockfiles/build.txt`` locks
them. Frontends ask ``get_requires_for_build_wheel``; who builds for a release installs the lock by hash
and turns isolation off.

Settings (``-C name=value``, ``config-settings`` of cibuildwheel): ``target``, a row of the targets table (default: the CPU
row of this machine's CPU); ``cache``, a folder that is kept between builds (default: none).
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import io
import platform
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from wheelmark import digests
from wheelmark.build.kernels import compile_kernels
from wheelmark.build.native import build_native
from wheelmark.build.wheel import assemble_wheel, metadata, wheel_stem
from wheelmark.config import FILE_NAME, Declaration, TargetRow, find_declaration, load_declaration
from wheelmark.errors import BuildError, ConfigError, WheelmarkError
from wheelmark.lock.plan import FOLDER
from wheelmark.packages.pins import Pin, read_pins
from wheelmark.sbom import embedded_document
from wheelmark.targets import Target

__all__ = ["build_sdist", "build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_wheel"]

Settings = Mapping[str, Any] | None
_SETTINGS = ("target", "cache")
_LOCK = "build.txt"
_BESIDE = (FOLDER, "sbom")
"""Folders beside ``wheelmark.toml`` that a build reads, besides the sources."""
_EPOCH = 315_532_800
"""Seconds: 1980-01-01 00:00 UTC, as in wheels."""
_ABSENT = "none"
_P = ParamSpec("_P")


def _hook(function: Callable[_P, Any]) -> Callable[_P, Any]:
    """A hook whose refusals end the process with their words and exit code instead of a traceback."""

    @wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> Any:
        try:
            return function(*args, **kwargs)
        except WheelmarkError as error:
            print(f"wheelmark.backend: {error}", file=sys.stderr)  # noqa: T201 - a frontend shows it
            raise SystemExit(int(error.exit_code)) from error

    return told


@_hook
def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What has to be in the build environment besides the backend: torch, and for a GPU triton, as they are locked."""
    declaration, row = _asked(config_settings)
    return [f"{pin.name}=={pin.version}" for pin in _needed(declaration, row)]


@_hook
def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Nothing more than the backend."""
    del config_settings
    return []


@_hook
def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build one target's wheel into a folder; its file name.

    Raises:
        SystemExit: With the exit code of the error that was printed: a setting that is none (``backend-setting``), a build
            environment that is not the locked one (``backend-environment``), or whatever ``wheelmark.build`` refuses.
    """
    del metadata_directory
    declaration, row = _asked(config_settings)
    _check_environment(declaration, row)
    with ExitStack() as stack:
        named = _settings(config_settings).get("cache", "")
        cache = Path(named or stack.enter_context(tempfile.TemporaryDirectory(prefix="wheelmark-backend-")))
        native = build_native(
            declaration, row.host, torch_include=_torch_include(), cache=cache.resolve(), progress=_say
        )
        kernels = None
        if row.target.is_gpu:
            source = declaration.root / declaration.project.source
            kernels = compile_kernels(
                [source / path for path in declaration.kernels.declarations],
                source,
                [row.target],
                python=Path(sys.executable),
                cache=cache.resolve(),
                workers=declaration.kernels.workers,
                progress=_say,
            )[row.target]
            for refusal in kernels.refused:
                _say(
                    f"{row.target}: optional variant {refusal.kernel}/{refusal.variant} is left out: {refusal.text}"
                )
        return assemble_wheel(
            declaration,
            row,
            native=native,
            kernels=kernels,
            output=Path(wheel_directory),
            sbom=lambda files: embedded_document(files, declaration=declaration, row=row, native=native),
        ).name


@_hook
def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Put what a wheel is built from into one archive (PEP 625); its file name.

    ``wheelmark.toml``, ``lockfiles/`` and ``sbom/`` come from the project's root, where ``pyproject.toml`` has to stand as
    well: it is the source folder's. Times, owners, modes and order are fixed.
    """
    _settings(config_settings)
    declaration = _declaration()
    row = declaration.targets[0]
    source = declaration.project.source
    files = {FILE_NAME: declaration.root / FILE_NAME, "pyproject.toml": Path.cwd() / "pyproject.toml"}
    for folder in (source.as_posix(), *_BESIDE):
        root = declaration.root / folder
        for name in digests.tree_files(root) if root.is_dir() else ():
            if _is_source(name):
                files[f"{folder}/{name}"] = root / name
    stem = wheel_stem(declaration, row).partition("+")[0]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(
            {
                **{name: path.read_bytes() for name, path in files.items()},
                "PKG-INFO": _pkg_info(declaration, row),
            }.items()
        ):
            member = tarfile.TarInfo(f"{stem}/{name}")
            member.size, member.mtime, member.mode = len(data), _EPOCH, 0o644
            tar.addfile(member, io.BytesIO(data))
    path = Path(sdist_directory) / f"{stem}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(archive.getvalue(), mtime=0))
    return path.name


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a frontend shows it with -v


def _declaration() -> Declaration:
    return load_declaration(find_declaration(Path.cwd()))


def _settings(settings: Settings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in (settings or {}).items():
        if name not in _SETTINGS or not isinstance(value, str):
            raise ConfigError(
                f"-C {name}={value!r} is no setting of this backend",
                cause=f"there are {' and '.join(_SETTINGS)}, each with one value",
                reason="backend-setting",
            )
        found[name] = value
    return found


def _asked(settings: Settings) -> tuple[Declaration, TargetRow]:
    """The declaration, and the row that is to be built."""
    declaration = _declaration()
    named = _settings(settings).get("target", "")
    if named:
        return declaration, declaration.row(Target.parse(named))
    own = platform.machine()
    for row in declaration.targets:
        if not row.target.is_gpu and row.host.value == own:
            return declaration, row
    raise ConfigError(
        f"the targets table has no row for a CPU {own}",
        fix=f"name a target: -C target={declaration.targets[0].target}",
        reason="backend-setting",
    )


def _needed(declaration: Declaration, row: TargetRow) -> list[Pin]:
    names = {"torch", "triton"} if row.target.is_gpu else {"torch"}
    return [
        pin for pin in read_pins(declaration.root / FOLDER / _LOCK) if pin.name in names and pin.applies()
    ]


def _check_environment(declaration: Declaration, row: TargetRow) -> None:
    for pin in _needed(declaration, row):
        try:
            held = importlib.metadata.version(pin.name)
        except importlib.metadata.PackageNotFoundError:
            held = _ABSENT
        if held == _ABSENT or not pin.matches(held):
            raise BuildError(
                f"{row.target}: the build environment holds {pin.name} {held}; {_LOCK} locks {pin.version}",
                cause="the wheel would not be the one that wheelmark build makes",
                fix=f"pip install --require-hashes --no-deps -r {FOLDER}/{_LOCK}, then build without isolation",
                reason="backend-environment",
            )


def _torch_include() -> Path:
    """Where torch's headers are; torch is found, never imported."""
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0] if places else "torch") / "include"


def _is_source(name: str) -> bool:
    parts = name.split("/")
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return not hidden and not name.endswith((".pyc", ".pyo", ".so", ".o", ".a"))


def _pkg_info(declaration: Declaration, row: TargetRow) -> bytes:
    """The archive's metadata: what holds for every target.

    Version 2.1 on purpose: from 2.2 on, what an archive states has to hold for its wheels, whose version has a label and
    whose requirements depend on the target.
    """
    project = declaration.project
    said = metadata(declaration, row).decode().partition("\n\n")[0].splitlines()
    kept = [
        line
        for line in said
        if line.startswith(("Name:", "Summary:", "Author:", "Project-URL:", "Requires-Python:"))
    ]
    return "\n".join(
        ["Metadata-Version: 2.1", *kept, f"Version: {project.version}", f"License: {project.license}", ""]
    ).encode()
