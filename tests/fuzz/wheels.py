"""Wheels: members, headers, RECORD, METADATA, bytes around. What has no problem is read alike by what installers read with."""

from __future__ import annotations

import dataclasses
import email.parser
import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

import wheelmaking
from fuzz import documents
from fuzz.subject import EQUAL, UNCHANGED, BrokenError, Mutator, Original
from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.verify import reasons
from wheelmark.verify.artifact import WheelFacts, examine_wheel

_CRC = "accepted, CRC wrong"
_NAMES = {
    "cpu": wheelmaking.NAME,
    "sm90": "demo_kernels-1.0+sm90-py3-none-manylinux_2_28_x86_64.whl",
    "gfx942": "demo_kernels-1.0+gfx942-py3-none-manylinux_2_28_x86_64.whl",
}
_PATHS = [
    "../x",
    "/etc/x",
    "demo_kernels/../../x",
    "C:\\x",
    "CON",
    "con.txt",
    "a//b",
    "./x",
    "x/",
    ".",
    "..",
    "demo_kernels/__init__.py",
    "DEMO_KERNELS/__init__.py",
    "evil.pth",
    "sitecustomize.py",
    "demo_kernels/code_objects/x.cubin",
    "demo_kernels-1.0+cpu.dist-info/RECORD.jws",
]
Entries = list[wheelmaking.Entry]


def _files(kind: str) -> dict[str, bytes]:
    plain = {"demo_kernels/__init__.py": b"VALUE = 1\n", "demo_kernels/data.bin": bytes(range(64))}
    return plain if kind == "cpu" else plain | wheelmaking.gpu_files(kind)


def members(rng: Random, entries: Entries) -> Entries:
    """A member taken out, doubled, moved, renamed or added; RECORD stays as it was."""
    index = rng.randrange(len(entries))
    match rng.randrange(5):
        case 0:
            del entries[index]
        case 1:
            entries.insert(rng.randrange(len(entries)), dataclasses.replace(entries[index]))
        case 2:
            rng.shuffle(entries)
        case 3:
            entries[index].name = rng.choice(
                [*_PATHS, entries[index].name.upper(), f"{entries[index].name} ", "é", "e\u0301"]
            )
        case _:
            entries.insert(rng.randrange(len(entries)), wheelmaking.Entry(name=rng.choice(_PATHS), data=b"x"))
    return entries


def headers(rng: Random, entries: Entries) -> Entries:
    """A field of a member's headers."""
    entry = rng.choice(entries)
    changes: dict[str, Callable[[], Any]] = {
        "mode": lambda: rng.choice(
            [wheelmaking.LINK, wheelmaking.DEVICE, wheelmaking.FOLDER_MODE, 0, 0o104755, 0o010644]
        ),
        "flags": lambda: 1 << rng.randrange(16),
        "method": lambda: rng.choice([0, 8, 9, 12, 14, 99]),
        "local_name": lambda: rng.choice(_PATHS),
        "crc": lambda: rng.randrange(1 << 32),
        "local_crc": lambda: rng.randrange(1 << 32),
        "size": lambda: rng.choice([0, 1, len(entry.data) + 1, 1 << 31, (1 << 32) - 1]),
        "extra": lambda: rng.choice([b"\x01\0\x08\0" + bytes(8), b"xx", b"\x75\x70\x09\0\x01" + bytes(8)]),
        "local_extra": lambda: rng.choice([b"\x01\0\0\0", bytes(3)]),
        "comment": lambda: b"x",
        "raw": lambda: documents.flipped(rng, entry.data),
        "descriptor": lambda: True,
        "deflate": lambda: not entry.deflate,
        "before": lambda: rng.randbytes(rng.choice([1, 30])),
    }
    field = rng.choice(tuple(changes))
    setattr(entry, field, changes[field]())
    return entries


def contents(rng: Random, entries: Entries) -> Entries:
    """The bytes of a member, RECORD perhaps made to agree again."""
    entry = rng.choice(entries)
    entry.data = documents.flipped(rng, entry.data)
    return _recorded(entries) if rng.random() < 0.7 else entries


def metadata(rng: Random, entries: Entries) -> Entries:
    """A line of METADATA, WHEEL or RECORD; the first two with a RECORD that agrees."""
    chosen = [entry for entry in entries if entry.name.endswith(("METADATA", "WHEEL", "RECORD"))]
    entry = rng.choice(chosen)
    lines = entry.data.split(b"\n")
    index = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[index]
        case 1:
            lines.insert(
                index,
                rng.choice([*lines, b"Name: evil", b"Version: 9", b"Tag: py3-none-any", b"evil.pth,,", b""]),
            )
        case 2:
            lines[index] = lines[index].swapcase()
        case 3:
            lines[index] += rng.choice([b"\r", b" ", b"\t", b"\0", b"\x1c", b"\xc2\x85", b"\xff", b'"', b","])
        case 4:
            lines[index] = rng.choice([b" ", b"\t", b"\xef\xbb\xbf"]) + lines[index]
        case _:
            lines[index] = documents.flipped(rng, lines[index])
    entry.data = b"\n".join(lines)
    return entries if entry.name.endswith("RECORD") else _recorded(entries)


