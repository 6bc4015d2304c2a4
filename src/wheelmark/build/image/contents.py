"""What lies in a finished image, read back from its layers: nothing is believed of how it was made, nothing is run.

The layers are put over one another as an engine does (whiteouts included), then looked at:

==============================  ======================================================================
reason                          what was found
==============================  ======================================================================
``contents-needed``             a library that an ELF object needs is nowhere in the image
``contents-loader``             a program asks for a loader that is not there
``contents-foreign``            an ELF object for another CPU than the image's
``contents-elf``                an ELF object that cannot be read
``contents-dangling``           a symbolic link that leads nowhere
``contents-setuid``             a file that runs with its owner's rights
``contents-capability``         a file that brings capabilities along: setuid by another name
``contents-replaced``           a file of a layer of ours that takes the place of one of a layer below
``contents-bytecode``           Python byte code
``contents-shell``              a shell
``contents-package-manager``    a program that installs others
``contents-writable``           a place that the image's user may write, besides its home and shared temporary folders
``contents-user``               the image runs as root, or as a name
``contents-entrypoint``         the image's program is not there, or its user may not run it
``contents-packages``           a Debian system without package notes, or notes that cannot be read
``contents-sbom``               no SBOM inside
==============================  ======================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import posixpath
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from wheelmark.binaries.elf import Elf, is_elf, read_elf
from wheelmark.build.image.debian import STATUS
from wheelmark.build.image.merged import Merged, Place
from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.layer import Contents, Kind, LayerEntry, walk_layer
from wheelmark.oci.layout import Layout
from wheelmark.oci.types import Descriptor, ImageManifest

_SHELLS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "busybox", "toybox"}
)
_MANAGERS = frozenset(
    {"apt", "apt-get", "dpkg", "apk", "dnf", "microdnf", "yum", "rpm", "zypper", "pacman", "conda", "mamba", "pip", "pip3", "uv"}
)  # fmt: skip
_PROGRAMS = re.compile(r"(.*/)?s?bin/(?P<name>[^/]+)")
_SBOM = re.compile(r".+\.dist-info/sboms/.+")
_METADATA = re.compile(r"(?P<folder>.+)/(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info/METADATA")
_MACHINES: Mapping[str, tuple[str, str]] = {
    "amd64": ("x86_64", "x86_64-linux-gnu"),
    "arm64": ("aarch64", "aarch64-linux-gnu"),
}
"""Architecture -> the ELF machine's name, and the folder that Debian's loader looks into."""
_GPU = frozenset({"cuda", "amdgpu"})
_PT_INTERP = 3
_IN_MEMORY = 32 << 20
_TEXT = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    reason: str
    path: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """A Debian package, as the image's notes have it."""

    name: str
    version: str
    architecture: str
    source: str
    """Its source package: the package itself where the notes say none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    """A Python distribution, by its folder."""

    name: str
    version: str
    path: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageContents:
    """What lies in an image."""

    digest: str
    """``sha256:…`` of its manifest."""
    architecture: str
    user: str
    entrypoint: tuple[str, ...]
    labels: Mapping[str, str]
    files: int
    size: int
    """Bytes of all files."""
    objects: int
    """ELF objects for the image's CPU."""
    preloaded: tuple[tuple[str, str], ...]
    """Object and library: the loader's own search does not find it, but the library is in the image and is there once what
    loads it first is imported (torch, for an operator library)."""
    writable: tuple[str, ...]
    """What the image's user may write, allowed or not."""
    packages: tuple[InstalledPackage, ...]
    distributions: tuple[Distribution, ...]
    sboms: tuple[str, ...]
    findings: tuple[Finding, ...]
    """Sorted by reason and path; none in a good image."""


