"""Changed bytes of layers and documents: read, or refused with a reason, and nothing else; seeded, so that it repeats."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import imaging
from imaging import GOOD, Entry, pax, tar
from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.layer import read_layer
from wheelmark.oci.layout import Layout
from wheelmark.verify.reasons import TABLE

LAYER = tar(*GOOD, pax(("path", "long"), ("mtime", "1.5")), Entry(name="f", data=b"x" * 700))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One to four changes: a byte turned, a run cut out, doubled, or filled."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found))
        length = chance.choice((1, 1, 2, 8, 512))
        match chance.randrange(4):
            case 0:
                found[at] ^= 1 << chance.randrange(8)
            case 1 if len(found) > length:
                del found[at : at + length]
            case 2:
                found[at:at] = found[at : at + length]
            case _:
                found[at : at + length] = bytes([chance.choice((0, 0x20, 0x2F, 0x80, 0xFF))]) * length
        if not found:
            return b""
    return bytes(found)


def answered(read: Callable[[], object]) -> str:
    reason = ""
    try:
        read()
    except InputError as error:
        reason = error.reason
    assert reason in {"", *TABLE}
    return reason


def checksummed(data: bytes) -> bytes:
    """With right checksums, so that what stands in the headers is looked at."""
    found = bytearray(data)
    for at in range(0, len(found) - 511, 512):
        block = found[at : at + 512]
        if block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            found[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    return bytes(found)


@pytest.mark.parametrize("seed", range(4))
def test_layers(seed: int) -> None:
    chance = random.Random(seed)
    found = set()
    for _ in range(400):
        data = checksummed(mutated(LAYER, chance))
        found.add(answered(lambda data=data: read_layer(io.BytesIO(data), types.LAYER)))  # type: ignore[misc]
    assert found >= {"", "image-layer", "image-path"}


def test_compressed_layers() -> None:
    chance = random.Random(5)
    packed = imaging.packed(LAYER)
    for _ in range(400):
        data = mutated(packed, chance)
        answered(lambda data=data: read_layer(io.BytesIO(data), types.LAYER_GZIP))  # type: ignore[misc]
    inner = zlib.compressobj(wbits=31)
    body = inner.compress(LAYER) + inner.flush()
    assert answered(lambda: read_layer(io.BytesIO(body), types.LAYER_GZIP)) == ""


@pytest.mark.parametrize("name", ["read_index", "read_manifest", "read_config"])
def test_documents(name: str, tmp_path: Path) -> None:
    image = imaging.layout(tmp_path / "image", lambda statement: statement)
    layout = Layout(tmp_path / "image")
    manifest = layout.read_manifest(image)
    good = {
        "read_index": (tmp_path / "image" / "index.json").read_bytes(),
        "read_manifest": layout.document(image),
        "read_config": layout.document(manifest.config),
    }[name]
    read: Callable[[bytes], object] = getattr(types, name)
    chance = random.Random(6)
    for _ in range(500):
        data = mutated(good, chance)
        answered(lambda data=data: read(data))  # type: ignore[misc]


def test_whole_layouts(tmp_path: Path) -> None:
    path = tmp_path / "image"
    image = imaging.layout(path, lambda statement: statement)
    chance = random.Random(7)
    files = [item for item in path.rglob("*") if item.is_file()]
    for _ in range(200):
        file = chance.choice(files)
        data = file.read_bytes()
        file.write_bytes(mutated(data, chance))

        def whole() -> None:
            layout = Layout(path)
            layout.check_files()
            layout.resolve(image.digest)
            layout.referrers([image.sha256])

        answered(whole)
        file.write_bytes(data)
