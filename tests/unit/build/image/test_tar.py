"""The canonical archive: what any tar reader sees in it, and that nothing besides the tree decides its bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable

import pytest

from wheelmark import digests
from wheelmark.build.image import compress
from wheelmark.build.image.tar import EPOCH, write_tar
from wheelmark.build.image.tree import EXECUTABLE, SHARED, Tree
from wheelmark.errors import BuildError
from wheelmark.oci import types
from wheelmark.oci.layer import read_layer

LONG = "d" * 90 + "/" + "e" * 90
LONGER = "f" * 200
ODD = "usr/näme"


def tree() -> Tree:
    made = Tree("test")
    made.file("usr/bin/tool", b"#!", mode=EXECUTABLE)
    made.file(LONG, b"prefix")
    made.file(LONGER, b"extended")
    made.file(ODD, b"not ascii")
    made.link("bin", "usr/bin")
    made.link("far", "/" + "g" * 150)
    made.folder("tmp", mode=SHARED)
    made.folder("home/me", mode=0o700, owner=65532)
    return made


def archive(made: Tree) -> bytes:
    return b"".join(write_tar(made))


def test_every_reader_sees_the_tree() -> None:
    data = archive(tree())
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        found = {item.name: item for item in opened}
        contents = {name: opened.extractfile(item).read() for name, item in found.items() if item.isreg()}  # type: ignore[union-attr]
    assert contents == {"usr/bin/tool": b"#!", LONG: b"prefix", LONGER: b"extended", ODD: b"not ascii"}
    assert set(found) - set(contents) == {"bin", "far", "d" * 90, "usr", "usr/bin", "tmp", "home", "home/me"}
    assert {item.mtime for item in found.values()} == {EPOCH}
    assert {item.uname + item.gname for item in found.values()} == {""}
    assert (found["home/me"].uid, found["home/me"].gid, found["home/me"].mode) == (65532, 65532, 0o700)
    assert (found["usr"].uid, found["usr"].mode, found["tmp"].mode) == (0, 0o755, 0o1777)
    assert (found["bin"].linkname, found["far"].linkname) == ("usr/bin", "/" + "g" * 150)
    assert read_layer(io.BytesIO(data), types.LAYER).entries == len(found)


def test_paths_are_in_the_order_of_their_bytes() -> None:
    made = Tree("test")
    for name in ("b/x", "b-c", "B", "b", "é", "z"):
        (made.folder if name == "b" else made.file)(name, *(() if name == "b" else (b"",)))
    with tarfile.open(fileobj=io.BytesIO(archive(made))) as opened:
        assert opened.getnames() == ["B", "b", "b-c", "b/x", "z", "é"]


def test_extended_headers_stand_only_where_needed() -> None:
    made = Tree("test")
    made.file("a" * 100, b"")
    made.file(f"{'p' * 77}/{'q' * 77}/{'n' * 100}", b"")
    assert b"extended" not in archive(made)
    made.file("a" * 101, b"")
    assert archive(made).count(b"extended") == 1


def test_the_order_of_adding_and_the_pieces_do_not_count() -> None:
    one, other = Tree("test"), Tree("test")
    names = ["c", "a/b", "a/a", "d/e/f"]
    for name in names:
        one.file(name, b"x" * 1000)
    for name in reversed(names):
        kept = other.keep([b"x" * 10] * 100)
        other.stream(name, kept.chunks, size=kept.size, sha256=kept.sha256)
    with other:
        assert archive(one) == archive(other)


@pytest.mark.parametrize("pieces", [(b"short",), (b"too long by far",), (b"otherxxx",)])
def test_bytes_that_changed_are_refused(pieces: tuple[bytes, ...]) -> None:
    made = Tree("test")
    with made:
        kept = made.keep([b"expected"])
        made.stream("file", lambda: iter(pieces), size=kept.size, sha256=kept.sha256, origin="demo")
        with pytest.raises(BuildError) as caught:
            archive(made)
    assert caught.value.reason == "image-source"


def test_sources_may_agree_and_may_not_differ() -> None:
    made = Tree("test")
    made.file("a", b"same", origin="one")
    made.file("a", b"same", origin="two")
    made.folder("f")
    made.folder("f")
    attempts: list[Callable[[], object]] = [
        lambda: made.file("a", b"other", origin="three"),
        lambda: made.file("a", b"same", mode=EXECUTABLE),
        lambda: made.link("a", "b"),
        lambda: made.folder("f", mode=SHARED),
    ]
    for attempt in attempts:
        with pytest.raises(BuildError) as caught:
            attempt()
        assert caught.value.reason == "image-conflict"


def test_nothing_lies_below_a_file() -> None:
    made = Tree("test")
    made.link("lib", "usr/lib")
    made.file("lib/x", b"")
    with pytest.raises(BuildError, match="below the symbolic link lib") as caught:
        archive(made)
    assert caught.value.reason == "image-conflict"


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "a/../b", "./a", "a\nb", "a\0b", "x" * 1025])
def test_odd_paths_are_refused(path: str) -> None:
    with pytest.raises(BuildError) as caught:
        Tree("test").file(path, b"")
    assert caught.value.reason == "image-path"


def test_compressed_bytes_depend_on_neither_pieces_nor_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compress, "MEMBER", 1000)
    data = os.urandom(500) * 9 + b"\0" * 777

    def packed(cut: int, workers: int) -> bytes:
        found: list[bytes] = []
        pieces = (data[at : at + cut] for at in range(0, len(data), cut))
        compress.compress(pieces, found.append, workers=workers)
        return b"".join(found)

    forms = {packed(cut, workers) for cut in (1, 999, 1000, 1001, 10_000) for workers in (1, 2, 5)}
    (only,) = forms
    assert gzip.decompress(only) == data
    assert only.count(b"\x1f\x8b\x08\0\0\0\0\0\0\xff") == -(-len(data) // 1000)


def test_the_compressor_is_the_one_whose_digests_are_known() -> None:
    """A changed libdeflate has to be a decision: it changes every image's digest."""
    found: list[bytes] = []
    compress.compress([b"wheelmark " * 100_000], found.append)
    assert compress.identity() == "deflate 0.9.0 level 6 member 4194304"
    assert len(b"".join(found)) == 2027
    assert (
        digests.sha256(b"".join(found)) == "4a0215b99187c465f75bddd53a31d638776e15f0e38040bee248cd500a303317"
    )
