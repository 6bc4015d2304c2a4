import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheelmaking import LIBRARY, NAME, Entry, golden, swapped, wheel_bytes, wheel_entries, zip_bytes
from wheelmark.binaries.elf import read_elf
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.cli import main
from wheelmark.gates.comparison import Comparison, Difference, compare_wheels

SBOM = "demo_kernels-1.0+cpu.dist-info/sboms/demo_kernels.cdx.json"
NATIVE = golden("native.so")


def sbom(**versions: str) -> bytes:
    nested = [{"name": name, "version": version} for name, version in versions.items()]
    return json.dumps({"components": [{"name": "native", "version": "1", "components": nested}]}).encode()


def files(**changes: bytes) -> dict[str, bytes]:
    found = {
        "demo_kernels/__init__.py": b"one = 1\n",
        LIBRARY: NATIVE,
        SBOM: sbom(GCC="12.2.0", torch="2.13.0"),
    }
    return found | {
        {"init": "demo_kernels/__init__.py", "library": LIBRARY, "sbom": SBOM}[key]: value
        for key, value in changes.items()
    }


def wheel(contents: Mapping[str, bytes], name: str = NAME, **spoil: bytes) -> Wheel:
    return read_wheel(wheel_bytes(contents, name, **spoil), name=name)


def facts(found: Comparison) -> set[tuple[str, str, str, str]]:
    return {(item.where, item.what, item.first, item.second) for item in found.differences}


def compared(**changes: bytes) -> Comparison:
    return compare_wheels(wheel(files()), wheel(files(**changes)))


def section(name: str) -> tuple[int, bytes]:
    elf = read_elf(NATIVE)
    found = elf.section(name)
    assert found is not None
    return found.offset, elf.contents(found)


def with_section(name: str, data: bytes) -> bytes:
    at, held = section(name)
    assert len(data) == len(held)
    return NATIVE[:at] + data + NATIVE[at + len(data) :]


def test_the_same_bytes_have_no_difference() -> None:
    found = compared()
    assert (found.identical, found.differences, found.same_files) == (True, (), 6)


def test_a_changed_file_is_named_and_record_follows_in_silence() -> None:
    found = compared(init=b"two = 22\n")
    assert not found.identical
    assert facts(found) == {("demo_kernels/__init__.py", "bytes", "8", "9")}
    assert found.same_files == 4


def test_files_of_one_wheel_alone_are_named() -> None:
    found = compare_wheels(wheel(files()), wheel({**files(), "demo_kernels/libs/libgomp.so.1": b"x"}))
    assert ("wheel", "files only in one", "none", "demo_kernels/libs/libgomp.so.1") in facts(found)


def test_many_names_are_counted() -> None:
    more = {f"demo_kernels/{number}.py": b"" for number in range(9)}
    (fact,) = compare_wheels(wheel({**files(), **more}), wheel(files())).differences
    assert fact.first.endswith("demo_kernels/5.py and 3 more")


def test_tags_names_generator_and_metadata() -> None:
    other = "demo_kernels-1.0+cpu-py3-none-manylinux_2_34_x86_64.whl"
    metadata = b"Metadata-Version: 2.4\nName: demo_kernels\nVersion: 1.0+cpu\nRequires-Dist: torch\n"
    marks = b"Wheel-Version: 1.0\nGenerator: auditwheel\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_34_x86_64\n"
    found = facts(compare_wheels(wheel(files()), wheel(files(), other, metadata=metadata, wheel=marks)))
    assert found >= {
        ("wheel", "file name", NAME, other),
        ("wheel", "tags only in one", "py3-none-manylinux_2_28_x86_64", "py3-none-manylinux_2_34_x86_64"),
        ("wheel", "generator", "by-hand", "auditwheel"),
        ("METADATA", "requires-dist", "absent", "torch"),
    }


def test_another_compiler_is_seen_in_its_own_words() -> None:
    _, held = section(".comment")
    found = facts(compared(library=with_section(".comment", held.replace(b"12.", b"14."))))
    words = held.strip(b"\0").decode()
    assert (LIBRARY, "compiler", words, words.replace("12.", "14.")) in found
    assert (LIBRARY, "sections of one size with other bytes", ".comment", ".comment") in found


