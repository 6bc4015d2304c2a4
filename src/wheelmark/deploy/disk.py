"""What an installed wheel should be on disk, and everything that differs. Reads; changes nothing.

Compared is with the wheel's own files, whose digests were verified, never with the RECORD that lies installed: an
installer writes that anew. On top of the wheel's files an installation has, each looked at by itself:

=====================  ====================================================================================
``RECORD``             written anew: may list the wheel's files and what stands here, and nothing else
``INSTALLER``          the installer's name
``REQUESTED``          empty
``direct_url.json``    names the file that was installed (PEP 610)
``uv_cache.json``      uv's note of the file's time
``wheelmark.json``     the copy of the receipt (``receipt``)
console scripts        named in the wheel's ``entry_points.txt``; they have to load what it says
``__pycache__``        compiled modules; each has to be what its source compiles to (``bytecode``)
=====================  ====================================================================================

A folder belongs to the wheel when one of its files lies directly in it; whatever else lies in or below it is
refused, and so is what would be imported in place of a module at the wheel's root, or run by importing a folder above the
wheel's own (a namespace package, which other distributions may share). Files that every start of the interpreter
runs (``.pth``, ``sitecustomize``) are looked at in the whole of site-packages.
"""

from __future__ import annotations

import base64
import configparser
import csv
import dataclasses
import importlib.util
import io
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from wheelmark import digests
from wheelmark.binaries.wheel import Wheel
from wheelmark.deploy.interpreter import Interpreter
from wheelmark.errors import InputError
from wheelmark.plainfiles import read_bounded
from wheelmark.verify.verdict import Refusal, refusal

