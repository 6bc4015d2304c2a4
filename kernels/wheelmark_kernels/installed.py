"""Whether a file of this package still is what was installed: cheap where `wheelmark install` left a receipt beside it.

The receipt's copy (`wheelmark.json` in dist-info, schema https://wheelmark.dev/installed-files/v1) has the digest of each file and
its stamp: size, times, inode and device as they were when the digest was found. While the stamp holds, nobody has written to
the file, and it is not hashed again; where it does not (a copied environment, a restored backup), it is hashed and compared.

This finds damage and mix-ups. It does not stop somebody who can write to this folder: they can write to the receipt as well.
`wheelmark audit-installed` goes by the receipt in the state directory, which they cannot reach, and hashes everything.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

SCHEMA: Final = "https://wheelmark.dev/installed-files/v1"
NAME: Final = "wheelmark.json"
PACKAGE: Final = Path(__file__).parent


class Entry(NamedTuple):
    """What one file was."""

    sha256: str
    stamp: str
    """``size mtime_ns ctime_ns inode device``, decimal."""


class FileChanged(Exception):  # noqa: N818 - a state, named for what it is
    """A file is not what was installed, or the receipt beside the package cannot be read."""


def check(path: Path) -> bool:
    """Compare a file of this package with the receipt.

    Args:
        path: The file.

    Returns:
        Whether there was a receipt to compare with; never for a file outside the package.

    Raises:
        FileChanged: The file is not what was installed, or the receipt cannot be understood.
    """
    receipt = read_receipt(PACKAGE) if path.is_relative_to(PACKAGE) else None
    if receipt is None:
        return False
    name = path.relative_to(PACKAGE.parent).as_posix()
    entry = receipt.get(name)
    if entry is None:
        raise FileChanged(f"{name} was not installed with this package")
    try:
        if stamp(path) != entry.stamp and hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
            raise FileChanged(f"{name} is not the file that was installed")
    except OSError as error:
        raise FileChanged(f"{name} cannot be read: {error}") from error
    return True


def stamp(path: Path) -> str:
    """The stamp of a file as it is now."""
    found = path.lstat()
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino} {found.st_dev}"


@cache
def read_receipt(package: Path) -> dict[str, Entry] | None:
    """The receipt's copy beside a package: path from site-packages -> what the file was; ``None`` where there is none.

    Raises:
        FileChanged: There are several, or it cannot be understood.
    """
    found = list(package.parent.glob(f"{package.name}-*.dist-info/{NAME}"))
    if not found:
        return None
    try:
        (path,) = found
        return _read(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileChanged(f"the receipt of the installation cannot be understood: {error}") from error


def _read(value: dict[str, Any]) -> dict[str, Entry]:
    if value["schema"] != SCHEMA:
        raise ValueError(f"its schema is {value['schema']!r}")
    return {
        str(name): Entry(str(item["sha256"]), str(item["stamp"])) for name, item in value["files"].items()
    }
