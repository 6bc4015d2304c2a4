from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import pytest

import wheelmaking as make
from wheelmark.binaries.elf import PT_GNU_STACK, PT_LOAD, read_elf
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates import abi

LINE = b"torch_call_dispatcher"


def run(folder: Path, library: bytes, **fields: object) -> Evidence:
    return abi.run(make.context(folder, {make.LIBRARY: library}, **fields))  # type: ignore[arg-type]


def native() -> bytes:
    return make.golden("native.so")


def with_segment_flags(kind: int, flags: int) -> bytes:
    """The library with the flags of its first segment of a kind rewritten."""
    data = native()
    index = next(i for i, segment in enumerate(read_elf(data).segments) if segment.type == kind)
    return make.patched(data, 64 + 56 * index + 4, struct.pack("<I", flags))


def with_dynamic(old: int, new: int, value: int | None = None) -> bytes:
    """The library with the tag of one dynamic entry rewritten."""
    data = native()
    section = read_elf(data).section(".dynamic")
    assert section is not None
    for at in range(section.offset, section.offset + section.size, 16):
        if struct.unpack_from("<Q", data, at)[0] == old:
            data = make.patched(data, at, struct.pack("<Q", new))
            return data if value is None else make.patched(data, at + 8, struct.pack("<Q", value))
    raise AssertionError(old)


def name_offset(name: bytes) -> int:
    """Where a name stands in the library's dynamic strings."""
    section = read_elf(native()).section(".dynstr")
    assert section is not None
    return native()[section.offset : section.offset + section.size].index(name)


def test_what_is_promised_is_kept(tmp_path: Path) -> None:
    evidence = run(tmp_path, native())
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)
    assert evidence.summary == "_native.so needs GLIBC_2.14, torch 2.10.0"
    found = evidence.details["objects"][make.LIBRARY]
    assert found["needs"] == {"GLIBC": "2.14"}
    assert found["torch"]["headers"] == ["2.13.0"]
    assert evidence.details["floor"]["GLIBC"] == "2.28"


def test_a_glibc_symbol_above_the_floor(tmp_path: Path) -> None:
    evidence = run(tmp_path, make.swapped(native(), b"GLIBC_2.14", b"GLIBC_2.34"))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "symbol-above-floor")
    assert "GLIBC_2.34" in evidence.summary
    assert "memcpy" in evidence.summary


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"PyObject_CallObject", "symbol-cpython"),
        (b"_ZN2at5emptyEv", "symbol-torch"),
        (b"cuLaunchKernel", "symbol-unknown"),
        (b"torch_no_such_thing", "shim-unknown"),
    ],
)
def test_symbols_that_the_host_need_not_have(tmp_path: Path, name: bytes, reason: str) -> None:
    data = make.swapped(native(), LINE + b"\0", name.ljust(len(LINE) + 1, b"\0"))
    assert run(tmp_path, data).reason == reason


def test_a_library_that_nobody_grants(tmp_path: Path) -> None:
    evidence = run(tmp_path, make.swapped(native(), b"libm.so.6", b"libx.so.6"))
    assert evidence.reason == "library-not-granted"


def test_a_filter_is_a_needed_library_by_another_name(tmp_path: Path) -> None:
    # PLTGOT becomes a filter whose name is a function's: no library that anybody grants.
    evidence = run(tmp_path, with_dynamic(3, 0x7FFFFFFF, name_offset(b"sample")))
    assert evidence.reason == "library-not-granted"
    assert "sample" in evidence.summary


def test_a_library_of_the_wheel_is_found_only_through_a_search_path(tmp_path: Path) -> None:
    files = {
        make.LIBRARY: make.swapped(native(), b"libm.so.6", b"libx.so.6"),
        "demo_kernels/libx.so.6": native(),
    }
    evidence = abi.run(make.context(tmp_path, files))
    assert evidence.reason == "library-not-granted"


@pytest.mark.parametrize("tag", [15, 29])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (b"$ORIGIN/../lib", ""),
        (b"$ORIGIN", ""),
        (b"${ORIGIN}/lib", ""),
        (b"$ORIGIN/../../x", "runpath-outside"),
        (b"/usr/local/lib", "runpath-outside"),
        (b"$ORIGINAL/x", "runpath-outside"),
        (b"lib", "runpath-outside"),
        (b"$ORIGIN:/lib", "runpath-outside"),
    ],
)
def test_search_paths(tmp_path: Path, tag: int, path: bytes, reason: str) -> None:
    # The library's own name is given up for the path, and its PLTGOT entry for the tag.
    at = name_offset(LINE)
    data = with_dynamic(3, tag, at)
    data = make.swapped(data, LINE + b"\0", path.ljust(len(LINE) + 1, b"\0"))
    evidence = run(tmp_path, data)
    found = {item["reason"] for item in evidence.details["problems"]} - {"symbol-unknown"}
    assert found == ({reason} if reason else set())


def test_an_executable_stack(tmp_path: Path) -> None:
    assert run(tmp_path, with_segment_flags(PT_GNU_STACK, 7)).reason == "executable-stack"


def test_a_library_that_does_not_say_how_its_stack_is(tmp_path: Path) -> None:
    data = native()
    index = next(i for i, segment in enumerate(read_elf(data).segments) if segment.type == PT_GNU_STACK)
    assert run(tmp_path, make.patched(data, 64 + 56 * index, bytes(4))).reason == "executable-stack"


