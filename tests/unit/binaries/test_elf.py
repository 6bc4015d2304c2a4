from __future__ import annotations

import struct

import pytest

import wheelmaking as make
from wheelmark.binaries.elf import read_elf, read_notes
from wheelmark.errors import InputError


def reason(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_elf(data)
    return caught.value.reason


def native() -> bytes:
    return make.golden("native.so")


def dynamic_value(data: bytes, tag: int, value: int | None = None, new_tag: int | None = None) -> bytes:
    """The library with one dynamic entry rewritten."""
    elf = read_elf(data)
    section = elf.section(".dynamic")
    assert section is not None
    for at in range(section.offset, section.offset + section.size, 16):
        found, old = struct.unpack_from("<QQ", data, at)
        if found == tag:
            fresh = struct.pack("<QQ", tag if new_tag is None else new_tag, old if value is None else value)
            return make.patched(data, at, fresh)
    raise AssertionError(tag)


def test_what_the_loader_will_see() -> None:
    elf = read_elf(native())
    assert (elf.machine_name, elf.type) == ("x86_64", 3)
    assert elf.dynamic is not None
    assert elf.dynamic.needed == (
        "libtorch_cpu.so",
        "libstdc++.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "libc.so.6",
    )
    assert elf.dynamic.required == {"libc.so.6": ("GLIBC_2.14",)}
    symbols = {symbol.name: symbol for symbol in elf.dynamic.undefined}
    assert symbols["memcpy"].version == "GLIBC_2.14"
    assert symbols["memcpy"].library == "libc.so.6"
    assert symbols["torch_call_dispatcher"].version == ""
    assert [symbol.name for symbol in elf.dynamic.defined] == ["sample"]
    assert not elf.executable_stack
    assert not elf.writable_code
    assert not elf.dynamic.text_relocations
    assert len(elf.build_id) == 40


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "elf-magic"),
        (b"MZ" + bytes(100), "elf-magic"),
        (b"\x7fELF", "elf-class"),
        (b"\x7fELF\x01\x01\x01" + bytes(100), "elf-class"),
        (b"\x7fELF\x02\x02\x01" + bytes(100), "elf-class"),
        (b"\x7fELF\x02\x01\x01" + bytes(20), "elf-header"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "elf-header"),
    ],
)
def test_not_an_elf_object_that_is_read(data: bytes, expected: str) -> None:
    assert reason(data) == expected


def test_needs_are_read_without_symbols_too() -> None:
    whole = read_elf(native()).dynamic
    short = read_elf(native(), symbols=False).dynamic
    assert whole is not None
    assert short is not None
    assert (short.needed, short.soname, short.runpath) == (whole.needed, whole.soname, whole.runpath)
    assert whole.defined
    assert not short.defined


def test_tables_outside_the_file() -> None:
    data = native()
    assert reason(make.patched(data, 32, struct.pack("<Q", len(data)))) == "elf-segment"
    assert reason(make.patched(data, 40, struct.pack("<Q", 1 << 63))) == "elf-section"
    assert reason(make.patched(data, 54, struct.pack("<H", 57))) == "elf-segment"
    assert reason(make.patched(data, 58, struct.pack("<H", 65))) == "elf-section"
    assert reason(make.patched(data, 62, struct.pack("<H", 0))) == "elf-section"
    assert reason(make.patched(data, 60, struct.pack("<H", 0))) == "elf-section"


def test_sections_that_share_bytes() -> None:
    data = native()
    index = next(i for i, s in enumerate(read_elf(data).sections) if s.name == ".comment")
    table = struct.unpack_from("<Q", data, 40)[0] + 64 * index
    assert reason(make.patched(data, table + 24, struct.pack("<QQ", 0, len(data)))) == "elf-section"


def test_dynamic_table_that_cannot_be_followed() -> None:
    data = native()
    assert reason(dynamic_value(data, 5, 1 << 40)) == "elf-dynamic"  # string table in no segment
    assert reason(dynamic_value(data, 10, 1 << 40)) == "elf-dynamic"  # string table too long
    assert reason(dynamic_value(data, 10, 1)) == "elf-string"  # strings outside the table
    assert reason(dynamic_value(data, 6, 0x100)) == "elf-symbol"  # another symbol table than the section's
    assert reason(dynamic_value(data, 0x6FFFFFFF, 0)) == "elf-version"  # a version that is not needed
    assert reason(dynamic_value(data, 0x6FFFFFFF, 1 << 60)) == "elf-version"  # versions without end
    assert reason(dynamic_value(data, 10, None, 5)) == "elf-dynamic"  # two string tables


def test_symbols_that_a_relocation_names_must_be_in_the_table() -> None:
    data = native()
    elf = read_elf(data)
    index = next(i for i, s in enumerate(elf.sections) if s.name == ".dynsym")
    table = struct.unpack_from("<Q", data, 40)[0] + 64 * index
    # A section table that hides the last symbols: the loader would still look them up.
    assert reason(make.patched(data, table + 32, struct.pack("<Q", 48))) == "elf-symbol"


def test_section_table_that_says_something_else_than_the_loader_reads() -> None:
    data = native()
    index = next(i for i, s in enumerate(read_elf(data).sections) if s.name == ".dynamic")
    table = struct.unpack_from("<Q", data, 40)[0] + 64 * index
    assert reason(make.patched(data, table + 24, struct.pack("<Q", 0))) == "elf-dynamic"


def test_needed_libraries_come_from_the_program_headers() -> None:
    data = make.swapped(native(), b"libm.so.6", b"libx.so.6")
    dynamic = read_elf(data).dynamic
    assert dynamic is not None
    assert "libx.so.6" in dynamic.needed


@pytest.mark.parametrize(
    ("note", "message"),
    [
        (b"\x04\0\0\0", "note"),
        (struct.pack("<III", 4, 100, 1) + b"GNU\0", "note"),
        (struct.pack("<III", 400, 0, 1) + b"GNU\0", "name"),
        (struct.pack("<III", 4, 0, 1) + b"\xff\xff\xff\0", "owner"),
    ],
)
def test_broken_notes(note: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_notes(note)
    assert caught.value.reason == "elf-note"


def test_overlapping_names_cannot_fill_the_memory() -> None:
    names = b"\0" + b"a" * 16_000 + b"\0"
    sections = b"\0.shstrtab\0.strtab\0.symtab\0"
    count = 9_000
    symbols = struct.pack("<IBBHQQ", 1, 0, 0, 0, 0, 0) * count
    body = sections + names + symbols
    heads = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(sections), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 11, 3, 0, 0, 64 + len(sections), len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 19, 2, 0, 0, 64 + len(sections) + len(names), len(symbols), 2, 0, 8, 24),
    ]
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 1)
    elf = read_elf(header + body + b"".join(heads))
    with pytest.raises(InputError, match="characters") as caught:
        elf.symbols()
    assert caught.value.reason == "elf-string"
