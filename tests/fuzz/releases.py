"""Release directories: files taken out, put in, renamed, swapped or changed; ``release.json`` edited. Nothing is accepted.

A mutant is a list of operations as JSON; the directory is made again from it, so that a finding can be replayed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import releasing
from forging import Forge
from fuzz import corpus, documents
from fuzz.subject import EQUAL, UNCHANGED, BrokenError, Mutator, Original
from wheelmark import digests
from wheelmark.errors import WheelmarkError
from wheelmark.trust import state
from wheelmark.verify import load_policy, reasons, verify_release

POLICY = Path(__file__).resolve().parents[2] / "policies" / "embedded-dev.toml"
_OPTIONAL = "trust/trusted_root.json"
"""A copy of the policy's own root: may be absent, and is refused if it differs."""


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class ReleaseSubject:
    """One small release with a CPU wheel and a GPU wheel."""

    name = "releases"

    def __init__(self, folder: Path, forge: Forge) -> None:
        before = os.environ.get(state.VARIABLE)
        os.environ[state.VARIABLE] = str(forge.home)
        try:
            self.policy = load_policy(POLICY)
        finally:
            os.environ.pop(state.VARIABLE)
            if before is not None:
                os.environ[state.VARIABLE] = before
        parts = (releasing.part(), releasing.part("cuda-sm90", "sm90"))
        dist = releasing.draft(*parts).write(folder / "good", forge.sign, root=forge.root_bytes)
        other = releasing.draft(releasing.part(), releasing.part("cuda-sm90", "sm90"))
        other.parts[0].evidence = [
            releasing.evidence_for(item.gate, item.target, item.subject, summary="another run")
            for item in other.parts[0].evidence
        ]
        later = other.write(folder / "later", forge.sign, root=forge.root_bytes)
        self._work = folder / "work"
        self._files = {name: (dist / name).read_bytes() for name in digests.tree_files(dist)}
        self._later = {name: (later / name).read_bytes() for name in digests.tree_files(later)}
        self._names = sorted(self._files)
        self._write(self._files)
        if not verify_release(self._work, self.policy, now=corpus.now()).accepted:
            raise BrokenError("the original is not accepted")
        self.originals = (Original(name="release", data=b"[]"),)
        self.mutators: Mapping[str, Mutator] = {
            "file taken out": lambda rng, _original: _said(["remove", rng.choice(self._names)]),
            "file added": self._added,
            "file renamed": self._renamed,
            "files swapped": lambda rng, _original: _said(["swap", *rng.sample(self._names, 2)]),
            "file changed": self._changed,
            "JSON of a file edited": self._edited,
            "file of a later run": self._of_later,
            "file turned into a link, pipe or folder": lambda rng, _original: _said(
                [rng.choice(["link", "pipe", "folder", "empty"]), rng.choice(self._names)]
            ),
        }

    def _added(self, rng: Random, _original: Original) -> bytes:
        source = rng.choice(self._names)
        place = rng.choice(self._names).rpartition("/")[0]
        name = rng.choice(
            ["evil.pth", ".hidden", f"copy-{Path(source).name}", "a\nb", "é", Path(source).name.upper()]
        )
        return _said(["write", f"{place}/{name}".lstrip("/"), _b64(self._files[source])])

    def _renamed(self, rng: Random, _original: Original) -> bytes:
        old = rng.choice(self._names)
        folder, _, name = old.rpartition("/")
        other = rng.choice(
            [name.upper(), f"{name}.bak", name[1:] or "x", f"x{name}", name.replace("-", "_") + "_"]
        )
        new = rng.choice([f"{folder}/{other}", other, f"wheels/{name}", f"sub/{old}"]).lstrip("/")
        return _said(["write", new, _b64(self._files[old])], *([] if new == old else [["remove", old]]))

    def _changed(self, rng: Random, _original: Original) -> bytes:
        name = rng.choice(self._names)
        return _said(["write", name, _b64(documents.flipped(rng, self._files[name]))])

    def _edited(self, rng: Random, _original: Original) -> bytes:
        name = rng.choice([name for name in self._names if name.endswith(".json")])
        name = "release.json" if rng.random() < 0.4 else name
        ways = (documents.dropped, documents.doubled, documents.swapped, documents.retyped, documents.renamed)
        tree = rng.choice(ways)(rng, documents.parse(self._files[name]))
        return _said(["write", name, _b64(documents.written(tree, canonical=True))])

    def _of_later(self, rng: Random, _original: Original) -> bytes:
        names = rng.sample(sorted(self._later), rng.choice([1, 1, 2, 5]))
        return _said(*(["write", name, _b64(self._later[name])] for name in names))

    def judge(self, original: Original, mutant: bytes) -> str:  # noqa: ARG002 - there is one
        """See ``Subject``."""
        operations = json.loads(mutant)
        files = self._applied(operations)
        plain = all(operation[0] in {"write", "remove", "swap"} for operation in operations)
        if plain and files in (self._files, self._later):
            return UNCHANGED
        self._write(files)
        _odd(self._work, operations)
        try:
            report = verify_release(self._work, self.policy, now=corpus.now())
        except WheelmarkError as error:
            return error.reason
        without = {name: data for name, data in self._files.items() if name != _OPTIONAL}
        if report.accepted:
            if plain and self._same(files) in (self._same(self._files), self._same(without)):
                return EQUAL
            raise BrokenError("a changed release is accepted")
        if unknown := set(report.reasons()) - set(reasons.TABLE):
            raise BrokenError(f"reasons that no table has: {unknown}")
        if "library" in report.reasons():
            raise BrokenError("a library failed in a way that is not foreseen")
        return report.reasons()[0]

    def _applied(self, operations: list[list[str]]) -> dict[str, bytes]:
        files = dict(self._files)
        for operation in operations:
            match operation:
                case ["write", name, data]:
                    files[name] = base64.b64decode(data)
                case ["remove", name]:
                    files.pop(name, None)
                case ["swap", one, two]:
                    files[one], files[two] = files[two], files[one]
        return files

    def _same(self, files: Mapping[str, bytes]) -> dict[str, bytes | str]:
        """The files; a bundle counts as the statement in it: of two that sign one statement, either will do."""
        return {
            name: json.loads(data)["dsseEnvelope"]["payload"] if name.endswith(".sigstore.json") else data
            for name, data in files.items()
        }

    def _write(self, files: Mapping[str, bytes]) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        for name, data in files.items():
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _odd(folder: Path, operations: list[list[str]]) -> None:
    """Operations that leave something else than a plain file."""
    for kind, name, *_ in operations:
        path = folder / name
        if kind in {"link", "pipe", "folder", "empty"}:
            data = path.read_bytes()
            path.unlink()
        if kind == "link":
            moved = folder.parent / "elsewhere"
            moved.write_bytes(data)
            path.symlink_to(moved)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "empty":
            path.write_bytes(b"")


def _said(*operations: Any) -> bytes:
    return json.dumps(operations).encode()
