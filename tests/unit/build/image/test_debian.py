"""Debian packages into a layer: what of a good one arrives, and every way of being a bad one."""

from __future__ import annotations

import dataclasses
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import debmaking
import imaging
from debmaking import Draft, member
from imaging import Entry, folder
from wheelmark import digests
from wheelmark.build.image import debian
from wheelmark.build.image.debian import Unpacked, unpack
from wheelmark.build.image.paths import Patterns
from wheelmark.build.image.tree import EXECUTABLE, PLAIN, PRIVATE, SHARED, Tree
from wheelmark.errors import BuildError
from wheelmark.oci.layer import Kind, LayerLimits

DROP = Patterns(
    ["usr/share/doc/**", "usr/share/ca-certificates/**", "dropped/**"], ["usr/share/doc/*/copyright"]
)


def unpacked(folder: Path, *drafts: Draft, drop: Patterns = DROP) -> tuple[Tree, Unpacked]:
    """The tree of packages (its contents on disk are gone: paths, modes and digests stay)."""
    lock, files = debmaking.lock(drafts, folder)
    with Tree("system") as tree:
        return tree, unpack(lock, files, drop=drop, tree=tree)


def refusal(folder: Path, data: bytes, draft: Draft | None = None) -> str:
    """The reason for which a package's bytes are refused."""
    package = debmaking.locked(draft or Draft(), data)
    lock, _files = debmaking.lock([Draft()], folder)
    lock = dataclasses.replace(lock, packages=(package,))
    path = folder / "package.deb"
    path.write_bytes(data)
    with Tree("system") as tree, pytest.raises(BuildError) as caught:
        unpack(lock, {package.sha256: path}, drop=Patterns([]), tree=tree)
    return caught.value.reason


def test_files_arrive_with_fixed_modes_and_merged_usr(tmp_path: Path) -> None:
    tree, found = unpacked(tmp_path, *debmaking.system())
    paths = dict(tree.entries())
    assert paths["lib"].link == "usr/lib"
    assert {name for name, node in paths.items() if node.kind is Kind.SYMBOLIC_LINK} == {
        "bin", "lib", "lib64", "sbin", "etc/os-release",
    }  # fmt: skip
    assert paths["usr/lib/python3.11.so"].mode == PLAIN
    assert paths["usr/bin/python3.11"].mode == EXECUTABLE
    assert (paths["root"].mode, paths["tmp"].mode) == (PRIVATE, SHARED)
    assert {node.owner for node in paths.values()} == {0}
    assert paths["usr/bin/python3.11-again"].sha256 == digests.sha256(debmaking.INTERPRETER)
    assert "usr/share/doc/base-files/copyright" in paths
    assert "usr/share/doc/base-files/changelog.gz" not in paths
    assert not [name for name in paths if "postinst" in name]
    assert [(item.package, item.name) for item in found.scripts] == [("base-files", "postinst")]
    assert found.scripts[0].sha256 == digests.sha256(b"#!/bin/sh\nmkdir -p /x\n")


def test_certificates_are_handed_out_though_they_are_dropped(tmp_path: Path) -> None:
    tree, found = unpacked(tmp_path, *debmaking.system())
    assert sorted(found.certificates) == [
        "usr/share/ca-certificates/mozilla/A.crt",
        "usr/share/ca-certificates/mozilla/B.crt",
    ]
    assert "usr/share/ca-certificates/mozilla/A.crt" not in tree


def test_scanners_find_the_packages(tmp_path: Path) -> None:
    lock, files = debmaking.lock(debmaking.system(), tmp_path)
    with Tree("system") as tree:
        unpack(lock, files, drop=DROP, tree=tree)
        nodes = {
            name.rpartition("/")[2]: b"".join(node.chunks()).decode()
            for name, node in tree.entries()
            if name.startswith(f"{debian.STATUS}/")
        }
    assert nodes["base-files"].startswith("Package: base-files\nVersion: 1.0-1\n")
    assert (
        "Status: install ok installed\nConffiles:\n /etc/host.conf 4eb63731c9f5e30903ac4fc07a7fe3d6\n"
        in nodes["base-files"]
    )
    listed = [line.split("  ")[1] for line in nodes["base-files.md5sums"].splitlines()]
    assert listed == ["usr/lib/os-release", "usr/share/doc/base-files/copyright"]
    assert nodes["python3.11-minimal.md5sums"].partition("\n")[0].endswith("  lib/python3.11.so")


