from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from pathlib import Path

import pytest

import wheelmaking as make
from wheelmaking import Entry
from wheelmark.binaries.archive import ArchiveLimits
from wheelmark.binaries.wheel import read_wheel
from wheelmark.errors import InputError

FILES = {"demo_kernels/__init__.py": b"x = 1\n" * 50, "demo_kernels/data.bin": bytes(range(256))}
INFO = "demo_kernels-1.0+cpu.dist-info"


def refusal(data: bytes | Path, name: str = make.NAME, limits: ArchiveLimits | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read_wheel(data, name=name, limits=limits or ArchiveLimits())
    return caught.value


def reason(entries: list[Entry], **around: bytes) -> str:
    return refusal(make.zip_bytes(entries, **around)).reason


def entries() -> list[Entry]:
    return make.wheel_entries(FILES)


def with_file(path: str, data: bytes = b"x", mode: int = make.REGULAR) -> list[Entry]:
    """A wheel with one more file, listed in RECORD."""
    found = make.wheel_entries({**FILES, path: data})
    next(entry for entry in found if entry.name == path).mode = mode
    return found


def unlisted(path: str, mode: int = make.REGULAR) -> list[Entry]:
    return [*entries(), Entry(name=path, data=b"x", mode=mode)]


def test_a_wheel_in_which_everything_agrees(tmp_path: Path) -> None:
    data = make.wheel_bytes(FILES)
    path = tmp_path / make.NAME
    path.write_bytes(data)
    for wheel in (read_wheel(data, name=make.NAME), read_wheel(path)):
        assert (wheel.name, str(wheel.version), wheel.build) == ("demo-kernels", "1.0+cpu", ())
        assert wheel.platforms == ("manylinux_2_28_x86_64",)
        assert wheel.sha256 == hashlib.sha256(data).hexdigest()
        assert wheel.size == len(data)
        assert wheel.dist_info == INFO
        assert wheel.generator == "by-hand"
        assert not wheel.pure
        assert wheel.metadata["name"] == ("demo_kernels",)
        assert list(wheel.files) == [*FILES, f"{INFO}/METADATA", f"{INFO}/WHEEL", f"{INFO}/RECORD"]
        assert wheel.files["demo_kernels/data.bin"].sha256 == hashlib.sha256(bytes(range(256))).hexdigest()
        assert wheel.files["demo_kernels/data.bin"].mode == 0o644
        assert wheel.read("demo_kernels/__init__.py") == FILES["demo_kernels/__init__.py"]
        with pytest.raises(InputError) as caught:
            wheel.read("demo_kernels/absent.py")
        assert caught.value.reason == "wheel-missing"


def test_a_wheel_of_the_standard_library_s_writer(tmp_path: Path) -> None:
    path = tmp_path / make.NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries():
            archive.writestr(entry.name, entry.data)
    assert set(FILES) < set(read_wheel(path).files)


def test_folders_descriptors_and_inert_extra_fields_are_accepted() -> None:
    found = entries()
    found[0].descriptor = True
    found[1].extra, found[1].local_extra = b"UT\x05\0\x01\0\0\0\0", b"UT\x09\0\x03" + bytes(8)
    found.insert(0, Entry(name="demo_kernels/", mode=make.FOLDER_MODE))
    wheel = read_wheel(make.zip_bytes(found), name=make.NAME)
    assert "demo_kernels/" not in wheel.files


def test_startup_files_are_named() -> None:
    files = {**FILES, "demo.pth": b"import demo_kernels\n", "demo_kernels/not.pth": b""}
    files["demo_kernels-1.0+cpu.data/purelib/other.pth"] = b"import x\n"
    wheel = read_wheel(make.wheel_bytes(files), name=make.NAME)
    assert wheel.startup_files == ("demo.pth", "demo_kernels-1.0+cpu.data/purelib/other.pth")


def test_the_file_that_was_opened_is_the_one_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / make.NAME
    path.write_bytes(make.wheel_bytes(FILES))
    wheel = read_wheel(path)
    other = tmp_path / "other"
    other.write_bytes(make.wheel_bytes({**FILES, "demo_kernels/data.bin": bytes(256)}))
    other.replace(path)
    assert wheel.read("demo_kernels/data.bin") == bytes(range(256))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / make.NAME
    found = [Entry(name=entry.name, data=entry.data) for entry in entries()]
    path.write_bytes(make.zip_bytes(found))
    wheel = read_wheel(path)
    path.write_bytes(make.swapped(path.read_bytes(), bytes(range(256)), bytes(256)))
    with pytest.raises(InputError) as caught:
        wheel.read("demo_kernels/data.bin")
    assert caught.value.reason in {"wheel-zip", "wheel-record"}


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / make.NAME).reason == "unreadable"
    assert refusal(tmp_path).reason == "unreadable"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").reason == "unreadable"


