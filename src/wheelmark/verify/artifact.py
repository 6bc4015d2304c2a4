"""What one wheel's bytes say, and everything that is wrong with them. An edge: it reads a file once.

The digest is of the bytes that were looked into: the wheel's reader gives both, and reads each member against
the digest that it found before. Code objects are compared with the kernel manifest both ways.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from wheelmark import digests
from wheelmark.binaries.archive import FileSource
from wheelmark.binaries.kernelmanifest import FOLDER, NAME, KernelManifest, read_kernel_manifest
from wheelmark.binaries.kernelobjects import Problem, check_objects
from wheelmark.binaries.wheel import DEFAULT_LIMITS, Wheel, read_wheel
from wheelmark.errors import INTERRUPTS, InputError
from wheelmark.plainfiles import open_plain
from wheelmark.targets import known_ids

_OBJECT_SUFFIXES = (".cubin", ".hsaco")
_CPUS = tuple(item.partition("-")[2] for item in known_ids() if item.startswith("cpu-"))
LARGEST_OBJECT = 64 << 20
"""Bytes of a code object or its manifest: ours have a few thousand, and each is wholly in memory once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """By what an image was asked for, where that says more than the image's own digest."""

    index: str = ""
    """sha256 of the index that was asked for: which images it lists is somebody's word, and needs a signature."""
    target: str = ""
    """Id of the target that the name speaks of (``targets.named_by``)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactFacts:
    """What any artifact's bytes say: all that evaluation needs to know of a wheel, an image or a kernel pack."""

    path: str
    """As the report names it."""
    name: str
    """The subject name that a statement has to have for it; empty where digests alone count (images: a copy has other names)."""
    sha256: str
    size: int
    problems: tuple[Problem, ...] = ()
    """Everything that is wrong with the bytes themselves."""
    version: str = ""
    """Of the release that it is from; empty where the bytes do not say."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Path inside -> sha256."""
    linked_from: tuple[str, ...] = ()
    """sha256 of what holds it by digest (an image's indexes): a statement about one of these is about it too."""
    kernels: KernelManifest | None = None
    """The kernel manifest that it holds."""
    asked: Asked = Asked()
    """What was asked for, and led here."""
    requires: tuple[str, ...] = ()
    """Distributions that it asks for (``Requires-Dist``), as METADATA writes them."""

    @property
    def target(self) -> str:
        """Id of the target that the bytes speak of; empty if they do not."""
        return ""

    @property
    def project(self) -> str:
        """Name of the project that the bytes are of; empty if they do not say."""
        return ""

    @property
    def runs_as(self) -> str:
        """Platform that an image's configuration names (``linux/amd64``); empty for anything else."""
        return ""

    @property
    def is_image(self) -> bool:
        """Whether it is a container image: of what a requirement asks of a release, other parts are for these."""
        return False

    @property
    def is_stand_in(self) -> bool:
        """Whether its own bytes say that its dependencies are not those of its recipe."""
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class WheelFacts(ArtifactFacts):
    """What a wheel's bytes say."""

    distribution: str = ""
    """Name in METADATA; empty where the bytes could not be read."""
    platforms: tuple[str, ...] = ()
    """Of its tags, sorted; none where the bytes could not be read."""
    kernel_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Name of the kernel manifest and of each object -> sha256."""

    @property
    def target(self) -> str:
        """Id of the target that the bytes speak of: the kernels', else the CPU of its platforms; empty if neither."""
        if self.kernels is not None:
            return str(self.kernels.target)
        return next((f"cpu-{arch}" for arch in _CPUS if self.runs_on(arch)), "")

    @property
    def project(self) -> str:
        """The distribution."""
        return self.distribution

    def runs_on(self, arch: str) -> bool:
        """Whether every platform of its tags is of this CPU."""
        return bool(self.platforms) and all(item.endswith(f"_{arch}") for item in self.platforms)


def examine_wheel(path: Path, *, subject: str, threads: bool = True) -> WheelFacts:
    """Read a wheel and find what is wrong with its bytes.

    Args:
        path: The file.
        subject: How the report names it.
        threads: Whether a large wheel is summed in several threads; not where several wheels are read at once.

    Raises:
        InputError: The file cannot be read, or is no plain file (``unreadable``).
    """
    with open_plain(path) as stream:
        if (size := os.fstat(stream.fileno()).st_size) > DEFAULT_LIMITS.total:
            # A file of nothing but holes is made in no time, and would be hashed for hours.
            raise InputError(f"{path} holds {size:,} bytes", reason="wheel-limit")
        try:
            source = FileSource(path, stream.fileno())
            wheel = read_wheel(source, name=path.name, threads=threads, checksums=False)
            kernels, kernel_files, problems = _examine_kernels(wheel)
        except InputError as error:
            found = Problem(reason=error.reason, text=error.what)
            return _unreadable(path, stream, subject, found)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - row 44: anything a library raises is a refusal
            found = Problem(reason="library", text=f"{type(error).__name__}: {str(error)[:300]}")
            return _unreadable(path, stream, subject, found)
    return WheelFacts(
        path=subject,
        name=path.name,
        sha256=wheel.sha256,
        size=wheel.size,
        problems=problems,
        distribution=wheel.name,
        version=str(wheel.version),
        requires=wheel.metadata.get("requires-dist", ()),
        files={name: item.sha256 for name, item in wheel.files.items()},
        platforms=wheel.platforms,
        kernels=kernels,
        kernel_files=kernel_files,
    )


def _unreadable(path: Path, stream: io.BufferedReader, subject: str, problem: Problem) -> WheelFacts:
    return WheelFacts(
        path=subject,
        name=path.name,
        sha256=digests.sha256_stream(stream),
        size=stream.tell(),
        problems=(problem,),
    )


class LazyFiles(Mapping[str, bytes]):
    """Files by name, each read when it is asked for: never all of them in memory.

    Args:
        names: Of the files.
        read: Gives the bytes of one.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], bytes]) -> None:
        self._names = tuple(sorted(names))
        self._read = read

    def __getitem__(self, name: str) -> bytes:
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _examine_kernels(
    wheel: Wheel,
) -> tuple[KernelManifest | None, dict[str, str], tuple[Problem, ...]]:
    manifests = [name for name in wheel.files if PurePosixPath(name).parts[-2:] == (FOLDER, NAME)]
    objects = [name for name in wheel.files if name.endswith(_OBJECT_SUFFIXES)]
    if not manifests:
        problems = tuple(
            Problem(reason="kernel-manifest-missing", text=f"{name} has no kernel manifest")
            for name in objects
        )
        return None, {}, problems
    folder = PurePosixPath(manifests[0]).parent
    inside = [name for name in wheel.files if PurePosixPath(name).parent == folder and name != manifests[0]]
    problems = tuple(
        Problem(reason="object-unlisted", text=f"{name} lies outside the folder of the kernel manifest")
        for name in [*objects, *manifests[1:]]
        if name not in inside
    )
    for name in [manifests[0], *inside]:
        if wheel.files[name].size > LARGEST_OBJECT:
            raise InputError(f"{name} holds {wheel.files[name].size:,} bytes", reason="wheel-limit")
    manifest = read_kernel_manifest(wheel.read(manifests[0]))
    paths = {PurePosixPath(name).name: name for name in inside}
    problems += check_objects(manifest, LazyFiles(paths, lambda name: wheel.read(paths[name])))
    files = {PurePosixPath(name).name: wheel.files[name].sha256 for name in [manifests[0], *inside]}
    return manifest, files, problems