@pytest.mark.parametrize("kind", ["", "xz", "gz", "zst"])
def test_every_compression_gives_the_same_tree(tmp_path: Path, kind: str) -> None:
    tree, _found = unpacked(tmp_path, Draft(entries=(Entry(name="a", data=b"x" * 300_000),), kind=kind))
    node = tree.get("a")
    assert node is not None
    assert (node.size, node.sha256) == (300_000, digests.sha256(b"x" * 300_000))


def test_a_package_of_a_system_that_is_merged_itself(tmp_path: Path) -> None:
    entries = (Entry(name="./lib", kind=b"2", link="usr/lib"), Entry(name="./usr/lib/x", data=b"1"))
    tree, _found = unpacked(tmp_path, Draft(entries=entries))
    assert "usr/lib/x" in tree


def test_two_packages_may_not_differ_about_a_path(tmp_path: Path) -> None:
    one = Draft(name="one", entries=(Entry(name="a", data=b"1"),))
    other = Draft(name="other", entries=(Entry(name="a", data=b"2"),))
    with pytest.raises(
        BuildError, match=r"a comes from one 1.0-1 and, differently, from other 1.0-1"
    ) as caught:
        unpacked(tmp_path, one, other)
    assert caught.value.reason == "image-conflict"


def test_the_name_of_a_whiteout(tmp_path: Path) -> None:
    """An engine would remove what a layer below has there."""
    for name in (".wh.passwd", "etc/.wh.passwd", "etc/.wh..wh..opq", "etc/.wh.x/y"):
        with pytest.raises(BuildError) as caught:
            unpacked(tmp_path, Draft(entries=(Entry(name=name, data=b"1"),)))
        assert (caught.value.reason, "whiteout" in caught.value.what) == ("image-path", True)


def test_another_file_than_the_locked_one(tmp_path: Path) -> None:
    lock, files = debmaking.lock([Draft()], tmp_path)
    (path,) = files.values()
    path.write_bytes(path.read_bytes() + b"\n")
    with Tree("system") as tree, pytest.raises(BuildError) as caught:
        unpack(lock, files, drop=DROP, tree=tree)
    assert caught.value.reason == "deb-digest"
    for gone in ({}, dict.fromkeys(files, tmp_path / "absent")):
        with Tree("system") as tree, pytest.raises(BuildError) as caught:
            unpack(lock, gone, drop=DROP, tree=tree)
        assert caught.value.reason == "deb-missing"