# --- the archive's structure


def test_bytes_around_the_archive() -> None:
    assert reason(entries(), prefix=b"#!/bin/sh\n") == "wheel-zip"
    assert reason(entries(), gap=b"hidden") == "wheel-zip"
    assert reason(entries(), comment=b"comment") == "wheel-zip"
    data = make.zip_bytes(entries())
    assert refusal(data + b"\0").reason == "wheel-zip"
    assert refusal(data[:-1]).reason == "wheel-zip"
    assert refusal(b"").reason == "wheel-zip"
    assert refusal(data + data).reason == "wheel-zip"
    found = entries()
    found[1].before = b"hidden between two members"
    assert reason(found) == "wheel-zip"


def test_a_member_that_the_directory_does_not_name() -> None:
    hidden = make.zip_bytes([Entry(name="evil.pth", data=b"import os")])
    member = hidden[: hidden.index(b"PK\x01\x02")]
    found = entries()
    found[2].before = member
    assert reason(found) == "wheel-zip"


def test_members_that_overlap() -> None:
    data = make.zip_bytes(entries())
    at = data.rindex(b"PK\x01\x02")
    assert refusal(make.patched(data, at + 42, bytes(4))).reason == "wheel-zip"


@pytest.mark.parametrize(
    "spoil",
    [
        {"local_name": "demo_kernels/__init__.pX"},
        {"crc": 1},
        {"local_crc": 1},
        {"size": 1},
        {"flags": 1},
        {"flags": 1 << 6},
        {"flags": 1 << 13},
        {"method": 12},
        {"method": 0},
        {"method": 99},
        {"comment": b"note"},
        {"extra": struct.pack("<HHQ", 1, 8, 5)},
        {"local_extra": struct.pack("<HHQ", 1, 8, 5)},
        {"extra": struct.pack("<HH", 0x7075, 5) + b"\x01abcd"},
        {"extra": struct.pack("<HH", 0x5455, 50)},
        {"extra": b"UT"},
        {"raw": b"\xff\xff\xff"},
        {"descriptor": True, "local_crc": 5},
    ],
)
def test_headers_that_disagree_or_say_more_than_a_wheel_needs(spoil: dict[str, object]) -> None:
    found = entries()
    for field, value in spoil.items():
        setattr(found[0], field, value)
    assert reason(found) == "wheel-zip"


def test_bytes_behind_a_deflate_stream() -> None:
    found = entries()
    packed = make._packed(found[0])
    found[0].raw = packed + b"hidden"
    assert reason(found) == "wheel-zip"
    found[0].raw = packed[:-1]
    assert reason(found) == "wheel-zip"


def test_several_disks_and_zip64() -> None:
    data = make.zip_bytes(entries())
    for offset, value in (
        (-18, b"\x01\0"),
        (-16, b"\x01\0"),
        (-14, b"\x01\0"),
        (-10, b"\xff" * 4),
        (-6, b"\xff" * 4),
    ):
        assert refusal(make.patched(data, len(data) + offset, value)).reason == "wheel-zip"
    assert refusal(make.patched(data, len(data) - 14, b"\xff" * 4)).reason == "wheel-zip"


def test_limits() -> None:
    data = make.wheel_bytes(FILES)
    assert refusal(data, limits=ArchiveLimits(files=4)).reason == "wheel-limit"
    assert refusal(data, limits=ArchiveLimits(total=100)).reason == "wheel-limit"
    bomb = make.wheel_bytes({"demo_kernels/zeros.bin": bytes(20 << 20)})
    assert len(bomb) < 40_000
    assert refusal(bomb).reason == "wheel-limit"


