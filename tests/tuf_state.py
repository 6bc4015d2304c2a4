"""A state directory in which TUF keeps a root fresh, as ``wheelmark trust update`` leaves it; and policies filled in."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

from wheelmark import digests

FIRST = b"the root.json that trust began with"
PUBLIC = "73747011d0857ada15479a16c4cae0f3ed03aac698b523b97e1de314ac9d9ca8"
"""Digest of the ``root.json`` of Sigstore's public repository that the shipped policy names."""
_SHA256_OF = re.compile(r'sha256 = "(?:SHA256 OF [^"]*|<sha256 of [^"]*>)"')
_PATH = re.compile(r'(?:path|key) = "([^"]*)"')


def write(home: Path, name: str, root: bytes, *, vouched: dt.datetime | None = None) -> Path:
    """Put ``root`` into the state directory ``home`` under ``name``; gives its path."""
    folder = home / "roots" / "tuf" / name
    for path in (home, home / "roots", home / "roots" / "tuf", folder):
        path.mkdir(mode=0o700, exist_ok=True)
    digest = digests.sha256(root)
    path = folder / f"root-{digest}.json"
    path.write_bytes(root)
    path.chmod(0o600)
    (folder / "bootstrap.json").write_bytes(FIRST)
    record = {
        "schemaVersion": 1,
        "url": "https://mirror.invalid",
        "bootstrapSha256": digests.sha256(FIRST),
        "rootSha256": digest,
        "timestampVersion": 7,
        "vouched": (vouched or dt.datetime.now(dt.UTC)).isoformat(),
    }
    (folder / "update.json").write_text(json.dumps(record), encoding="utf-8")
    return path


def filled(text: str, folder: Path) -> str:
    """A policy with the digests of the files that lie in ``folder``, and TUF's first root as ``write`` has it."""
    lines = text.replace(PUBLIC, digests.sha256(FIRST)).splitlines()
    named = ""
    for index, line in enumerate(lines):
        if match := _PATH.fullmatch(line):
            named = match[1]
        elif _SHA256_OF.fullmatch(line):
            file = folder / named
            digest = digests.sha256(file.read_bytes()) if named and file.is_file() else "ab" * 32
            lines[index] = f'sha256 = "{digest}"'
        elif line.startswith("[["):
            named = ""
    return "\n".join(lines) + "\n"
