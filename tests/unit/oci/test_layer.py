"""Layers, spoiled one field at a time; each refusal with its reason."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import tarfile
import time
import zlib
from collections.abc import Iterator

import pytest

import imaging
from imaging import END, GOOD, Entry, folder, packed, pax, tar
from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.oci import layer, types
from wheelmark.oci.layer import LayerFacts, LayerLimits, read_layer


def read(data: bytes, media_type: str = types.LAYER, **more: LayerLimits) -> LayerFacts:
    return read_layer(io.BytesIO(data), media_type, **more)


def reason(data: bytes, media_type: str = types.LAYER, **more: LayerLimits) -> str:
    with pytest.raises(InputError) as caught:
        read(data, media_type, **more)
    return caught.value.reason


def test_a_layer_is_read_plain_and_compressed() -> None:
    data = tar(*GOOD)
    found = read(data)
    assert (found.diff_id, found.size) == (digests.sha256(data), len(data))
    assert (found.entries, found.uncompressed) == (len(GOOD), len(data))
    squeezed = read(packed(data), types.LAYER_GZIP)
    assert squeezed.diff_id == found.diff_id
    assert squeezed.size == len(packed(data))
    cut = len(data) // 2
    several = packed(data[:cut]) + packed(b"") + packed(data[cut:])
    assert read(several, types.LAYER_GZIP).diff_id == found.diff_id
    assert read(tar()).entries == 0
    noise = tar(Entry(name="noise", data=os.urandom(200_000)))
    assert read(packed(noise), types.LAYER_GZIP).diff_id == digests.sha256(noise)
    zeros = tar(Entry(name="zeros", data=bytes(1 << 20)))
    assert read(packed(zeros), types.LAYER_GZIP).diff_id == digests.sha256(zeros)


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_other_tools_write_is_read(style: int) -> None:
    stream = io.BytesIO()
    long = "/".join(["folder" * 5] * 3) if style == tarfile.USTAR_FORMAT else "/".join(["folder" * 5] * 9)
    with tarfile.open(fileobj=stream, mode="w", format=style) as archive:
        for name, kind in ((long, tarfile.REGTYPE), ("grün" if style != tarfile.USTAR_FORMAT else "g", b"0")):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.mtime = kind, 3000, 1.5 if style == tarfile.PAX_FORMAT else 1
            archive.addfile(info, io.BytesIO(b"x" * 3000))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, f"/{long}"
        link.uid = 1 << 40 if style != tarfile.USTAR_FORMAT else 7
        archive.addfile(link)
    assert read(stream.getvalue()).entries == 3


def test_entries_say_what_their_headers_say() -> None:
    plain = layer._Plain(
        iter(
            [
                tar(
                    pax(("size", "3"), ("path", "p"), ("uid", "70000"), ("gid", "70001")),
                    Entry(name="n", data=b"abc"),
                )
            ]
        ),
        layer._Stored(io.BytesIO()),
        LayerLimits(),
    )
    (entry,) = [entry for entry, _contents in layer._entries(plain)]
    assert (entry.path, entry.size, entry.uid, entry.gid, entry.mode) == ("p", 3, 70000, 70001, 0o644)
    old = Entry(name="d/", kind=b"\0").as_bytes()
    old_plain = layer._Plain(iter([old + END]), layer._Stored(io.BytesIO()), LayerLimits())
    (found,) = [entry for entry, _contents in layer._entries(old_plain)]
    assert found.kind is layer.Kind.FOLDER


FILE = Entry(name="f", data=b"1")


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(name="../f")],
        [Entry(name="/etc/passwd")],
        [Entry(name="a/../../f")],
        [Entry(name="a//f")],
        [Entry(name="a/./f")],
        [Entry(name="")],
        [Entry(name="./")],
        [pax(("path", "../f")), FILE],
        [pax(("path", "a\0b")), FILE],
        [pax(("path", "x" * 5000)), FILE],
        [Entry(name="L", kind=b"L", data=b"../f\0"), FILE],
        [Entry(name="f", prefix=b"..")],
        [Entry(name="dev", kind=b"3")],
        [Entry(name="dev", kind=b"4")],
        [Entry(name="pipe", kind=b"6")],
        [Entry(name="l", kind=b"2", link="")],
        [Entry(name="l", kind=b"2", link="../x")],
        [Entry(name="a/l", kind=b"2", link="../../x")],
        [Entry(name="a/l", kind=b"2", link="/../x")],
        [pax(("linkpath", "x" * 5000)), Entry(name="l", kind=b"2")],
        [pax(("linkpath", "a\0b")), Entry(name="l", kind=b"2")],
        [Entry(name="h", kind=b"1", link="/etc/shadow")],
        [Entry(name="h", kind=b"1", link="../f")],
        [Entry(name="h", kind=b"1", link=".")],
        [Entry(name=".", kind=b"2", link="a")],
        [Entry(name="a", kind=b"2", link="/etc"), Entry(name="a/passwd")],
        [Entry(name="a/passwd"), Entry(name="a", kind=b"2", link="/etc")],
        [Entry(name="a", kind=b"1", link="b"), Entry(name="a/b/c")],
        [FILE, Entry(name="f/g")],
    ],
)
def test_what_leaves_the_tree_is_refused(entries: list[Entry]) -> None:
    assert reason(tar(*entries)) == "image-path"
    assert reason(packed(tar(*entries)), types.LAYER_GZIP) == "image-path"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(512),
        bytes(512) + b"x" * 512,
        tar(FILE, end=b""),
        tar(FILE, end=bytes(512)),
        tar(FILE)[:600],
        tar(FILE)[:700] + END,
        tar(FILE) + b"hidden",
        tar(FILE) + END + tar(FILE),
        tar(FILE, FILE),
        tar(FILE, Entry(name="./f")),
        tar(Entry(name="f", checksum=b"000000\0 ")),
        tar(Entry(name="f", magic=b"\0" * 8)),
        tar(Entry(name="f", magic=b"ustar  \0", prefix=b"usr")),
        tar(Entry(name="f", magic=b"ustar  \0", prefix=b"\0" * 12 + b"1")),
        tar(Entry(name="f", kind=b"S")),
        tar(Entry(name="f", kind=b"g")),
        tar(Entry(name="f", kind=b"7")),
        tar(Entry(name="f", size=b"9" * 12)),
        tar(Entry(name="f", uid=b"\xff" * 8)),
        tar(Entry(name="d/", kind=b"5", data=b"x")),
        tar(Entry(name=b"\xff")),
        tar(pax(("path", "a"))),
        tar(pax(("path", "a")), pax(("path", "b")), FILE),
        tar(pax(("path", "a"), ("path", "b")), FILE),
        tar(pax(("GNU.sparse.map", "0,1")), FILE),
        tar(pax(("size", "-1")), FILE),
        tar(pax(("size", "9" * 30)), FILE),
        tar(Entry(name="x", kind=b"x", data=b"8 path=a\n"), FILE),
        tar(Entry(name="x", kind=b"x", data=b"15 path=abc\n"), FILE),
        tar(Entry(name="x", kind=b"x", data=b"junk"), FILE),
        tar(Entry(name="x", kind=b"x", data=b"6 path\n"), FILE),
        tar(Entry(name="x", kind=b"x", data=b"0 a=b\n"), FILE),
    ],
)
def test_archives_that_could_be_read_in_two_ways_are_refused(data: bytes) -> None:
    assert reason(data) == "image-layer"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        packed(tar(FILE))[:-9],
        packed(tar(FILE)) + b"x",
        packed(tar(FILE))[:-1] + b"\xff",
        zlib.compress(tar(FILE)),
    ],
)
def test_broken_compression_is_refused(data: bytes) -> None:
    assert reason(data, types.LAYER_GZIP) == "image-layer"


def test_inert_records_are_read() -> None:
    records = pax(("mtime", "1.5"), ("SCHILY.xattr.user.a", "b"), ("uname", "root"), ("comment", "c"))
    assert read(tar(records, FILE)).entries == 1


def test_attributes_are_bytes() -> None:
    capability = b"\x01\0\0\x02\x80\0\0\0" + bytes(12)  # cap_setuid=ep, as newuidmap has it
    record = b" SCHILY.xattr.security.capability=" + capability + b"\n"
    header = Entry(name="x", kind=b"x", data=str(len(record) + 2).encode() + record)
    assert read(tar(header, FILE)).entries == 1
    assert reason(tar(Entry(name="x", kind=b"x", data=b"9 path=\x80\n"), FILE)) == "image-layer"


def test_many_extended_headers_are_refused_before_they_fill_memory() -> None:
    full = [
        pax(*((f"SCHILY.xattr.user.{number}.{index}", "x" * 1000) for index in range(50)))
        for number in range(8)
    ]
    assert reason(tar(*full, FILE)) == "image-limit"
    apart = [entry for index, header in enumerate(full) for entry in (header, Entry(name=f"f{index}"))]
    assert read(tar(*apart)).entries == 8
    plain = tar(*apart)
    layer_limit = layer._ALL_TEXTS_LIMIT // len(full[0].data) // 8 + 1
    block = b"".join(entry.as_bytes() for entry in apart)

    def pieces() -> Iterator[bytes]:
        for _ in range(layer_limit):
            yield block

    limits = LayerLimits(ratio=1 << 30)
    stored = layer._Stored(io.BytesIO(plain))
    stored.read(1)
    with pytest.raises(InputError) as caught:
        list(layer._entries(layer._Plain(pieces(), stored, limits)))
    assert caught.value.reason == "image-limit"


def test_deep_paths_take_no_time_of_their_own() -> None:
    """A few kilobytes, compressed; each of the paths has two thousand folders above it."""
    names = [f"{index}/" + "a/" * 2000 + "b" for index in range(1000)]
    entries = [entry for name in names for entry in (pax(("path", name)), Entry(name="n"))]
    start = time.process_time()
    assert read(tar(*entries)).entries == len(names)
    assert time.process_time() - start < 2.5
    link = [pax(("path", names[7].rpartition("/")[0])), Entry(name="n", kind=b"2", link="x")]
    assert reason(tar(*entries, *link)) == "image-path"


def test_an_empty_extended_header_behind_the_last_entry_is_refused() -> None:
    assert reason(tar(*GOOD, Entry(name="x", kind=b"x"))) == "image-layer"
    assert reason(tar(*GOOD, Entry(name="x", kind=b"L"))) == "image-layer"


def test_limits_hold() -> None:
    many = tar(*(Entry(name=f"f{index}") for index in range(5)))
    assert reason(many, limits=LayerLimits(entries=4)) == "image-limit"
    assert reason(many, limits=LayerLimits(total=len(many) - 1)) == "image-limit"
    assert (
        reason(packed(b"") * 6 + packed(many), types.LAYER_GZIP, limits=LayerLimits(members=5))
        == "image-limit"
    )
    assert reason(tar(Entry(name="x", kind=b"x", data=b"a" * (1 << 17)), FILE)) == "image-limit"
    bomb = gzip.compress(tar(Entry(name="zeros", data=bytes(64 << 20))), mtime=0)
    assert reason(bomb, types.LAYER_GZIP) == "image-limit"


@pytest.mark.parametrize(
    "media_type", [types.LAYER_ZSTD, "application/vnd.docker.image.rootfs.diff.tar.gzip", "x"]
)
def test_other_compressions_are_unchecked(media_type: str) -> None:
    assert reason(tar(FILE), media_type) == "image-compression"


def test_folders_may_come_after_what_is_in_them() -> None:
    assert read(tar(Entry(name="a/b/c"), folder("a"), folder("a/b"))).entries == 3
    assert imaging.GOOD[0].name == "./"


def test_contents_of_files_can_be_read_or_passed_over() -> None:
    data = tar(*GOOD, Entry(name="last", data=b"x" * 1000))
    found = {}
    for entry, contents in layer.walk_layer(io.BytesIO(data), types.LAYER):
        if entry.path == "usr/bin/tool":
            found[entry.path] = contents.read(10)
        elif entry.path == "last":
            found[entry.path] = b"".join(contents.chunks())
    assert found == {"usr/bin/tool": b"#!" * 5, "last": b"x" * 1000}


def test_contents_that_end_early_are_refused() -> None:
    data = tar(Entry(name="last", data=b"x" * 5000))[:2000]
    ((_entry, contents),) = itertools.islice(layer.walk_layer(io.BytesIO(data), types.LAYER), 1)
    with pytest.raises(InputError) as caught:
        contents.read(5000)
    assert caught.value.reason == "image-layer"