def test_a_member_that_says_less_than_it_holds() -> None:
    found = entries()
    found[1].size = 10
    found[1].deflate = True
    assert reason(found) == "wheel-zip"


# --- names and kinds


@pytest.mark.parametrize(
    "path",
    [
        "../evil.py",
        "demo_kernels/../../evil.py",
        "/etc/passwd",
        "//host/share",
        "demo_kernels//x.py",
        "./x.py",
        "demo_kernels/./x.py",
        "C:/x.py",
        "C:x.py",
        "demo_kernels\\x.py",
        "..\\x.py",
        "demo_kernels/nul\0.py",
        "demo_kernels/line\nfeed.py",
        "demo_kernels/del\x7f.py",
        "CON",
        "demo_kernels/nul.py",
        "demo_kernels/Com1.txt",
        "demo_kernels/lpt9",
        "demo_kernels/dot.",
        "demo_kernels/space ",
        "a" * 1025,
    ],
)
def test_unsafe_paths(path: str) -> None:
    assert reason(unlisted(path)) == "wheel-path"


def test_a_file_that_is_also_a_folder() -> None:
    assert reason(unlisted("demo_kernels/__init__.py/x.py")) == "wheel-path"
    assert reason(unlisted("demo_kernels")) == "wheel-path"


@pytest.mark.parametrize("mode", [make.LINK, make.DEVICE, 0o010644, 0o060644, 0o140644, make.FOLDER_MODE])
def test_links_and_special_files(mode: int) -> None:
    assert reason(with_file("demo_kernels/link", b"../../etc/passwd", mode=mode)) == "wheel-link"


def test_a_folder_that_is_a_link_or_has_contents() -> None:
    assert reason(unlisted("folder/", mode=make.LINK)) == "wheel-link"
    assert reason([*entries(), Entry(name="folder/", data=b"contents", mode=0)]) == "wheel-zip"


@pytest.mark.parametrize(
    "path",
    [
        "demo_kernels/__init__.py",
        "demo_kernels/__INIT__.py",
        "Demo_Kernels/__init__.py",
        "demo_kernels/DATA.BIN",
    ],
)
def test_one_name_twice(path: str) -> None:
    assert reason(unlisted(path)) == "wheel-duplicate"


def test_one_name_twice_in_two_normal_forms() -> None:
    composed, decomposed = "demo_kernels/\u00e9.py", "demo_kernels/e\u0301.py"
    assert reason([*with_file(composed), Entry(name=decomposed, data=b"x")]) == "wheel-duplicate"
    assert (
        reason([*with_file("demo_kernels/ss.py"), Entry(name="demo_kernels/\u00df.py")]) == "wheel-duplicate"
    )


def test_names_that_are_not_marked_as_utf_8() -> None:
    data = make.zip_bytes(with_file("demo_kernels/\u00e9.py"))
    assert (
        refusal(data.replace(struct.pack("<HH", 1 << 11, 8), struct.pack("<HH", 0, 8))).reason == "wheel-zip"
    )
    assert refusal(data.replace("\u00e9".encode(), b"\xff\xff")).reason == "wheel-zip"


# --- RECORD


def test_a_file_that_record_does_not_list() -> None:
    assert reason(unlisted("evil.pth")) == "wheel-unlisted"
    assert reason(unlisted("demo_kernels/more.py")) == "wheel-unlisted"


@pytest.mark.parametrize("signature", ["RECORD.jws", "RECORD.p7s"])
def test_old_signature_files(signature: str) -> None:
    assert reason(unlisted(f"{INFO}/{signature}")) == "wheel-unlisted"
    assert reason(with_file(f"{INFO}/{signature}")) == "wheel-unlisted"


def test_a_file_that_record_lists_and_that_is_absent() -> None:
    assert reason([entry for entry in entries() if not entry.name.endswith("data.bin")]) == "wheel-missing"
    for name in ("METADATA", "WHEEL", "RECORD"):
        assert reason([entry for entry in entries() if not entry.name.endswith(name)]) == "wheel-missing"
    assert refusal(make.zip_bytes([])).reason == "wheel-missing"


def changed_record(old: str, new: str) -> str:
    found = entries()
    text = found[-1].data.decode()
    assert old in text
    found[-1].data = text.replace(old, new).encode()
    return reason(found)


