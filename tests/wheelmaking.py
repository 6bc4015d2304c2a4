"""Zip archives and wheels made byte by byte, so that a test can spoil exactly one field; and a gate's context."""

from __future__ import annotations

import base64
import csv
import dataclasses
import functools
import hashlib
import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.binaries.codeobject import read_code_object
from wheelmark.binaries.drivers import NO_FLOOR, driver_floor
from wheelmark.binaries.kernelmanifest import (
    Assumption,
    Kernel,
    KernelManifest,
    ObjectFile,
    Parameter,
    ParameterKind,
    Relation,
    Toolchain,
    Variant,
)
from wheelmark.config import (
    CorrectnessGate,
    Declaration,
    Gates,
    HostArch,
    Kernels,
    Locks,
    Native,
    PerformanceGate,
    Project,
    TargetRow,
    TorchBuild,
)
from wheelmark.gates.context import Context, SecondWheel
from wheelmark.targets import Target

GOLDENS = Path(__file__).resolve().parent / "goldens" / "objects"
NAME = "demo_kernels-1.0+cpu-py3-none-manylinux_2_28_x86_64.whl"
LIBRARY = "demo_kernels/_native.so"
FOLDER = "demo_kernels/code_objects"
REGULAR, LINK, FOLDER_MODE, DEVICE = 0o100644, 0o120777, 0o040755, 0o020644


@functools.cache
def golden(name: str) -> bytes:
    """The bytes of a sample object."""
    return (GOLDENS / name).read_bytes()


def code_object(arch: str) -> bytes:
    """The sample code object of an arch."""
    return golden(f"scale-{arch}.{'cubin' if arch.startswith('sm') else 'hsaco'}")


def swapped(data: bytes, old: bytes, new: bytes) -> bytes:
    """``data`` with every ``old`` replaced by ``new``, which has to be as long; ``old`` has to be there."""
    assert len(old) == len(new)
    assert old in data
    return data.replace(old, new)


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """``data`` with the bytes at ``at`` overwritten."""
    return data[:at] + new + data[at + len(new) :]


@dataclasses.dataclass(kw_only=True)
class Entry:
    """One zip member; what is left empty follows from the data."""

    name: str
    data: bytes = b""
    deflate: bool = False
    mode: int = REGULAR
    flags: int = 0
    method: int | None = None
    local_name: str | None = None
    crc: int | None = None
    local_crc: int | None = None
    size: int | None = None
    extra: bytes = b""
    local_extra: bytes = b""
    comment: bytes = b""
    raw: bytes | None = None
    descriptor: bool = False
    before: bytes = b""
    """Bytes that stand before its local header."""


def zip_bytes(
    entries: Sequence[Entry], *, prefix: bytes = b"", gap: bytes = b"", comment: bytes = b""
) -> bytes:
    """A zip archive of exactly these entries."""
    body, directory = bytearray(prefix), bytearray()
    for entry in entries:
        raw = entry.raw if entry.raw is not None else _packed(entry)
        crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
        size = len(entry.data) if entry.size is None else entry.size
        method = (8 if entry.deflate else 0) if entry.method is None else entry.method
        flags = entry.flags | (0 if entry.name.isascii() else 1 << 11) | (8 if entry.descriptor else 0)
        name = entry.name.encode()
        local_name = name if entry.local_name is None else entry.local_name.encode()
        said = (0, 0, 0) if entry.descriptor else (entry.local_crc or crc, len(raw), size)
        body += entry.before
        offset = len(body)
        local = (0x04034B50, 20, flags, method, 0, 0x21, *said, len(local_name), len(entry.local_extra))
        body += struct.pack("<IHHHHHIIIHH", *local) + local_name + entry.local_extra + raw
        if entry.descriptor:
            body += struct.pack("<IIII", 0x08074B50, entry.local_crc or crc, len(raw), size)
        directory += struct.pack(
            "<IHHHHHHIIIHHHHHII",
            0x02014B50,
            3 << 8 | 20,
            20,
            flags,
            method,
            0,
            0x21,
            crc,
            len(raw),
            size,
            len(name),
            len(entry.extra),
            len(entry.comment),
            0,
            0,
            entry.mode << 16,
            offset,
        )
        directory += name + entry.extra + entry.comment
    body += gap
    end = (0x06054B50, 0, 0, len(entries), len(entries), len(directory), len(body), len(comment))
    return bytes(body + directory) + struct.pack("<IHHHHIIH", *end) + comment


def _packed(entry: Entry) -> bytes:
    if not entry.deflate:
        return entry.data
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(entry.data) + packer.flush()


