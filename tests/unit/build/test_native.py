from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from sample_project import make_project
from wheelmark.build import native
from wheelmark.build.compiler import Compiler, compiler_environment, find_compiler, run_tool
from wheelmark.build.native import build_native, torch_target_version
from wheelmark.config import Declaration, HostArch
from wheelmark.errors import BuildError, CommandError, ConfigError, ToolError

VERSION_H = "#pragma once\n\n" + "".join(
    f"#define TORCH_VERSION_{name} {number}\n\n"
    for name, number in (("MAJOR", 2), ("MINOR", 13), ("PATCH", 0))
)
OWN = HostArch(platform.machine())
OTHER = next(host for host in HostArch if host is not OWN)


@pytest.fixture
def declaration(tmp_path: Path) -> Declaration:
    return make_project(tmp_path / "project")


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "site/torch/include"
    (folder / "torch/headeronly").mkdir(parents=True)
    (folder / "torch/headeronly/version.h").write_text(VERSION_H)
    return folder


def compiler(**changes: object) -> Compiler:
    given = Compiler(
        host=OWN,
        command=("/nowhere/g++",),
        version="12.2.0",
        description="(Debian) 12.2.0",
        linker="GNU ld 2.40",
        machine=f"{OWN.value}-linux-gnu",
        digest="5" * 64,
    )
    return dataclasses.replace(given, **changes)  # type: ignore[arg-type]


def program(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "word"),
    [("2.9", 0x0209 << 48), ("2.10", 0x020A << 48), ("2.10.1", 0x020A01 << 40), ("2.16", 0x0210 << 48)],
)
def test_torch_target_is_a_byte_a_number(text: str, word: int) -> None:
    assert torch_target_version(text) == word