COPY = "wheelmark.json"
"""The receipt's copy in dist-info, which the payload reads."""
_BYTECODE = Path(__file__).with_name("bytecode.py")
_TIMEOUT = 300
_SMALL = 16 << 20
"""Bytes of a file of an installer's own."""
_COMPILED = re.compile(r"[^.]+\.(?P<tag>[^.]+)(?:\.opt-(?P<level>[12]))?\.pyc")
_STARTS = re.compile(rb"#![^\n]*\n|#!/bin/sh\n'{3}exec' [^\n]*\n' '{3}\n")
"""What installers write as the first line of a script; the second where the interpreter's path is long or has spaces."""
_MODULES = (".py", ".pyc", ".so")
_SCRIPT = re.compile(rb"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Where an installed wheel's files lie."""

    site: Path
    """The folder that the wheel's root goes to."""
    info: Path
    """Its dist-info."""
    name: str
    """Normalized distribution name."""
    files: Mapping[Path, str]
    """Place -> sha256; empty where the installer writes the file anew."""
    scripts: Mapping[Path, str]
    """Console scripts -> module that they load."""
    owned: tuple[Path, ...]
    """Folders that belong to the wheel with all below them."""
    rewritten: Mapping[Path, bytes] = dataclasses.field(default_factory=dict, repr=False)
    """Scripts whose first line the installer writes anew -> what follows it."""

    def short(self, path: Path) -> str:
        """A place as RECORD names it."""
        return PurePosixPath(os.path.relpath(path, self.site)).as_posix()


def layout_of(wheel: Wheel, python: Interpreter) -> Layout:
    """Where the files of a wheel go (binary distribution format, "Spread").

    Raises:
        InputError: It has files for a place that is not supported (``wheel-layout``), or a malformed
            ``entry_points.txt`` (``wheel-metadata``).
    """
    site = python.purelib if wheel.pure else python.platlib
    data = wheel.dist_info.removesuffix(".dist-info") + ".data"
    roots = {
        "purelib": python.purelib,
        "platlib": python.platlib,
        "scripts": python.scripts,
        "data": python.data,
    }
    files: dict[Path, str] = {}
    rewritten: dict[Path, bytes] = {}
    for path, item in wheel.files.items():
        top, _, rest = path.partition("/")
        if top != data:
            files[site / path] = "" if path == f"{wheel.dist_info}/RECORD" else item.sha256
            continue
        scheme, _, inner = rest.partition("/")
        if scheme not in roots or not inner:
            raise InputError(
                f"{wheel.file_name} has {path}: files for {scheme!r} are not installed here",
                reason="wheel-layout",
            )
        # The first line of a script names the interpreter that it is installed for.
        first, _, rest_of_it = wheel.read(path).partition(b"\n") if scheme == "scripts" else (b"", b"", b"")
        own = first.startswith(b"#!python")
        files[roots[scheme] / inner] = "" if own else item.sha256
        if own:
            rewritten[roots[scheme] / inner] = rest_of_it
    sites = {python.purelib, python.platlib}
    folders = {path.parent for path in files if any(path.is_relative_to(root) for root in sites)} - sites
    owned = tuple(
        sorted(folder for folder in folders if not any(parent in folders for parent in folder.parents))
    )
    return Layout(
        site=site,
        info=site / wheel.dist_info,
        name=wheel.name,
        files=files,
        scripts={python.scripts / name: module for name, module in _scripts(wheel).items()},
        owned=owned,
        rewritten=rewritten,
    )


def _scripts(wheel: Wheel) -> dict[str, str]:
    path = f"{wheel.dist_info}/entry_points.txt"
    if path not in wheel.files:
        return {}
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names keep their case
    try:
        parser.read_string(wheel.read(path).decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is malformed: {error}", reason="wheel-metadata") from error
    found = {}
    for section in ("console_scripts", "gui_scripts"):
        for name, value in parser.items(section) if parser.has_section(section) else ():
            if "/" in name or name in {".", ".."}:
                raise InputError(f"{path} names the script {name!r:.80}", reason="wheel-path")
            found[name] = value.partition(":")[0].strip()
    return found


def compare(
    layout: Layout, wheel_sha256: str, python: Interpreter
) -> tuple[tuple[Refusal, ...], tuple[Path, ...]]:
    """Compare what is installed with the wheel.

    Args:
        layout: Where its files lie.
        wheel_sha256: Of the verified wheel.
        python: The interpreter that would load it.

    Returns:
        What differs, and every file that belongs to the installation, sorted.
    """
    found = [*_compare_files(layout), *_compare_rewritten(layout, python)]
    extra = [path for path in files_in(layout.owned) if path not in layout.files]
    extra += shadowing(layout.site, layout.files, layout.owned)
    extra += [path for path in layout.scripts if os.path.lexists(path)]
    compiled = [path for path in extra if path.parent.name == "__pycache__"]
    for path in extra:
        if path in compiled:
            continue
        problem = _addition(path, layout, wheel_sha256)
        if problem:
            found.append(refusal(layout.short(path), "installed-added", problem))
    found += wrong_bytecode(compiled, set(layout.files), python, layout.short)
    found += list(_record(layout, set(extra)))
    found += list(other_distributions(layout.site, layout.name, layout.info.name))
    kept = [path for path in extra if path not in compiled]
    return tuple(found), tuple(sorted([*layout.files, *kept]))


def _compare_files(layout: Layout) -> Iterator[Refusal]:
    for path, sha256 in sorted(layout.files.items()):
        problem = difference(path, sha256)
        if problem:
            yield refusal(layout.short(path), *problem)


def _compare_rewritten(layout: Layout, python: Interpreter) -> Iterator[Refusal]:
    """Scripts of which the installer wrote the first line: it has to start this interpreter, and the rest is the wheel's."""
    folders = {python.scripts, python.path.parent, python.path.resolve().parent}
    names = [f"{folder}/python".encode() for folder in folders]
    for path, rest in sorted(layout.rewritten.items()):
        try:
            data = read_bounded(path, _SMALL + len(rest))
        except InputError:
            continue  # missing or no plain file is said already
        head = data.removesuffix(rest)
        starts = _STARTS.fullmatch(head) is not None and any(name in head for name in names)
        if not data.endswith(rest) or not starts:
            yield refusal(layout.short(path), "installed-changed", "it is not the wheel's script")


def difference(path: Path, sha256: str) -> tuple[str, str] | None:
    """What is wrong with one file: a reason code and words; ``None`` where nothing is.

    Args:
        path: The file.
        sha256: What it has to have; empty where any bytes will do.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return "installed-changed", "it is a link or a special file now"
        have = digests.sha256_file(path) if sha256 else ""
    except FileNotFoundError:
        return "installed-missing", "it is not there"
    except (OSError, InputError) as error:
        return "installed-changed", f"it cannot be read: {error}"
    return None if have == sha256 else ("installed-changed", f"it has sha256 {have}, and not {sha256}")


def files_in(folders: Iterable[Path]) -> list[Path]:
    """Every file and link in and below some folders, sorted; a folder that is a link counts as one link.

    Raises:
        InputError: A folder cannot be read (``unreadable``).
    """
    found: list[Path] = []
    for folder in folders:
        if folder.is_symlink():
            found.append(folder)
        else:
            found += [folder / name for name in digests.tree_files(folder)]
    return sorted(found)


def shadowing(site: Path, known: Collection[Path], owned: Collection[Path]) -> list[Path]:
    """What lies beside the wheel's modules and would be imported in their place, sorted, and what they were compiled to.

    A folder or a native library goes before a module of its name, and any module before a folder without ``__init__.py``:
    the wheel's own, and the namespace folders above it. Of these an ``__init__`` of any kind would be run.

    Args:
        site: The folder that the wheel's root went to.
        known: The wheel's files.
        owned: Its folders.

    Raises:
        InputError: A folder cannot be read (``unreadable``).
    """
    modules = {
        path.name.partition(".")[0] for path in known if path.parent == site and path.name.endswith(_MODULES)
    }
    above = {
        folder
        for path in owned
        for folder in path.parents
        if folder.is_relative_to(site) and folder != site and folder not in owned
    }
    looked = {site: set(modules), site / "__pycache__": set(modules)}
    for folder in above:
        looked.setdefault(folder, set()).add("__init__")
    for folder in (*owned, *above):
        if folder.is_relative_to(site) and "." not in folder.name and folder / "__init__.py" not in known:
            looked.setdefault(folder.parent, set()).add(folder.name)
    found: list[Path] = []
    for folder, stems in sorted(looked.items()):
        for path in _entries(folder) if stems else ():
            stem, dot, _ = path.name.partition(".")
            is_ours = path in owned or path in above
            if stem in stems and not is_ours and (not dot or path.name.endswith(_MODULES)):
                found += files_in([path]) if path.is_dir() else [path]
    return [path for path in found if path not in known]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}: {error.strerror}", reason="unreadable") from error


def _addition(path: Path, layout: Layout, wheel_sha256: str) -> str:
    """Why a file that the wheel does not hold should not be there; empty where it should."""
    if problem := difference(path, ""):
        return problem[1]
    try:
        data = read_bounded(path, _SMALL)
    except InputError as error:
        return error.what
    if path in layout.scripts:
        module = layout.scripts[path].encode()
        return "" if module in _SCRIPT.findall(data) else f"it does not load {layout.scripts[path]}"
    check = _ADDITIONS.get(path.name) if path.parent == layout.info else None
    return check(data, wheel_sha256) if check else "neither the wheel nor its installation accounts for it"


def _direct_url(data: bytes, wheel_sha256: str) -> str:
    try:
        value = json.loads(data)
        said = value["archive_info"].get("hashes", {}).get("sha256", wheel_sha256)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "it does not say what was installed"
    return "" if said == wheel_sha256 else f"it says that sha256 {said} was installed"


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _note(data: bytes, _wheel_sha256: str) -> str:
    return "" if _is_object(data) else "it is no JSON object"


_ADDITIONS: Mapping[str, Callable[[bytes, str], str]] = {
    "INSTALLER": lambda data, _: "" if data.strip() in {b"pip", b"uv"} else "it does not name pip or uv",
    "REQUESTED": lambda data, _: "it is not empty" if data else "",
    "direct_url.json": _direct_url,
    "uv_cache.json": _note,
    # Written by us after the comparison, and by the receipt's digest from then on.
    COPY: _note,
}


def wrong_bytecode(
    compiled: Sequence[Path], sources: AbstractSet[Path], python: Interpreter, named: Callable[[Path], str]
) -> list[Refusal]:
    """Compiled modules that are not what their source compiles to.

    Args:
        compiled: Files in ``__pycache__``.
        sources: Modules whose bytes are known to be right.
        python: The interpreter that would load them.
        named: How a path is shown.
    """
    found: list[Refusal] = []
    pairs: list[tuple[Path, Path, int]] = []
    for path in compiled:
        match = _COMPILED.fullmatch(path.name)
        source = _source(path) if match else None
        if (
            match is None
            or source is None
            or source not in sources
            or match["tag"] != python.cache_tag
            or difference(path, "")
        ):
            found.append(refusal(named(path), "installed-added", "no module of the wheel compiles to it"))
        else:
            pairs.append((source, path, int(match["level"] or 0)))
    for index in _differing(pairs, python):
        text = "it is not what its source compiles to"
        found.append(refusal(named(pairs[index][1]), "installed-changed", text))
    return found


def _source(compiled: Path) -> Path | None:
    try:
        return Path(importlib.util.source_from_cache(str(compiled)))
    except (ValueError, NotImplementedError):
        return None


def _differing(pairs: Sequence[tuple[Path, Path, int]], python: Interpreter) -> list[int]:
    if not pairs:
        return []
    question = json.dumps([[str(source), str(path), level] for source, path, level in pairs])
    try:
        done = subprocess.run(
            [str(python.path), "-I", "-S", str(_BYTECODE)],
            input=question,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT,
        )
        return [int(index) for index in json.loads(done.stdout)]
    except (OSError, ValueError, subprocess.SubprocessError):
        # A compiled file that ends the interpreter is none of those that were asked for; which one is not known.
        return list(range(len(pairs)))


def _record(layout: Layout, extra: set[Path]) -> Iterator[Refusal]:
    """What the installed RECORD lists beyond the installation: an uninstaller would remove it."""
    path = layout.info / "RECORD"
    try:
        rows = [row for row in csv.reader(io.StringIO(read_bounded(path, _SMALL).decode("utf-8"))) if row]
    except (InputError, UnicodeDecodeError, csv.Error):
        return  # missing or unreadable is said already
    listed = {Path(os.path.normpath(layout.site / row[0])) for row in rows}
    for item in sorted(listed - set(layout.files) - extra):
        if item.parent.name == "__pycache__" and _source(item) in layout.files:
            continue  # an installer that compiles lists what it made
        yield refusal(layout.short(path), "installed-added", f"RECORD lists {layout.short(item)}")
    for item in sorted(set(layout.files) - listed):
        yield refusal(layout.short(path), "installed-changed", f"RECORD does not list {layout.short(item)}")


def other_distributions(site: Path, name: str, info: str) -> Iterator[Refusal]:
    """Further metadata folders of the same distribution: which of them counts is chance."""
    for folder in metadata_folders(site, name):
        if folder.name != info:
            yield refusal(folder.name, "installed-replaced", f"a second installation of {name}")


def metadata_folders(site: Path, name: str) -> list[Path]:
    """Metadata folders of a distribution, by their names."""
    try:
        with os.scandir(site) as entries:
            names = sorted(
                entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except FileNotFoundError:
        return []
    return [
        site / item for item in names if canonicalize_name(item.rpartition(".")[0].partition("-")[0]) == name
    ]


def startup_files(site: Path, python: Interpreter) -> dict[str, str]:
    """Files of an environment's site-packages that every start of its interpreter runs.

    Returns:
        Path relative to ``site`` -> sha256; empty where it cannot be read, or is no file.

    Raises:
        InputError: A folder cannot be read (``unreadable``).
    """
    site = site.resolve()
    found: dict[str, str] = {}
    for folder in sorted({site, python.purelib.resolve(), python.platlib.resolve()}):
        for path in _entries(folder):
            if path.name.endswith(".pth") or path.name.startswith(("sitecustomize", "usercustomize")):
                for item in files_in([path]) if path.is_dir() else [path]:
                    found[os.path.relpath(item, site)] = _digest(item)
    return found


def _digest(path: Path) -> str:
    try:
        return digests.sha256_file(path) if path.is_file() else ""
    except InputError:
        return ""


def recorded_startup_files(site: Path, names: Collection[str]) -> set[tuple[str, str]]:
    """What the RECORDs of some distributions say of files that lie directly in site-packages: name and sha256.

    Args:
        site: The folder.
        names: Normalized names of the distributions whose word counts: anybody can make up another one.
    """
    found: set[tuple[str, str]] = set()
    for folder in (folder for name in names for folder in metadata_folders(site, name)):
        try:
            text = read_bounded(folder / "RECORD", _SMALL).decode("utf-8")
            rows = [row for row in csv.reader(io.StringIO(text)) if len(row) == 3]  # noqa: PLR2004 - path, hash, size
        except (InputError, UnicodeDecodeError, csv.Error):
            continue
        for name, said, _size in rows:
            if "/" not in name and said.startswith("sha256="):
                found.add((name, _hexadecimal(said.removeprefix("sha256="))))
    return found


def _hexadecimal(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=").hex()
    except ValueError:
        return ""
