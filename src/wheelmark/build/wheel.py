"""One wheel of a target, put together byte for byte: what goes in is sorted, times and modes are fixed.

The container is a zip of *stored* members (docs/decisions/0004-wheel-compression.md): deflate's output differs
between zlib builds, and a wheel is to be the same on every machine with the same toolchain. Nothing in it
depends on the commit, the clock, the user or a path; the revision stands in the provenance.

Formats: binary distribution format (PEP 427: metadata at the archive's end, RECORD last), core metadata 2.4
(PEP 639: licence expression and files), SBOM in ``.dist-info/sboms`` (PEP 770), local version label (PEP 440).
"""

from __future__ import annotations

import base64
import hashlib
import io
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

import wheelmark
from wheelmark import digests
from wheelmark.build.native import NativeLibrary
from wheelmark.config import Declaration, HostArch, TargetRow, TorchBuild
from wheelmark.errors import BuildError, ConfigError
from wheelmark.targets import Target

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the first that a zip can say. ``SOURCE_DATE_EPOCH`` is not read."""
CODE_OBJECTS = "code_objects"
_PACKED = frozenset({".py", ".pyi", ".toml", ".json"})
# What an editable build, an interpreter or a compiler leaves in a package; .gitignore names the same.
_LEFT_OUT = frozenset({".pyc", ".pyo", ".so", ".o", ".a", ".pyd"})
_MARKER = "py.typed"
_UNIX = 3
_LARGEST_NAME = 200


class CodeObjects(Protocol):
    """What is needed of a target's compiled kernels."""

    @property
    def target(self) -> Target:
        """The target that they were compiled for."""

    @property
    def manifest(self) -> Manifest:
        """The kernel manifest."""

    @property
    def objects(self) -> Mapping[str, bytes]:
        """Code objects by file name."""


class Manifest(Protocol):
    """A kernel manifest that can be written."""

    def as_bytes(self) -> bytes:
        """Canonical JSON."""


def wheel_version(declaration: Declaration, row: TargetRow) -> Version:
    """The wheel's version: the project's, with the row's local label.

    Raises:
        ConfigError: One of the two is no version, or the project's has a label of its own (``wheel-version``).
    """
    try:
        public, version = (
            Version(declaration.project.version),
            Version(f"{declaration.project.version}+{row.local}"),
        )
    except InvalidVersion as error:
        raise ConfigError(
            f"{row.target}: {declaration.project.version}+{row.local} is not a version (PEP 440)",
            fix="correct project.version, or the row's local label, in wheelmark.toml",
            reason="wheel-version",
        ) from error
    if public.local:
        raise ConfigError(
            f"project.version {public} has a local label; each target's row gives its own",
            fix=f"write {public.public}",
            reason="wheel-version",
        )
    return version


def wheel_stem(declaration: Declaration, row: TargetRow) -> str:
    """Normalized name and version, as file names and the ``.dist-info`` folder begin.

    Raises:
        ConfigError: As ``wheel_version``.
    """
    return f"{_normalized(declaration)}-{wheel_version(declaration, row)}"


def wheel_name(declaration: Declaration, row: TargetRow) -> str:
    """The wheel's file name: ``<name>-<version>+<local>-py3-none-<platform>_<cpu>.whl``.

    Raises:
        ConfigError: As ``wheel_version``.
    """
    return f"{wheel_stem(declaration, row)}-{_tag(row)}.whl"


def assemble_wheel(
    declaration: Declaration,
    row: TargetRow,
    *,
    native: NativeLibrary,
    kernels: CodeObjects | None,
    output: Path,
    sbom: Callable[[Mapping[str, bytes]], bytes],
) -> Path:
    """Put the wheel of one target together.

    Args:
        declaration: The project.
        row: The target's row.
        native: The native library for the row's host.
        kernels: The target's code objects; ``None`` for a CPU target.
        output: Folder that the wheel is written to; made where absent.
        sbom: Makes the embedded SBOM of everything that goes in: path in the wheel -> bytes.

    Returns:
        The wheel's path. It appears whole or not at all.

    Raises:
        ConfigError: A version, requirement or range is malformed, or a declared file is absent.
        BuildError: The package holds a link or a file of no known kind (``wheel-source``), two inputs have one
            path (``wheel-conflict``), or library, kernels and row do not belong together (``wheel-parts``).
    """
    _check_parts(row, native, kernels)
    files = package_files(declaration)
    additions = {native.path: native.data, **_code_objects(declaration, kernels)}
    info = f"{wheel_stem(declaration, row)}.dist-info"
    additions |= {f"{info}/{name}": data for name, data in _licenses(declaration).items()}
    additions[f"{info}/METADATA"] = metadata(declaration, row)
    additions[f"{info}/WHEEL"] = _wheel_file(row)
    for path, data in additions.items():
        if path in files:
            raise BuildError(
                f"{path} comes from the package's sources and from the build",
                cause=f"{declaration.project.source} holds a file that the build makes",
                fix="remove it from the sources",
                reason="wheel-conflict",
            )
        files[path] = data
    _check_paths(files)
    files[f"{info}/sboms/{_normalized(declaration)}.cdx.json"] = sbom(dict(sorted(files.items())))
    record = f"{info}/RECORD"
    files[record] = _record(files, record)
    return _write(files, info, output / wheel_name(declaration, row))