def test_record_that_is_wrong() -> None:
    line = make.record_line("demo_kernels/data.bin", bytes(range(256)))
    path, digest, size = line.strip().split(",")
    assert changed_record(digest, "sha256=" + "A" * 43) == "wheel-record"
    assert changed_record(digest, digest + "=") == "wheel-record"
    assert changed_record(digest, digest.replace("sha256", "sha512")) == "wheel-record"
    assert changed_record(digest, digest.replace("sha256", "md5")) == "wheel-record"
    assert changed_record(digest, hashlib.sha256(bytes(range(256))).hexdigest()) == "wheel-record"
    assert changed_record(digest, "") == "wheel-record"
    assert changed_record(line, f"{path},{digest},255\n") == "wheel-record"
    assert changed_record(line, f"{path},{digest},0256\n") == "wheel-record"
    assert changed_record(line, f"{path},{digest},\n") == "wheel-record"
    assert changed_record(line, f"{path},{digest}\n") == "wheel-record"
    assert changed_record(line, f"{path},{digest},{size},more\n") == "wheel-record"
    assert changed_record(line, line + line) == "wheel-record"
    assert changed_record(line, line + '"open\n') == "wheel-record"
    assert changed_record(line, line + "\0") == "wheel-record"
    assert changed_record(f"{INFO}/RECORD,,", f"{INFO}/RECORD,{digest},{size}") == "wheel-record"
    assert changed_record(f"{INFO}/RECORD,,\n", "") == "wheel-unlisted"
    assert changed_record(line, line + "demo_kernels/absent.py,,\n") == "wheel-missing"


def test_last_characters_of_a_digest_that_say_nothing_must_be_zero() -> None:
    line = make.record_line("demo_kernels/data.bin", bytes(range(256)))
    digest = line.split(",")[1]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = digest[:-1] + alphabet[alphabet.index(digest[-1]) ^ 1]
    assert changed_record(digest, other) == "wheel-record"


def test_a_changed_byte_in_a_member() -> None:
    data = make.zip_bytes([Entry(name=entry.name, data=entry.data) for entry in entries()])
    at = data.index(bytes(range(256)))
    assert refusal(make.patched(data, at, b"\x01")).reason == "wheel-zip"
    found = entries()
    found[1].data = bytes(256)
    assert reason(found) == "wheel-record"


