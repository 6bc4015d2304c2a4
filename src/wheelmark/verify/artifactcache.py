"""What wheels' bytes said, kept from one process to the next: the same bytes are looked into once, and hashed each time.

An entry is found by the wheel's digest, its file name and this verifier's version, so it says nothing of other bytes;
only wheels without a problem are kept. To know which digest to look for before a file is hashed there is a hint, by
name and size: a wrong one costs time and nothing else. The folder is private, as for other facts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wheelmark
from wheelmark import digests, strictjson
from wheelmark.binaries.kernelmanifest import read_kernel_manifest
from wheelmark.errors import InputError
from wheelmark.plainfiles import open_plain
from wheelmark.trust import state
from wheelmark.verify.artifact import WheelFacts, examine_wheel

_LIMITS = strictjson.Limits(size=64 << 20, depth=4, string=40 << 20)
_FIELDS = ("name", "sha256", "size", "version", "distribution", "platforms", "files", "kernel_files")


class ArtifactCache:
    """A folder of what wheels' bytes said.

    Args:
        directory: Made with mode 0700 where absent.

    Raises:
        ConfigError: Others have access to it, or it cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = state.private_directory(directory)

    def examine(self, path: Path, *, subject: str, threads: bool = True) -> WheelFacts:
        """``artifact.examine_wheel``, looking into bytes only if they were not looked into before.

        Args:
            path: The file.
            subject: How the report names it.
            threads: As there.

        Raises:
            InputError: As there.
        """
        with open_plain(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            known = self._hinted(path.name, size)
            if known is not None and digests.sha256_stream(stream) == known.sha256:
                return dataclasses.replace(known, path=subject)
        facts = examine_wheel(path, subject=subject, threads=threads)
        if not facts.problems:
            self._keep(facts)
        return facts

    def _hinted(self, name: str, size: int) -> WheelFacts | None:
        hint = self._read(self._hint(name, size), 64)
        if hint is None or not digests.is_sha256(said := hint.decode("latin-1")):
            return None
        data = self._read(self._entry(name, said), _LIMITS.size + 100)
        head, _, body = (data or b"").partition(b"\n")
        if head.decode("latin-1") != digests.sha256(body):
            return None  # absent or torn
        try:
            facts = _facts(strictjson.load_object(body, what="cached facts", limits=_LIMITS))
        except (InputError, KeyError, TypeError, ValueError):
            return None
        return facts if (facts.name, facts.sha256, facts.size) == (name, said, size) else None

    def _keep(self, facts: WheelFacts) -> None:
        body = json.dumps(_as_json(facts)).encode()
        if len(body) <= _LIMITS.size:
            entry = digests.sha256(body).encode() + b"\n" + body
            self._write(self._entry(facts.name, facts.sha256), entry)
            self._write(self._hint(facts.name, facts.size), facts.sha256.encode())

    def _read(self, path: Path, limit: int) -> bytes | None:
        try:
            with path.open("rb") as stream:
                return stream.read(limit)
        except OSError:
            return None

    def _write(self, path: Path, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: looked into again next time
            handle, name = tempfile.mkstemp(dir=self._directory, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink()
                raise

    def _entry(self, name: str, sha256: str) -> Path:
        return self._directory / f"{_key(name, sha256)}.wheel"

    def _hint(self, name: str, size: int) -> Path:
        return self._directory / f"{_key(name, str(size))}.hint"


def _key(*asked: str) -> str:
    return digests.sha256(digests.canonical_json([wheelmark.__version__, *asked]))


def _as_json(facts: WheelFacts) -> dict[str, Any]:
    kernels = facts.kernels.as_bytes().decode() if facts.kernels is not None else ""
    value = {name: getattr(facts, name) for name in _FIELDS}
    return {**value, "files": dict(facts.files), "kernel_files": dict(facts.kernel_files), "kernels": kernels}


def _facts(value: Mapping[str, Any]) -> WheelFacts:
    kernels = value["kernels"]
    return WheelFacts(
        path="",
        **{name: value[name] for name in _FIELDS if name != "platforms"},
        platforms=tuple(value["platforms"]),
        kernels=read_kernel_manifest(kernels.encode()) if kernels else None,
    )