def test_writable_code(tmp_path: Path) -> None:
    assert run(tmp_path, with_segment_flags(PT_LOAD, 7)).reason == "writable-code"


def test_text_relocations(tmp_path: Path) -> None:
    assert run(tmp_path, with_dynamic(3, 22)).reason == "text-relocations"
    assert run(tmp_path, with_dynamic(3, 30, 4)).reason == "text-relocations"


def test_another_machine(tmp_path: Path) -> None:
    arm = make.patched(native(), 18, struct.pack("<H", 183))
    assert run(tmp_path, arm).reason == "other-machine"
    name = "demo_kernels-1.0+cpu-py3-none-manylinux_2_28_aarch64.whl"
    assert run(tmp_path, arm, name=name, target="cpu-aarch64").verdict is Verdict.PASSED
    assert run(tmp_path, native(), name=name, target="cpu-aarch64").reason == "other-machine"


def test_an_object_that_is_not_a_shared_library(tmp_path: Path) -> None:
    assert run(tmp_path, make.patched(native(), 16, struct.pack("<H", 2))).reason == "elf-type"
    assert run(tmp_path, b"text").reason == "not-elf"
    assert run(tmp_path, native()[:200]).reason == "elf-segment"


def test_torch_that_is_not_needed(tmp_path: Path) -> None:
    assert run(
        tmp_path, make.swapped(native(), b"libtorch_cpu.so", b"libm.so.6".ljust(15, b"\0"))
    ).reason == ("torch-not-needed")


def test_a_newer_torch_than_is_promised(tmp_path: Path) -> None:
    assert run(tmp_path, native(), torch_target="2.9").reason == "torch-above-target"
    assert run(tmp_path, native(), torch_range=">=2.9,<2.15").reason == "torch-above-target"
    assert run(tmp_path, native(), torch_range="<2.15").reason == "torch-above-target"
    assert run(tmp_path, native(), torch_range="==2.10.*").verdict is Verdict.PASSED


def test_a_target_version_in_the_wrong_base(tmp_path: Path) -> None:
    wrong = struct.pack("<Q", 0x0210000000000000)
    data = make.swapped(native(), struct.pack("<Q", 0x020D000000000000), wrong)
    evidence = run(tmp_path, data)
    assert evidence.reason == "torch-headers"
    assert "2.16.0" in evidence.summary
    assert run(tmp_path, native(), torch_locked="2.12.0").reason == "torch-headers"


def test_tags_that_the_row_does_not_say(tmp_path: Path) -> None:
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "py3-none-manylinux_2_17_x86_64", "py3-none-any"):
        evidence = run(tmp_path, native(), name=f"demo_kernels-1.0+cpu-{tag}.whl")
        assert evidence.reason == "wheel-tags"


@pytest.mark.parametrize(
    "path", [b"/home/me/project/x.cpp", b"/Users/x/y.cpp", b"/tmp/cc1.o", b"/builds/src/x.h", b"/__w/a/b.cpp"]
)
def test_an_embedded_path(tmp_path: Path, path: bytes) -> None:
    evidence = run(tmp_path, make.swapped(native(), b"GCC: (Debian 12.2.0-14", path.ljust(22, b"\0")))
    assert evidence.reason == "embedded-path"
    assert ".comment" in evidence.summary
    assert path.decode() in evidence.summary


@pytest.mark.parametrize("path", [b"/usr/lib/x", b"/proc/cpuinfo", b"src/home/x", b"https://x/home/y"])
def test_paths_of_the_host_itself_and_of_nothing(tmp_path: Path, path: bytes) -> None:
    data = make.swapped(native(), b"GCC: (Debian 12.2.0-14", path.ljust(22, b"\0"))
    assert run(tmp_path, data).verdict is Verdict.PASSED


def test_a_path_of_this_project_in_any_file(tmp_path: Path) -> None:
    text = f"# made from {tmp_path}/project/kernels/x.toml\n".encode()
    files = {make.LIBRARY: native(), "demo_kernels/_build.py": text}
    assert abi.run(make.context(tmp_path, files)).reason == "embedded-path"


def test_code_objects_are_left_to_the_coverage_gate(tmp_path: Path) -> None:
    evidence = abi.run(make.context(tmp_path, make.gpu_files("sm80"), target="cuda-sm80"))
    assert evidence.verdict is Verdict.PASSED
    assert list(evidence.details["objects"]) == [make.LIBRARY]


def test_an_embedded_path_in_a_code_object(tmp_path: Path) -> None:
    files = make.gpu_files("sm100")
    path = next(path for path in files if path.endswith(".cubin"))
    files[path] = make.swapped(files[path], b"Build cuda_13.1.r13.1", b"/home/builder/cuda131")
    assert abi.run(make.context(tmp_path, files, target="cuda-sm100")).reason == "embedded-path"


def test_another_wheel_than_the_evidence_is_about(tmp_path: Path) -> None:
    context = dataclasses.replace(make.context(tmp_path, {make.LIBRARY: native()}), sha256="0" * 64)
    assert abi.run(context).reason == "other-bytes"


def test_a_platform_that_promises_nothing_known(tmp_path: Path) -> None:
    context = make.context(tmp_path, {make.LIBRARY: native()})
    odd = dataclasses.replace(context, row=dataclasses.replace(context.row, platform="linux"))
    assert abi.run(odd).reason == "platform-unknown"
