"""The content-addressed cache of code objects, and of whole results that nothing has changed for.

    blobs/<sha256>          code objects, by their own digest
    keys/<key>.json         compile key -> digest, size and compiler's metadata of an object
    results/<key>.json      key over all inputs of a target -> its manifest, refusals and object digests

Each file is written beside its place and renamed, so that a killed run leaves nothing half-written. Everything
read back is hashed; what does not match is taken as absent. Only the pipeline writes here, never a worker:
a worker runs the project's code.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from wheelmark import digests


class ObjectCache:
    """Code objects and results under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The compiler's metadata and the object that were stored for a compile key."""
        entry = self._read("keys", key)
        if entry is None:
            return None
        data = self.blob(entry["sha256"])
        return None if data is None else (entry["metadata"], data)

    def put(self, key: str, metadata: dict[str, Any], data: bytes) -> None:
        """Store an object and what the compiler said of it."""
        digest = digests.sha256(data)
        self._write(self._folder / "blobs" / digest, data)
        self._write_checked("keys", key, {"sha256": digest, "metadata": metadata})

    def blob(self, digest: str) -> bytes | None:
        """The object of that digest, if it is here and still is that object."""
        path = self._folder / "blobs" / digest
        try:
            data = path.read_bytes()
        except OSError:
            return None
        return data if digests.sha256(data) == digest else None

    def result(self, key: str) -> dict[str, Any] | None:
        """A stored result."""
        return self._read("results", key)

    def put_result(self, key: str, value: dict[str, Any]) -> None:
        """Store a result; its objects are in the cache already."""
        self._write_checked("results", key, value)

    def _read(self, kind: str, key: str) -> dict[str, Any] | None:
        try:
            digest, _, body = (self._folder / kind / f"{key}.json").read_bytes().partition(b"\n")
        except OSError:
            return None
        if digests.sha256(body) != digest.decode("ascii", "replace"):
            return None
        value: dict[str, Any] = json.loads(body)
        return value

    def _write_checked(self, kind: str, key: str, value: dict[str, Any]) -> None:
        body = json.dumps(value, sort_keys=True).encode()
        self._write(self._folder / kind / f"{key}.json", digests.sha256(body).encode() + b"\n" + body)

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def tree_digest(root: Path) -> str:
    """One digest over every file under ``root`` that an import may read.

    Hidden entries and byte code are left out. Linked folders are followed (modules may be linked in), each
    once.
    """
    lines: list[str] = []
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        here = Path(folder)
        lines += [
            f"{digests.sha256_file(here / name)}  {(here / name).relative_to(root).as_posix()}\n"
            for name in sorted(files)
            if not name.startswith(".") and (here / name).is_file()
        ]
    return digests.sha256("".join(sorted(lines)).encode())
