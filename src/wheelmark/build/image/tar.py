"""Canonical tar archives: the same tree is the same bytes, on every machine, as every user.

POSIX.1-2017 ``pax`` interchange format, written without a choice left: entries in the order of their paths' bytes,
every parent listed, owners by number only, one time, and an extended header exactly where a path, a link or a size
does not fit its ustar field. The archive ends with two zero blocks and no further padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from wheelmark.build.image.tree import Node, Tree
from wheelmark.errors import BuildError
from wheelmark.oci.layer import BLOCK, Kind

EPOCH = 315_532_800
"""Seconds: 1980-01-01 00:00 UTC, as in our wheels. Earlier times cannot be put into a zip archive, which programs in
the image may want to do with its files."""
_TYPES = {Kind.FILE: b"0", Kind.SYMBOLIC_LINK: b"2", Kind.FOLDER: b"5"}
_NAME, _PREFIX = 100, 155
_LARGEST = 8**11 - 1
"""Bytes that the size field can say."""


def write_tar(tree: Tree) -> Iterator[bytes]:
    """The archive of a tree, piece by piece.

    Raises:
        BuildError: A file's bytes are not those that were announced (``image-source``), or as ``Tree.entries``.
    """
    for path, node in tree.entries():
        yield _header(path, node)
        if node.kind is Kind.FILE:
            yield from _contents(path, node)
    yield bytes(2 * BLOCK)


def _contents(path: str, node: Node) -> Iterator[bytes]:
    digest, size = hashlib.sha256(), 0
    for piece in node.chunks():
        size += len(piece)
        digest.update(piece)
        if size > node.size:
            break
        yield piece
    if size != node.size or digest.hexdigest() != node.sha256:
        raise BuildError(
            f"{path} ({node.origin}) changed while the layer was written",
            cause="a file of the pool was changed or cut by something else",
            fix="run it again; if it stays, remove the pool",
            reason="image-source",
        )
    yield bytes(-size % BLOCK)


def _header(path: str, node: Node) -> bytes:
    stored = (path + "/" if node.kind is Kind.FOLDER else path).encode()
    link = node.link.encode()
    prefix, name = _split(stored)
    records = b""
    if not name:
        records += _record(b"path", stored)
        name = stored[:_NAME] if stored.isascii() else b"long-name"
    if len(link) > _NAME or not link.isascii():
        records += _record(b"linkpath", link)
        link = b""
    if node.size > _LARGEST:
        records += _record(b"size", str(node.size).encode())
    block = _block(
        name,
        mode=node.mode,
        owner=node.owner,
        size=0 if node.size > _LARGEST else node.size,
        kind=_TYPES[node.kind],
        link=link,
        prefix=prefix,
    )
    if not records:
        return block
    head = _block(b"extended", mode=0o644, owner=0, size=len(records), kind=b"x")
    return head + records + bytes(-len(records) % BLOCK) + block


def _split(stored: bytes) -> tuple[bytes, bytes]:
    """Prefix and name of ustar; two empty ones where the path does not fit, or is not ASCII."""
    if not stored.isascii():
        return b"", b""
    if len(stored) <= _NAME:
        return b"", stored
    cut = stored.rfind(b"/", 0, min(_PREFIX + 1, len(stored) - 1))  # not the slash that ends a folder's name
    if cut <= 0 or not 0 < len(stored) - cut - 1 <= _NAME:
        return b"", b""
    return stored[:cut], stored[cut + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    """One record of an extended header; its length counts its own digits."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def _block(
    name: bytes, *, mode: int, owner: int, size: int, kind: bytes, link: bytes = b"", prefix: bytes = b""
) -> bytes:
    fields = (
        (name, 100), (b"%07o" % mode, 8), (b"%07o" % owner, 8), (b"%07o" % owner, 8), (b"%011o" % size, 12),
        (b"%011o" % EPOCH, 12), (b" " * 8, 8), (kind, 1), (link, 100), (b"ustar\x0000", 8), (b"", 64),
        (b"0000000", 8), (b"0000000", 8), (prefix, 167),
    )  # fmt: skip
    block = bytearray(b"".join(value.ljust(width, b"\0") for value, width in fields))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
