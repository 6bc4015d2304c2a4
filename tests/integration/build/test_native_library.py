from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_project import make_project
from wheelmark.binaries.elf import read_elf
from wheelmark.build.compiler import Compiler, run_tool
from wheelmark.build.native import build_native
from wheelmark.config import Declaration, HostArch
from wheelmark.errors import BuildError, CommandError

# Everything that a glibc newer than 2.28 and a libstdc++ newer than gcc 8's give new symbol versions.
NEEDY = """
#include <dlfcn.h>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
#include "one.h"
extern "C" long __isoc23_strtol(const char*, char**, int);
static std::mutex mutex;
static std::condition_variable ready;
int demo_two() { return 2; }
extern "C" __attribute__((visibility("default"))) double demo_needy(const char* text, double x, int n) {
  std::ostringstream stream;
  stream << text << std::pow(x, 2.5) << std::log(x) << std::exp2(x) << std::hypot(x, 1.0);
  std::vector<std::function<int(int)>> calls(static_cast<size_t>(n), [](int y) { return y + 1; });
  std::thread thread([&] { calls.resize(calls.size() * 2); });
  std::unique_lock<std::mutex> lock(mutex);
  if (n > 1000) ready.wait(lock);
  ready.wait_for(lock, std::chrono::milliseconds(1), [] { return true; });
  thread.join();
  void* library = dlopen(text, RTLD_NOW);
  return static_cast<double>(stream.str().size()) + (dlsym(library, "x") != nullptr) +
         static_cast<double>(__isoc23_strtol(text, nullptr, 10));
}
"""
# PEP 600: what manylinux_2_28 grants (auditwheel's policy for that tag).
GRANTED = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
ELSEWHERE = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[1], 8))
from sample_project import make_project
from wheelmark.build.native import build_native
from wheelmark.config import HostArch
root, include = Path(sys.argv[2]), Path(sys.argv[3])
made = build_native(
    make_project(root), HostArch(sys.argv[4]), torch_include=include, cache=root / "cache", workers=int(sys.argv[5])
)
print(made.sha256, made.key, made.toolchain)
"""


def above(data: bytes) -> list[str]:
    """Versions that the library asks for and manylinux_2_28 does not grant."""
    dynamic = read_elf(data).dynamic
    assert dynamic is not None
    asked = {version for versions in dynamic.required.values() for version in versions}
    numbers = {version: tuple(map(int, version.rpartition("_")[2].split("."))) for version in asked}
    return sorted(text for text, number in numbers.items() if number > GRANTED[text.rpartition("_")[0]])


def needy(declaration: Declaration) -> Declaration:
    (declaration.root / "payload/csrc/two.cpp").write_text(NEEDY)
    return declaration


def test_symbols_stay_under_the_floor(
    declaration: Declaration, include: Path, tmp_path: Path, compiler: Compiler
) -> None:
    made = build_native(needy(declaration), compiler.host, torch_include=include, cache=tmp_path / "cache")
    elf = read_elf(made.data)
    assert elf.machine_name == compiler.host.value
    assert elf.dynamic is not None
    assert above(made.data) == []
    assert {"libtorch_cpu.so", "libdl.so.2"} <= set(elf.dynamic.needed)
    assert (elf.dynamic.soname, elf.dynamic.runpath, elf.dynamic.rpath) == ("_native.so", "", "")
    assert {symbol.name for symbol in elf.dynamic.defined} >= {"demo_one", "demo_file", "demo_needy"}
    assert not elf.executable_stack


def test_without_the_floor_the_same_source_asks_for_more(
    declaration: Declaration, tmp_path: Path, compiler: Compiler
) -> None:
    source = needy(declaration).root / "payload/csrc"
    plain = tmp_path / "plain.so"
    run_tool(
        [
            *compiler.command,
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-shared",
            str(source / "two.cpp"),
            "-o",
            str(plain),
        ]
    )
    if not (found := above(plain.read_bytes())):
        pytest.skip("not run: this machine's C library is itself no newer than the floor")
    assert any(version.startswith("GLIBC") for version in found)


def test_same_bytes_in_two_places(include: Path, tmp_path: Path, compiler: Compiler) -> None:
    if compiler.host is HostArch.AARCH64:
        assert compiler.machine.startswith("aarch64")
    said = []
    settings = [
        ("022", tmp_path / "a", "1", {"LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"}),
        (
            "077",
            tmp_path / "a much longer place" / "b",
            "3",
            {
                "LC_ALL": "de_DE.UTF-8",
                "TZ": "Asia/Tokyo",
                "PYTHONHASHSEED": "99",
                "CPATH": str(tmp_path),
                "CXXFLAGS": "-O0",
                "SOURCE_DATE_EPOCH": "1700000000",
                "HOME": str(tmp_path / "home"),
            },
        ),
    ]
    for umask, place, workers, changes in settings:
        place.mkdir(parents=True)
        command = [
            sys.executable,
            "-c",
            ELSEWHERE,
            umask,
            str(place),
            str(include),
            compiler.host.value,
            workers,
        ]
        environment = {**os.environ, **changes, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]


def test_no_path_of_the_machine_is_inside(
    declaration: Declaration, include: Path, tmp_path: Path, compiler: Compiler
) -> None:
    made = build_native(declaration, compiler.host, torch_include=include, cache=tmp_path / "cache")
    assert b"./csrc/one.cpp" in made.data
    for word in (str(tmp_path), str(tmp_path.parent), str(Path.home())):
        assert word.encode() not in made.data
    assert not any(
        "/" in flag.replace("torch/include", "").replace("wheelmark/floor.h", "") for flag in made.flags
    )


def test_what_was_built_is_found_again(declaration: Declaration, include: Path, tmp_path: Path) -> None:
    build = functools.partial(
        build_native, declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache"
    )
    first = build()
    assert not first.cached
    again = build()
    assert dataclasses.replace(again, cached=False) == first
    assert again.cached
    header = declaration.root / "payload/csrc/one.h"
    before = header.read_text()
    header.write_text(before + "// a comment\n")
    assert not build().cached
    header.write_text(before)
    assert build().cached
    assert not list((tmp_path / "cache/native").glob(".*"))


@pytest.mark.parametrize("damage", ["library", "record", "header", "absent-header"])
def test_what_is_kept_is_not_believed(
    declaration: Declaration, include: Path, tmp_path: Path, damage: str
) -> None:
    build = functools.partial(
        build_native, declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache"
    )
    first = build()
    library = tmp_path / f"cache/native/{first.key}.so"
    record = library.with_suffix(".json")
    value = json.loads(record.read_bytes())
    system = next(name for name in value["headers"] if name.startswith("system:"))
    match damage:
        case "library":
            library.write_bytes(first.data[:-1])
        case "record":
            record.write_text("{")
        case "header":  # as if the system's header had changed since
            record.write_text(json.dumps({**value, "headers": {**value["headers"], system: "0" * 64}}))
        case "absent-header":
            record.write_text(
                json.dumps({**value, "headers": {**value["headers"], "system:/nowhere/gone.h": "0" * 64}})
            )
    second = build()
    assert (second.cached, second.data) == (False, first.data)
    assert build().cached


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("int demo_two() { return nothing; }", "nothing"),
        ("int demo_two() { int unused = 1; return 2; }", "unused"),
        ("int demo_two() { return __DATE__[0]; }", "date-time"),
    ],
)
def test_compile_errors_carry_the_compilers_words(
    declaration: Declaration, include: Path, tmp_path: Path, source: str, word: str
) -> None:
    (declaration.root / "payload/csrc/two.cpp").write_text('#include "one.h"\n' + source)
    with pytest.raises(CommandError, match=word) as caught:
        build_native(declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache")
    assert "csrc/two.cpp" in str(caught.value)
    assert "csrc/two.cpp does not compile" in caught.value.cause
    assert not list((tmp_path / "cache/native").iterdir())


def test_link_errors_carry_the_linkers_words(declaration: Declaration, include: Path, tmp_path: Path) -> None:
    (declaration.root / "payload/csrc/two.cpp").write_text(
        '#include "one.h"\nint demo_two() { return 2; }\nextern "C" int demo_one() { return 1; }\n'
    )
    with pytest.raises(CommandError, match="multiple definition") as caught:
        build_native(declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache")
    assert "does not link" in caught.value.cause


def test_headers_outside_the_declared_folders_are_refused(
    declaration: Declaration, include: Path, tmp_path: Path
) -> None:
    (declaration.root / "payload/secret.h").write_text("#define SECRET 2\n")
    (declaration.root / "payload/csrc/two.cpp").write_text(
        '#include "one.h"\n#include "../secret.h"\nint demo_two() { return SECRET; }\n'
    )
    with pytest.raises(BuildError, match=r"secret\.h") as caught:
        build_native(declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache")
    assert caught.value.reason == "native-undeclared-header"


def test_order_of_sources_is_the_order_of_the_link(
    declaration: Declaration, include: Path, tmp_path: Path
) -> None:
    native = declaration.native
    swapped = dataclasses.replace(
        declaration, native=dataclasses.replace(native, sources=native.sources[::-1])
    )
    one = build_native(declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache")
    two = build_native(swapped, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache")
    assert one.key != two.key


def test_the_target_is_printed(declaration: Declaration, include: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    build_native(
        declaration, HostArch.X86_64, torch_include=include, cache=tmp_path / "cache", progress=lines.append
    )
    assert any("0x020a000000000000 = torch 2.10" in line for line in lines)


def test_projects_are_found_by_content_not_by_place(include: Path, tmp_path: Path) -> None:
    first, second = (
        build_native(
            make_project(tmp_path / name), HostArch.X86_64, torch_include=include, cache=tmp_path / "cache"
        )
        for name in ("one", "two")
    )
    assert (first.cached, second.cached, first.data) == (False, True, second.data)