def record_line(path: str, data: bytes) -> str:
    """A line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([path, f"sha256={digest}", len(data)])
    return text.getvalue()


def wheel_entries(files: Mapping[str, bytes], name: str = NAME, **spoil: bytes) -> list[Entry]:
    """The members of a wheel, RECORD last.

    Args:
        files: Path -> bytes, without dist-info.
        name: File name, which METADATA and WHEEL follow.
        spoil: ``metadata`` and ``wheel``, to put in place of what follows from the name.
    """
    distribution, version, *tag = name.removesuffix(".whl").split("-")
    info = f"{distribution}-{version}.dist-info"
    tags = "".join(f"Tag: {'-'.join([*tag[-3:-1], one])}\n" for one in tag[-1].split("."))
    build = f"Build: {tag[0]}\n" if len(tag) == 4 else ""
    metadata = f"Metadata-Version: 2.4\nName: {distribution}\nVersion: {version}\n".encode()
    marks = f"Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: false\n{build}{tags}".encode()
    every = {
        **files,
        f"{info}/METADATA": spoil.get("metadata", metadata),
        f"{info}/WHEEL": spoil.get("wheel", marks),
    }
    record = "".join(record_line(path, data) for path, data in every.items()) + f"{info}/RECORD,,\n"
    every[f"{info}/RECORD"] = spoil.get("record", record.encode())
    return [Entry(name=path, data=data, deflate=True) for path, data in every.items()]


def wheel_bytes(files: Mapping[str, bytes], name: str = NAME, **spoil: bytes) -> bytes:
    """A wheel in which everything agrees but what ``spoil`` says."""
    return zip_bytes(wheel_entries(files, name, **spoil))


def variant(arch: str, name: str = "fp16", file: str = "", data: bytes | None = None) -> Variant:
    """A manifest entry that agrees with the sample object of an arch."""
    sample = code_object(arch)
    data = sample if data is None else data
    code = read_code_object(sample)
    facts = code.kernels[0]
    floor = driver_floor(toolkit=code.toolkit) if code.toolkit else NO_FLOOR
    return Variant(
        name=name,
        object=ObjectFile(
            file=file or f"scale.{name}.{code.kind.value}", sha256=digests.sha256(data), size=len(data) or 1
        ),
        entry=facts.name,
        arch=code.arch,
        arch_suffix=code.suffix,
        num_warps=4,
        warp_size=facts.warp_size,
        shared=16,
        static_shared=facts.static_shared,
        registers=facts.registers,
        spill_stores=facts.spill_stores,
        spill_loads=facts.spill_loads,
        code_size=facts.code_size,
        ptx_version="",
        toolkit=code.toolkit,
        min_driver=floor.driver,
        min_driver_basis=floor.basis,
        global_scratch=0,
        profile_scratch=0,
        scratch_pointers=2,
        parameters=(
            Parameter(name="x", kind=ParameterKind.POINTER, dtype="fp16"),
            Parameter(name="y", kind=ParameterKind.POINTER, dtype="fp32"),
            Parameter(name="n", kind=ParameterKind.SCALAR, dtype="i32"),
            Parameter(name="factor", kind=ParameterKind.SCALAR, dtype="fp32"),
        ),
        constants={"BLOCK": 256},
        assumes=(
            Assumption(argument="x", relation=Relation.DTYPE, value="fp16"),
            Assumption(argument="BLOCK", relation=Relation.EQUAL, value=256),
            Assumption(argument="bias", relation=Relation.NONE),
            Assumption(argument="n", relation=Relation.FITS, value="i32"),
            Assumption(argument="y", relation=Relation.DIVISIBLE_BY, value=16),
            Assumption(argument="y", relation=Relation.BYTES_BELOW, value=1 << 31),
        ),
        options={"num_warps": 4, "enable_fp_fusion": True},
    )


def manifest(arch: str, variants: Sequence[Variant] = (), target: str = "") -> KernelManifest:
    """A manifest of one kernel, ``scale``."""
    backend = "cuda" if arch.startswith("sm") else "rocm"
    return KernelManifest(
        target=Target.parse(target or f"{backend}-{arch}"),
        toolchain=Toolchain(triton="3.7.1", assembler="ptxas 12.8.93", digest="0" * 64),
        kernels=(Kernel(name="scale", source_digest="1" * 64, variants=tuple(variants) or (variant(arch),)),),
    )


def gpu_files(arch: str) -> dict[str, bytes]:
    """The files of a wheel for a GPU: native library, manifest and one object."""
    return {
        LIBRARY: golden("native.so"),
        f"{FOLDER}/manifest.json": manifest(arch).as_bytes(),
        f"{FOLDER}/{variant(arch).object.file}": code_object(arch),
    }


def context(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    target: str = "cpu-x86_64",
    name: str = NAME,
    size_budget: int = 100_000,
    torch_target: str = "2.10",
    torch_locked: str = "2.13.0",
    torch_range: str = ">=2.10,<2.15",
    declared: Mapping[str, tuple[str, ...]] | None = None,
) -> Context:
    """A gate's context around a wheel that is written into ``folder``."""
    wheel = folder / name
    wheel.write_bytes(wheel_bytes(files, name))
    host = HostArch.AARCH64 if name.endswith("aarch64.whl") else HostArch.X86_64
    row = TargetRow(
        target=Target.parse(target),
        host=host,
        platform="manylinux_2_28",
        local="cpu",
        torch=torch_range,
        torch_build=TorchBuild.CPU,
        gates=("abi", "coverage", "size"),
    )
    declaration = Declaration(
        root=folder / "project",
        project=Project(
            name="demo-kernels",
            version="1.0",
            import_name="demo_kernels",
            source=Path("kernels"),
            summary="",
            license="Apache-2.0",
            license_files=(),
            supplier="",
            homepage="",
            requires_python=">=3.10",
            dependencies=(),
        ),
        targets=(row,),
        kernels=Kernels(declarations=()),
        native=Native(library=Path(LIBRARY), sources=(), torch_target=torch_target),
        locks=Locks(torch=torch_locked, torch_cpu_sha256="0" * 64, triton="3.7.1"),
        gates=Gates(
            size_budget=size_budget,
            correctness=CorrectnessGate(module="m", dispatch=(), dispatch_variable="V"),
            performance=PerformanceGate(module="m", max_ratio=1.1),
        ),
    )
    return Context(
        declaration=declaration,
        row=row,
        wheel=wheel,
        sha256=digests.sha256_file(wheel),
        sbom=folder / "sbom.json",
        lock=folder / "lock.txt",
        cache=folder / "cache",
        build_lock=folder / "build.txt",
        build_python=folder / "python",
        declared_variants={"scale": ("fp16",)} if declared is None else declared,
        toolchain="0" * 64,
        second=lambda: SecondWheel(path=wheel, toolchain="0" * 64),
    )
