"""A small project with a ``wheelmark.toml``, and the parts that its wheels are put together from."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path

from wheelmark import digests
from wheelmark.binaries.kernelmanifest import Kernel, KernelManifest, ObjectFile, Toolchain, Variant
from wheelmark.build.native import NativeLibrary, NativeToolchain
from wheelmark.config import Declaration, HostArch, parse_declaration
from wheelmark.targets import Target

# A shared object that every environment of these tests has: cryptography needs cffi.
ELF = Path(str(importlib.import_module("_cffi_backend").__file__)).read_bytes()

_ROW = """
[[targets]]
target = "{target}"
host = "{host}"
platform = "manylinux_2_28"
local = "{local}"
torch = ">=2.10,<2.15"
torch_build = "{build}"
gates = ["abi"]
"""
_ROWS = (
    ("cpu-x86_64", "x86_64", "cpu", "cpu"),
    ("cpu-aarch64", "aarch64", "cpu", "cpu"),
    ("cuda-sm90", "x86_64", "sm90", "default"),
    ("rocm-gfx942", "x86_64", "gfx942", "rocm"),
)
_DECLARATION = """
schema = 1
[project]
name = "Demo.Kernels"
version = "0.1.0"
import_name = "demo_kernels"
source = "payload"
summary = "Demonstration kernels"
license = "Apache-2.0"
license_files = ["LICENSE", "licences/NOTICE"]
supplier = "Demo maintainers"
homepage = "https://example.invalid/demo"
requires_python = ">=3.10"
dependencies = ["typing_extensions >=4"]
[kernels]
declarations = ["kernels.toml"]
[native]
library = "demo_kernels/_native.so"
sources = ["csrc/one.cpp", "csrc/two.cpp"]
include = ["csrc"]
torch_target = "2.10"
[locks]
torch = "2.13.0"
torch_cpu_sha256 = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
triton = "3.7.1"
[gates]
size_budget = 8_000_000
[gates.correctness]
module = "demo_kernels.contract"
dispatch = ["scalar"]
dispatch_variable = "DEMO_CPU"
[gates.performance]
module = "demo_kernels.contract"
max_ratio = 1.1
"""
_FILES = {
    "payload/LICENSE": b"Apache License\n",
    "payload/licences/NOTICE": b"Notice\n",
    "payload/README.md": b"# Demo\n\nKernels.\n",
    "payload/kernels.toml": b"schema = 1\n",
    "payload/demo_kernels/__init__.py": b'"""Demo."""\n',
    "payload/demo_kernels/py.typed": b"",
    "payload/demo_kernels/tuning/table.json": b"{}\n",
    "payload/csrc/one.h": b"#pragma once\nint demo_two();\n",
    "payload/csrc/one.cpp": b'#include "one.h"\n'
    b'extern "C" __attribute__((visibility("default"))) int demo_one() { return demo_two() - 1; }\n'
    b'extern "C" __attribute__((visibility("default"))) const char* demo_file() { return __FILE__; }\n',
    "payload/csrc/two.cpp": b'#include "one.h"\nint demo_two() { return 2; }\n',
}


def make_project(root: Path) -> Declaration:
    """Write the project under ``root`` and read its declaration."""
    rows = "".join(
        _ROW.format(target=target, host=host, local=local, build=build)
        for target, host, local, build in _ROWS
    )
    for name, data in {**_FILES, "wheelmark.toml": (_DECLARATION + rows).encode()}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return parse_declaration((root / "wheelmark.toml").read_bytes(), root=root)


def native_library(host: HostArch = HostArch.X86_64, data: bytes = ELF) -> NativeLibrary:
    """A library as ``build_native`` gives it back."""
    return NativeLibrary(
        data=data,
        sha256=digests.sha256(data),
        path="demo_kernels/_native.so",
        host=host,
        key="0" * 64,
        flags=("-std=c++17", "-O3"),
        tools=NativeToolchain(
            compiler="GCC",
            compiler_version="12.2.0",
            compiler_description="(Debian 12.2.0-14) 12.2.0",
            linker="GNU ld (GNU Binutils for Debian) 2.40",
            machine=f"{host.value}-linux-gnu",
            torch_headers="2.13.0",
            torch_headers_digest="1" * 64,
            torch_target="2.10",
            torch_target_version="0x020a000000000000",
            libstdcxx="dynamic",
            digest="2" * 64,
        ),
        cached=False,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleKernels:
    """Compiled kernels of one target."""

    target: Target
    manifest: KernelManifest
    objects: Mapping[str, bytes]


def kernels(target: str = "cuda-sm90") -> SampleKernels:
    """One kernel in two variants; the objects are any bytes, as the wheel and its SBOM do not read them."""
    parsed = Target.parse(target)
    objects = {
        f"demo_sum.{name}.{parsed.code_object}": f"object {name} for {target}".encode()
        for name in ("fp16", "fp32")
    }
    variants = tuple(_variant(parsed, file, data) for file, data in objects.items())
    manifest = KernelManifest(
        target=parsed,
        toolchain=Toolchain(triton="3.7.1", assembler="ptxas 12.8.93", digest="3" * 64),
        kernels=(Kernel(name="demo_sum", source_digest="4" * 64, variants=variants),),
    )
    return SampleKernels(target=parsed, manifest=manifest, objects=objects)


def _variant(target: Target, file: str, data: bytes) -> Variant:
    return Variant(
        name=file.split(".")[1],
        object=ObjectFile(file=file, sha256=digests.sha256(data), size=len(data)),
        entry="demo_sum",
        arch=target.arch,
        arch_suffix="",
        num_warps=4,
        warp_size=32,
        shared=0,
        static_shared=0,
        registers=16,
        spill_stores=0,
        spill_loads=0,
        code_size=len(data),
        ptx_version="8.7",
        toolkit="12.8",
        min_driver="570.26",
        min_driver_basis="PTX 8.7",
        global_scratch=0,
        profile_scratch=0,
        scratch_pointers=2,
        parameters=(),
        constants={},
        assumes=(),
        options={},
    )
