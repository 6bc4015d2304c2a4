"""What differs between two wheels of one target, by what it means: names, metadata, files, sections, symbols, components.

The repeat gate asks whether two builds by one toolchain are the same bytes. This says what two toolchains, or two routes,
make differently: a table of facts, and no judgement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wheelmark import strictjson
from wheelmark.binaries.dynamic import Dynamic, DynamicSymbol
from wheelmark.binaries.elf import Elf, is_elf, read_elf
from wheelmark.binaries.platforms import needed
from wheelmark.binaries.stableabi import torch_use
from wheelmark.binaries.wheel import Wheel
from wheelmark.errors import InputError

_SBOM = ".cdx.json"
_SHOWN = 6
_ABSENT = "absent"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One fact that is other in one wheel than in the other."""

    where: str
    """A file's path in the wheel, or ``wheel`` for what is of the whole."""
    what: str
    first: str
    second: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All of them."""

    first: str
    """sha256."""
    second: str
    same_files: int
    """Files with the same bytes."""
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether they are the same bytes."""
        return self.first == self.second

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**dataclasses.asdict(self), "identical": self.identical}


def compare_wheels(first: Wheel, second: Wheel) -> Comparison:
    """Compare two wheels.

    Args:
        first: For instance the pipeline's.
        second: For instance another route's, of the same target.

    Returns:
        The differences; empty for the same bytes only: a difference of the archive alone is one, too.

    Raises:
        InputError: A file in one of them is malformed, or changed while it was read.
    """
    found = list(_names(first, second))
    shared = [path for path in first.files if path in second.files]
    same = [path for path in shared if first.files[path] == second.files[path]]
    found += _sets("wheel", "files", first.files, second.files)
    for path in shared:
        one, other = first.files[path], second.files[path]
        if one.sha256 != other.sha256:
            found += _file(path, first.read(path), second.read(path))
        elif one != other:
            found.append(
                _difference(
                    path,
                    "mode, and bytes in the archive",
                    (oct(one.mode), one.compressed),
                    (oct(other.mode), other.compressed),
                )
            )
    if not found and first.sha256 != second.sha256:
        found.append(_difference("wheel", "archive: order, times or flags", first.sha256, second.sha256))
    return Comparison(
        first=first.sha256, second=second.sha256, same_files=len(same), differences=tuple(found)
    )


def _difference(where: str, what: str, first: object, second: object) -> Difference:
    return Difference(where=where, what=what, first=_text(first), second=_text(second))


def _text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _names(first: Wheel, second: Wheel) -> Iterator[Difference]:
    if first.file_name != second.file_name:
        yield _difference("wheel", "file name", first.file_name, second.file_name)
    yield from _sets("wheel", "tags", map(str, first.tags), map(str, second.tags))
    if first.generator != second.generator:
        yield _difference("wheel", "generator", first.generator, second.generator)
    for key in sorted({*first.metadata, *second.metadata}):
        one, other = first.metadata.get(key, ()), second.metadata.get(key, ())
        if one != other:
            yield _difference("METADATA", key, "; ".join(one) or _ABSENT, "; ".join(other) or _ABSENT)


def _sets(where: str, what: str, first: Iterable[str], second: Iterable[str]) -> Iterator[Difference]:
    ours, theirs = set(first), set(second)
    if ours != theirs:
        yield _difference(where, f"{what} only in one", _some(ours - theirs), _some(theirs - ours))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more if listed else "none"


def _file(path: str, first: bytes, second: bytes) -> Iterator[Difference]:
    if is_elf(first) and is_elf(second):
        yield from _elf(path, read_elf(first), read_elf(second))
    elif path.endswith(_SBOM):
        yield from _components(path, first, second)
    elif path.rpartition("/")[2] != "RECORD":  # it follows the others
        yield _difference(path, "bytes", len(first), len(second))


def _elf(path: str, first: Elf, second: Elf) -> Iterator[Difference]:
    yield _difference(path, "bytes", len(first.data), len(second.data))
    if first.machine_name != second.machine_name:
        yield _difference(path, "machine", first.machine_name, second.machine_name)
    one, other = _sections(first), _sections(second)
    yield from _sets(path, "sections", one, other)
    changed = [name for name in one if name in other and one[name] != other[name]]
    for name in changed:
        if len(one[name]) != len(other[name]):
            yield _difference(path, f"section {name}, bytes", len(one[name]), len(other[name]))
    inside = ", ".join(name for name in changed if len(one[name]) == len(other[name]))
    if inside:
        yield _difference(path, "sections of one size with other bytes", inside, inside)
    if ".comment" in one and ".comment" in other and one[".comment"] != other[".comment"]:
        yield _difference(path, "compiler", _strings(one[".comment"]), _strings(other[".comment"]))
    if first.dynamic is not None and second.dynamic is not None:
        yield from _loaded(path, first.dynamic, second.dynamic)
        torch = torch_use(first).floor, torch_use(second).floor
        if torch[0] != torch[1]:
            yield _difference(path, "oldest torch", *torch)


def _loaded(path: str, first: Dynamic, second: Dynamic) -> Iterator[Difference]:
    """What the loader will see."""
    if first.needed != second.needed:
        yield _difference(path, "libraries needed", first.needed, second.needed)
    ours, theirs = needed(first.required), needed(second.required)
    for family in sorted({*ours, *theirs}):
        if ours.get(family) != theirs.get(family):
            versions = ours.get(family, _ABSENT), theirs.get(family, _ABSENT)
            yield _difference(path, f"newest {family} symbol needed", *versions)
    yield from _sets(path, "symbols asked for", _symbols(first.undefined), _symbols(second.undefined))
    yield from _sets(path, "symbols offered", _symbols(first.defined), _symbols(second.defined))


def _symbols(found: Iterable[DynamicSymbol]) -> Iterator[str]:
    return (f"{item.name}@{item.version}" if item.version else item.name for item in found)


def _sections(elf: Elf) -> dict[str, bytes]:
    return {section.name: elf.contents(section) for section in elf.sections if section.name}


def _strings(data: bytes) -> str:
    return "; ".join(sorted({text.decode("utf-8", "replace") for text in data.split(b"\0") if text}))


def _components(path: str, first: bytes, second: bytes) -> Iterator[Difference]:
    """Components of two CycloneDX documents: other versions, and those that only one names."""
    one, other = _named(first, path), _named(second, path)
    yield from _sets(path, "components", one, other)
    for name in one:
        if name in other and one[name] != other[name]:
            yield _difference(path, f"component {name}", one[name] or _ABSENT, other[name] or _ABSENT)
    if one == other:
        yield _difference(path, "bytes", len(first), len(second))


def _named(document: bytes, path: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(components: Any) -> None:
        for item in components if isinstance(components, list) else ():
            if isinstance(item, Mapping) and isinstance(item.get("name"), str):
                found[item["name"]] = str(item.get("version", ""))
                walk(item.get("components"))

    try:
        walk(strictjson.load_object(document, what=path).get("components"))
    except InputError as error:
        raise InputError(f"{path}: {error.what}", reason=error.reason) from error
    return found
