"""Rows 26 to 30: a wheel whose bytes are bad is refused, whoever signed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import wheelmaking
from asking import Asked, Expect, Stand
from releasing import file_name, part
from rows import report, row
from wheelmaking import Entry, record_line, wheel_entries, zip_bytes
from wheelmark.attest.statement import Subject

NAME = file_name()
INIT = "demo_kernels/__init__.py"
INFO = "demo_kernels-0.1.0+cpu.dist-info"
Entries = list[Entry]


def entries(name: str = NAME, **spoil: bytes) -> Entries:
    return wheel_entries({INIT: b"", "demo_kernels/data.bin": b"x"}, name, **spoil)


def signed(stand: Stand, wheel: bytes, name: str = NAME) -> Asked:
    """The answer about a wheel whose provenance is signed for exactly these bytes."""
    made = dataclasses.replace(part(wheel=wheelmaking.wheel_bytes({INIT: b""}, NAME)), name=name, wheel=wheel)
    own = dataclasses.replace(stand, part=made)
    bundle = stand.forge.sign(own.statement(Subject(name=name, sha256=made.sha256)))
    return own.ask(bundle)


def listed(changed: Entries) -> Entries:
    """With a RECORD that lists all of them."""
    record = changed[-1]
    lines = [record_line(entry.name, entry.data) for entry in changed[:-1]]
    record.data = ("".join(lines) + f"{record.name},,\n").encode()
    return changed


def with_path(path: str) -> bytes:
    return zip_bytes(listed([Entry(name=path, data=b"import os\n"), *entries()]))


def test_the_wheel_that_the_others_are_spoiled_from(stand: Stand, expect: Expect) -> None:
    expect.accepted(signed(stand, zip_bytes(entries())))
    expect.accepted(signed(stand, with_path("demo_kernels/more.py")))


@report("sigstore/model-transparency#647", "wheel-path")
@row(26, "wheel-path")
@pytest.mark.parametrize(
    "path",
    [
        "../evil.py",
        "demo_kernels/../../evil.py",
        "demo_kernels/..",
        "..\\evil.py",
        "/etc/cron.d/evil",
        "//server/share/x",
        "C:\\evil.py",
        "C:evil.py",
        "CON",
        "demo_kernels/nul.txt",
        "demo_kernels/./x.py",
        "demo_kernels//x.py",
        "demo_kernels/x.py ",
        "demo_kernels/x.",
        "demo_kernels/\u202ex.py",
    ],
)
def test_paths_that_leave_the_tree(stand: Stand, expect: Expect, path: str) -> None:
    expect(signed(stand, with_path(path)), "wheel-path")


@row(26, "wheel-link")
@pytest.mark.parametrize("target", [b"/etc/passwd", b"../../x", b"demo_kernels", b""])
@pytest.mark.parametrize("mode", [wheelmaking.LINK, wheelmaking.DEVICE, 0o010644, 0o140644, 0o060644])
def test_links_pipes_and_devices(stand: Stand, expect: Expect, mode: int, target: bytes) -> None:
    odd = Entry(name="demo_kernels/link", data=target, mode=mode)
    expect(signed(stand, zip_bytes(listed([odd, *entries()]))), "wheel-link")


RECORDS: dict[str, tuple[Callable[[Entries], object], str]] = {
    "another hash": (lambda found: setattr(found[0], "data", b"import os\n"), "wheel-record"),
    "another hash of a file of one size": (lambda found: setattr(found[1], "data", b"y"), "wheel-record"),
    "a file missing": (lambda found: found.pop(0), "wheel-missing"),
    "a file not listed": (
        lambda found: found.insert(0, Entry(name="demo_kernels/evil.py", data=b"x")),
        "wheel-unlisted",
    ),
    "a .pth not listed": (
        lambda found: found.insert(0, Entry(name="evil.pth", data=b"import os\n")),
        "wheel-unlisted",
    ),
    "sitecustomize not listed": (
        lambda found: found.insert(0, Entry(name="sitecustomize.py", data=b"x")),
        "wheel-unlisted",
    ),
    "an entry point not listed": (
        lambda found: found.insert(0, Entry(name=f"{INFO}/entry_points.txt", data=b"[console_scripts]\n")),
        "wheel-unlisted",
    ),
    "an empty RECORD": (lambda found: setattr(found[-1], "data", b""), "wheel-unlisted"),
    "RECORD without hashes": (
        lambda found: setattr(
            found[-1], "data", b"".join(b"%s,,\n" % entry.name.encode() for entry in found)
        ),
        "wheel-record",
    ),
    "a weak hash": (
        lambda found: setattr(found[-1], "data", found[-1].data.replace(b"sha256=", b"md5=")),
        "wheel-record",
    ),
    "a line twice": (
        lambda found: setattr(found[-1], "data", found[-1].data.split(b"\n")[0] + b"\n" + found[-1].data),
        "wheel-record",
    ),
    "no RECORD": (lambda found: found.pop(), "wheel-missing"),
}


@row(27, "wheel-record", "wheel-missing", "wheel-unlisted")
@pytest.mark.parametrize("kind", RECORDS)
def test_what_record_does_not_say(stand: Stand, expect: Expect, kind: str) -> None:
    change, code = RECORDS[kind]
    found = entries()
    change(found)
    expect(signed(stand, zip_bytes(found)), code)


@row(28, "wheel-duplicate")
@pytest.mark.parametrize(
    "path", [INIT, INIT.upper(), f"{INFO}/METADATA", f"{INFO}/RECORD", "demo_kernels/DATA.BIN"]
)
def test_one_name_twice(stand: Stand, expect: Expect, path: str) -> None:
    twice = [Entry(name=path, data=b"import os\n"), *entries()]
    expect(signed(stand, zip_bytes(twice)), "wheel-duplicate")


def said(**lines: str) -> bytes:
    values = {"Metadata-Version": "2.4", "Name": "demo_kernels", "Version": "0.1.0+cpu"}
    values |= {name.replace("_", "-"): text for name, text in lines.items()}
    return "".join(f"{name}: {text}\n" for name, text in values.items() if text).encode()


def marks(*tags: str, **lines: str) -> bytes:
    values = {"Wheel-Version": "1.0", "Generator": "by-hand", "Root-Is-Purelib": "false"} | lines
    head = "".join(f"{name}: {text}\n" for name, text in values.items())
    return (head + "".join(f"Tag: {tag}\n" for tag in tags)).encode()


@row(29, "wheel-name", "wheel-metadata")
@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (said(Name="other"), "wheel-name"),
        (said(Name="demo_kernels2"), "wheel-name"),
        (said(Version="0.1.1+cpu"), "wheel-name"),
        (said(Version="0.1.0"), "wheel-name"),
        (said(Version="0.1.0+cuda"), "wheel-name"),
        (said(Version="1!0.1.0+cpu"), "wheel-name"),
        (said() + b"Name: other\n", "wheel-metadata"),
        (said(Version=""), "wheel-metadata"),
        (b"", "wheel-metadata"),
    ],
)
def test_metadata_that_disagrees(stand: Stand, expect: Expect, metadata: bytes, code: str) -> None:
    expect(signed(stand, zip_bytes(entries(metadata=metadata))), code)


TAG = "py3-none-manylinux_2_28_x86_64"


@row(29, "wheel-tags", "wheel-metadata")
@pytest.mark.parametrize(
    ("wheel", "code"),
    [
        (marks("py3-none-any"), "wheel-tags"),
        (marks("cp312-cp312-manylinux_2_28_x86_64"), "wheel-tags"),
        (marks(TAG.replace("x86_64", "aarch64")), "wheel-tags"),
        (marks(TAG, "py3-none-any"), "wheel-tags"),
        (marks(), "wheel-tags"),
        (marks(TAG, Build="7"), "wheel-tags"),
        (marks("py3-none-"), "wheel-metadata"),
        (marks("py3"), "wheel-metadata"),
        (marks(TAG, **{"Wheel-Version": "2.0"}), "wheel-metadata"),
    ],
)
def test_tags_that_disagree(stand: Stand, expect: Expect, wheel: bytes, code: str) -> None:
    expect(signed(stand, zip_bytes(entries(wheel=wheel))), code)


@row(29, "wheel-name", "wheel-tags")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        (NAME.replace("0.1.0", "0.2.0"), "wheel-name"),
        (NAME.replace("demo_kernels", "demo_kernel"), "wheel-name"),
        (NAME.replace("+cpu", "+cuda"), "wheel-name"),
        (NAME.replace("manylinux_2_28", "manylinux_2_17"), "wheel-tags"),
        (NAME.replace("py3-none", "cp312-cp312"), "wheel-tags"),
    ],
)
def test_a_renamed_wheel(stand: Stand, expect: Expect, name: str, code: str) -> None:
    expect(signed(stand, zip_bytes(entries()), name), code)


# Row 30.
GPU = file_name("sm90")
FOLDER = wheelmaking.FOLDER


def kernels(change: Callable[[dict[str, bytes]], object]) -> bytes:
    files = dict(wheelmaking.gpu_files("sm90"))
    change(files)
    return wheelmaking.wheel_bytes(files, GPU)


OBJECTS: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "one more": (lambda files: files.update({f"{FOLDER}/evil.cubin": b"\x7fELF"}), "object-unlisted"),
    "a copy under another name": (
        lambda files: files.update({f"{FOLDER}/copy.cubin": wheelmaking.code_object("sm90")}),
        "object-unlisted",
    ),
    "in another folder": (
        lambda files: files.update({"demo_kernels/x.cubin": wheelmaking.code_object("sm90")}),
        "object-unlisted",
    ),
    "a library beside them": (lambda files: files.update({f"{FOLDER}/x.so": b"\x7fELF"}), "object-unlisted"),
    "one fewer": (
        lambda files: files.pop(next(name for name in files if name.endswith(".cubin"))),
        "object-missing",
    ),
    "empty": (
        lambda files: files.update({next(name for name in files if name.endswith(".cubin")): b""}),
        "object-empty",
    ),
    "of another card": (
        lambda files: files.update(
            {next(n for n in files if n.endswith(".cubin")): wheelmaking.code_object("sm80")}
        ),
        "object-digest",
    ),
    "no manifest": (lambda files: files.pop(f"{FOLDER}/manifest.json"), "kernel-manifest-missing"),
}


@row(30, "object-unlisted", "object-missing", "object-empty", "object-digest", "kernel-manifest-missing")
@pytest.mark.parametrize("kind", OBJECTS)
def test_code_objects_and_their_manifest(stand: Stand, expect: Expect, kind: str) -> None:
    change, code = OBJECTS[kind]
    expect.accepted(signed(stand, kernels(lambda _files: None), GPU))
    expect(signed(stand, kernels(change), GPU), code, also=("object-size", "object-malformed", "object-arch"))


@row(26, "wheel-path")
@row(27, "wheel-unlisted")
@row(28, "wheel-duplicate")
@pytest.mark.parametrize("code", ["wheel-path", "wheel-unlisted", "wheel-duplicate"])
def test_the_command_refuses_them(stand: Stand, expect: Expect, code: str) -> None:
    spoiled = {
        "wheel-path": with_path("../evil.py"),
        "wheel-unlisted": zip_bytes([Entry(name="evil.pth", data=b"x"), *entries()]),
        "wheel-duplicate": zip_bytes([Entry(name=INIT, data=b"x"), *entries()]),
    }[code]
    made = dataclasses.replace(stand.part, wheel=spoiled)
    own = dataclasses.replace(stand, part=made)
    expect(own.command(stand.forge.sign(own.statement())), code)
