"""Wheels that show one thing to this reader and another to an installer."""

from __future__ import annotations

import email
import io
import struct
import zipfile

import pytest

from wheelmaking import NAME, Entry, wheel_bytes, wheel_entries, zip_bytes
from wheelmark.binaries import archive
from wheelmark.binaries.archive import ArchiveLimits, read_directory
from wheelmark.binaries.wheel import read_wheel
from wheelmark.errors import InputError

INIT = "demo_kernels/__init__.py"
METADATA = b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: 1.0+cpu\n"
MARKS = b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: false\n"
TAG = b"Tag: py3-none-manylinux_2_28_x86_64\n"


def reason(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_wheel(data, name=NAME)
    return caught.value.reason


def two_faced() -> bytes:
    """A wheel with a second central directory, named by a Zip64 locator in the last header's extra field.

    pip 24 installs what the second one names; its members lie inside a stored member of the first.
    """
    inner = zip_bytes(wheel_entries({INIT: b"import evil"}))
    *_, count, size, begin, _comment = struct.unpack("<IHHHHIIH", inner[-22:])
    outer = wheel_entries({INIT: b"", "demo_kernels/data.bin": inner[:begin]})
    outer[1].deflate = False
    shift = zip_bytes(outer).index(inner[:begin])
    directory = bytearray(inner[begin : begin + size])
    at = 0
    while at < size:
        (name,) = struct.unpack_from("<H", directory, at + 28)
        (offset,) = struct.unpack_from("<I", directory, at + 42)
        struct.pack_into("<I", directory, at + 42, offset + shift)
        at += 46 + name

    def extra(end: int) -> bytes:
        record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, size, end - 76 - size)
        locator = struct.pack("<IIQI", 0x07064B50, 0, end - 76, 1)
        return struct.pack("<HH", 0xA220, size + 76) + bytes(directory) + record + locator

    outer[-1].extra = extra(1 << 20)
    outer[-1].extra = extra(len(zip_bytes(outer)) - 22)
    return zip_bytes(outer)


def test_a_second_directory_behind_a_zip64_locator() -> None:
    data = two_faced()
    with zipfile.ZipFile(io.BytesIO(data)) as seen_by_pip:
        assert seen_by_pip.read(INIT) == b"import evil"
    assert reason(data) == "wheel-zip"


def test_a_stored_member_whose_size_stands_behind_it() -> None:
    entries = wheel_entries({INIT: b"pass"})
    entries[0].deflate, entries[0].descriptor = False, True
    assert reason(zip_bytes(entries)) == "wheel-zip"
    entries[0].deflate = True
    assert INIT in read_wheel(zip_bytes(entries), name=NAME).files


def test_a_central_directory_that_fills_the_memory() -> None:
    class Huge:
        """A file of holes with an end record that makes all of it a directory."""

        size = 3 << 30

        def read(self, offset: int, size: int) -> bytes:
            assert size < 1 << 20, "all of it would be in memory"
            end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, self.size - 22, 0, 0)
            return end if offset == self.size - 22 else bytes(size)

    with pytest.raises(InputError) as caught:
        read_directory(Huge(), ArchiveLimits())
    assert caught.value.reason == "wheel-limit"
    assert Huge.size > archive._DIRECTORY_LIMIT


@pytest.mark.parametrize("control", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\0", "\x1b[2J"])
def test_a_header_inside_a_header(control: str) -> None:
    line = f"Summary: a{control}Name: evil\n".encode()
    assert reason(wheel_bytes({INIT: b""}, metadata=line + METADATA)) == "wheel-metadata"
    marks = MARKS + f"X: a{control}Tag: py3-none-any\n".encode() + TAG
    assert reason(wheel_bytes({INIT: b""}, wheel=marks)) == "wheel-metadata"


def test_what_installers_see_behind_a_carriage_return() -> None:
    # Why it is refused: this parser is the one that pip and importlib.metadata read METADATA with.
    seen = email.message_from_string("Summary: a\rName: evil\nName: demo_kernels\n")
    assert seen["Name"] == "evil"


def test_a_description_may_hold_anything() -> None:
    body = METADATA + "Author: Zoë\u00a0\u200bX\n\nText\r with\x1b controls\n".encode()
    assert read_wheel(wheel_bytes({INIT: b""}, metadata=body), name=NAME).metadata["name"] == (
        "demo_kernels",
    )


RECORD = [line for line in wheel_entries({INIT: b""})[-1].data.decode().splitlines() if line]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"./{RECORD[0]}", *RECORD[1:]], "wheel-missing"),
        ([f"/{RECORD[0]}", *RECORD[1:]], "wheel-missing"),
        ([f"\ufeff{RECORD[0]}", *RECORD[1:]], "wheel-missing"),
        ([RECORD[0].replace("/", "//"), *RECORD[1:]], "wheel-missing"),
        ([RECORD[0].upper(), *RECORD[1:]], "wheel-missing"),
        ([RECORD[0], *RECORD], "wheel-record"),
        ([f'"{RECORD[0].split(",")[0]}",{RECORD[0].split(",", 1)[1]}', *RECORD], "wheel-record"),
        ([RECORD[0].replace("sha256=", "sha512="), *RECORD[1:]], "wheel-record"),
        ([RECORD[0].replace("sha256=", "SHA256="), *RECORD[1:]], "wheel-record"),
        ([RECORD[0].rsplit(",", 1)[0] + ",", *RECORD[1:]], "wheel-record"),
        ([RECORD[0].rsplit(",", 1)[0] + ",+0", *RECORD[1:]], "wheel-record"),
        ([RECORD[0].rsplit(",", 1)[0] + ",00", *RECORD[1:]], "wheel-record"),
        (RECORD[:-1], "wheel-unlisted"),
        ([*RECORD[:-1], RECORD[-1].replace(",,", ",sha256=,")], "wheel-record"),
        ([RECORD[0] + ",", *RECORD[1:]], "wheel-record"),
        ([f'"{RECORD[0]}', *RECORD[1:]], "wheel-record"),
    ],
)
def test_spellings_of_record(lines: list[str], expected: str) -> None:
    assert reason(wheel_bytes({INIT: b""}, record="\n".join([*lines, ""]).encode())) == expected


@pytest.mark.parametrize(
    "path", ["demo/.. /x", "demo\u202e/x", "a/\u200bx", "a\u2028b", "CON.txt", "demo/\x7f", "a//b", "x\\y"]
)
def test_paths_that_are_shown_or_stored_as_others(path: str) -> None:
    entries = [Entry(name=path), *wheel_entries({INIT: b""})]
    assert reason(zip_bytes(entries)) == "wheel-path"


@pytest.mark.parametrize(("version", "good"), [(20, True), (63, True), (64, False), (0x1494, False)])
def test_a_member_for_a_newer_reader(version: int, good: bool) -> None:
    data = bytearray(zip_bytes(wheel_entries({INIT: b""})))
    at = data.index(b"PK\x01\x02")
    struct.pack_into("<H", data, at + 6, version)
    if good:
        assert INIT in read_wheel(bytes(data), name=NAME).files
        zipfile.ZipFile(io.BytesIO(data)).close()
    else:
        assert reason(bytes(data)) == "wheel-zip"


@pytest.mark.parametrize(
    "tag", ["p{3-none-any", "$py3-none-any", "py3-none-", "py3..x-none-any", "py3-none-any-x"]
)
def test_what_is_no_tag(tag: str) -> None:
    assert reason(wheel_bytes({INIT: b""}, wheel=MARKS + f"Tag: {tag}\n".encode())) == "wheel-metadata"
