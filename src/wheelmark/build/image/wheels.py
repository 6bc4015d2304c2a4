"""Wheels laid out as an installer would, into a layer and without running anything: no byte code, no build path.

Written after the binary distribution format (PEP 427), recording installed projects (PEP 376, PEP 627), entry points
specification, and pip for what they leave open. Each wheel is read by our own strict reader: every file is in RECORD with the
right digest before it is believed. The new RECORD lists what lies in the image.

=======================  ==============================================================
reason                   what was found
=======================  ==============================================================
``image-wheel``          a wheel cannot be laid out: scheme, entry point, Python version
``image-wheel-twice``    two wheels of one project
``image-conflict``       two wheels hold one path with different contents
=======================  ==============================================================
"""

from __future__ import annotations

import base64
import configparser
import csv
import functools
import io
import itertools
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.build.image.tree import EXECUTABLE, PLAIN, Tree
from wheelmark.config.recipe import PythonPlace
from wheelmark.errors import BuildError

_ENTRY = re.compile(
    r"(?P<module>[A-Za-z_][\w.]*)\s*:\s*(?P<name>[A-Za-z_][\w.]*)\s*(\[[\w\s,.-]*\])?", re.ASCII
)
_NAME = re.compile(r"[\w][\w.-]*", re.ASCII)
_SHEBANG = re.compile(rb"#!python(w)?([ \t].*)?\n?")
_LONGEST_SCRIPT = 1 << 20
_SCRIPT = """\
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({name}())
"""


def lay_out(wheels: Sequence[Path], python: PythonPlace, tree: Tree) -> tuple[Wheel, ...]:
    """Lay wheels out.

    Args:
        wheels: The files; each under the name that a wheel has.
        python: The interpreter, and where they go.
        tree: Takes the files; their bytes are read when the layer is written.

    Returns:
        The wheels, sorted by name.

    Raises:
        InputError: A wheel is refused by the reader.
        BuildError: See the module's table.
    """
    read = sorted((read_wheel(path, threads=True) for path in wheels), key=lambda wheel: wheel.name)
    for one, other in itertools.pairwise(read):
        if one.name == other.name:
            raise BuildError(
                f"{one.file_name} and {other.file_name} are one project", reason="image-wheel-twice"
            )
    for wheel in read:
        _Layout(wheel, python, tree).lay_out()
    return tuple(read)


