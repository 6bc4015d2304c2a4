"""The native library of a wheel: C++ on LibTorch's stable ABI, the same bytes wherever it is built.

Every source is an object of its own, compiled side by side and linked in declared order. No path, time or
locale reaches the bytes; what is built is kept by the digest of all that decided it.

The symbol floor (``floor/``): a newer glibc and libstdc++ than manylinux_2_28 grants would make the library ask
for symbol versions that an older system has not. A header included first, one source linked in, and link-time
stubs of libdl and libpthread as they were in glibc 2.28 keep the versions down. They are not believed: the abi
gate reads the floor from the bytes.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.build.compiler import Compiler, find_compiler, run_tool
from wheelmark.config import Declaration, HostArch
from wheelmark.errors import BuildError, CommandError, ConfigError, InputError

__all__ = [
    "Compiler",
    "NativeLibrary",
    "NativeToolchain",
    "build_native",
    "find_compiler",
    "torch_target_version",
]

RECORD_SCHEMA = 1
"""Raised whenever this room compiles differently with the same flags."""
FLOOR = Path(__file__).parent / "floor"

_FLAGS = (
    "-std=c++17", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden",
    "-ffunction-sections", "-fdata-sections", "-fno-lto", "-ffp-contract=fast",
    "-fstack-protector-strong", "-Wall", "-Wextra", "-Werror", "-Wdate-time",
)  # fmt: skip
_LINK_FLAGS = (
    "-shared", "-s", "-fno-lto", "-Wl,--gc-sections", "-Wl,--build-id=sha1", "-Wl,--hash-style=gnu",
    "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,--exclude-libs,ALL",
)  # fmt: skip
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?")
_DEFINE = re.compile(r"^#define TORCH_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)\s*$", re.MULTILINE)
_FIRST_AARCH64 = (2, 17)
"""The first glibc of the aarch64 port: no symbol version is older there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeToolchain:
    """What made a native library: as the SBOM says it, and as results are keyed by."""

    compiler: str
    """``GCC``."""
    compiler_version: str
    compiler_description: str
    linker: str
    machine: str
    torch_headers: str
    """Version of the torch whose headers were compiled in."""
    torch_headers_digest: str
    """sha256 over the headers' own digests."""
    torch_target: str
    """Oldest torch that the library loads into, ``2.10``."""
    torch_target_version: str
    """The same as ``TORCH_TARGET_VERSION`` has it, ``0x020a000000000000``."""
    libstdcxx: str
    """``dynamic``: the system's libstdc++ is loaded, none of its binary code is copied in."""
    digest: str
    """sha256 over compiler, linked files, system and torch headers: the toolchain's identity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeLibrary:
    """A built native library."""

    data: bytes
    sha256: str
    path: str
    """Where it stands in the wheel (POSIX)."""
    host: HostArch
    key: str
    """sha256 of all that was asked for: sources, flags, compiler, torch headers, target."""
    flags: tuple[str, ...]
    """Compile and link flags, paths replaced by names."""
    tools: NativeToolchain
    cached: bool
    """Whether it was found rather than built."""

    @property
    def toolchain(self) -> str:
        """Digest of what built it; another toolchain may give other bytes."""
        return self.tools.digest


def torch_target_version(text: str) -> int:
    """``TORCH_TARGET_VERSION`` of a torch version: major, minor and patch in the three highest bytes.

    ``2.10`` is ``0x020a000000000000``; read as decimal digits it would be 2.16 (pytorch#197404). Layout:
    torch/headeronly/version.h, ``TORCH_ABI_VERSION``.

    Raises:
        ConfigError: Not ``major.minor`` or ``major.minor.patch`` (``torch-target``).
    """
    match = _VERSION.fullmatch(text)
    numbers = [int(number or 0) for number in match.groups()] if match else []
    if not numbers or max(numbers) > 0xFF:  # noqa: PLR2004 - one byte a number
        raise ConfigError(
            f"native.torch_target is {text!r}, not a torch version", fix='write "2.10"', reason="torch-target"
        )
    major, minor, patch = numbers
    return major << 56 | minor << 48 | patch << 40


def build_native(
    declaration: Declaration,
    host: HostArch,
    *,
    torch_include: Path,
    cache: Path,
    compiler: Compiler | None = None,
    workers: int = 0,
    progress: Callable[[str], None] = lambda _line: None,
) -> NativeLibrary:
    """Build the declared native library for ``host``, or take it from the cache.

    Args:
        declaration: Whose ``native`` table is built.
        host: The CPU that it is for.
        torch_include: ``torch/include`` of an installed torch (of any platform: only headers are read).
        cache: The pipeline's cache; libraries are kept in its folder ``native``, made where absent.
        compiler: The compiler; found by ``find_compiler`` where absent.
        workers: Compilers at a time; 0 means one for each CPU.
        progress: Called with a line for a person.

    Raises:
        ToolError: There is no compiler for ``host``.
        CommandError: A source does not compile, or the objects do not link.
        ConfigError: A declared source is absent (``native-source``), or ``torch_target`` is no version.
        BuildError: ``torch_target`` is newer than the headers (``torch-target-newer``), these are no torch
            headers (``torch-headers``), or a source includes a header of the project outside the declared
            folders (``native-undeclared-header``).
    """
    compiler = compiler or find_compiler(host)
    job = _Job.of(declaration, compiler, torch_include.resolve())
    progress(
        f"native {host.value}: TORCH_TARGET_VERSION {job.target_hex} = torch {declaration.native.torch_target}"
        f" and later, headers of torch {job.torch_version}, GCC {compiler.version}"
    )
    key, cache = job.key(), cache / "native"
    found = _lookup(cache, key, job)
    if found is not None:
        progress(f"native {host.value}: unchanged, {key[:12]}")
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache) as scratch:
        data, headers = _compile(job, Path(scratch).resolve(), workers or os.cpu_count() or 1, progress)
    _store(cache, key, data, headers)
    return job.library(key, data, headers, cached=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Job:
    """One library to build: every input that decides its bytes."""

    declaration: Declaration
    compiler: Compiler
    root: Path
    """Resolved ``project.source``."""
    torch_include: Path
    torch_version: str
    torch_digest: str
    target_hex: str

    @classmethod
    def of(cls, declaration: Declaration, compiler: Compiler, torch_include: Path) -> _Job:
        version = _headers_version(torch_include)
        target = torch_target_version(declaration.native.torch_target)
        if target > torch_target_version(version):
            raise BuildError(
                f"native.torch_target {declaration.native.torch_target} (TORCH_TARGET_VERSION {target:#018x})"
                f" is newer than the torch {version} whose headers are used",
                cause="a library that asks for a newer torch than it was built with fails when it is loaded",
                fix=f"lower native.torch_target to {version} or less, or lock a newer torch",
                reason="torch-target-newer",
            )
        root = (declaration.root / declaration.project.source).resolve()
        for source in declaration.native.sources:
            if not (root / source).is_file():
                raise ConfigError(
                    f"native source {source} is not in {declaration.project.source}",
                    fix="correct native.sources in wheelmark.toml",
                    reason="native-source",
                )
        return cls(
            declaration=declaration,
            compiler=compiler,
            root=root,
            torch_include=torch_include,
            torch_version=version,
            torch_digest=_headers_digest(torch_include),
            target_hex=f"{target:#018x}",
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Declared sources, relative to ``root``, in link order."""
        return tuple(source.as_posix() for source in self.declaration.native.sources)

    def inputs(self) -> dict[str, str]:
        """Sources and all files of the include folders: relative name -> sha256."""
        names = set(self.sources)
        for folder in self.declaration.native.include:
            names |= {
                (folder / name).as_posix()
                for name in digests.tree_files(self.root / folder)
                if not any(part.startswith((".", "__pycache__")) for part in name.split("/"))
            }
        return {name: digests.sha256_file(self.root / name) for name in sorted(names)}

    def flags(self) -> tuple[str, ...]:
        """Compile flags without paths; what stands for a path is its name in the library."""
        include = [f"-I{folder.as_posix()}" for folder in self.declaration.native.include]
        define = f"-DTORCH_TARGET_VERSION={self.target_hex}"
        return (*_FLAGS, define, *include, "-isystem=torch/include", "-include=wheelmark/floor.h")

    def link_flags(self) -> tuple[str, ...]:
        name = self.declaration.native.library.name
        return (*_LINK_FLAGS, f"-Wl,-soname,{name}")

    def key(self) -> str:
        value = {
            "schema": RECORD_SCHEMA,
            "sources": list(self.sources),
            "inputs": self.inputs(),
            "floor": {name: digests.sha256_file(FLOOR / name) for name in digests.tree_files(FLOOR)},
            "flags": [*self.flags(), *self.link_flags()],
            "compiler": self.compiler.digest,
            "torch": self.torch_digest,
            "library": self.declaration.native.library.as_posix(),
        }
        return digests.sha256(digests.canonical_json(value))

    def library(self, key: str, data: bytes, headers: Mapping[str, str], *, cached: bool) -> NativeLibrary:
        # Names without folders: a toolchain is the same wherever it is installed, and this digest is in the wheel.
        read = sorted(
            f"{digest}  {name.rpartition('/')[2]}"
            for name, digest in headers.items()
            if name.startswith(("system:", "torch:"))
        )
        identity = {"compiler": self.compiler.digest, "torch": self.torch_digest, "headers": read}
        return NativeLibrary(
            data=data,
            sha256=digests.sha256(data),
            path=self.declaration.native.library.as_posix(),
            host=self.compiler.host,
            key=key,
            flags=(*self.flags(), *self.link_flags()),
            tools=NativeToolchain(
                compiler="GCC",
                compiler_version=self.compiler.version,
                compiler_description=self.compiler.description,
                linker=self.compiler.linker,
                machine=self.compiler.machine,
                torch_headers=self.torch_version,
                torch_headers_digest=self.torch_digest,
                torch_target=self.declaration.native.torch_target,
                torch_target_version=self.target_hex,
                libstdcxx="dynamic",
                digest=digests.sha256(digests.canonical_json(identity)),
            ),
            cached=cached,
        )


def _headers_version(include: Path) -> str:
    try:
        text = (include / "torch/headeronly/version.h").read_text(encoding="utf-8")
    except OSError as error:
        raise BuildError(
            f"{include} holds no torch headers with a stable ABI",
            cause="torch is older than 2.9, or this is another folder",
            fix="lock a newer torch",
            reason="torch-headers",
        ) from error
    numbers = dict(_DEFINE.findall(text))
    if set(numbers) != {"MAJOR", "MINOR", "PATCH"}:
        raise BuildError("torch/headeronly/version.h does not state torch's version", reason="torch-headers")
    return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCH']}"


def _headers_digest(include: Path) -> str:
    """Digest of the header tree from the hashes that torch's RECORD states; of the files where there is none.

    Nine thousand files are not read again: those that a library includes are, each by its own digest.
    """
    records = sorted(include.parent.parent.glob("torch-*.dist-info/RECORD"))
    if len(records) != 1:
        return digests.sha256_tree(include)
    lines = records[0].read_text(encoding="utf-8").splitlines()
    headers = sorted(line for line in lines if line.startswith(("torch/include/", '"torch/include/')))
    return digests.sha256("\n".join(headers).encode())


def _compile(
    job: _Job, scratch: Path, workers: int, progress: Callable[[str], None]
) -> tuple[bytes, dict[str, str]]:
    """Compile and link in ``scratch``; the library, and the digest of each header that it included."""
    sources = [(job.root / name, name) for name in job.sources]
    sources.append((FLOOR / "floor.cpp", "wheelmark/floor.cpp"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=workers) as pool:
        tasks = [
            pool.submit(_compile_one, job, scratch, source, name, index)
            for index, (source, name) in enumerate(sources)
        ]
        try:
            objects = [task.result() for task in tasks]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    headers = _headers(job, scratch, len(sources))
    _check_declared(job, headers)
    stubs = _stubs(job.compiler, scratch)
    output = scratch / job.declaration.native.library.name
    try:
        run_tool(
            [
                *job.compiler.command, *job.link_flags(), "-o", str(output), *map(str, objects),
                f"-L{stubs}", "-Wl,--no-as-needed", "-ltorch_cpu",
                "-Wl,--as-needed", "-l:libdl.so.2", "-l:libpthread.so.0",
            ],
            cwd=scratch,
        )  # fmt: skip
    except CommandError as error:
        raise _named(error, "the native library does not link") from error
    data = output.read_bytes()
    progress(f"native {job.compiler.host.value}: {len(job.sources)} sources, {len(data):,} bytes")
    return data, headers


def _compile_one(job: _Job, scratch: Path, source: Path, name: str, index: int) -> Path:
    output = scratch / f"{index:03}.o"
    folders = [f"-I{job.root / folder}" for folder in job.declaration.native.include]
    command = [
        *job.compiler.command, *_FLAGS, f"-DTORCH_TARGET_VERSION={job.target_hex}", *folders,
        # The last map that fits wins: the project's root may hold the environment that torch is in.
        f"-ffile-prefix-map={scratch}=.", f"-ffile-prefix-map={job.root}=.",
        f"-ffile-prefix-map={job.torch_include}=torch/include", f"-ffile-prefix-map={FLOOR}=wheelmark",
        f"-frandom-seed={name}", "-isystem", str(job.torch_include), "-include", str(FLOOR / "floor.h"),
        "-MD", "-MF", str(output.with_suffix(".d")), "-x", "c++", "-c", str(source), "-o", str(output),
    ]  # fmt: skip
    try:
        run_tool(command, cwd=scratch)
    except CommandError as error:
        raise _named(error, f"{name} does not compile") from error
    return output


def _named(error: CommandError, cause: str) -> CommandError:
    return CommandError(
        error.command, error.code, error.output, cause=cause, fix="correct the source as the compiler says"
    )


def _headers(job: _Job, scratch: Path, count: int) -> dict[str, str]:
    """Headers that were read, by a name that does not depend on where torch and the project are."""
    paths: set[Path] = set()
    for index in range(count):
        text = (scratch / f"{index:03}.d").read_text(encoding="utf-8", errors="surrogateescape")
        paths |= set(_dependencies(text))
    roots = ((job.torch_include, "torch:"), (FLOOR.resolve(), "floor:"), (job.root, "project:"))
    found: dict[str, str] = {}
    for path in paths:
        resolved = path.resolve()
        for root, word in roots:
            if resolved.is_relative_to(root):
                found[word + resolved.relative_to(root).as_posix()] = digests.sha256_file(resolved)
                break
        else:
            found["system:" + str(resolved)] = digests.sha256_file(resolved)
    return dict(sorted(found.items()))


def _dependencies(text: str) -> Sequence[Path]:
    """Prerequisites of the one rule in a dependency file that GCC wrote (make syntax)."""
    rule = text.replace("\\\n", " ").partition(": ")[2]
    words = re.findall(r"(?:\\.|[^\s\\])+", rule)
    return [Path(re.sub(r"\\([\s#\\])", r"\1", word).replace("$$", "$")) for word in words]


def _check_declared(job: _Job, headers: Mapping[str, str]) -> None:
    declared = {"project:" + name for name in job.inputs()}
    for name in headers:
        if name.startswith("project:") and name not in declared:
            raise BuildError(
                f"the native library includes {name.partition(':')[2]}, which no declared folder holds",
                cause="a header that is not in the build key would leave a stale library when it changes",
                fix="add its folder to native.include in wheelmark.toml",
                reason="native-undeclared-header",
            )


def _stubs(compiler: Compiler, scratch: Path) -> Path:
    """Link-time stand-ins: torch's library, and libdl and libpthread as in glibc 2.28.

    torch's has a name and no symbols: its C functions stay undefined and are found in the torch that is loaded,
    but the library must be NEEDED, or loading before ``import torch`` fails.
    """
    folder = scratch / "stubs"
    folder.mkdir()
    _stub(compiler, folder / "libtorch_cpu.so", {})
    for path in sorted(FLOOR.glob("*.symbols")):
        lines = [line.split() for line in path.read_text("ascii").splitlines() if not line.startswith("#")]
        _stub(compiler, folder / path.stem, dict(lines))
    return folder


def _stub(compiler: Compiler, output: Path, symbols: Mapping[str, str]) -> None:
    versions: dict[tuple[int, ...], list[str]] = {}
    for name, text in symbols.items():
        version = tuple(int(number) for number in text.split("."))
        if compiler.host is HostArch.AARCH64:
            version = max(version, _FIRST_AARCH64)
        versions.setdefault(version, []).append(name)
    source, script = output.with_suffix(".c"), output.with_suffix(".map")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in symbols), "ascii")
    script.write_text(
        "".join(
            f"GLIBC_{'.'.join(map(str, version))} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
            for version, names in sorted(versions.items())
        ),
        "ascii",
    )
    scripted = [f"-Wl,--version-script={script}"] if symbols else []
    run_tool(
        [
            *compiler.command, "-x", "c", "-w", "-ffreestanding", "-fno-builtin", "-fPIC", "-nostdlib", "-shared",
            f"-Wl,-soname,{output.name}", *scripted, "-o", str(output), str(source),
        ],
        cwd=output.parent,
    )  # fmt: skip


def _lookup(cache: Path, key: str, job: _Job) -> NativeLibrary | None:
    """The kept library, if it is whole and every header that it read still has the same bytes."""
    try:
        record = json.loads((cache / f"{key}.json").read_bytes())
        data = (cache / f"{key}.so").read_bytes()
        headers, sha256 = dict(record["headers"]), record["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if digests.sha256(data) != sha256:
        return None
    roots = {"torch": job.torch_include, "floor": FLOOR, "project": job.root, "system": Path("/")}
    for name, digest in headers.items():
        word, _, path = name.partition(":")
        try:
            if digests.sha256_file(roots[word] / path) != digest:
                return None
        except (InputError, KeyError):
            return None
    return job.library(key, data, headers, cached=True)


def _store(cache: Path, key: str, data: bytes, headers: Mapping[str, str]) -> None:
    """Keep a library. The record comes last and whole, so that a killed run leaves nothing that is believed."""
    record = digests.canonical_json({"sha256": digests.sha256(data), "headers": dict(headers)})
    for name, content in ((f"{key}.so", data), (f"{key}.json", record)):
        with tempfile.NamedTemporaryFile(dir=cache, prefix=f".{name}-", delete=False) as stream:
            stream.write(content)
        shutil.move(stream.name, cache / name)