def inspect(layout: Path, digest: str, *, adding: int = 0) -> ImageContents:
    """Look into an image.

    Args:
        layout: The layout that holds it.
        digest: ``sha256:…`` of its manifest.
        adding: How many of its uppermost layers are to add, and to replace nothing of those below.

    Raises:
        InputError: It is not there, malformed, or a blob is not what its digest says.
    """
    opened = Layout(layout)
    descriptor = opened.resolve(digest).descriptor
    manifest = opened.read_manifest(descriptor)
    data = opened.document(manifest.config, limit=types.CONFIG_LIMIT)
    config = types.read_config(data)
    settings = json.loads(data).get("config") or {}
    with tempfile.TemporaryDirectory(prefix="wheelmark-contents-") as folder:
        look = _Look(config.platform.architecture, Path(folder))
        look.read(opened, manifest, adding=adding)
    user, entrypoint = str(settings.get("User") or ""), tuple(settings.get("Entrypoint") or ())
    findings = [*look.findings(), *look.start(user, entrypoint or tuple(settings.get("Cmd") or ()))]
    writable, odd = look.writable(user, str(settings.get("WorkingDir") or "/"))
    return ImageContents(
        digest=descriptor.digest,
        architecture=config.platform.architecture,
        user=user,
        entrypoint=entrypoint,
        labels=config.labels,
        files=sum(1 for place in look.tree.places.values() if place.kind is Kind.FILE),
        size=sum(place.size for place in look.tree.places.values()),
        objects=sum(1 for path in look.objects if path in look.tree.places),
        preloaded=tuple(look.preloaded),
        writable=writable,
        packages=tuple(look.packages()),
        distributions=tuple(look.distributions()),
        sboms=tuple(sorted(path for path in look.tree.places if _SBOM.fullmatch(path))),
        findings=tuple(sorted({*findings, *odd}, key=lambda item: (item.reason, item.path, item.text))),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Object:
    """What of an ELF object decides what it needs."""

    needed: tuple[str, ...]
    search: tuple[str, ...]
    """Of RPATH and RUNPATH."""
    loader: str


@dataclasses.dataclass(kw_only=True)
class _Scanned:
    """One layer, read once: several images share the layers that take long."""

    machine: str
    folder: Path
    entries: list[LayerEntry] = dataclasses.field(default_factory=list)
    objects: dict[str, _Object] = dataclasses.field(default_factory=dict)
    notes: dict[str, bytes] = dataclasses.field(default_factory=dict)
    broken: list[Finding] = dataclasses.field(default_factory=list)

    def read(self, opened: Layout, item: Descriptor) -> None:
        """Read it to its end."""
        with opened.open_blob(item) as blob:
            for entry, contents in walk_layer(blob, item.media_type):
                self.entries.append(entry)
                if entry.kind is Kind.FILE:
                    self._file(entry.path, entry.size, contents)
            blob.check()

    def _file(self, path: str, size: int, contents: Contents) -> None:
        if path.startswith(f"{STATUS}/") and not path.endswith(".md5sums"):
            self.notes[path] = contents.read(min(size, _TEXT))
            return
        head = contents.read(min(size, 64))
        if not is_elf(head):
            return
        try:
            with self._whole(head, contents) as data:
                self._object(path, read_elf(data, symbols=False))
        except InputError as error:
            if error.reason.startswith("image-"):
                raise  # the layer itself
            self.broken.append(Finding(reason="contents-elf", path=path, text=error.what))

    @contextlib.contextmanager
    def _whole(self, head: bytes, contents: Contents) -> Iterator[bytes]:
        """A file's bytes; large ones stay on disk, and only the pages that are looked at are read."""
        if contents.left <= _IN_MEMORY:
            yield head + b"".join(contents.chunks())
            return
        with tempfile.TemporaryFile(dir=self.folder) as stream:
            stream.write(head)
            for piece in contents.chunks():
                stream.write(piece)
            stream.flush()
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield cast("bytes", mapped)

    def _object(self, path: str, elf: Elf) -> None:
        if elf.machine_name in _GPU:
            return
        if elf.machine_name != self.machine:
            text = f"it is for {elf.machine_name}, the image for {self.machine}"
            self.broken.append(Finding(reason="contents-foreign", path=path, text=text))
            return
        loaders = [
            bytes(elf.data[item.offset : item.offset + item.file_size])
            for item in elf.segments
            if item.type == _PT_INTERP
        ]
        dynamic = elf.dynamic
        search = f"{dynamic.rpath}:{dynamic.runpath}".split(":") if dynamic else []
        self.objects[path] = _Object(
            needed=dynamic.needed if dynamic else (),
            search=tuple(item for item in search if item),
            loader=loaders[0].rstrip(b"\0").decode("utf-8", "replace") if loaders else "",
        )


_KEPT = 8
"""Layers whose scan is kept."""
_scans: dict[tuple[str, str, int, str], _Scanned] = {}
_scanning = threading.Lock()


def _scan(opened: Layout, item: Descriptor, machine: str, folder: Path) -> _Scanned:
    """What a layer holds, from an earlier look of this process where the blob still has the bytes of its digest."""
    key = (item.sha256, item.media_type, item.size, machine)
    with _scanning:
        known = _scans.get(key)
        if known is not None:
            with opened.open_blob(item) as blob:
                blob.check()
            return known
        made = _Scanned(machine=machine, folder=folder)
        made.read(opened, item)
        while len(_scans) >= _KEPT:
            _scans.pop(next(iter(_scans)))
        _scans[key] = made
        return made


class _Look:
    """One image while it is read."""

    def __init__(self, architecture: str, folder: Path) -> None:
        self._machine, self._triplet = _MACHINES.get(architecture, (architecture, ""))
        self._folder = folder
        self.tree = Merged()
        self.objects: dict[str, _Object] = {}
        self.preloaded: list[tuple[str, str]] = []
        self._notes: dict[str, bytes] = {}
        self._broken: list[Finding] = []
        self._replaced: list[Finding] = []

    def read(self, opened: Layout, manifest: ImageManifest, *, adding: int) -> None:
        """Every layer, bottom first."""
        for number, item in enumerate(manifest.layers, start=1):
            scanned = _scan(opened, item, self._machine, self._folder)
            below = self.tree.begin()
            adds = number > max(1, len(manifest.layers) - adding)
            for entry in scanned.entries:
                if adds and self.tree.replaces(entry, below):
                    text = f"layer {number} puts another over the one of a layer below"
                    self._replaced.append(Finding(reason="contents-replaced", path=entry.path, text=text))
                self.tree.add(entry, below)
                if entry.kind is Kind.FILE:
                    self.objects.pop(entry.path, None)
                    self._notes.pop(entry.path, None)
            self.objects |= scanned.objects
            self._notes |= scanned.notes
            self._broken += scanned.broken

    def findings(self) -> Iterator[Finding]:
        """Everything besides how the image starts and who may write."""
        yield from (item for item in self._broken if item.path in self.tree.places)
        yield from self._replaced
        yield from self._libraries()
        for path, place in self.tree.places.items():
            yield from self._one(path, place)
        if not any(_SBOM.fullmatch(path) for path in self.tree.places):
            yield Finding(
                reason="contents-sbom", path="", text="no distribution brings an SBOM (dist-info/sboms)"
            )
        if "usr/lib/os-release" in self.tree.places and not self._notes:
            yield Finding(reason="contents-packages", path=STATUS, text="it names no package")
        for path, data in self._notes.items():
            if not _stanza(data).get("Package"):
                yield Finding(reason="contents-packages", path=path, text="it names no package")

    def _one(self, path: str, place: Place) -> Iterator[Finding]:
        if place.kind is Kind.SYMBOLIC_LINK:
            if self.tree.resolve(path) is None:
                yield Finding(reason="contents-dangling", path=path, text=f"it leads to {place.link}")
        elif place.kind is Kind.FILE and place.mode & 0o6000:
            yield Finding(reason="contents-setuid", path=path, text=f"mode {place.mode:o}")
        if "security.capability" in place.attributes:
            text = "it brings capabilities along, whoever starts it"
            yield Finding(reason="contents-capability", path=path, text=text)
        if path.endswith((".pyc", ".pyo")):
            yield Finding(reason="contents-bytecode", path=path, text="byte code is not reproducible")
        match = _PROGRAMS.fullmatch(path)
        if match is not None and place.kind is not Kind.FOLDER:
            if match["name"] in _SHELLS:
                yield Finding(reason="contents-shell", path=path, text="a shell")
            if match["name"] in _MANAGERS:
                yield Finding(reason="contents-package-manager", path=path, text="a package manager")

    def _libraries(self) -> Iterator[Finding]:
        """Every library that is needed, looked for as the loader does without a cache (ld.so(8))."""
        names = {
            path.rpartition("/")[2]
            for path, place in self.tree.places.items()
            if place.kind is not Kind.FOLDER
        }
        usual = [f"lib/{self._triplet}", f"usr/lib/{self._triplet}", "lib", "usr/lib", "lib64", "usr/lib64"]
        for path, found in sorted(self.objects.items()):
            if found.loader and self.tree.resolve(found.loader) is None:
                yield Finding(reason="contents-loader", path=path, text=f"it asks for {found.loader}")
            folder = posixpath.dirname(self.tree.resolve(path) or path)
            own = [
                posixpath.normpath(
                    item.replace("$ORIGIN", f"/{folder}").replace("${ORIGIN}", f"/{folder}")
                ).lstrip("/")
                for item in found.search
            ]
            for name in found.needed:
                if "/" in name:
                    met = self.tree.resolve(name) is not None
                else:
                    met = any(self.tree.resolve(f"{place}/{name}") for place in (*own, *usual))
                if not met and name in names:
                    self.preloaded.append((path, name))
                elif not met:
                    yield Finding(reason="contents-needed", path=path, text=f"it needs {name}")

    def start(self, user: str, command: tuple[str, ...]) -> Iterator[Finding]:
        """Whether the image's user can start the image's program."""
        number = user.partition(":")[0]
        if not number.isdigit() or int(number) == 0:
            yield Finding(
                reason="contents-user",
                path="",
                text=f"it runs as {user or 'root'!r}, and not as a number above 0",
            )
        program = command[0] if command else ""
        real = self.tree.resolve(program) if program.startswith("/") else None
        place = self.tree.places.get(real or "")
        if place is None or place.kind is not Kind.FILE:
            yield Finding(reason="contents-entrypoint", path=program, text="there is no such program")
            return
        above = [self.tree.places.get(item) for item in _above(real or "")]
        if not place.mode & 0o001 or any(item is not None and not item.mode & 0o001 for item in above):
            yield Finding(reason="contents-entrypoint", path=program, text=f"user {user} may not run it")

    def writable(self, user: str, home: str) -> tuple[tuple[str, ...], list[Finding]]:
        """What the user may write; and of that what is neither its home nor a shared temporary folder."""
        owner, _, group = user.partition(":")
        number = int(owner) if owner.isdigit() else -1
        team = int(group) if group.isdigit() else number
        found = [
            path
            for path, place in sorted(self.tree.places.items())
            if place.kind is not Kind.SYMBOLIC_LINK
            and (
                place.mode & 0o002
                or (place.uid == number and place.mode & 0o200)
                or (place.gid == team and place.mode & 0o020)
            )
        ]
        odd = [
            Finding(reason="contents-writable", path=path, text=f"mode {self.tree.places[path].mode:o}")
            for path in found
            if f"/{path}" != home and not self.tree.places[path].is_shared
        ]
        return tuple(found), odd

    def packages(self) -> Iterator[InstalledPackage]:
        """The packages of the notes, by name."""
        for path in sorted(self._notes):
            fields = _stanza(self._notes[path])
            if fields.get("Package"):
                yield InstalledPackage(
                    name=fields["Package"],
                    version=fields.get("Version", ""),
                    architecture=fields.get("Architecture", ""),
                    source=fields.get("Source", fields["Package"]).partition(" ")[0],
                )

    def distributions(self) -> Iterator[Distribution]:
        """Python distributions, by path."""
        for path in sorted(self.tree.places):
            match = _METADATA.fullmatch(path)
            if match is not None:
                yield Distribution(name=match["name"], version=match["version"], path=posixpath.dirname(path))


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _stanza(data: bytes) -> dict[str, str]:
    """The one-line fields of a paragraph of deb822(5)."""
    lines = data.decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines if line and not line[0].isspace())
    return {name: text.strip() for name, colon, text in pairs if colon}