def manifest(rng: Random, entries: Entries) -> Entries:
    """The kernel manifest, canonical again, with a RECORD that agrees."""
    (entry,) = (entry for entry in entries if entry.name.endswith("code_objects/manifest.json"))
    tree = documents.parse(entry.data)
    ways = (documents.dropped, documents.retyped, documents.swapped, documents.doubled, documents.renamed)
    entry.data = documents.written(rng.choice(ways)(rng, tree), canonical=True)
    return _recorded(entries)


def _recorded(entries: Entries) -> Entries:
    (record,) = (entry for entry in entries if entry.name.endswith(".dist-info/RECORD"))
    lines = [wheelmaking.record_line(entry.name, entry.data) for entry in entries if entry is not record]
    record.data = ("".join(lines) + f"{record.name},,\n").encode()
    return entries


class WheelSubject:
    """Wheels by themselves: whatever is read without a problem is what an installer will see."""

    name = "wheels"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wheelmark-fuzz-"))
        made = {kind: wheelmaking.wheel_bytes(_files(kind), name) for kind, name in _NAMES.items()}
        self.originals = tuple(Original(name=kind, data=data) for kind, data in made.items())
        edits: Mapping[str, Callable[[Random, Entries], Entries]] = {
            "members": members,
            "headers": headers,
            "contents": contents,
            "METADATA, WHEEL, RECORD": metadata,
            "kernel manifest": manifest,
        }

        def edited(edit: Callable[[Random, Entries], Entries]) -> Mutator:
            def mutate(rng: Random, original: Original) -> bytes:
                entries = wheelmaking.wheel_entries(_files(original.name), _NAMES[original.name])
                return wheelmaking.zip_bytes(edit(rng, entries))

            return mutate

        def around(rng: Random, original: Original) -> bytes:
            entries = wheelmaking.wheel_entries(_files(original.name), _NAMES[original.name])
            junk = rng.choice(
                [b"x", b"PK\x05\x06" + bytes(18), b"\x7fELF", b"#!/bin/sh\n", rng.randbytes(40)]
            )
            place = rng.choice(["prefix", "gap", "comment"])
            data = wheelmaking.zip_bytes(entries, **{place: junk})
            return data + junk if rng.random() < 0.2 else data

        self.mutators: Mapping[str, Mutator] = {
            **{name: edited(edit) for name, edit in edits.items()},
            "bytes around": around,
            "raw bytes": lambda rng, original: documents.flipped(rng, original.data),
        }
        for original in self.originals:
            assert not self._examined(original, original.data).problems

    def judge(self, original: Original, mutant: bytes) -> str:
        """See ``Subject``."""
        if mutant == original.data:
            return UNCHANGED
        try:
            facts = self._examined(original, mutant)
        except InputError as error:
            return error.reason
        if facts.sha256 != digests.sha256(mutant):
            raise BrokenError("another digest than that of the bytes")
        if facts.problems:
            codes = {problem.reason for problem in facts.problems}
            if unknown := codes - set(reasons.TABLE):
                raise BrokenError(f"reasons that no table has: {unknown}")
            if "library" in codes:
                raise BrokenError(f"a library failed in a way that is not foreseen: {facts.problems[0].text}")
            return facts.problems[0].reason
        try:
            self._same_as_installers(facts, mutant)
        except zipfile.BadZipFile as error:
            if "CRC" not in str(error):
                raise
            return _CRC  # RECORD's sha256 vouches for the bytes, so that the verifier does not compute it
        return EQUAL

    def _examined(self, original: Original, data: bytes) -> WheelFacts:
        path = self._folder / _NAMES[original.name]
        path.write_bytes(data)
        return examine_wheel(path, subject="x")

    def _same_as_installers(self, facts: WheelFacts, data: bytes) -> None:
        """zipfile and the e-mail parser, which pip reads wheels with, see what was seen here."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            seen = {
                info.filename: digests.sha256(archive.read(info))
                for info in archive.infolist()
                if not info.is_dir()
            }
            (path,) = (name for name in seen if name.endswith(".dist-info/METADATA"))
            headers_seen = email.parser.BytesParser().parsebytes(archive.read(path))
        if seen != dict(facts.files):
            raise BrokenError("zipfile sees other members")
        names, versions = headers_seen.get_all("Name", []), headers_seen.get_all("Version", [])
        seen_names = [canonicalize_name(name.strip()) for name in names]
        if seen_names != [canonicalize_name(facts.distribution)] or [_version(v) for v in versions] != [
            _version(facts.version)
        ]:
            raise BrokenError(f"the e-mail parser sees {names} {versions}")


def _version(text: str) -> Version | str:
    try:
        return Version(text.strip())
    except InvalidVersion:
        return text


def again(name: str, data: bytes) -> WheelSubject:
    """For a replay: the originals are the same in every run."""
    subject = WheelSubject()
    assert any((item.name, item.data) == (name, data) for item in subject.originals)
    return subject
