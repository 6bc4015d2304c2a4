"""CycloneDX components of a wheel: its parts with their files, what made them, and what they need to run.

Every component says by the property ``wheelmark:role`` what it is to the wheel:

==================  =========================================================================
role                what it is
==================  =========================================================================
``wheel``           the artifact itself
``python-package``  first-party Python sources and data
``native-library``  first-party C++ library
``kernel``          first-party kernel with its precompiled code objects
``wheel-metadata``  first-party ``.dist-info``
``compiled-in``     code of others that is part of the native library
``toolchain``       a compiler, assembler or linker: not in the wheel
``system-library``  a library that the operating system has to bring
``dependency``      a package of the runtime lock, by version and hashes
``host-provided``   a package that the wheel needs and no lock names
==================  =========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from wheelmark import digests
from wheelmark.attest.sbom import ROLE
from wheelmark.binaries.elf import read_elf
from wheelmark.binaries.kernelmanifest import Kernel, Toolchain, Variant
from wheelmark.build.native import NativeToolchain
from wheelmark.packages.pins import Pin
from wheelmark.sbom.inputs import Facts, Inputs

Json = dict[str, Any]

_SYSTEM = (
    (re.compile(r"libstdc\+\+\.so\.6"), "libstdc++", "libstdcxx"),
    (re.compile(r"libgcc_s\.so\.1"), "libgcc", "libgcc"),
    (re.compile(r"(lib(c|m|dl|rt|pthread)|ld-linux-[a-z0-9_-]+)\.so\.\d"), "glibc", "glibc"),
)
_TORCH_LIBRARY = re.compile(r"lib(torch\w*|c10\w*)\.so")


def purl(name: str, version: str, *, kind: str = "pypi", file: str = "", subpath: str = "") -> str:
    """A package URL (purl specification); everything but unreserved characters is percent-encoded."""
    text = f"pkg:{kind}/{quote(name, safe='.-_~')}"
    if version:
        text += f"@{quote(version, safe='.-_~')}"
    if file:
        text += f"?file_name={quote(file, safe='.-_~')}"
    return f"{text}#{subpath}" if subpath else text


def component(
    kind: str,
    role: str,
    ref: str,
    name: str,
    *,
    facts: Facts | None = None,
    properties: Iterable[tuple[str, str]] = (),
    **fields: Any,
) -> Json:
    """A component; fields and properties without a value are left out."""
    facts = facts or Facts()
    known = {
        "supplier": {"name": facts.supplier} if facts.supplier else None,
        "licenses": [{"expression": facts.license, "acknowledgement": "declared"}] if facts.license else None,
        **fields,
    }
    stated = [(ROLE, role), *((f"wheelmark:{key}", value) for key, value in properties if value)]
    return {
        "type": kind,
        "bom-ref": ref,
        "name": name,
        **{key: value for key, value in known.items() if value},
        "properties": [{"name": key, "value": value} for key, value in sorted(stated)],
    }


def sha256_hash(digest: str) -> Json:
    """A CycloneDX hash."""
    return {"alg": "SHA-256", "content": digest}


def file_component(path: str, data: bytes, properties: Iterable[tuple[str, str]] = ()) -> Json:
    """One file of the wheel."""
    return component(
        "file",
        "file",
        f"file:{path}",
        path,
        hashes=[sha256_hash(digests.sha256(data))],
        properties=[("size", str(len(data))), *properties],
    )


def file_group(
    role: str, ref: str, name: str, files: Mapping[str, bytes], *, kind: str, version: str, facts: Facts
) -> Json:
    """A first-party part with the files that it explains."""
    nested = [file_component(path, data) for path, data in sorted(files.items())]
    return component(kind, role, ref, name, facts=facts, version=version, components=nested)


def native_component(
    path: str, data: bytes, tools: NativeToolchain, *, flags: Sequence[str], version: str, facts: Facts
) -> Json:
    """The native library, with how it was compiled."""
    elf = read_elf(data)
    return component(
        "library",
        "native-library",
        "native",
        path.rpartition("/")[2],
        facts=facts,
        version=version,
        components=[file_component(path, data, [("build-id", elf.build_id)])],
        properties=[
            ("flags", " ".join(flags)),
            ("machine", tools.machine),
            ("toolchain-sha256", tools.digest),
            ("torch-target", tools.torch_target),
            ("torch-target-version", tools.torch_target_version),
            ("libstdcxx-linkage", tools.libstdcxx),
        ],
    )


def native_parts(tools: NativeToolchain, inputs: Inputs) -> list[Json]:
    """What made the native library and what of it went in."""
    return [
        component(
            "application",
            "toolchain",
            "tool:gcc",
            "gcc",
            facts=inputs.component("gcc"),
            version=tools.compiler_version,
            scope="excluded",
            purl=purl("gcc", tools.compiler_version, kind="generic"),
            properties=[("build", tools.compiler_description)],
        ),
        component(
            "application",
            "toolchain",
            "tool:ld",
            "binutils",
            facts=inputs.component("binutils"),
            version=tools.linker.rpartition(" ")[2],
            scope="excluded",
            purl=purl("binutils", tools.linker.rpartition(" ")[2], kind="generic"),
            properties=[("build", tools.linker)],
        ),
        component(
            "library",
            "compiled-in",
            "compiled-in:gcc-runtime",
            "gcc-runtime",
            facts=inputs.component("gcc-runtime"),
            version=tools.compiler_version,
            scope="required",
            purl=purl("gcc", tools.compiler_version, kind="generic", subpath="libstdc++-v3"),
            description="start-up objects, libgcc, and templates of libstdc++ as instantiated in the library",
        ),
        component(
            "library",
            "compiled-in",
            "compiled-in:torch-headers",
            "torch-headers",
            facts=inputs.component("torch-headers"),
            version=tools.torch_headers,
            scope="required",
            purl=purl("torch", tools.torch_headers, subpath="torch/include"),
            description="inline code of LibTorch's stable ABI headers",
            properties=[("headers-sha256", tools.torch_headers_digest)],
        ),
    ]


def system_libraries(data: bytes, inputs: Inputs) -> list[Json]:
    """Libraries that the loader looks for, and the highest symbol version of each family asked for; from the bytes.

    torch's own libraries are not among them: torch is a dependency, by its package.
    """
    dynamic = read_elf(data).dynamic
    if dynamic is None:
        return []
    groups: dict[str, tuple[Facts, list[str]]] = {}
    for soname in dynamic.needed:
        if _TORCH_LIBRARY.fullmatch(soname):
            continue
        name, key = next(
            ((name, key) for pattern, name, key in _SYSTEM if pattern.fullmatch(soname)), (soname, soname)
        )
        groups.setdefault(name, (inputs.component(key), []))[1].append(soname)
    return [
        component(
            "library",
            "system-library",
            f"system:{name}",
            name,
            facts=facts,
            scope="required",
            properties=[
                ("linkage", "dynamic"),
                ("needed", " ".join(sorted(sonames))),
                ("floor", " ".join(_floors(dynamic.required, sonames))),
            ],
        )
        for name, (facts, sonames) in sorted(groups.items())
    ]


def _floors(required: Mapping[str, tuple[str, ...]], sonames: Iterable[str]) -> list[str]:
    highest: dict[str, tuple[int, ...]] = {}
    for soname in sonames:
        for version in required.get(soname, ()):
            family, _, number = version.rpartition("_")
            if re.fullmatch(r"\d+(\.\d+)*", number):
                numbers = tuple(int(part) for part in number.split("."))
                highest[family] = max(highest.get(family, ()), numbers)
    return [f"{family}_{'.'.join(map(str, numbers))}" for family, numbers in sorted(highest.items())]


def kernel_component(
    kernel: Kernel, folder: str, files: Mapping[str, bytes], *, version: str, facts: Facts
) -> Json:
    """A kernel: the digest of its source, and its code objects with what their bytes say."""
    nested = [
        file_component(
            f"{folder}/{variant.object.file}", files[f"{folder}/{variant.object.file}"], _variant(variant)
        )
        for variant in kernel.variants
    ]
    return component(
        "library",
        "kernel",
        f"kernel:{kernel.name}",
        kernel.name,
        facts=facts,
        version=version,
        components=sorted(nested, key=lambda item: str(item["name"])),
        properties=[("source-sha256", kernel.source_digest)],
    )


def _variant(variant: Variant) -> list[tuple[str, str]]:
    return [
        ("variant", variant.name),
        ("entry", variant.entry),
        ("arch", variant.arch + variant.arch_suffix),
        ("registers", str(variant.registers)),
        ("shared-memory", str(variant.shared + variant.static_shared)),
        ("ptx-version", variant.ptx_version),
        ("toolkit", variant.toolkit),
        ("min-driver", variant.min_driver),
        ("min-driver-basis", variant.min_driver_basis),
    ]


def kernel_toolchain(toolchain: Toolchain, inputs: Inputs) -> list[Json]:
    """What compiled and assembled the code objects."""
    assembler, _, version = toolchain.assembler.partition(" ")
    return [
        component(
            "application",
            "toolchain",
            "tool:triton",
            "triton",
            facts=inputs.package("triton"),
            version=toolchain.triton,
            scope="excluded",
            purl=purl("triton", toolchain.triton),
            properties=[("files-sha256", toolchain.digest)],
        ),
        component(
            "application",
            "toolchain",
            "tool:assembler",
            assembler,
            facts=inputs.component(assembler),
            version=version,
            scope="excluded",
            purl=purl(assembler, version, kind="generic"),
        ),
    ]


def dependency_component(pin: Pin, inputs: Inputs, *, reached: bool) -> Json:
    """A package of the runtime lock. Its hashes are alternatives: one for each file that may be installed."""
    return component(
        "library",
        "dependency",
        purl(pin.name, pin.version),
        pin.name,
        facts=inputs.package(pin.name),
        version=pin.version,
        scope="required" if reached else "optional",
        hashes=[sha256_hash(digest) for digest in pin.hashes],
        purl=purl(pin.name, pin.version),
        properties=[("marker", pin.marker)],
    )


def host_component(name: str, versions: str, inputs: Inputs) -> Json:
    """A package that the wheel requires and the runtime lock leaves to the machine that it is installed on."""
    return component(
        "library",
        "host-provided",
        purl(name, ""),
        name,
        facts=inputs.package(name),
        scope="required",
        purl=purl(name, ""),
        properties=[("versions", versions)],
    )
