"""Debian packages into a layer: unpacked here, by us. No maintainer script runs, none is kept in the image.

Every package is the locked one by digest before it is opened. ``/bin``, ``/sbin`` and ``/lib*`` are links into ``/usr``
(Debian's merged /usr), hard links become files of their own, owners are 0, modes are the layer's fixed ones. What a
script would have done is done by ``system``; that there is a script is listed, with its digest. For scanners, each
package stands in ``/var/lib/dpkg/status.d`` as distroless images have it, with the sums of the files that were kept.

===================  ==================================================================
reason               what was found
===================  ==================================================================
``deb-digest``       the file is not the locked bytes
``deb-missing``      a locked package is not there
``deb-tar``          a tar archive inside is malformed
``deb-path``         a path or link that leaves the tree, a device
``deb-limit``        too many files or bytes, or a decompression bomb
``deb-link``         a hard link to what the package does not hold
``deb-setuid``       a file that runs with its owner's rights
``deb-control``      control malformed, or of another package than the lock says
===================  ==================================================================

``ar`` has two more.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from wheelmark import digests
from wheelmark.build.image.ar import Deb
from wheelmark.build.image.paths import Patterns
from wheelmark.build.image.tree import EXECUTABLE, FOLDER, PLAIN, PRIVATE, SHARED, Kept, Tree
from wheelmark.errors import BuildError, InputError
from wheelmark.lock.debian import DebianLock, DebianPackage
from wheelmark.oci import types
from wheelmark.oci.layer import Contents, Kind, LayerEntry, LayerLimits, Readable, walk_layer

STATUS = "var/lib/dpkg/status.d"
CERTIFICATES = "usr/share/ca-certificates/"
SCRIPTS = ("config", "postinst", "postrm", "preinst", "prerm", "triggers")
"""Members of control.tar that would have something run."""
_MERGED = re.compile(r"^(bin|sbin|lib|lib32|lib64|libx32|libo32)(?=/|$)")
_ROOT_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "amd64": ("bin", "lib", "lib64", "sbin"),
    "arm64": ("bin", "lib", "sbin"),
}
"""Links in the root into /usr, by architecture: where the ABI has the loader."""
_CONTROL_LIMITS = LayerLimits(entries=1000, total=64 << 20)
_DATA_LIMITS = LayerLimits(entries=100_000, total=8 << 30)
_FREE, _RATIO = 64 << 20, 200
"""Bytes that any package may unpack to, and how many more a byte of it: real ones stay below 20."""
_REASONS = {"image-path": "deb-path", "image-limit": "deb-limit"}
"""Of the tar reader -> of this module."""
_SMALL = 4 << 20
"""Bytes of one control file."""
_CERTIFICATE = 1 << 20
_NEEDED = ("Package", "Version", "Architecture")
_FIELD = re.compile(r"^([!-9;-~]+):[ \t]*(.*)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A maintainer script that did not run."""

    package: str
    name: str
    """``postinst``, ``triggers``…"""
    sha256: str
    """A changed script may do something new: see ``system`` for what is done in its place."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unpacked:
    """What came out of the packages besides the files."""

    scripts: tuple[Script, ...]
    certificates: Mapping[str, bytes]
    """Certificates of ca-certificates by path, kept or not: the bundle is made from them."""


def unpack(lock: DebianLock, packages: Mapping[str, Path], *, drop: Patterns, tree: Tree) -> Unpacked:
    """Unpack every locked package into a tree.

    Args:
        lock: Which packages.
        packages: The files, by sha256.
        drop: What is left out.
        tree: Takes the files and their contents.

    Raises:
        BuildError: See the module's table, or the tree's own.
    """
    for name in _ROOT_FOLDERS[lock.architecture]:
        tree.link(name, f"usr/{name}", origin="merged /usr")
        tree.folder(f"usr/{name}", origin="merged /usr")
    scripts: list[Script] = []
    certificates: dict[str, bytes] = {}
    for locked in lock.packages:
        path = packages.get(locked.sha256)
        if path is None:
            raise BuildError(
                f"{locked.name} {locked.version} is not there",
                cause=f"no file of the pool has the sha256 {locked.sha256}",
                reason="deb-missing",
            )
        one = _Package(locked, drop, tree)
        one.unpack(path)
        scripts += one.scripts
        certificates |= one.certificates
    return Unpacked(scripts=tuple(scripts), certificates=certificates)


class _Package:
    """One package on its way into the tree."""

    def __init__(self, locked: DebianPackage, drop: Patterns, tree: Tree) -> None:
        self._locked, self._drop, self._tree = locked, drop, tree
        self._origin = f"{locked.name} {locked.version}"
        self._held: dict[str, tuple[Kept, int]] = {}
        self._sums: dict[str, str] = {}
        self.scripts: list[Script] = []
        self.certificates: dict[str, bytes] = {}

    def unpack(self, path: Path) -> None:
        try:
            with path.open("rb") as stream:
                if digests.sha256_stream(stream) != self._locked.sha256:
                    raise self._error(
                        f"{path.name} is not the locked bytes (sha256 {self._locked.sha256})", "deb-digest"
                    )
                stream.seek(0)
                deb = Deb(stream, self._origin)
                control = self._control(deb.member("control.tar"))
                most = min(_DATA_LIMITS.total, _FREE + _RATIO * path.stat().st_size)
                limits = dataclasses.replace(_DATA_LIMITS, total=most)
                for entry, contents in walk_layer(deb.member("data.tar"), types.LAYER, limits=limits):
                    self._take(entry, contents)
                deb.finish()
        except InputError as error:
            text, reason = error.what.removeprefix("layer: "), _REASONS.get(error.reason, "deb-tar")
            raise self._error(text, reason) from error
        except OSError as error:
            raise self._error(f"cannot read {path}: {error.strerror}", "deb-missing") from error
        self._note(control)

    def _control(self, stream: Readable) -> dict[str, bytes]:
        """The control files by name; scripts are noted."""
        found: dict[str, bytes] = {}
        for entry, contents in walk_layer(stream, types.LAYER, limits=_CONTROL_LIMITS):
            if entry.kind is Kind.FILE:
                if entry.size > _SMALL:
                    raise self._error(f"control file {entry.path} has {entry.size:,} bytes", "deb-limit")
                found[entry.path] = b"".join(contents.chunks())
        self.scripts = [
            Script(package=self._locked.name, name=name, sha256=digests.sha256(found[name]))
            for name in SCRIPTS
            if name in found
        ]
        fields = self._fields(found.get("control", b""))
        wanted = (self._locked.name, self._locked.version, self._locked.architecture)
        said = tuple(fields.get(name, "") for name in _NEEDED)
        if said != wanted:
            raise self._error(f"its control file is of {' '.join(said)[:200]!r}", "deb-control")
        return found

    def _fields(self, control: bytes) -> dict[str, str]:
        """The fields of a control file, one paragraph of deb822(5)."""
        try:
            text = control.decode()
        except UnicodeDecodeError as error:
            raise self._error("its control file is not UTF-8", "deb-control") from error
        fields: dict[str, str] = {}
        for line in text.rstrip("\n").split("\n"):
            if line.startswith((" ", "\t")) and fields:
                continue
            match = _FIELD.match(line)
            if match is None or match[1] in fields:
                raise self._error(f"its control file has the line {line[:100]!r}", "deb-control")
            fields[match[1]] = match[2]
        if "Status" in fields or "Conffiles" in fields:
            raise self._error("its control file says what only dpkg says", "deb-control")
        return fields

    def _take(self, entry: LayerEntry, contents: Contents) -> None:
        path = _MERGED.sub(r"usr/\1", entry.path)
        if not path:
            return
        if entry.kind is Kind.FILE:
            held = self._tree.keep(contents.chunks())
            self._held[entry.path] = (held, entry.mode)
            if path.startswith(CERTIFICATES) and path.endswith(".crt"):
                if held.size > _CERTIFICATE:
                    raise self._error(f"certificate {path} has {held.size:,} bytes", "deb-limit")
                self.certificates[path] = b"".join(held.chunks())
        if self._drop.match(path):
            return
        if entry.kind is Kind.SYMBOLIC_LINK:
            merged = _MERGED.fullmatch(entry.path) is not None
            if (
                not merged or entry.link.removeprefix("/") != f"usr/{entry.path}"
            ):  # a package's own merged /usr
                self._tree.link(path, entry.link, origin=self._origin)
        elif entry.kind is Kind.FOLDER:
            self._tree.folder(path, mode=_folder_mode(entry.mode), origin=self._origin)
        else:
            self._file(entry, path)

    def _file(self, entry: LayerEntry, path: str) -> None:
        source = entry.path
        if entry.kind is Kind.HARD_LINK:
            source = entry.link.removeprefix("./").rstrip("/")
        held, mode = self._held.get(source, (None, 0))
        if held is None:
            raise self._error(
                f"{path} is a hard link to {entry.link[:200]}, which it does not hold", "deb-link"
            )
        if (mode | entry.mode) & 0o6000:
            raise self._error(
                f"{path} runs with the rights of its owner (mode {mode | entry.mode:o})",
                "deb-setuid",
                fix="name it under debian.drop in the recipe, if the image can do without it",
            )
        self._sums[entry.path] = held.md5
        self._tree.stream(
            path,
            held.chunks,
            size=held.size,
            sha256=held.sha256,
            mode=EXECUTABLE if mode & 0o111 else PLAIN,
            origin=self._origin,
        )

    def _note(self, control: Mapping[str, bytes]) -> None:
        """The package's stanza, and the sums of its files that are in the image."""
        stanza = control["control"].rstrip(b"\n") + b"\nStatus: install ok installed\n"
        listed = [
            line.strip() for line in control.get("conffiles", b"").decode("utf-8", "replace").splitlines()
        ]
        kept = [path for path in listed if path.removeprefix("/") in self._sums]
        if kept:
            lines = [f" {path} {self._sums[path.removeprefix('/')]}\n" for path in kept]
            stanza += b"Conffiles:\n" + "".join(lines).encode()
        sums = "".join(
            f"{self._sums[path]}  {path}\n" for path in sorted(self._sums) if f"/{path}" not in kept
        )
        name = f"{STATUS}/{self._locked.name}"
        self._tree.file(name, stanza, origin=self._origin)
        self._tree.file(f"{name}.md5sums", sums.encode(), origin=self._origin)

    def _error(self, text: str, reason: str, *, fix: str = "") -> BuildError:
        return BuildError(f"{self._origin}: {text}", fix=fix, reason=reason)


def _folder_mode(mode: int) -> int:
    """One of the three modes of folders: for all to write and for none to remove, private, or ordinary."""
    if mode & 0o1002 == 0o1002:  # noqa: PLR2004 - sticky, and writable by others
        return SHARED
    return FOLDER if mode & 0o077 else PRIVATE