class _Layout:
    """One wheel on its way into the tree."""

    def __init__(self, wheel: Wheel, python: PythonPlace, tree: Tree) -> None:
        self._wheel, self._python, self._tree = wheel, python, tree
        self._site = python.site.removeprefix("/")
        prefix = self._site.partition("/lib/")[0]
        self._data = wheel.dist_info.removesuffix(".dist-info") + ".data/"
        self._schemes = {
            "purelib": self._site,
            "platlib": self._site,
            "scripts": f"{prefix}/bin",
            "data": prefix,
            "headers": f"{prefix}/include/python{python.version}/{wheel.name}",
        }
        self._rows: list[tuple[str, str, str]] = []

    def lay_out(self) -> None:
        self._check_python()
        record = f"{self._wheel.dist_info}/RECORD"
        for path in self._wheel.files:
            if path == record or path.endswith("/"):
                continue
            if path.endswith((".pyc", ".pyo")):
                continue  # of another interpreter than the image's, and never asked for
            if path.startswith(self._data):
                self._place(path)
            else:
                self._keep(path, f"{self._site}/{path}", executable=False)
        for name, text in self._scripts():
            self._write(f"{self._schemes['scripts']}/{name}", text.encode(), mode=EXECUTABLE)
        info = f"{self._site}/{self._wheel.dist_info}"
        self._write(f"{info}/INSTALLER", b"wheelmark\n")
        self._tree.file(f"{info}/RECORD", self._record(f"{info}/RECORD"), origin=self._wheel.file_name)

    def _check_python(self) -> None:
        for text in self._wheel.metadata.get("requires-python", ()):
            try:
                # The recipe says a minor version; which patch the system has is the lock's business.
                fits = any(
                    SpecifierSet(text).contains(f"{self._python.version}.{patch}") for patch in (0, 99)
                )
            except InvalidSpecifier as error:
                raise self._error(f"its Requires-Python is {text[:100]!r}") from error
            if not fits:
                raise self._error(f"it needs Python {text}, and the image has {self._python.version}")

    def _place(self, path: str) -> None:
        """A file of the ``.data`` folder: its first folder says where it goes."""
        scheme, slash, rest = path.removeprefix(self._data).partition("/")
        if scheme not in self._schemes or not slash:
            raise self._error(f"{path} goes to no place that is known")
        place = f"{self._schemes[scheme]}/{rest}"
        if scheme == "scripts":
            self._script(path, place)
        else:
            self._keep(path, place, executable=False)

    def _script(self, path: str, place: str) -> None:
        """A script: ``#!python`` becomes the image's interpreter."""
        if self._wheel.files[path].size > _LONGEST_SCRIPT:
            self._keep(path, place, executable=True)
            return
        data = self._wheel.read(path)
        head = _SHEBANG.match(data)
        if head is not None:
            options = head[2] or b""
            data = b"#!" + self._python.executable.encode() + options.rstrip() + b"\n" + data[head.end() :]
        self._write(place, data, mode=EXECUTABLE)

    def _keep(self, path: str, place: str, *, executable: bool) -> None:
        found = self._wheel.files[path]
        self._tree.stream(
            place,
            functools.partial(self._wheel.chunks, path),
            size=found.size,
            sha256=found.sha256,
            mode=EXECUTABLE if executable or found.mode & 0o111 else PLAIN,
            origin=self._wheel.file_name,
        )
        self._rows.append((place, found.sha256, str(found.size)))

    def _write(self, place: str, data: bytes, *, mode: int = PLAIN) -> None:
        self._tree.file(place, data, mode=mode, origin=self._wheel.file_name)
        node = self._tree.get(place)
        self._rows.append((place, node.sha256 if node else "", str(len(data))))

    def _scripts(self) -> Iterator[tuple[str, str]]:
        """Name and text of each script that an entry point asks for."""
        path = f"{self._wheel.dist_info}/entry_points.txt"
        if path not in self._wheel.files:
            return
        parser = configparser.ConfigParser(delimiters=("=",), strict=True, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
        try:
            parser.read_string(self._wheel.read(path).decode())
        except (configparser.Error, UnicodeDecodeError) as error:
            raise self._error("its entry points are malformed") from error
        for section in ("console_scripts", "gui_scripts"):
            for name, value in parser.items(section) if parser.has_section(section) else ():
                match = _ENTRY.fullmatch(value.strip())
                if match is None or not _NAME.fullmatch(name):
                    raise self._error(f"its entry point {name[:100]!r} is {value[:100]!r}")
                first = match["name"].partition(".")[0]
                text = _SCRIPT.format(module=match["module"], first=first, name=match["name"])
                yield name, f"#!{self._python.executable}\n{text}"

    def _record(self, own: str) -> bytes:
        """RECORD of what lies in the image: paths relative to the site folder, itself without digest."""
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, lineterminator="\n")
        rows = [(posixpath.relpath(place, self._site), sha256, size) for place, sha256, size in self._rows]
        for path, sha256, size in sorted(rows):
            writer.writerow((path, f"sha256={_unpadded(sha256)}", size))
        writer.writerow((posixpath.relpath(own, self._site), "", ""))
        return stream.getvalue().encode()

    def _error(self, text: str) -> BuildError:
        return BuildError(f"{self._wheel.file_name}: {text}", reason="image-wheel")


def _unpadded(sha256: str) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b"=").decode()