HOSTILE: dict[str, tuple[tuple[Entry, ...], str]] = {
    "traversal": ((Entry(name="../outside", data=b"1"),), "deb-path"),
    "traversal below a folder": ((Entry(name="./a/../../outside", data=b"1"),), "deb-path"),
    "absolute": ((Entry(name="/etc/passwd", data=b"1"),), "deb-path"),
    "link out": ((Entry(name="a", kind=b"2", link="../../etc"),), "deb-path"),
    "hard link out": ((Entry(name="a", kind=b"1", link="../etc/shadow"),), "deb-path"),
    "hard link to nothing": ((Entry(name="a", kind=b"1", link="b"),), "deb-link"),
    "hard link ahead": ((Entry(name="a", kind=b"1", link="b"), Entry(name="b", data=b"1")), "deb-link"),
    "hard link to a folder": ((folder("b/"), Entry(name="a", kind=b"1", link="b")), "deb-link"),
    "character device": ((Entry(name="dev/null", kind=b"3"),), "deb-path"),
    "block device": ((Entry(name="dev/sda", kind=b"4"),), "deb-path"),
    "pipe": ((Entry(name="run/pipe", kind=b"6"),), "deb-path"),
    "below a link": ((Entry(name="a", kind=b"2", link="etc"), Entry(name="a/b", data=b"1")), "deb-path"),
    "twice": ((Entry(name="a", data=b"1"), Entry(name="./a", data=b"2")), "deb-tar"),
    "checksum": ((Entry(name="a", checksum=b"000000\0 "),), "deb-tar"),
    "setuid": ((Entry(name="usr/bin/su", data=b"1", mode=0o4755),), "deb-setuid"),
    "setgid": ((Entry(name="usr/bin/wall", data=b"1", mode=0o2755),), "deb-setuid"),
    "setuid by a hard link": (
        (Entry(name="a", data=b"1"), Entry(name="b", kind=b"1", link="a", mode=0o4755)),
        "deb-setuid",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_entries(tmp_path: Path, case: str) -> None:
    entries, reason = HOSTILE[case]
    draft = Draft(entries=entries)
    assert refusal(tmp_path, draft.as_bytes(), draft) == reason


def test_a_setuid_file_may_be_dropped(tmp_path: Path) -> None:
    entries = (Entry(name="dropped/su", data=b"1", mode=0o4755), Entry(name="kept", data=b"1"))
    tree, _found = unpacked(tmp_path, Draft(entries=entries))
    assert "kept" in tree
    assert "dropped/su" not in tree


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(entries=tuple(Entry(name=f"f{number}", data=b"x" * 600) for number in range(10)))
    monkeypatch.setattr(debian, "_DATA_LIMITS", LayerLimits(entries=5))
    assert refusal(tmp_path, draft.as_bytes()) == "deb-limit"
    monkeypatch.setattr(debian, "_DATA_LIMITS", LayerLimits(total=3000))
    assert refusal(tmp_path, draft.as_bytes()) == "deb-limit"
    monkeypatch.setattr(debian, "_SMALL", 10)
    assert refusal(tmp_path, draft.as_bytes()) == "deb-limit"


@pytest.mark.parametrize("kind", ["xz", "gz", "zst"])
def test_a_bomb_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(debian, "_FREE", 1 << 16)
    draft = Draft(kind=kind, entries=(Entry(name="bomb", data=bytes(4 << 20)),))
    data = draft.as_bytes()
    assert len(data) < 10_000
    assert refusal(tmp_path, data) == "deb-limit"


def test_a_large_window_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, write_content_size=False)
    squeezed = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    inside = squeezed.compress(imaging.tar(Entry(name="a", data=bytes(1000)))) + squeezed.flush()
    members = [*Draft(kind="").members()[:2], ("data.tar.zst", inside)]
    assert refusal(tmp_path, b"!<arch>\n" + b"".join(member(*item) for item in members)) == "deb-compression"


def test_a_dictionary_beyond_the_memory_limit(tmp_path: Path) -> None:
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}])
    data = bytearray(packer.compress(imaging.tar(Entry(name="a"))) + packer.flush())
    # The dictionary's size stands in the block header (one byte behind the filter's id and length): 40 is 4 GiB.
    at = data.index(b"\x21\x01", 12) + 2
    data[at] = 40
    crc = at + 1 + 3
    data[crc : crc + 4] = zlib.crc32(bytes(data[12:crc])).to_bytes(4, "little")
    members = [*Draft(kind="").members()[:2], ("data.tar.xz", bytes(data))]
    assert refusal(tmp_path, b"!<arch>\n" + b"".join(member(*item) for item in members)) == "deb-compression"


def good() -> list[tuple[str, bytes]]:
    return Draft(entries=(Entry(name="a", data=b"1" * 5000),)).members()


def ar(members: list[tuple[str, bytes]]) -> bytes:
    return b"!<arch>\n" + b"".join(member(*item) for item in members)


SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "deb-ar"),
    "magic": (lambda: b"!<arch>x" + ar(good())[8:], "deb-ar"),
    "no control": (lambda: ar([good()[0], good()[2]]), "deb-ar"),
    "no data": (lambda: ar(good()[:2]), "deb-ar"),
    "another order": (lambda: ar([good()[0], good()[2], good()[1]]), "deb-ar"),
    "another first member": (lambda: ar([("control.tar", b"2.0\n"), *good()[1:]]), "deb-ar"),
    "format 3": (lambda: ar([("debian-binary", b"3.0\n"), *good()[1:]]), "deb-ar"),
    "another member": (lambda: ar([*good(), ("_more", b"x")]), "deb-ar"),
    "bytes behind": (lambda: ar(good()) + b"x", "deb-ar"),
    "size no number": (lambda: b"!<arch>\n" + member(*good()[0], size=b"x4"), "deb-ar"),
    "size negative": (lambda: b"!<arch>\n" + member(*good()[0], size=b"-4"), "deb-ar"),
    "header end": (lambda: b"!<arch>\n" + member(*good()[0], end=b"xx") + ar(good()[1:])[8:], "deb-ar"),
    "cut in a header": (lambda: ar(good())[:100], "deb-ar"),
    "cut in data": (lambda: ar(good())[:-40], "deb-ar"),
    "unknown compression": (lambda: ar([*good()[:2], ("data.tar.br", b"x" * 10)]), "deb-compression"),
    "broken xz": (lambda: ar([*good()[:2], ("data.tar.xz", b"\xfd7zXZ\0" + b"x" * 60)]), "deb-compression"),
    "xz cut": (lambda: ar([*good()[:2], ("data.tar.xz", good()[2][1][:-30])]), "deb-compression"),
    "xz and more": (lambda: ar([*good()[:2], ("data.tar.xz", good()[2][1] + b"xx")]), "deb-compression"),
    "broken gzip": (lambda: ar([*good()[:2], ("data.tar.gz", b"\x1f\x8bxxxxxxxxxx")]), "deb-compression"),
    "broken zstd": (lambda: ar([*good()[:2], ("data.tar.zst", b"\x28\xb5\x2f\xfdxxxxx")]), "deb-compression"),
    "tar cut": (
        lambda: ar([*good()[:2], ("data.tar", imaging.tar(Entry(name="a", data=b"1" * 600))[:700])]),
        "deb-tar",
    ),
    "no tar": (lambda: ar([*good()[:2], ("data.tar", b"x" * 1024)]), "deb-tar"),
    "tar without end": (
        lambda: ar([*good()[:2], ("data.tar", imaging.tar(Entry(name="a"), end=b""))]),
        "deb-tar",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_spoiled_packages(tmp_path: Path, case: str) -> None:
    data, reason = SPOILED[case]
    assert refusal(tmp_path, data()) == reason


@pytest.mark.parametrize("step", [7, 8, 30, 68, 72, 90, 133, 200])
def test_truncated_anywhere(tmp_path: Path, step: int) -> None:
    data = ar(good())
    assert refusal(tmp_path, data[:step]).startswith("deb-")


@pytest.mark.parametrize(
    "control",
    [
        b"Package: other\nVersion: 1.0-1\nArchitecture: amd64\n",
        b"Package: demo\nVersion: 2\nArchitecture: amd64\n",
        b"Package: demo\nVersion: 1.0-1\nArchitecture: arm64\n",
        b"Package: demo\nPackage: demo\nVersion: 1.0-1\nArchitecture: amd64\n",
        b"Package: demo\nVersion: 1.0-1\nArchitecture: amd64\n\nPackage: second\n",
        b"Package: demo\nVersion: 1.0-1\nArchitecture: amd64\nStatus: deinstall ok\n",
        b" begins with a continuation\n",
        b"no field\n",
        b"\xff",
        b"",
    ],
)
def test_control_files_that_are_refused(tmp_path: Path, control: bytes) -> None:
    draft = Draft(control=control)
    assert refusal(tmp_path, draft.as_bytes()) == "deb-control"


def test_certificates_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_CERTIFICATE", 10)
    draft = Draft(entries=(Entry(name="usr/share/ca-certificates/a.crt", data=b"x" * 11),))
    assert refusal(tmp_path, draft.as_bytes()) == "deb-limit"