# --- names, versions and tags


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"Metadata-Version: 2.4\nName: other\nVersion: 1.0+cpu\n", "wheel-name"),
        (b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: 1.0\n", "wheel-name"),
        (b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: 1.1+cpu\n", "wheel-name"),
        (b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: new\n", "wheel-name"),
        (b"Name: demo_kernels\nVersion: 1.0+cpu\n", "wheel-metadata"),
        (
            b"Metadata-Version: 2.4\nName: demo_kernels\nName: demo_kernels\nVersion: 1.0+cpu\n",
            "wheel-metadata",
        ),
        (b"Metadata-Version: 2.4\nName: demo_kernels\n", "wheel-metadata"),
        (b"Metadata-Version: 2.4\nName: demo_kernels\n\nVersion: 1.0+cpu\n", "wheel-metadata"),
        (b" continued\n", "wheel-metadata"),
        (b"no header\n", "wheel-metadata"),
        (b"\xff\xfe", "wheel-metadata"),
        (b"", "wheel-metadata"),
    ],
)
def test_metadata(metadata: bytes, expected: str) -> None:
    assert refusal(make.wheel_bytes(FILES, metadata=metadata)).reason == expected


def test_metadata_in_other_spellings_of_the_same_name_and_version() -> None:
    metadata = (
        b"Metadata-Version: 2.4\r\nName: Demo.Kernels\r\nVersion: 1.0.0+CPU\r\nSummary: a\r\n  b\r\n\r\nText"
    )
    wheel = read_wheel(make.wheel_bytes(FILES, metadata=metadata), name=make.NAME)
    assert wheel.metadata["summary"] == ("a\nb",)


def test_a_local_label_that_pep_440_spells_otherwise() -> None:
    name = "demo_kernels-1.0+x86_64-py3-none-manylinux_2_28_x86_64.whl"
    metadata = b"Metadata-Version: 2.4\nName: demo-kernels\nVersion: 1.0+x86.64\n"
    wheel = read_wheel(make.wheel_bytes(FILES, name, metadata=metadata), name=name)
    assert str(wheel.version) == "1.0+x86.64"


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n", "wheel-tags"),
        (b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n", "wheel-tags"),
        (
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_28_x86_64\nTag: py3-none-any\n",
            "wheel-tags",
        ),
        (
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nBuild: 1\nTag: py3-none-manylinux_2_28_x86_64\n",
            "wheel-tags",
        ),
        (b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3\n", "wheel-metadata"),
        (
            b"Wheel-Version: 2.0\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_28_x86_64\n",
            "wheel-metadata",
        ),
        (b"Wheel-Version: 1.0\nRoot-Is-Purelib: no\nTag: py3-none-manylinux_2_28_x86_64\n", "wheel-metadata"),
        (b"Wheel-Version: 1.0\nTag: py3-none-manylinux_2_28_x86_64\n", "wheel-metadata"),
    ],
)
def test_wheel_file(marks: bytes, expected: str) -> None:
    assert refusal(make.wheel_bytes(FILES, wheel=marks)).reason == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "wheel-name"),
        ("demo.zip", "wheel-name"),
        ("demo.whl", "wheel-name"),
        ("demo_kernels-new-py3-none-any.whl", "wheel-name"),
        ("other-1.0+cpu-py3-none-manylinux_2_28_x86_64.whl", "wheel-name"),
        ("demo_kernels-1.1+cpu-py3-none-manylinux_2_28_x86_64.whl", "wheel-name"),
        ("demo_kernels-1.0-py3-none-manylinux_2_28_x86_64.whl", "wheel-name"),
        ("demo_kernels-1.0+cpu-py3-none-manylinux_2_17_x86_64.whl", "wheel-tags"),
        ("demo_kernels-1.0+cpu-cp311-none-manylinux_2_28_x86_64.whl", "wheel-tags"),
        ("demo_kernels-1.0+cpu-1-py3-none-manylinux_2_28_x86_64.whl", "wheel-tags"),
    ],
)
def test_file_name(name: str, expected: str) -> None:
    assert refusal(make.wheel_bytes(FILES), name=name).reason == expected


def test_tags_without_end() -> None:
    many = ".".join(["a"] * 200)
    assert refusal(make.wheel_bytes(FILES), name=f"demo_kernels-1.0+cpu-{many}-{many}-{many}.whl").reason == (
        "wheel-limit"
    )
    assert refusal(make.wheel_bytes(FILES), name="a" * 2000 + ".whl").reason == "wheel-limit"
    marks = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {many}-{many}-{many}\n".encode()
    assert refusal(make.wheel_bytes(FILES, wheel=marks)).reason == "wheel-limit"


def test_a_version_with_more_digits_than_python_converts() -> None:
    metadata = b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: " + b"1" * 5000 + b"\n"
    assert refusal(make.wheel_bytes(FILES, metadata=metadata)).reason == "wheel-name"


def test_headers_that_go_on_for_long() -> None:
    metadata = (
        b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: 1.0+cpu\nLicense: x\n" + b" y\n" * 500_000
    )
    wheel = read_wheel(make.wheel_bytes(FILES, metadata=metadata), name=make.NAME)
    assert len(wheel.metadata["license"][0]) == 1_000_001


def test_build_tags_and_several_tags() -> None:
    name = "demo_kernels-1.0+cpu-2b-py2.py3-none-any.whl"
    marks = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nBuild: 2b\nTag: py2-none-any\nTag: py3-none-any\n"
    wheel = read_wheel(make.wheel_bytes(FILES, name, wheel=marks), name=name)
    assert wheel.build == (2, "b")
    assert {str(tag) for tag in wheel.tags} == {"py2-none-any", "py3-none-any"}


def test_dist_info_and_data_folders() -> None:
    assert reason(unlisted("other-1.0.dist-info/METADATA")) == "wheel-missing"
    assert reason(with_file("other-1.0.data/purelib/x.py")) == "wheel-name"
    assert reason(with_file("demo_kernels-2.0.data/scripts/x")) == "wheel-name"
    found = [Entry(name=e.name.replace("1.0+cpu.dist", "1.1+cpu.dist"), data=e.data) for e in entries()]
    assert reason(found) == "wheel-name"
