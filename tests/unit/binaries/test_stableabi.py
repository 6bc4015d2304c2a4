from __future__ import annotations

import struct

import pytest

import wheelmaking as make
from wheelmark.binaries.elf import read_elf
from wheelmark.binaries.platforms import floor_of
from wheelmark.binaries.stableabi import check_symbols, is_cpython, shim_versions, torch_use

FLOOR = floor_of("manylinux_2_28_x86_64")
OLD = b"torch_call_dispatcher"


def reasons(data: bytes, provided: frozenset[str] = frozenset()) -> list[str]:
    return [problem.reason for problem in check_symbols(read_elf(data), FLOOR, provided=provided)]


def renamed(name: bytes) -> bytes:
    """The sample library with another undefined symbol, in the room of the old name."""
    return make.swapped(make.golden("native.so"), OLD + b"\0", name.ljust(len(OLD), b"\0") + b"\0")


def test_the_sample_keeps_what_is_promised() -> None:
    assert reasons(make.golden("native.so")) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"PyObject_CallObject", "symbol-cpython"),
        (b"_PyLong_AsInt", "symbol-cpython"),
        (b"Py_Initialize", "symbol-cpython"),
        (b"_ZN3c1010TensorImplEv", "symbol-torch"),
        (b"_ZN2at5emptyEv", "symbol-torch"),
        (b"_ZNK5torch3jit1fEv", "symbol-torch"),
        (b"torch_call_something", "shim-unknown"),
        (b"aoti_torch_no_such_f", "shim-unknown"),
        (b"cuLaunchKernel", "symbol-unknown"),
        (b"dlopen", "symbol-unknown"),
        (b"__gmon_start__", "symbol-unknown"),
    ],
)
def test_symbols_that_the_host_need_not_have(name: bytes, reason: str) -> None:
    assert reasons(renamed(name)) == [reason]


def test_symbols_that_another_library_of_the_wheel_defines() -> None:
    assert reasons(renamed(b"own_function"), frozenset({"own_function"})) == []


def test_versions_above_the_floor_even_where_no_symbol_uses_them() -> None:
    data = make.swapped(make.golden("native.so"), b"GLIBC_2.14", b"GLIBC_2.34")
    problems = list(check_symbols(read_elf(data), FLOOR))
    assert [problem.reason for problem in problems] == ["symbol-above-floor"]
    assert "memcpy" in problems[0].text
    elf = read_elf(data)
    section = elf.section(".gnu.version")
    assert section is not None
    unused = make.patched(data, section.offset + 2, b"\x01\0")
    assert "no symbol" in next(iter(check_symbols(read_elf(unused), FLOOR))).text


def test_the_oldest_torch_follows_from_the_shim_functions() -> None:
    use = torch_use(read_elf(make.golden("native.so")))
    assert (use.floor, use.because) == ("2.10.0", ("torch_call_dispatcher",))
    assert torch_use(read_elf(renamed(b"torch_from_blob"))).floor == "2.11.0"
    assert torch_use(read_elf(renamed(b"unknown"))).floor == "2.9.0"


def test_the_version_of_the_headers_is_read_from_the_code() -> None:
    data = make.golden("native.so")
    assert torch_use(read_elf(data)).headers == ("2.13.0",)
    constant = struct.pack("<Q", 0x020D000000000000)
    wrong_base = make.swapped(data, constant, struct.pack("<Q", 0x0210000000000000))
    assert torch_use(read_elf(wrong_base)).headers == ("2.16.0",)


def test_the_version_of_the_headers_in_aarch64_code() -> None:
    data = make.golden("native.so")
    section = read_elf(data).section(".text")
    assert section is not None
    movz = struct.pack("<I", 0xD2E00000 | 0x020A << 5 | 3)
    arm = make.patched(make.patched(data, 18, struct.pack("<H", 183)), section.offset, movz)
    assert "2.10.0" in torch_use(read_elf(arm)).headers


def test_what_belongs_to_cpython() -> None:
    assert is_cpython("PyArg_ParseTuple")
    assert is_cpython("_Py_Dealloc")
    assert not is_cpython("Pyramid")
    assert not is_cpython("python")


def test_shim_table() -> None:
    table = shim_versions()
    assert table["torch_library_impl"] == "2.10.0"
    assert table["aoti_torch_get_dim"] == "2.9.0"
    assert all(name.startswith(("aoti_torch_", "torch_")) for name in table)
