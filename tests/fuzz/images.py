"""Images: layers, of which an unpacker has to see the same and nothing outside its tree; layouts, in which a digest leads."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import imaging
from forging import Forge
from fuzz import corpus, documents
from fuzz.subject import EQUAL, UNCHANGED, BrokenError, Mutator, Original
from imaging import GOOD, Entry
from wheelmark import digests
from wheelmark.errors import InputError, WheelmarkError
from wheelmark.oci import layer, types
from wheelmark.oci.layer import LayerEntry, LayerFacts, read_layer
from wheelmark.verify import reasons, verify_image
from wheelmark.verify.policy import Kind, Policy, Predicate
from wheelmark.verify.verdict import Accepted

_NAMES = [
    "../x",
    "/etc/x",
    "usr/../../x",
    "usr//x",
    "./x",
    "x/",
    ".",
    "..",
    "usr/bin/tool",
    "bin/x",
    "usr/bin",
    "dev/null",
    "a\\b",
    ".wh.x",
    ".wh..wh..opq",
]
Entries = list[Entry]
_UNREAD = digests.sha256(b"{}")
"""The empty configuration of what is attached to an image (OCI 1.1): nothing reads it."""


def _entries() -> Entries:
    return [dataclasses.replace(entry) for entry in GOOD]


def _renamed(rng: Random, entries: Entries) -> None:
    names: list[str | bytes] = [*_NAMES, b"\xff", "é", "x" * 99, rng.choice(entries).name]
    rng.choice(entries).name = rng.choice(names)


def _linked(rng: Random, entries: Entries) -> None:
    entry = rng.choice(entries)
    entry.kind = rng.choice(
        [b"0", b"\0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"L", b"K", b"g", b"x", b"S", b"Z"]
    )
    entry.link = rng.choice([*_NAMES, "", "/usr/bin/tool", "usr/bin/tool", "../../../etc/passwd"])
    entry.data = rng.choice([b"", entry.data, b"x"])


def _fields(rng: Random, entries: Entries) -> None:
    entry = rng.choice(entries)
    changes: dict[str, Any] = {
        "size": rng.choice(
            [
                b"00000000001\0",
                b"77777777777\0",
                b"\x80" + bytes(10) + b"\1",
                b"\xff" * 12,
                b"          1 ",
                b"x" * 12,
            ]
        ),
        "magic": rng.choice([b"ustar  \0", b"\0" * 8, b"ustar\x0001", b"USTAR\x0000"]),
        "prefix": rng.choice([b"..", b"/", b"usr", b"x" * 155]),
        "checksum": rng.choice([b"0000000\0", b"\0" * 8, b"777777\0 "]),
        "mode": rng.choice([0o4755, 0o777, 0, 0o1777]),
        "uid": rng.choice([b"7777777\0", b"\x80" + bytes(7), b"-000001\0"]),
    }
    name = rng.choice(tuple(changes))
    setattr(entry, name, changes[name])


def _extended(rng: Random, entries: Entries) -> None:
    key = rng.choice(
        [
            "path",
            "linkpath",
            "size",
            "uid",
            "GNU.sparse.major",
            "GNU.sparse.name",
            "hdrcharset",
            "SCHILY.xattr.x",
            "x",
        ]
    )
    value = rng.choice([*_NAMES, "", "1", "-1", "é", "99999999999999999999", "BINARY"])
    entries.insert(rng.randrange(len(entries)), imaging.pax((key, value)))


def _moved(rng: Random, entries: Entries) -> None:
    index = rng.randrange(len(entries))
    match rng.randrange(3):
        case 0:
            del entries[index]
        case 1:
            entries.insert(rng.randrange(len(entries)), dataclasses.replace(entries[index]))
        case _:
            rng.shuffle(entries)


_EDITS: Mapping[str, Callable[[Random, Entries], None]] = {
    "names": _renamed,
    "kinds and links": _linked,
    "header fields": _fields,
    "extended headers": _extended,
    "entries moved": _moved,
}


class LayerSubject:
    """Layers: what is read without a refusal is unpacked by the standard library to the same entries, inside the tree."""

    name = "layers"

    def __init__(self) -> None:
        plain = imaging.tar(*GOOD)
        self.originals = (
            Original(name=types.LAYER, data=plain),
            Original(name=types.LAYER_GZIP, data=gzip.compress(plain, mtime=0)),
        )
        for original in self.originals:
            self._read(original, original.data)

        def edited(edit: Callable[[Random, Entries], None]) -> Mutator:
            def mutate(rng: Random, original: Original) -> bytes:
                entries = _entries()
                for _ in range(rng.choice([1, 1, 2, 3])):
                    edit(rng, entries)
                end = rng.choice([imaging.END, imaging.END, b"", bytes(512), imaging.END + b"x" * 512])
                data = imaging.tar(*entries, end=end)
                return gzip.compress(data, mtime=0) if original.name == types.LAYER_GZIP else data

            return mutate

        def packed(rng: Random, original: Original) -> bytes:
            data = imaging.tar(*GOOD)
            cut = rng.randrange(len(data))
            squeezed = gzip.compress(data, mtime=0)
            parts = gzip.compress(data[:cut]) + gzip.compress(data[cut:])
            return rng.choice(
                [
                    parts,
                    squeezed + b"\0" * 8,
                    squeezed[:-4],
                    squeezed + squeezed,
                    gzip.compress(squeezed),
                    data,
                ]
            )

        self.mutators: Mapping[str, Mutator] = {
            **{name: edited(edit) for name, edit in _EDITS.items()},
            "compression": packed,
            "raw bytes": lambda rng, original: documents.flipped(rng, original.data),
        }

    def _read(self, original: Original, data: bytes) -> LayerFacts:
        return read_layer(io.BytesIO(data), original.name)

    def judge(self, original: Original, mutant: bytes) -> str:
        """See ``Subject``."""
        if mutant == original.data:
            return UNCHANGED
        try:
            facts = self._read(original, mutant)
        except InputError as error:
            if error.reason not in reasons.TABLE:
                raise BrokenError(f"a reason that no table has: {error.reason}") from error
            return error.reason
        data = gzip.decompress(mutant) if original.name == types.LAYER_GZIP else mutant
        if facts.diff_id != digests.sha256(data):
            raise BrokenError("another diff id than that of the uncompressed bytes")
        plain = layer._Plain(iter([data]), layer._Stored(io.BytesIO(data)), layer.DEFAULT_LIMITS)
        ours = [_said(entry) for entry, _contents in layer._entries(plain)]
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
        theirs = [
            (member.name.rstrip("/"), member.linkname if member.issym() or member.islnk() else "")
            for member in members
        ]
        if [(_clean(path), link) for path, link in ours] != [(_clean(path), link) for path, link in theirs]:
            raise BrokenError(f"the standard library sees other entries: {ours} {theirs}")
        return EQUAL


def _said(entry: LayerEntry) -> tuple[str, str]:
    return entry.path, entry.link


def _clean(path: str) -> str:
    return path.removeprefix("./").rstrip("/") or "."


class ImageSubject:
    """One image in a layout: whatever is accepted is the image that was signed, byte for byte."""

    name = "images"

    def __init__(self, folder: Path, forge: Forge, policy: Policy) -> None:
        first = next(rule for rule in policy.requirements if rule.kind is Kind.WHEEL)
        image = dataclasses.replace(
            first, kind=Kind.IMAGE, targets=("*",), predicates=(Predicate.PROVENANCE,)
        )
        self._policy = dataclasses.replace(policy, requirements=(image,))
        self._signed = imaging.layout(folder / "good", forge.sign)
        self._work = folder / "work"
        self._files = {
            name: (folder / "good" / name).read_bytes() for name in digests.tree_files(folder / "good")
        }
        self._names = sorted(self._files)
        self.originals = (Original(name="layout", data=b"{}"),)
        self._now = corpus.now()
        self.mutators: Mapping[str, Mutator] = {
            "blob or index changed": self._changed,
            "document edited in its place": self._edited,
            "document edited, digests follow": self._followed,
            "file taken out, added or renamed": self._moved,
        }
        if self.judge(self.originals[0], _operations({"x": None})) != EQUAL:
            raise BrokenError("the original is not accepted")

    def _documents(self) -> list[str]:
        return [name for name in self._names if self._files[name][:1] in {b"{", b"["}]

    def _changed(self, rng: Random, _original: Original) -> bytes:
        name = rng.choice(self._names)
        return _operations({name: documents.flipped(rng, self._files[name])})

    def _edited(self, rng: Random, _original: Original) -> bytes:
        name = rng.choice(["index.json", *self._documents()])
        return _operations({name: self._spoiled(rng, name)})

    def _followed(self, rng: Random, _original: Original) -> bytes:
        """A blob changed, and every digest and size that leads to it from the index down."""
        name = rng.choice([name for name in self._names if name.startswith("blobs/")])
        files = dict(self._files)
        new = self._spoiled(rng, name) if name in self._documents() else documents.flipped(rng, files[name])
        pending = [(name, new)]
        while pending:
            old_name, data = pending.pop()
            old, made = old_name.rpartition("/")[2], digests.sha256(data)
            size = len(files.pop(old_name))
            files[f"blobs/sha256/{made}"] = data
            for other in [
                other for other in files if files[other][:1] == b"{" and old.encode() in files[other]
            ]:
                text = files[other].replace(old.encode(), made.encode())
                text = text.replace(f'"size":{size}'.encode(), f'"size":{len(data)}'.encode())
                text = text.replace(f'"size": {size}'.encode(), f'"size": {len(data)}'.encode())
                if other.startswith("blobs/"):
                    pending.append((other, text))
                else:
                    files[other] = text
        changed: dict[str, bytes | None] = {
            name: data for name, data in files.items() if self._files.get(name) != data
        }
        return _operations(changed | dict.fromkeys(set(self._files) - set(files)))

    def _spoiled(self, rng: Random, name: str) -> bytes:
        ways = (documents.dropped, documents.doubled, documents.swapped, documents.retyped, documents.renamed)
        return documents.written(rng.choice(ways)(rng, documents.parse(self._files[name])))

    def _moved(self, rng: Random, _original: Original) -> bytes:
        one, two = rng.sample(self._names, 2)
        other = rng.choice(
            ["evil", "blobs/sha256/x", f"blobs/sha256/{'0' * 64}", f"{one}.bak", "index.json.sigstore.json"]
        )
        return _operations(
            rng.choice(
                [{one: None}, {other: self._files[one]}, {one: self._files[two], two: self._files[one]}]
            )
        )

    def judge(self, original: Original, mutant: bytes) -> str:  # noqa: ARG002 - there is one
        """See ``Subject``."""
        files = {**self._files, **{name: _bytes(text) for name, text in json.loads(mutant).items()}}
        kept = {name: data for name, data in files.items() if data is not None}
        shutil.rmtree(self._work, ignore_errors=True)
        for name, data in kept.items():
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            report = verify_image(self._work, self._policy, now=dt.datetime.max.replace(tzinfo=dt.UTC))
        except WheelmarkError as error:
            return error.reason
        if unknown := set(report.reasons()) - set(reasons.TABLE):
            raise BrokenError(f"reasons that no table has: {unknown}")
        if "library" in report.reasons():
            raise BrokenError("a library failed in a way that is not foreseen")
        if not report.accepted:
            return report.reasons()[0]
        if [item.sha256 for item in report.verdicts if isinstance(item, Accepted)] != [self._signed.sha256]:
            raise BrokenError("another image than the signed one is accepted")
        blobs = {name for name in kept if name.startswith("blobs/") and not name.endswith(_UNREAD)}
        if any(digests.sha256(kept[name]) != name.rpartition("/")[2] for name in blobs):
            raise BrokenError("a blob of another digest is accepted")
        return EQUAL


def _operations(changes: Mapping[str, bytes | None]) -> bytes:
    return json.dumps(
        {name: None if data is None else base64.b64encode(data).decode() for name, data in changes.items()}
    ).encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
