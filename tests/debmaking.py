"""Debian packages made byte by byte, so that a test can spoil exactly one thing; and a small system of them."""

from __future__ import annotations

import dataclasses
import gzip
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard

import imaging
from imaging import Entry, folder
from wheelmark import digests
from wheelmark.lock.debian import DebianLock, DebianPackage, SignedIndex

INTERPRETER = b"#!interpreter"
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"


def packed(data: bytes, kind: str) -> bytes:
    """Bytes as a member named ``.tar.<kind>`` has them."""
    match kind:
        case "xz":
            return lzma.compress(data)
        case "gz":
            return gzip.compress(data, mtime=0)
        case "zst":
            return zstandard.ZstdCompressor().compress(data)
        case _:
            return data


def member(name: str, data: bytes, *, size: bytes | None = None, end: bytes = b"`\n") -> bytes:
    """One member of an ar archive."""
    said = str(len(data)).encode() if size is None else size
    header = name.encode().ljust(16) + b"0".ljust(12) + b"0".ljust(6) + b"0".ljust(6) + b"100644".ljust(8)
    return header + said.ljust(10) + end + data + b"\n" * (len(data) & 1)


@dataclasses.dataclass(kw_only=True)
class Draft:
    """One package before it is written; a test may change any of it."""

    name: str = "demo"
    version: str = "1.0-1"
    architecture: str = "amd64"
    entries: Sequence[Entry] = ()
    control: bytes | None = None
    more: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """Further files of control.tar."""
    kind: str = "xz"
    data_tar: bytes | None = None
    format: bytes = b"2.0\n"

    def control_file(self) -> bytes:
        if self.control is not None:
            return self.control
        fields = (("Package", self.name), ("Version", self.version), ("Architecture", self.architecture))
        return "".join(f"{key}: {text}\n" for key, text in fields).encode() + b"Description: short\n long\n"

    def members(self) -> list[tuple[str, bytes]]:
        inside = {"control": self.control_file(), **self.more}
        control = imaging.tar(
            folder("./"), *(Entry(name=f"./{name}", data=data) for name, data in inside.items())
        )
        data = imaging.tar(folder("./"), *self.entries) if self.data_tar is None else self.data_tar
        end = f".{self.kind}" if self.kind else ""
        return [
            ("debian-binary", self.format),
            (f"control.tar{end}", packed(control, self.kind)),
            (f"data.tar{end}", packed(data, self.kind)),
        ]

    def as_bytes(self) -> bytes:
        return b"!<arch>\n" + b"".join(member(name, data) for name, data in self.members())


def locked(draft: Draft, data: bytes) -> DebianPackage:
    """The entry of a lock for a package."""
    return DebianPackage(
        name=draft.name,
        version=draft.version,
        architecture=draft.architecture,
        sha256=digests.sha256(data),
        size=len(data),
        path=f"pool/main/d/{draft.name}.deb",
        source=draft.name,
        source_version=draft.version,
        suite="bookworm",
    )


def lock(
    drafts: Sequence[Draft], pool: Path, *, architecture: str = "amd64"
) -> tuple[DebianLock, dict[str, Path]]:
    """A lock of packages that are written into a pool, and where they lie."""
    pool.mkdir(parents=True, exist_ok=True)
    packages: list[DebianPackage] = []
    files: dict[str, Path] = {}
    for draft in sorted(drafts, key=lambda item: item.name):
        data = draft.as_bytes()
        packages.append(locked(draft, data))
        files[packages[-1].sha256] = path = pool / f"{packages[-1].sha256}.deb"
        path.write_bytes(data)
    index = SignedIndex(
        suite="bookworm",
        component="main",
        sha256="0" * 64,
        date="2026-01-01T00:00:00Z",
        valid_until="",
        keys=("A" * 40,),
        packages_sha256="1" * 64,
    )
    made = DebianLock(
        architecture=architecture,
        suite="bookworm",
        inputs="2" * 64,
        signed=(index,),
        packages=tuple(packages),
    )
    return made, files


def system(architecture: str = "amd64") -> tuple[Draft, ...]:
    """The packages of a small system with something of everything: links, a conffile, scripts, certificates."""
    return (
        Draft(
            name="base-files",
            architecture=architecture,
            entries=(
                folder("./etc/"),
                Entry(name="./etc/os-release", kind=b"2", link="../usr/lib/os-release"),
                Entry(name="./etc/host.conf", data=b"multi on\n"),
                folder("./lib/"),
                folder("./usr/"),
                folder("./usr/lib/"),
                Entry(name="./usr/lib/os-release", data=b"ID=debian\n"),
                folder("./usr/share/"),
                folder("./usr/share/doc/"),
                folder("./usr/share/doc/base-files/"),
                Entry(name="./usr/share/doc/base-files/copyright", data=b"free\n"),
                Entry(name="./usr/share/doc/base-files/changelog.gz", data=b"long"),
                Entry(name="./root/", kind=b"5", mode=0o700),
                Entry(name="./tmp/", kind=b"5", mode=0o1777),
            ),
            more={"postinst": b"#!/bin/sh\nmkdir -p /x\n", "conffiles": b"/etc/host.conf\n"},
        ),
        Draft(
            name="ca-certificates",
            architecture="all",
            kind="gz",
            entries=(
                folder("./usr/share/ca-certificates/mozilla/"),
                Entry(name="./usr/share/ca-certificates/mozilla/B.crt", data=CERTIFICATE),
                Entry(name="./usr/share/ca-certificates/mozilla/A.crt", data=CERTIFICATE[:-1]),
            ),
        ),
        Draft(
            name="python3.11-minimal",
            architecture=architecture,
            kind="zst",
            entries=(
                Entry(name="./usr/bin/python3.11", data=INTERPRETER, mode=0o755),
                Entry(name="./usr/bin/python3.11-again", kind=b"1", link="./usr/bin/python3.11"),
                Entry(name="./lib/python3.11.so", data=b"library"),
            ),
        ),
    )
