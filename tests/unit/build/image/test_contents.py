"""What is found in images that hold what they should not; the layers are made by hand, as any builder could make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import imaging
import wheelmaking as make
from imaging import Entry, folder
from wheelmark.build.image import ImageContents, inspect
from wheelmark.errors import InputError
from wheelmark.oci.layout import LayoutWriter

SITE = "usr/lib/python3"
GOOD = (
    folder("usr/"),
    folder("usr/bin/"),
    Entry(name="usr/bin/python3", data=b"#!", mode=0o755),
    Entry(name="usr/lib/os-release", data=b"ID=debian\n"),
    Entry(
        name="var/lib/dpkg/status.d/demo",
        data=b"Package: demo\nVersion: 1\nArchitecture: all\nSource: other (2)\n",
    ),
    Entry(name=f"{SITE}/demo-1.dist-info/sboms/demo.json", data=b"{}"),
    Entry(name=f"{SITE}/demo-1.dist-info/METADATA", data=b"Name: demo\n"),
)
LIBRARIES = tuple(
    Entry(name=f"usr/lib/x86_64-linux-gnu/{name}", data=b"library")
    for name in ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6")
)


def look(folder: Path, *layers: tuple[Entry, ...], adding: int = 0, **config: Any) -> ImageContents:
    """Look into an image of these layers."""

    def change(value: dict[str, Any]) -> None:
        value["config"] |= {"Entrypoint": ["/usr/bin/python3"], "User": "65532:65532", **config}

    draft = imaging.Draft(layers=[imaging.tar(*entries) for entries in layers], change_config=change)
    writer = LayoutWriter(folder)
    made = draft.write(writer)
    writer.finish([made])
    return inspect(folder, made.digest, adding=adding)


def findings(folder: Path, *entries: Entry, **config: Any) -> list[tuple[str, str]]:
    return [(item.reason, item.path) for item in look(folder, GOOD, entries, **config).findings]


def test_a_good_image(tmp_path: Path) -> None:
    found = look(tmp_path, GOOD)
    assert found.findings == ()
    assert [(item.name, item.version, item.source) for item in found.packages] == [("demo", "1", "other")]
    assert [(item.name, item.version) for item in found.distributions] == [("demo", "1")]
    assert (found.files, found.objects, found.writable) == (5, 0, ())


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (Entry(name="usr/bin/dash", data=b"#!", mode=0o755), "contents-shell"),
        (Entry(name="bin/sh", kind=b"2", link="/usr/bin/python3"), "contents-shell"),
        (Entry(name="usr/local/bin/busybox", data=b"#!", mode=0o755), "contents-shell"),
        (Entry(name="usr/bin/dpkg", data=b"#!", mode=0o755), "contents-package-manager"),
        (Entry(name="usr/local/bin/pip", data=b"#!", mode=0o755), "contents-package-manager"),
        (Entry(name="usr/bin/su", data=b"#!", mode=0o4755), "contents-setuid"),
        (Entry(name="usr/bin/wall", data=b"#!", mode=0o2755), "contents-setuid"),
        (Entry(name=f"{SITE}/__pycache__/x.pyc", data=b""), "contents-bytecode"),
        (Entry(name="etc/dangling", kind=b"2", link="nothing"), "contents-dangling"),
        (Entry(name="etc/round", kind=b"2", link="round"), "contents-dangling"),
        (Entry(name="etc/open", data=b"", mode=0o666), "contents-writable"),
        (Entry(name="srv", kind=b"5", mode=0o777), "contents-writable"),
        (Entry(name="mine", data=b"", uid=b"0177774\0"), "contents-writable"),
        (Entry(name="usr/lib/broken.so", data=b"\x7fELF" + bytes(100)), "contents-elf"),
        (Entry(name="var/lib/dpkg/status.d/odd", data=b"nothing\n"), "contents-packages"),
    ],
)
def test_what_should_not_be_there(tmp_path: Path, entry: Entry, reason: str) -> None:
    assert findings(tmp_path, entry) == [(reason, entry.name)]


def test_a_capability_is_setuid_by_another_name(tmp_path: Path) -> None:
    record = b" SCHILY.xattr.security.capability=\x01\0\0\x02\x80\0\0\0" + bytes(12) + b"\n"
    header = Entry(name="x", kind=b"x", data=str(len(record) + 2).encode() + record)
    tool = Entry(name="usr/bin/tool", data=b"#!", mode=0o755)
    assert findings(tmp_path / "one", header, tool) == [("contents-capability", "usr/bin/tool")]
    inert = imaging.pax(("SCHILY.xattr.user.note", "x"))
    assert findings(tmp_path / "other", inert, tool) == []


def test_a_layer_that_is_to_add_and_replaces(tmp_path: Path) -> None:
    above = (
        Entry(name="usr", kind=b"5", mode=0o755),
        Entry(name="usr/bin/python3", data=b"#!other", mode=0o755),
        Entry(name="usr/bin/new", data=b"#!", mode=0o755),
    )
    found = look(tmp_path / "two", GOOD, above, adding=1)
    assert [(item.reason, item.path) for item in found.findings] == [("contents-replaced", "usr/bin/python3")]
    assert look(tmp_path / "base", GOOD, above).findings == ()
    gone = (Entry(name="usr/bin/.wh.python3"),)
    assert look(tmp_path / "gone", GOOD, gone, above, adding=1).findings == ()
    found = look(tmp_path / "removed", GOOD, gone, above, adding=2)
    assert [item.path for item in found.findings] == ["usr/bin/.wh.python3"]


def test_shared_folders_and_the_home_may_be_written(tmp_path: Path) -> None:
    entries = (
        Entry(name="tmp", kind=b"5", mode=0o1777),
        Entry(name="home", kind=b"5", mode=0o700, uid=b"0177774\0"),
    )
    found = look(tmp_path, (*GOOD, *entries), WorkingDir="/home")
    assert found.findings == ()
    assert found.writable == ("home", "tmp")


@pytest.mark.parametrize("user", ["", "0", "0:0", "root", "00"])
def test_users_that_are_root_or_a_name(tmp_path: Path, user: str) -> None:
    assert ("contents-user", "") in findings(tmp_path, User=user)


@pytest.mark.parametrize(
    ("entries", "config"),
    [
        ((), {"Entrypoint": ["/usr/bin/absent"]}),
        ((), {"Entrypoint": ["python3"]}),
        ((), {"Entrypoint": [], "Cmd": []}),
        ((), {"Entrypoint": ["/usr/bin"]}),
        ((Entry(name="usr/bin/python3", data=b"#!", mode=0o750),), {}),
        ((Entry(name="usr/bin", kind=b"5", mode=0o700),), {}),
    ],
)
def test_programs_that_cannot_be_started(
    tmp_path: Path, entries: tuple[Entry, ...], config: dict[str, Any]
) -> None:
    assert [reason for reason, _path in findings(tmp_path, *entries, **config)] == ["contents-entrypoint"]


def test_no_notes_and_no_sbom(tmp_path: Path) -> None:
    found = look(tmp_path, GOOD[:4])
    assert [item.reason for item in found.findings] == ["contents-packages", "contents-sbom"]


def test_every_needed_library_is_looked_for(tmp_path: Path) -> None:
    native = Entry(name="usr/lib/x86_64-linux-gnu/demo.so", data=make.golden("native.so"))
    assert findings(tmp_path / "none", native) == [("contents-needed", native.name)] * 5
    assert findings(tmp_path / "some", native, *LIBRARIES) == [("contents-needed", native.name)]
    elsewhere = Entry(name="opt/torch/lib/libtorch_cpu.so", data=b"library")
    found = look(tmp_path / "all", GOOD, (native, *LIBRARIES, elsewhere))
    assert found.findings == ()
    assert found.preloaded == ((native.name, "libtorch_cpu.so"),)
    assert found.objects == 1


def test_libraries_are_found_through_links(tmp_path: Path) -> None:
    native = Entry(name="usr/lib/x86_64-linux-gnu/demo.so", data=make.golden("native.so"))
    real = Entry(name="opt/real.so", data=b"library")
    link = Entry(name="usr/lib/libtorch_cpu.so", kind=b"2", link="../../opt/real.so")
    found = look(tmp_path, GOOD, (native, *LIBRARIES, real, link))
    assert (found.findings, found.preloaded) == ((), ())


def test_an_object_for_another_cpu(tmp_path: Path) -> None:
    data = make.patched(make.golden("native.so"), 18, (183).to_bytes(2, "little"))
    assert findings(tmp_path, Entry(name="usr/lib/arm.so", data=data)) == [
        ("contents-foreign", "usr/lib/arm.so")
    ]


def test_code_objects_for_gpus_are_no_objects_of_the_cpu(tmp_path: Path) -> None:
    entries = tuple(Entry(name=f"opt/{arch}", data=make.code_object(arch)) for arch in ("sm90", "gfx942"))
    assert look(tmp_path, GOOD, entries).objects == 0


def test_large_objects_are_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelmark.build.image.contents._IN_MEMORY", 10)
    native = Entry(name="usr/lib/x86_64-linux-gnu/demo.so", data=make.golden("native.so"))
    assert findings(tmp_path, native, *LIBRARIES) == [("contents-needed", native.name)]


def test_layers_lie_over_one_another(tmp_path: Path) -> None:
    below = (*GOOD, Entry(name="usr/bin/sh", data=b"#!"), folder("opt/"), Entry(name="opt/bash", data=b"x"), folder("srv/"),
             Entry(name="srv/bin/sh", data=b"#!"))  # fmt: skip
    assert [item.path for item in look(tmp_path / "one", below).findings] == ["srv/bin/sh", "usr/bin/sh"]
    above = (
        Entry(name="usr/bin/.wh.sh"),
        Entry(name="srv/.wh..wh..opq"),
        Entry(name="srv/new", data=b"1"),
        Entry(name="opt", data=b"a file in place of a folder"),
    )
    found = look(tmp_path / "two", below, above)
    assert found.findings == ()
    assert found.files == 7


def test_a_whiteout_is_about_the_layers_below(tmp_path: Path) -> None:
    above = (Entry(name="usr/bin/.wh.sh"), Entry(name="usr/bin/sh", data=b"#!"))
    assert [item.path for item in look(tmp_path, GOOD, above).findings] == ["usr/bin/sh"]


def test_hard_links_are_the_file_they_lead_to(tmp_path: Path) -> None:
    assert findings(
        tmp_path, Entry(name="opt/x", data=b"1", mode=0o4755), Entry(name="opt/y", kind=b"1", link="opt/x")
    ) == [("contents-setuid", "opt/x"), ("contents-setuid", "opt/y")]


def test_a_layer_that_is_not_its_digest(tmp_path: Path) -> None:
    found = look(tmp_path, GOOD)
    manifest = json.loads((tmp_path / "blobs" / "sha256" / found.digest.removeprefix("sha256:")).read_bytes())
    blob = tmp_path / "blobs" / "sha256" / manifest["layers"][0]["digest"].removeprefix("sha256:")
    blob.write_bytes(imaging.packed(imaging.tar(*GOOD[:3])))
    with pytest.raises(InputError) as caught:
        inspect(tmp_path, found.digest)
    assert caught.value.reason == "image-blob"