def package_files(declaration: Declaration) -> dict[str, bytes]:
    """Python sources and data of the package, by path in the wheel.

    The rule is fixed and needs no git: Python, stubs, TOML, JSON and ``py.typed`` go in; caches, hidden files
    and compiled files stay out; anything else is refused, since leaving it out could break the wheel and
    putting it in could leak.

    Raises:
        ConfigError: There is no such package (``wheel-package``).
        BuildError: A link, or a file of another kind (``wheel-source``).
    """
    source = declaration.root / declaration.project.source
    root = source / declaration.project.import_name
    if not (root / "__init__.py").is_file():
        raise ConfigError(
            f"{declaration.project.source} holds no package {declaration.project.import_name}",
            fix="correct project.source or project.import_name in wheelmark.toml",
            reason="wheel-package",
        )
    found: dict[str, bytes] = {}
    for name in digests.tree_files(root):
        path = root / name
        parts = PurePosixPath(name).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(root)):
            raise BuildError(
                f"{path} is a link; a wheel holds files",
                fix="put the file itself there",
                reason="wheel-source",
            )
        if path.suffix in _LEFT_OUT:
            continue
        if path.suffix not in _PACKED and path.name != _MARKER:
            raise BuildError(
                f"{path} is of no kind that is packed",
                cause=f"packed are {', '.join(sorted(_PACKED))} and {_MARKER}; caches and compiled files are left out",
                fix="move it out of the package, or remove it",
                reason="wheel-source",
            )
        found[f"{declaration.project.import_name}/{name}"] = path.read_bytes()
    return found


def metadata(declaration: Declaration, row: TargetRow) -> bytes:
    """The METADATA file (core metadata 2.4).

    A ROCm target does not require torch by default: pip would take the index's CUDA build for it. Its range
    stands under the extra ``torch``, and the package checks ``torch.version.hip`` itself.

    Raises:
        ConfigError: A requirement or range is malformed (``wheel-requirement``), or the range lets in a torch
            older than ``native.torch_target`` (``wheel-torch-range``).
    """
    project = declaration.project
    torch = _torch_range(declaration, row)
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project.name}",
        f"Version: {wheel_version(declaration, row)}",
        f"Summary: {project.summary}",
        f"Author: {project.supplier}",
        f"License-Expression: {project.license}",
        *(f"License-File: {path.as_posix()}" for path in sorted(project.license_files)),
        f"Project-URL: Homepage, {project.homepage}",
        f"Requires-Python: {_specifiers(project.requires_python, 'project.requires_python')}",
    ]
    requirements = [_requirement(text) for text in project.dependencies]
    if row.torch_build is TorchBuild.ROCM:
        lines += [*_requires(requirements), "Provides-Extra: torch"]
        lines.append(f'Requires-Dist: torch{torch}; extra == "torch"')
    else:
        lines += _requires([*requirements, f"torch{torch}"])
    for line in lines:
        if len(line.splitlines()) != 1:
            raise ConfigError(
                f"metadata field {line.partition(':')[0]} has a line break",
                fix="write it in one line in wheelmark.toml",
                reason="wheel-requirement",
            )
    readme = declaration.root / project.source / "README.md"
    body = b""
    if readme.is_file():
        lines.append("Description-Content-Type: text/markdown; charset=UTF-8")
        body = b"\n" + readme.read_bytes()
    return "\n".join([*lines, ""]).encode() + body


def _requires(requirements: list[str]) -> list[str]:
    return [f"Requires-Dist: {text}" for text in sorted(requirements)]


