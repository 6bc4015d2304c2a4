"""ABI: what every native object in the wheel asks of its host, computed from the bytes, against what is promised.

The platform tag promises the newest symbol versions (``binaries.platforms``), the project the oldest torch
(``native.torch_target`` and the row's range). A tag or range that promises more than the bytes keep fails.

==========================  ============================================================================
reason                      what was found
==========================  ============================================================================
other-bytes, wheel-…        the wheel is another one, or is malformed
wheel-tags                  its tag is not ``py3-none-<platform>_<host>`` of the row
not-elf, elf-…              a file called ``.so`` that is none, or a malformed object
other-machine, elf-type     an object for another CPU, or one that is not a shared object
symbol-…, shim-unknown      a symbol that the host need not have (``binaries.stableabi``)
library-not-granted         a library that neither the platform, torch nor the wheel has
runpath-outside             a search path that leads out of the wheel
executable-stack            the loader would make the stack executable
text-relocations            the loader would write to code
writable-code               a segment is writable and executable
torch-not-needed            shim functions are used and ``libtorch_cpu.so`` is not needed: loading fails
torch-above-target          needs a newer torch than the project or the row promises
torch-headers               compiled with headers of a newer torch than the one that is locked
embedded-path               a path of the machine that built it
==========================  ============================================================================
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelmark.binaries.dynamic import Dynamic
from wheelmark.binaries.elf import EM_AMDGPU, EM_CUDA, Elf, is_elf, read_elf
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.binaries.platforms import LIBRARIES, LOADERS, Floor, floor_of, needed
from wheelmark.binaries.stableabi import TorchUse, check_symbols, torch_use
from wheelmark.binaries.wheel import Wheel
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.gates.context import Context
from wheelmark.gates.inspection import judged, open_wheel, refused

NAME = "abi"
_TORCH = "libtorch_cpu.so"
_SHARED_OBJECT = 3
_BUILD_TREES = re.compile(
    rb"(?<![\w.$}~-])/(?:home|root|work|workspace|tmp|var/tmp|build|builds|src|mnt|media|Users|github|__w|io|project)"
    rb"/[\w.+@,-][\w.+@,/-]*"
)
"""Absolute paths where people and CI build. ``/usr``, ``/proc``, ``/sys``, ``/dev``, ``/etc`` are the host's own."""
_SHORTEST_ROOT = 5


def run(context: Context) -> Evidence:
    """Look into every native object of the wheel."""
    try:
        wheel = open_wheel(context)
        floor = floor_of(f"{context.row.platform}_{context.row.host.value}")
        objects = {path: data for path in wheel.files if is_elf(data := wheel.read(path))}
        elves = {path: read_elf(data) for path, data in objects.items()}
        problems = [*_tags(context, wheel), *_not_elf(wheel, elves)]
        for path, elf in elves.items():
            if elf.machine not in {EM_CUDA, EM_AMDGPU}:
                problems += _object(context, path, elf, elves, floor)
        problems += _paths(context, wheel)
    except InputError as error:
        return refused(context, NAME, error)
    described = {
        path: _details(elf) for path, elf in elves.items() if elf.machine not in {EM_CUDA, EM_AMDGPU}
    }
    details = {
        "floor": {
            "policy": f"{floor.policy}_{floor.machine}",
            **{family: ".".join(map(str, version)) for family, version in floor.newest.items()},
        },
        "objects": described,
    }
    return judged(context, NAME, problems, summary=_summary(described), details=details)


def _tags(context: Context, wheel: Wheel) -> Iterator[Problem]:
    expected = f"py3-none-{context.row.platform}_{context.row.host.value}"
    said = sorted(map(str, wheel.tags))
    if said != [expected]:
        yield Problem(reason="wheel-tags", text=f"tagged {', '.join(said)}; the row says {expected}")


def _not_elf(wheel: Wheel, elves: Mapping[str, Elf]) -> Iterator[Problem]:
    for path in wheel.files:
        if re.search(r"\.so(\.[0-9]+)*$", path) and path not in elves:
            yield Problem(reason="not-elf", text=f"{path} is called .so and is not an ELF object")


def _object(
    context: Context, path: str, elf: Elf, elves: Mapping[str, Elf], floor: Floor
) -> Iterator[Problem]:
    if elf.machine_name != floor.machine:
        found = [("other-machine", f"code for {elf.machine_name}; the wheel is for {floor.machine}")]
    elif elf.type != _SHARED_OBJECT or elf.dynamic is None:
        found = [("elf-type", "not a shared object")]
    else:
        use = torch_use(elf)
        found = [
            *_memory(elf, elf.dynamic),
            *_libraries(path, elf.dynamic, elves, floor),
            *_symbols(elf, elf.dynamic, elves, floor),
            *_torch(context, use),
        ]
        if use.floor and _TORCH not in elf.dynamic.needed:
            found.append(("torch-not-needed", f"uses torch's shim and does not need {_TORCH}"))
    for reason, text in found:
        yield Problem(reason=reason, text=f"{path}: {text}")


