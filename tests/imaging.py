"""Small real images: layers as tar bytes entry by entry, so that one field can be spoiled, and layouts around them."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.attest.predicates import PROVENANCE, Provenance
from wheelmark.attest.statement import Statement, Subject
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.types import Descriptor, ImageManifest, Platform

CREATED = "2026-01-01T00:00:00Z"
AMD64 = Platform(os="linux", architecture="amd64")
ARM64 = Platform(os="linux", architecture="arm64")
END = bytes(1024)


@dataclasses.dataclass(kw_only=True)
class Entry:
    """One tar entry; what is left empty follows from the data."""

    name: str | bytes
    data: bytes = b""
    kind: bytes = b"0"
    link: str | bytes = ""
    mode: int = 0o644
    size: bytes | None = None
    magic: bytes = b"ustar\x0000"
    prefix: bytes = b""
    checksum: bytes | None = None
    uid: bytes = b"0000000\0"

    def as_bytes(self) -> bytes:
        name, link = (item.encode() if isinstance(item, str) else item for item in (self.name, self.link))
        block = bytearray(512)
        block[0 : len(name)] = name
        block[100:108] = b"%07o\0" % self.mode
        block[108:116] = self.uid
        block[116:124] = b"0000000\0"
        block[124:136] = b"%011o\0" % len(self.data) if self.size is None else self.size
        block[136:148] = b"00000000000\0"
        block[156:157] = self.kind
        block[157 : 157 + len(link)] = link
        block[257:265] = self.magic
        block[345 : 345 + len(self.prefix)] = self.prefix
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block) if self.checksum is None else self.checksum
        return bytes(block) + self.data + bytes(-len(self.data) % 512)


def pax(*records: tuple[str, str]) -> Entry:
    """An extended header."""
    data = b""
    for key, value in records:
        text = f" {key}={value}\n".encode()
        length = len(text) + 1
        while length != len(text) + len(str(length)):
            length += 1
        data += str(length).encode() + text
    return Entry(name="x", data=data, kind=b"x")


def folder(name: str) -> Entry:
    return Entry(name=name, kind=b"5", mode=0o755)


def tar(*entries: Entry, end: bytes = END) -> bytes:
    return b"".join(entry.as_bytes() for entry in entries) + end


GOOD = (
    folder("./"),
    folder("usr/"),
    folder("usr/bin/"),
    Entry(name="usr/bin/tool", data=b"#!" * 400, mode=0o755),
    Entry(name="usr/bin/hard", kind=b"1", link="usr/bin/tool"),
    Entry(name="bin", kind=b"2", link="usr/bin"),
    Entry(name="usr/bin/sh", kind=b"2", link="/usr/bin/tool"),
)


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


@dataclasses.dataclass(kw_only=True)
class Draft:
    """One image before it is written; a test may change any of it."""

    target: str = "cpu-x86_64"
    platform: Platform = AMD64
    layers: list[bytes] = dataclasses.field(
        default_factory=lambda: [tar(*GOOD), tar(Entry(name="app", data=b"payload"))]
    )
    compress: bool = True
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    change_config: Callable[[dict[str, Any]], object] = lambda _config: None
    change_manifest: Callable[[dict[str, Any]], object] = lambda _manifest: None

    def write(self, writer: LayoutWriter, *, tag: str = "", platform: Platform | None = None) -> Descriptor:
        """Keep its blobs; the descriptor of its manifest."""
        media_type = types.LAYER_GZIP if self.compress else types.LAYER
        stored = [packed(data) if self.compress else data for data in self.layers]
        labels = {types.TARGET_LABEL: self.target, **self.labels} if self.target else self.labels
        config = {
            "os": self.platform.os,
            "architecture": self.platform.architecture,
            "config": {"Labels": labels, "User": "65532"},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{digests.sha256(data)}" for data in self.layers],
            },
            "history": [],
        }
        self.change_config(config)
        made = ImageManifest(
            config=writer.add(json.dumps(config).encode(), types.CONFIG),
            layers=tuple(writer.add(data, media_type) for data in stored),
        )
        value = json.loads(made.as_bytes())
        self.change_manifest(value)
        return writer.add(
            json.dumps(value).encode(),
            types.MANIFEST,
            annotations={types.REFERENCE: tag} if tag else {},
            platform=platform,
        )


def provenance(*sha256: str, name: str = "registry.example/demo") -> bytes:
    """A statement about images."""
    made = Provenance(
        external_parameters={},
        resolved_dependencies=(),
        builder_id="https://wheelmark.dev/builder/tests/v1",
    )
    subjects = tuple(
        Subject(name=name if not index else f"{name}-{index}", sha256=item)
        for index, item in enumerate(sha256)
    )
    return statement(subjects, PROVENANCE, made.as_predicate())


def statement(subjects: Sequence[Subject], kind: str, predicate: Mapping[str, Any]) -> bytes:
    return Statement(subjects=tuple(subjects), predicate_type=kind, predicate=predicate).as_bytes()


def layout(path: Path, sign: Callable[[bytes], bytes], draft: Draft | None = None) -> Descriptor:
    """A layout of one image with its provenance attached, listed by the fallback tag alone."""
    writer = LayoutWriter(path)
    image = (draft or Draft()).write(writer, tag="v1")
    bundle = writer.attach(image, sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED)
    writer.finish([image, writer.fallback(image, [bundle])])
    return image