def _requirement(text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        raise ConfigError(
            f"project.dependencies: {text!r} is not a requirement (PEP 508)",
            cause=str(error).splitlines()[0],
            reason="wheel-requirement",
        ) from error


def _specifiers(text: str, where: str) -> str:
    try:
        # The set's own text is sorted, so that one range has one spelling.
        return str(SpecifierSet(text))
    except InvalidSpecifier as error:
        raise ConfigError(
            f"{where}: {text!r} is not a version range (PEP 440)", reason="wheel-requirement"
        ) from error


def _torch_range(declaration: Declaration, row: TargetRow) -> str:
    text = _specifiers(row.torch, f"{row.target}: torch")
    target = Version(declaration.native.torch_target)
    older = [Version(f"{target.major}.{minor}.0") for minor in range(target.minor)]
    admitted = [str(version) for version in older if SpecifierSet(text).contains(version)]
    if admitted:
        raise ConfigError(
            f"{row.target}: torch {row.torch} admits {admitted[-1]}, older than native.torch_target {target}",
            cause="the library does not load there",
            fix=f'write torch = ">={target},…" in the row, or lower native.torch_target',
            reason="wheel-torch-range",
        )
    return text


def _check_parts(row: TargetRow, native: NativeLibrary, kernels: CodeObjects | None) -> None:
    wrong = ""
    if native.host is not row.host:
        wrong = f"the native library is for {native.host.value}, the row for {row.host.value}"
    elif row.target.is_gpu and kernels is None:
        wrong = "a GPU target has no code objects"
    elif kernels is not None and kernels.target != row.target:
        wrong = f"the code objects are for {kernels.target}"
    elif row.target.arch in {host.value for host in HostArch} and row.target.arch != row.host.value:
        wrong = f"the row's host is {row.host.value}"
    if wrong:
        raise BuildError(f"{row.target}: {wrong}", reason="wheel-parts")


def _code_objects(declaration: Declaration, kernels: CodeObjects | None) -> dict[str, bytes]:
    if kernels is None:
        return {}
    folder = f"{declaration.project.import_name}/{CODE_OBJECTS}"
    objects = {f"{folder}/{name}": data for name, data in kernels.objects.items()}
    return {**objects, f"{folder}/manifest.json": kernels.manifest.as_bytes()}


def _licenses(declaration: Declaration) -> dict[str, bytes]:
    found = {}
    for path in declaration.project.license_files:
        file = declaration.root / declaration.project.source / path
        if not file.is_file() or file.is_symlink():
            raise ConfigError(
                f"license file {declaration.project.source / path} is not there, or is a link",
                fix="correct project.license_files in wheelmark.toml",
                reason="wheel-license",
            )
        found[f"licenses/{path.as_posix()}"] = file.read_bytes()
    return found


def _wheel_file(row: TargetRow) -> bytes:
    lines = [
        "Wheel-Version: 1.0",
        f"Generator: wheelmark {wheelmark.__version__}",
        "Root-Is-Purelib: false",
        f"Tag: {_tag(row)}",
    ]
    return "\n".join([*lines, ""]).encode()


def _tag(row: TargetRow) -> str:
    return f"py3-none-{row.platform}_{row.host.value}"


def _normalized(declaration: Declaration) -> str:
    return canonicalize_name(declaration.project.name).replace("-", "_")


def _check_paths(files: Mapping[str, bytes]) -> None:
    """Paths that every file system and every zip reader takes for the same."""
    folded: dict[str, str] = {}
    for path in files:
        plain = path.isascii() and path.isprintable() and "\\" not in path and len(path) <= _LARGEST_NAME
        parts = path.split("/")
        if not plain or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
            raise BuildError(
                f"{path!r} is no path for a wheel",
                cause="paths are printable ASCII, relative, and at most 200 characters long",
                reason="wheel-source",
            )
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            raise BuildError(
                f"{other} and {path} differ only in case",
                cause="they are one file where case does not count",
                reason="wheel-conflict",
            )


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    """RECORD (PEP 376): path, unpadded urlsafe base64 of the sha256, size; itself without them."""
    lines = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        quoted = f'"{path}"' if "," in path or '"' in path else path
        lines.append(f"{quoted},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{record},,", ""]).encode()


def _write(files: Mapping[str, bytes], info: str, path: Path) -> Path:
    """The zip: package first, then ``.dist-info``, RECORD last."""

    def order(name: str) -> tuple[bool, bool, str]:
        return name.startswith(f"{info}/"), name == f"{info}/RECORD", name

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files, key=order):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = _UNIX
            mode = 0o755 if name.endswith(".so") else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_STORED
            archive.writestr(entry, files[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".wheel-", delete=False) as stream:
        stream.write(buffer.getvalue())
        made = Path(stream.name)
    made.chmod(0o644)
    made.replace(path)
    return path
