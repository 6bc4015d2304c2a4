"""What a layer holds: paths, each with its kind, mode and contents, collected before a byte is written.

Two sources may agree about a path and may not differ: which of them won would be an accident. Modes are few and
fixed, so that no umask and no archive decides over them: 0644 and 0755 for files, 0755 for folders (0700 and 1777
where that is the folder's meaning), 0777 for links.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Self

from wheelmark import digests
from wheelmark.errors import BuildError
from wheelmark.oci.layer import Kind

PLAIN, EXECUTABLE = 0o644, 0o755
FOLDER, PRIVATE, SHARED = 0o755, 0o700, 0o1777
_WHITEOUT = ".wh."
_LONGEST_PATH = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One path of a layer."""

    kind: Kind
    mode: int
    owner: int = 0
    """User and group, as a number."""
    size: int = 0
    """Bytes of a file."""
    sha256: str = ""
    """Of a file's bytes."""
    link: str = ""
    """Where a symbolic link leads."""
    origin: str = dataclasses.field(default="", compare=False)
    """What brought it, for messages."""
    chunks: Callable[[], Iterable[bytes]] = dataclasses.field(default=tuple, compare=False, repr=False)
    """Gives a file's bytes anew, piece by piece."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """Bytes that a tree holds on disk."""

    chunks: Callable[[], Iterator[bytes]]
    """Gives them anew."""
    size: int
    sha256: str
    md5: str
    """As dpkg's lists have it; nothing is decided by it."""


class Tree:
    """The paths of one layer; see the module. A context manager: at its end the bytes that it holds are gone.

    Args:
        name: How messages call the layer.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: dict[str, Node] = {}
        self._spool: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._spool is not None:
            self._spool.close()

    def keep(self, pieces: Iterable[bytes]) -> Kept:
        """Hold bytes in an unnamed file on disk, for files of archives that can be read only once."""
        if self._spool is None:
            self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the tree
        spool = self._spool
        start = spool.seek(0, os.SEEK_END)
        digest, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        for piece in pieces:
            digest.update(piece)
            md5.update(piece)
            size += len(piece)
            spool.write(piece)

        def chunks() -> Iterator[bytes]:
            for offset in range(0, size, digests.CHUNK):
                spool.seek(start + offset)
                yield spool.read(min(digests.CHUNK, size - offset))

        return Kept(chunks=chunks, size=size, sha256=digest.hexdigest(), md5=md5.hexdigest())

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, path: str) -> Node | None:
        """What stands at a path."""
        return self._nodes.get(path)

    def folder(self, path: str, *, mode: int = FOLDER, owner: int = 0, origin: str = "") -> None:
        """Add a folder.

        Raises:
            BuildError: Something else stands there (``image-conflict``), or it is no path (``image-path``).
        """
        self._add(path, Node(kind=Kind.FOLDER, mode=mode, owner=owner, origin=origin))

    def link(self, path: str, target: str, *, origin: str = "") -> None:
        """Add a symbolic link.

        Raises:
            BuildError: As ``folder``.
        """
        self._add(path, Node(kind=Kind.SYMBOLIC_LINK, mode=0o777, link=target, origin=origin))

    def file(self, path: str, data: bytes, *, mode: int = PLAIN, origin: str = "") -> None:
        """Add a file whose bytes are at hand.

        Raises:
            BuildError: As ``folder``.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        self.stream(path, lambda: (data,), size=len(data), sha256=sha256, mode=mode, origin=origin)

    def stream(
        self,
        path: str,
        chunks: Callable[[], Iterable[bytes]],
        *,
        size: int,
        sha256: str,
        mode: int = PLAIN,
        origin: str = "",
    ) -> None:
        """Add a file whose bytes are read when the layer is written.

        Args:
            path: Its path, relative to the root.
            chunks: Gives the bytes anew, piece by piece.
            size: How many there are.
            sha256: Of them; they are held against it when they are written.
            mode: ``PLAIN`` or ``EXECUTABLE``.
            origin: What brought it.

        Raises:
            BuildError: As ``folder``.
        """
        made = Node(kind=Kind.FILE, mode=mode, size=size, sha256=sha256, origin=origin, chunks=chunks)
        self._add(path, made)

    def entries(self) -> Iterator[tuple[str, Node]]:
        """Every path with every folder above it, in the order of the paths' bytes.

        Raises:
            BuildError: Something lies below what is no folder (``image-conflict``).
        """
        nodes = dict(self._nodes)
        for path in self._nodes:
            folder = path
            while "/" in folder:
                folder = folder.rpartition("/")[0]
                above = nodes.setdefault(folder, Node(kind=Kind.FOLDER, mode=FOLDER))
                if above.kind is not Kind.FOLDER:
                    raise BuildError(
                        f"layer {self.name}: {path} ({self._nodes[path].origin}) lies below the {above.kind.value}"
                        f" {folder} ({above.origin})",
                        reason="image-conflict",
                    )
        yield from sorted(nodes.items(), key=lambda item: item[0].encode())

    def _add(self, path: str, node: Node) -> None:
        parts = path.split("/")
        if (
            not path
            or len(path) > _LONGEST_PATH
            or any(part in {"", ".", ".."} for part in parts)
            or not path.isprintable()
        ):
            raise BuildError(
                f"layer {self.name}: {path[:200]!r} ({node.origin}) is no path of an image",
                cause="paths are relative, printable, in their one spelling",
                reason="image-path",
            )
        if any(part.startswith(_WHITEOUT) for part in parts):
            raise BuildError(
                f"layer {self.name}: {path[:200]!r} ({node.origin}) is the name of a whiteout",
                cause="an engine would take it for the order to remove what a layer below has there",
                fix="drop it, or leave out what brings it",
                reason="image-path",
            )
        earlier = self._nodes.setdefault(path, node)
        if earlier != node:
            raise BuildError(
                f"layer {self.name}: {path} comes from {earlier.origin or 'the recipe'} and, differently,"
                f" from {node.origin or 'the recipe'}",
                fix="drop one of the two, or leave one of what brings them out",
                reason="image-conflict",
            )