def test_code_of_the_same_size_is_a_difference_of_its_section() -> None:
    _, held = section(".text")
    found = facts(compared(library=with_section(".text", held[:-1] + bytes([held[-1] ^ 1]))))
    assert (LIBRARY, "sections of one size with other bytes", ".text", ".text") in found
    assert not {what for _, what, *_ in found if "symbol" in what}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"libm.so.6", b"libz.so.6", ("libraries needed", "libm.so.6", "libz.so.6")),
        (
            b"aoti_torch_get_dim",
            b"aoti_torch_get_xxx",
            ("symbols asked for only in one", "aoti_torch_get_dim", "aoti_torch_get_xxx"),
        ),
        (b"\0sample\0", b"\0simple\0", ("symbols offered only in one", "sample", "simple")),
    ],
)
def test_what_the_loader_sees(old: bytes, new: bytes, expected: tuple[str, str, str]) -> None:
    what, first, second = expected
    found = [item for item in compared(library=swapped(NATIVE, old, new)).differences if item.what == what]
    assert len(found) == 1
    assert first in found[0].first
    assert second in found[0].second


def test_a_newer_glibc_is_told_as_the_version_that_is_needed() -> None:
    library = swapped(NATIVE, b"GLIBC_2.14", b"GLIBC_2.34")
    # The version's hash stands beside its name (ELF hash of GLIBC_2.14 and of GLIBC_2.34).
    library = swapped(library, (0x06969194).to_bytes(4, "little"), (0x069691B4).to_bytes(4, "little"))
    assert (LIBRARY, "newest GLIBC symbol needed", "2.14", "2.34") in facts(compared(library=library))


def test_components_are_compared_by_name_and_version() -> None:
    found = facts(compared(sbom=sbom(GCC="14.2.1", musl="1.2")))
    assert found == {
        (SBOM, "component GCC", "12.2.0", "14.2.1"),
        (SBOM, "components only in one", "torch", "musl"),
    }
    assert facts(compared(sbom=sbom(GCC="12.2.0", torch="2.13.0") + b"\n")) == {
        (SBOM, "bytes", str(len(files()[SBOM])), str(len(files()[SBOM]) + 1))
    }


def test_an_archive_alone_that_differs_is_a_difference() -> None:
    entries = wheel_entries(files())
    first = read_wheel(zip_bytes(entries), name=NAME)
    turned = read_wheel(zip_bytes([entries[1], entries[0], *entries[2:]]), name=NAME)
    (fact,) = compare_wheels(first, turned).differences
    assert (fact.where, fact.what) == ("wheel", "archive: order, times or flags")
    stored = read_wheel(zip_bytes([Entry(name=item.name, data=item.data) for item in entries]), name=NAME)
    assert {item.what for item in compare_wheels(first, stored).differences} == {
        "mode, and bytes in the archive"
    }


def test_the_command_prints_a_table_and_judges_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, contents in (("one", files()), ("two", files(init=b"a|b = 1\n\n"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / NAME).write_bytes(wheel_bytes(contents))
    one, two = str(tmp_path / "one" / NAME), str(tmp_path / "two" / NAME)
    assert main(["compare", one, one]) == 0
    assert capsys.readouterr().out.startswith("identical: 6 files, sha256 ")
    assert main(["compare", one, two, "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| where | what | first | second |",
        "| --- | --- | --- | --- |",
        "| demo_kernels/__init__.py | bytes | 8 | 9 |",
        "4 files are the same; facts that differ: 1",
    ]
    assert main(["compare", one, two]) == 0
    assert "demo_kernels/__init__.py  bytes" in capsys.readouterr().out
    assert main(["compare", one, two, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["identical"] is False
    assert document["differences"] == [
        {"where": "demo_kernels/__init__.py", "what": "bytes", "first": "8", "second": "9"}
    ]


def test_differences_are_plain_facts() -> None:
    (fact,) = compared(init=b"two = 22\n").differences
    assert fact == Difference(where="demo_kernels/__init__.py", what="bytes", first="8", second="9")