def _memory(elf: Elf, dynamic: Dynamic) -> Iterator[tuple[str, str]]:
    if elf.executable_stack:
        yield "executable-stack", "it makes the stack executable"
    if dynamic.text_relocations:
        yield "text-relocations", "the loader has to write to its code"
    if elf.writable_code:
        yield "writable-code", "a segment is writable and executable"


def _libraries(
    path: str, dynamic: Dynamic, elves: Mapping[str, Elf], floor: Floor
) -> Iterator[tuple[str, str]]:
    searched: set[str] = set()
    for entry in filter(None, f"{dynamic.rpath}:{dynamic.runpath}".split(":")):
        folder = _searched(path, entry)
        if folder is None:
            yield "runpath-outside", f"search path {entry[:200]!r} leads out of the wheel"
        else:
            searched.add(folder)
    own = {PurePosixPath(other).name for other in elves if posixpath.dirname(other) in searched}
    for library in (*dynamic.needed, *dynamic.loaders):
        if library not in LIBRARIES | {LOADERS[floor.machine], _TORCH} | own:
            yield "library-not-granted", f"needs {library[:200]}"


def _symbols(elf: Elf, dynamic: Dynamic, elves: Mapping[str, Elf], floor: Floor) -> Iterator[tuple[str, str]]:
    provided = {
        symbol.name
        for other, beside in elves.items()
        if beside.dynamic is not None and PurePosixPath(other).name in dynamic.needed
        for symbol in beside.dynamic.defined
    }
    for found in check_symbols(elf, floor, provided=provided):
        yield found.reason, found.text


def _searched(path: str, entry: str) -> str | None:
    """The wheel's folder that a search path names; ``None`` where it leads out of the wheel."""
    for origin in ("$ORIGIN", "${ORIGIN}"):
        if entry == origin or entry.startswith(origin + "/"):
            there = posixpath.normpath(
                posixpath.join(posixpath.dirname(path), entry[len(origin) :].lstrip("/"))
            )
            return None if there == ".." or there.startswith("../") else "" if there == "." else there
    return None


def _torch(context: Context, use: TorchUse) -> Iterator[tuple[str, str]]:
    if use.floor:
        oldest = Version(use.floor)
        because = ", ".join(use.because[:3])
        target = Version(context.declaration.native.torch_target)
        if oldest > target:
            yield "torch-above-target", f"needs torch {oldest} ({because}); native.torch_target is {target}"
        # An empty lower bound lets every older torch in.
        lowest = max(
            (
                Version(item.version.removesuffix(".*"))
                for item in SpecifierSet(context.row.torch)
                if item.operator in {">=", "==", "~=", ">"}
            ),
            default=Version("0"),
        )
        if oldest > lowest:
            yield (
                "torch-above-target",
                f"needs torch {oldest} ({because}); the row allows {context.row.torch}",
            )
    locked = Version(context.declaration.locks.torch)
    for headers in use.headers:
        if Version(headers) > locked:
            yield "torch-headers", f"compiled with headers of torch {headers}; torch {locked} is locked"


def _paths(context: Context, wheel: Wheel) -> Iterator[Problem]:
    """Paths of the build machine: this one's own in any file, well-known ones in any ELF object."""
    roots = {str(context.declaration.root), str(context.cache), os.environ.get("HOME", "")}
    known = [re.escape(root.encode()) for root in sorted(roots) if len(root) >= _SHORTEST_ROOT]
    # Without any root, a pattern that matches nothing.
    here = re.compile(rb"(?:%s)/[\w.+@,/-]*" % (b"|".join(known) or b"(?!)"))
    for path in wheel.files:
        data = wheel.read(path)
        found = {match[0] for match in here.finditer(data)}
        if is_elf(data):
            found |= {match[0] for match in _BUILD_TREES.finditer(data)}
        for item in sorted(found)[:3]:
            where = _section_of(data, item)
            text = f"{path}{where}: embeds {item[:200].decode('ascii', 'replace')}"
            yield Problem(reason="embedded-path", text=text)


def _section_of(data: bytes, item: bytes) -> str:
    if not is_elf(data):
        return ""
    at = data.find(item)
    names = [
        section.name
        for section in read_elf(data).sections
        if section.offset <= at < section.offset + section.size and section.name
    ]
    return f", section {names[0]}" if names else ""


def _details(elf: Elf) -> dict[str, Any]:
    if elf.dynamic is None:
        return {"machine": elf.machine_name}
    use = torch_use(elf)
    return {
        "machine": elf.machine_name,
        "needs": needed(elf.dynamic.required),
        "libraries": list(elf.dynamic.needed),
        "undefined_symbols": len(elf.dynamic.undefined),
        "torch": {"oldest": use.floor, "because": list(use.because), "headers": list(use.headers)},
        "build_id": elf.build_id,
    }


def _summary(objects: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [
        f"{PurePosixPath(path).name} needs "
        + ", ".join(
            [f"{family}_{version}" for family, version in item.get("needs", {}).items()]
            + ([f"torch {item['torch']['oldest']}"] if item.get("torch", {}).get("oldest") else [])
        )
        for path, item in objects.items()
    ]
    return "; ".join(parts) or "no native object"