@pytest.mark.parametrize("text", ["", "2", "2.x", "2.10.0.1", "2.256", "v2.10", "2.10+cpu"])
def test_other_words_are_no_torch_target(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        torch_target_version(text)
    assert caught.value.reason == "torch-target"


def test_a_target_newer_than_the_headers_is_refused(
    declaration: Declaration, include: Path, tmp_path: Path
) -> None:
    wrong = dataclasses.replace(
        declaration, native=dataclasses.replace(declaration.native, torch_target="2.16")
    )
    with pytest.raises(
        BuildError, match=r"2\.16 .*0x0210000000000000.* newer than the torch 2\.13\.0"
    ) as caught:
        build_native(wrong, OWN, torch_include=include, cache=tmp_path / "cache", compiler=compiler())
    assert caught.value.reason == "torch-target-newer"


def test_folders_without_stable_headers_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build_native(declaration, OWN, torch_include=tmp_path, cache=tmp_path / "cache", compiler=compiler())
    assert caught.value.reason == "torch-headers"


def test_headers_without_a_version_are_refused(
    declaration: Declaration, include: Path, tmp_path: Path
) -> None:
    (include / "torch/headeronly/version.h").write_text("#pragma once\n")
    with pytest.raises(BuildError) as caught:
        build_native(declaration, OWN, torch_include=include, cache=tmp_path / "cache", compiler=compiler())
    assert caught.value.reason == "torch-headers"


def test_an_absent_source_is_named(declaration: Declaration, include: Path, tmp_path: Path) -> None:
    (declaration.root / "payload/csrc/two.cpp").unlink()
    with pytest.raises(ConfigError, match=r"csrc/two\.cpp") as caught:
        build_native(declaration, OWN, torch_include=include, cache=tmp_path / "cache", compiler=compiler())
    assert caught.value.reason == "native-source"


def test_header_digest_comes_from_the_record(include: Path) -> None:
    tree = native._headers_digest(include)
    info = include.parent.parent / "torch-2.13.0+cpu.dist-info"
    info.mkdir()
    line = "torch/include/torch/headeronly/version.h,sha256=abc,1\n"
    (info / "RECORD").write_text(line + "torch/lib/libtorch.so,sha256=def,1\n")
    stated = native._headers_digest(include)
    (info / "RECORD").write_text("torch/lib/libtorch.so,sha256=other,1\n" + line)
    assert native._headers_digest(include) == stated != tree
    (info / "RECORD").write_text(line.replace("abc", "abd"))
    assert native._headers_digest(include) != stated


def test_dependency_files_are_read_with_their_escapes() -> None:
    text = "000.o: /src/one.cpp \\\n /a\\ b/c.h /d$$e/f\\#g.h \\\n  /usr/include/stdio.h\n"
    assert [str(path) for path in native._dependencies(text)] == [
        "/src/one.cpp",
        "/a b/c.h",
        "/d$e/f#g.h",
        "/usr/include/stdio.h",
    ]


def test_the_key_holds_everything_that_decides_bytes(
    declaration: Declaration, include: Path, tmp_path: Path
) -> None:
    def key(given: Declaration = declaration, using: Compiler | None = None) -> str:
        return native._Job.of(given, using or compiler(), include).key()

    first = key()
    elsewhere = make_project(tmp_path / "another place")
    assert key(elsewhere) == first
    changed = dataclasses.replace(declaration.native, torch_target="2.11")
    assert key(dataclasses.replace(declaration, native=changed)) != first
    swapped = dataclasses.replace(declaration.native, sources=declaration.native.sources[::-1])
    assert key(dataclasses.replace(declaration, native=swapped)) != first
    assert key(using=compiler(digest="6" * 64)) != first
    (include / "torch/headeronly/more.h").write_text("// more\n")
    assert key() != first
    (include / "torch/headeronly/more.h").unlink()
    assert key() == first
    (declaration.root / "payload/csrc/one.h").write_text("#pragma once\nint demo_two(); // changed\n")
    assert key() != first


def test_missing_compilers_are_named_with_the_package() -> None:
    with pytest.raises(ToolError) as caught:
        find_compiler(OTHER, environ={f"WHEELMARK_CXX_{OTHER.name}": "/nowhere/g++"})
    assert caught.value.reason == "compiler-missing"
    assert f"apt-get install g++-{OTHER.value.replace('_', '-')}-linux-gnu" in caught.value.fix
    assert "dnf install gcc-c++-" in caught.value.fix
    with pytest.raises(ToolError) as caught:
        find_compiler(OWN, environ={"CXX": "/nowhere/g++"})
    assert "apt-get install g++ " in caught.value.fix


@pytest.mark.parametrize(
    ("machine", "first", "version", "reason"),
    [
        ("riscv64-linux-gnu", "g++ (Debian) 12.2.0", "12.2.0", "compiler-target"),
        (f"{OWN.value}-linux-gnu", "Debian clang version 14.0.6", "14.0.6", "compiler-kind"),
        (f"{OWN.value}-linux-gnu", "g++ (Debian) 10.2.1", "10.2.1", "compiler-old"),
    ],
)
def test_compilers_that_cannot_be_used_are_refused(
    tmp_path: Path, machine: str, first: str, version: str, reason: str
) -> None:
    body = f"""case "$1" in
  -dumpmachine) echo {machine};;
  --version) echo '{first}';;
  -dumpfullversion) echo {version};;
  *) exit 1;;
esac"""
    path = program(tmp_path, "g++", body)
    with pytest.raises(ToolError) as caught:
        find_compiler(OWN, environ={"CXX": path})
    assert caught.value.reason == reason


def test_a_named_compiler_that_is_no_command_line_is_refused() -> None:
    with pytest.raises(ToolError) as caught:
        find_compiler(OWN, environ={"CXX": "g++ '"})
    assert caught.value.reason == "compiler-missing"


def test_failures_show_what_the_program_said(tmp_path: Path) -> None:
    path = program(tmp_path, "ld", "echo one.cpp:1: error: no >&2; exit 3")
    with pytest.raises(CommandError, match=r"one\.cpp:1: error: no") as caught:
        run_tool([path, "-o", "x"])
    assert caught.value.code == 3


def test_compilers_run_without_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "CXXFLAGS",
        "GCC_COLORS",
        "LC_MESSAGES",
        "LC_ALL",
        "SOURCE_DATE_EPOCH",
    ):
        monkeypatch.setenv(name, "x")
    kept = compiler_environment()
    assert not {"CPATH", "CPLUS_INCLUDE_PATH", "CXXFLAGS", "GCC_COLORS", "LC_MESSAGES"} & set(kept)
    assert (kept["LC_ALL"], kept["SOURCE_DATE_EPOCH"], kept["PATH"]) == ("C", "315532800", kept["PATH"])


def test_symbol_tables_are_sorted_and_older_than_the_floor() -> None:
    tables = sorted(native.FLOOR.glob("*.symbols"))
    assert [path.stem for path in tables] == ["libdl.so.2", "libpthread.so.0"]
    for path in tables:
        lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
        names = [name for name, _ in lines]
        assert len(set(names)) == len(names) > 5
        assert all(tuple(map(int, version.split("."))) <= (2, 28) for _, version in lines)
