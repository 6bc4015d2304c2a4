from __future__ import annotations

import struct

import pytest

import wheelmaking as make
from wheelmark.binaries.codeobject import KernelFacts, ObjectKind, ParameterSlot, read_code_object
from wheelmark.binaries.elf import read_elf
from wheelmark.errors import InputError

SLOTS = tuple(
    ParameterSlot(offset=o, size=s) for o, s in ((0, 8), (8, 8), (16, 4), (20, 4), (24, 8), (32, 8))
)


def reason(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_code_object(data)
    return caught.value.reason


def section_at(data: bytes, name: str) -> int:
    section = read_elf(data).section(name)
    assert section is not None
    return section.offset


def header_at(data: bytes, name: str) -> int:
    """Where a section's header stands."""
    index = next(i for i, s in enumerate(read_elf(data).sections) if s.name == name)
    at: int = struct.unpack_from("<Q", data, 40)[0]
    return at + 64 * index


def attribute_at(data: bytes, section: str, code: int) -> int:
    """Where the record of an attribute begins."""
    at = section_at(data, section)
    while True:
        form, found, half = struct.unpack_from("<BBH", data, at)
        if found == code:
            return at
        at += 4 + (half if form == 4 else 0)


@pytest.mark.parametrize(
    ("arch", "said", "registers", "code_size"),
    [
        ("sm80", ("", 7, "12.8"), 17, 1024),
        ("sm90", ("a", 7, "12.8"), 16, 1152),
        ("sm100", ("a", 8, "13.1"), 16, 1152),
    ],
)
def test_cubins(arch: str, said: tuple[str, int, str], registers: int, code_size: int) -> None:
    code = read_code_object(make.code_object(arch))
    assert (code.kind, code.arch) == (ObjectKind.CUBIN, arch)
    assert (code.suffix, code.abi, code.toolkit) == said
    assert code.kernels == (
        KernelFacts(
            name="scale",
            registers=registers,
            scalar_registers=0,
            spill_stores=0,
            spill_loads=0,
            static_shared=0,
            stack=0,
            max_threads=128,
            required_threads=128,
            warp_size=32,
            code_size=code_size,
            parameter_bytes=40,
            parameters=SLOTS,
        ),
    )


def test_hsaco() -> None:
    code = read_code_object(make.code_object("gfx942"))
    assert (code.kind, code.arch, code.suffix, code.abi, code.toolkit) == (
        ObjectKind.HSACO,
        "gfx942",
        "",
        5,
        "",
    )
    assert code.features == ()
    assert "LLD" in code.tool
    kernel = code.kernels[0]
    assert (kernel.name, kernel.registers, kernel.scalar_registers, kernel.code_size) == ("scale", 8, 19, 644)
    assert (kernel.max_threads, kernel.required_threads, kernel.warp_size) == (256, 0, 64)
    assert (kernel.parameter_bytes, kernel.parameters) == (40, SLOTS)
    assert code.kernel("scale") is kernel
    assert code.kernel("other") is None


def test_empty_and_other_objects() -> None:
    assert reason(b"") == "object-empty"
    assert reason(make.golden("native.so")) == "object-kind"
    assert reason(b"not an object") == "elf-magic"


def test_spills_are_counted_in_the_machine_code() -> None:
    data = make.code_object("sm80")
    text = section_at(data, ".text.scale")
    spoiled = make.patched(data, text, struct.pack("<H", 0x7387))
    spoiled = make.patched(spoiled, text + 16, struct.pack("<H", 0x7983))
    kernel = read_code_object(spoiled).kernels[0]
    assert (kernel.spill_stores, kernel.spill_loads) == (1, 1)


def test_cubin_abi_that_is_not_known() -> None:
    assert reason(make.patched(make.code_object("sm80"), 8, b"\x09")) == "cubin-abi"


@pytest.mark.parametrize(
    ("old", "new"), [(b".debug_frame", b".debug_lines"), (b".nv.callgraph", b".nv.something")]
)
def test_sections_that_a_release_cubin_has_not(old: bytes, new: bytes) -> None:
    data = make.code_object("sm80")
    at = section_at(data, ".shstrtab") + data[section_at(data, ".shstrtab") :].index(old)
    assert reason(make.patched(data, at, new)) == "cubin-section"


def test_cubin_facts_that_stand_twice_must_agree() -> None:
    sm80, sm90, sm100 = (make.code_object(arch) for arch in ("sm80", "sm90", "sm100"))
    registers = attribute_at(sm80, ".nv.info", 0x2F) + 8
    assert reason(make.patched(sm80, registers, b"\x20")) == "cubin-disagrees"  # registers, and the header
    assert reason(make.patched(sm80, 20, b"\x82")) == "cubin-disagrees"  # toolkit, and CUDA_API_VERSION
    size = attribute_at(sm90, ".nv.info.scale", 0x19) + 2
    assert reason(make.patched(sm90, size, b"\x30")) == "cubin-disagrees"  # parameter bytes, and the bank
    assert (
        reason(make.patched(sm80, header_at(sm80, ".nv.constant0.scale") + 32, b"\x40\0"))
        == "cubin-disagrees"
    )
    second = attribute_at(sm100, ".nv.merc.nv.info", 0x2F) + 8
    assert reason(make.patched(sm100, second, b"\x20")) == "cubin-disagrees"  # the second copy's registers
    slot = attribute_at(sm100, ".nv.merc.nv.info.scale", 0x17) + 10
    assert reason(make.patched(sm100, slot, b"\x24")) == "cubin-disagrees"  # the second copy's parameters
    flags = struct.unpack_from("<I", sm100, 48)[0]
    other = struct.pack("<I", flags & ~0xFF00 | 103 << 8)
    assert (
        reason(make.patched(sm100, 48, other)) == "cubin-disagrees"
    )  # the arch, and what the tool was asked
    assert reason(make.swapped(sm100, b"-arch sm_100a", b"-arch sm_100f")) == "cubin-disagrees"
    assert reason(make.swapped(sm100, b"release 13.1", b"release 13.2")) == "cubin-disagrees"


def test_cubin_attributes_that_cannot_be_read() -> None:
    sm80 = make.code_object("sm80")
    info = section_at(sm80, ".nv.info")
    assert reason(make.patched(sm80, info, b"\x09")) == "cubin-attribute"  # unknown format
    assert reason(make.patched(sm80, info + 2, b"\xff\xff")) == "cubin-attribute"  # longer than its section
    assert (
        reason(make.patched(sm80, info + 4, b"\x99")) == "cubin-attribute"
    )  # about a symbol that is not there
    ordinal = attribute_at(sm80, ".nv.info.scale", 0x17) + 8
    assert reason(make.patched(sm80, ordinal, b"\x04")) == "cubin-attribute"  # one parameter twice
    assert reason(make.patched(sm80, attribute_at(sm80, ".nv.info", 0x2F) + 1, b"\x7f")) == "cubin-kernel"


def test_cubin_without_its_kernel() -> None:
    sm80 = make.code_object("sm80")
    elf = read_elf(sm80)
    table = section_at(sm80, ".symtab")
    at = table + 24 * next(i for i, symbol in enumerate(elf.symbols()) if symbol.name == "scale")
    assert reason(make.patched(sm80, at + 5, b"\0")) == "cubin-kernel"  # not marked as an entry
    assert reason(make.patched(sm80, at + 16, struct.pack("<Q", 0))) == "cubin-kernel"  # no code
    assert reason(make.patched(sm80, at + 6, b"\x01\0")) == "cubin-kernel"  # code elsewhere


def test_cubin_notes_that_cannot_be_read() -> None:
    sm100 = make.code_object("sm100")
    note = section_at(sm100, ".note.nv.tkinfo")
    assert reason(make.swapped(sm100, b"release 13.1", b"edition 13.1")) == "cubin-note"
    assert reason(make.patched(sm100, note + 24 + 8, struct.pack("<I", 9_999))) == "cubin-note"
    assert reason(make.patched(sm100, note + 8, struct.pack("<I", 7))) == "cubin-note"


def test_hsaco_abi_and_arch_that_are_not_known() -> None:
    data = make.code_object("gfx942")
    assert reason(make.patched(data, 8, b"\x09")) == "hsaco-abi"
    assert reason(make.patched(data, 7, b"\0")) == "hsaco-abi"
    assert reason(make.patched(data, 48, b"\xee")) == "hsaco-arch"


def test_hsaco_facts_that_stand_twice_must_agree() -> None:
    data = make.code_object("gfx942")
    assert reason(make.patched(data, 48, b"\x3f")) == "hsaco-disagrees"  # the arch, and metadata's target
    assert (
        reason(make.patched(data, 49, b"\x0d")) == "hsaco-disagrees"
    )  # sramecc fixed on in the header alone
    descriptor = section_at(data, ".rodata")
    for offset, value in ((0, b"\x10"), (4, b"\x10"), (8, b"\x30"), (16, b"\0\0"), (57, b"\x04")):
        assert reason(make.patched(data, descriptor + offset, value)) == "hsaco-disagrees"
    assert reason(make.swapped(data, b".vgpr_count\x08", b".vgpr_count\x7f")) == "hsaco-disagrees"


def test_hsaco_metadata_that_cannot_be_read() -> None:
    data = make.code_object("gfx942")
    assert reason(make.swapped(data, b"amdhsa.kernels", b"amdhsa.kernelz")) == "hsaco-metadata"
    assert reason(make.swapped(data, b".kernarg_segment_size", b".kernarg_segment_siz_")) == "hsaco-metadata"
    assert (
        reason(make.swapped(data, b"amdhsa.version\x92\x01", b"amdhsa.version\x92\x02")) == "hsaco-metadata"
    )
    assert reason(make.swapped(data, b"AMDGPU\0", b"AMDXPU\0")) == "hsaco-metadata"
    assert reason(make.swapped(data, b"scale.kd", b"scale.kx")) == "hsaco-kernel"
    assert reason(make.swapped(data, b".rodata", b".rodatb")) == "hsaco-section"
