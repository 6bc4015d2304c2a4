"""Whatever the bytes are: a value, or InputError with a reason. Nothing else leaves the room."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wheelmaking as make
from wheelmark.binaries.codeobject import read_code_object
from wheelmark.binaries.elf import read_elf
from wheelmark.binaries.kernelmanifest import read_kernel_manifest
from wheelmark.binaries.messagepack import read_messagepack
from wheelmark.binaries.stableabi import torch_use
from wheelmark.binaries.wheel import read_wheel
from wheelmark.errors import InputError

OBJECTS = ["scale-sm80.cubin", "scale-sm90.cubin", "scale-sm100.cubin", "scale-gfx942.hsaco"]


def native(data: bytes) -> object:
    elf = read_elf(data)
    return elf.build_id, elf.symbols(), torch_use(elf)


def wheel(data: bytes) -> object:
    return read_wheel(data, name=make.NAME)


def outcome(read: Callable[[bytes], object], data: bytes) -> str:
    """The reason of a refusal, or empty."""
    reason = ""
    try:
        read(data)
    except InputError as error:
        reason = error.reason
    assert reason != "input", "a refusal without a reason code of its own"
    return reason


def spoiled(data: bytes, seed: int, count: int) -> list[bytes]:
    """Copies with a flipped bit, an overwritten word, or a cut."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            found.append(make.patched(data, at, bytes([data[at] ^ 1 << chance.randrange(8)])))
        elif kind == 1:
            found.append(
                make.patched(data, at, chance.choice([b"\xff", b"\0"]) * chance.choice([1, 2, 4, 8]))
            )
        elif kind == 2:
            found.append(data[:at])
        else:
            found.append(data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:])
    return found


@pytest.mark.parametrize("name", OBJECTS)
def test_code_objects(name: str) -> None:
    data = make.golden(name)
    outcomes = [outcome(read_code_object, item) for item in spoiled(data, 1, 1500)]
    assert len(set(outcomes)) > 5


def test_every_byte_of_a_code_object_s_tables_set_to_ones() -> None:
    for name in OBJECTS:
        data = make.golden(name)
        for at in range(0, len(data), 3):
            outcome(read_code_object, make.patched(data, at, b"\xff" * min(4, len(data) - at)))


def test_native_library() -> None:
    outcomes = [outcome(native, item) for item in spoiled(make.golden("native.so"), 2, 2500)]
    assert len(set(outcomes)) > 5


def test_wheel() -> None:
    data = make.wheel_bytes(make.gpu_files("sm80"))
    outcomes = [outcome(wheel, item) for item in spoiled(data, 3, 1500)]
    assert {"wheel-zip"} < set(outcomes)


def test_kernel_manifest() -> None:
    data = make.manifest("sm80").as_bytes()
    outcomes = {outcome(read_kernel_manifest, item) for item in spoiled(data, 4, 2500)}
    assert {"kernel-manifest", "json-syntax"} <= outcomes


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
def test_messagepack(data: bytes) -> None:
    assert outcome(read_messagepack, data) in {"", "hsaco-metadata"}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_elf_header_with_anything_behind(data: bytes) -> None:
    outcome(native, b"\x7fELF\x02\x01\x01" + data)
