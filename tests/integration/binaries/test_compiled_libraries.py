"""Libraries that the compiler of this machine makes, in real wheels: each planted fault turns the abi gate FAILED."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking as make
from presence import need_program
from wheelmark.binaries.elf import read_elf
from wheelmark.evidence import Evidence, Verdict
from wheelmark.gates import abi

CLEAN = """
#include <cstdint>
#include <cstring>
extern "C" int torch_call_dispatcher(const char*, const char*, void*, uint64_t);
extern "C" int work(void* stack, char* to, const char* from, unsigned long bytes) {
  std::memcpy(to, from, bytes);
  return torch_call_dispatcher("aten::sum", "", stack, 0x020d000000000000ULL);
}
"""

Compile = Callable[..., bytes]


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
    """Compiles and links a library that needs an empty libtorch_cpu.so, its sources' folder mapped away or not."""
    need_program("g++")

    def compiled(source: str, *flags: str, mapped: bool = True) -> bytes:
        folder = tmp_path / "sources"
        folder.mkdir(exist_ok=True)
        (folder / "library.cpp").write_text(source, encoding="utf-8")
        (folder / "empty.cpp").write_text("", encoding="utf-8")
        common = ["g++", "-shared", "-fPIC", "-O1", "-fno-builtin", "-s"]
        common += [f"-ffile-prefix-map={folder}=src"] if mapped else []
        stub = ["-Wl,-soname,libtorch_cpu.so", "empty.cpp", "-o", "libtorch_cpu.so"]
        subprocess.run([*common, *stub], cwd=folder, check=True)
        link = ["-L.", "-Wl,--no-as-needed", "-ltorch_cpu", "-Wl,--as-needed", *flags, "-o", "library.so"]
        subprocess.run([*common, str(folder / "library.cpp"), *link], cwd=folder, check=True)
        return (folder / "library.so").read_bytes()

    return compiled


def judge(folder: Path, library: bytes) -> Evidence:
    return abi.run(make.context(folder, {make.LIBRARY: library}))


def reasons(evidence: Evidence) -> set[str]:
    return {problem["reason"] for problem in evidence.details.get("problems", [])}


def test_a_clean_library(tmp_path: Path, compile_library: Compile) -> None:
    evidence = judge(tmp_path, compile_library(CLEAN))
    assert evidence.verdict is Verdict.PASSED, evidence.summary


@pytest.mark.parametrize(
    ("source", "flags", "reason"),
    [
        # glibc 2.34 moved dlopen into libc.so.6, and a library linked against it asks for that version.
        ('#include <dlfcn.h>\nextern "C" void* f() { return dlopen("x", 1); }', (), "symbol-above-floor"),
        ('extern "C" void* PyLong_FromLong(long);\nextern "C" void* f() { return PyLong_FromLong(1); }', (), "symbol-cpython"),
        ('namespace at { void g(); }\nextern "C" void f() { at::g(); }', (), "symbol-torch"),
        ('extern "C" int cuInit(unsigned);\nextern "C" int f() { return cuInit(0); }', (), "symbol-unknown"),
        ("", ("-Wl,-z,execstack",), "executable-stack"),
        ("", ("-Wl,-rpath,/usr/local/lib",), "runpath-outside"),
        ("", ("-Wl,--no-as-needed", "-lstdc++", "-Wl,-soname,x", "-Wl,-f,libaudio.so.2"), "library-not-granted"),
        ('extern "C" const char* f() { return "/home/builder/src/x.cpp"; }', (), "embedded-path"),
        ('#include <cstdint>\nextern "C" void* f() { return (void*)0x0210000000000000; }', (), "torch-headers"),
    ],
)  # fmt: skip
def test_planted_faults(
    tmp_path: Path, compile_library: Compile, source: str, flags: tuple[str, ...], reason: str
) -> None:
    evidence = judge(tmp_path, compile_library(CLEAN + source, *flags))
    assert evidence.verdict is Verdict.FAILED
    assert reasons(evidence) == {reason}


def test_the_source_s_path_where_nobody_maps_it(tmp_path: Path, compile_library: Compile) -> None:
    source = CLEAN + 'extern "C" const char* f() { return __FILE__; }'
    assert judge(tmp_path, compile_library(source)).verdict is Verdict.PASSED
    evidence = judge(tmp_path, compile_library(source, mapped=False))
    assert reasons(evidence) == {"embedded-path"}
    assert str(tmp_path) in evidence.summary


def test_readelf_says_the_same(tmp_path: Path, compile_library: Compile) -> None:
    need_program("readelf")
    data = compile_library(CLEAN)
    (tmp_path / "library.so").write_bytes(data)
    text = subprocess.run(
        ["readelf", "-dW", "--dyn-syms", str(tmp_path / "library.so")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    dynamic = read_elf(data).dynamic
    assert dynamic is not None
    assert [f"[{name}]" in text for name in dynamic.needed] == [True] * text.count("(NEEDED)")
    rows = [line.split() for line in text.splitlines() if " UND " in line]
    names = sorted(row[7].partition("@")[0] for row in rows if len(row) > 7)
    assert sorted(symbol.name for symbol in dynamic.undefined) == names
