"""Receipts: what was installed, from which verified bytes, under which policy, and what every file was then.

The receipt that counts lies in the state directory, where nobody else can write: ``receipts/<environment>/<name>.json``. A
copy of its digests lies in the distribution's own dist-info, as ``wheelmark.json``: it makes the payload's checks when it
is loaded cheap. Whoever can write to the package can write to the copy too, so it proves nothing against them; it
finds damage and mix-ups, and ``audit-installed`` goes by the receipt.

A file's stamp is ``size mtime_ns ctime_ns inode device``. As long as it holds nobody has written to the file through the file
system (a change sets ctime, which no call can set back); then its digest holds too. Audits hash all the same.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import dataclasses
import datetime as dt
import fcntl
import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.deploy.disk import COPY, Layout
from wheelmark.errors import InputError
from wheelmark.plainfiles import read_bounded
from wheelmark.trust.state import private_directory, state_directory

SCHEMA = "https://wheelmark.dev/receipt/v1"
COPY_SCHEMA = "https://wheelmark.dev/installed-files/v1"
_FOLDER = "receipts"
_LIMIT = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One installed file."""

    sha256: str
    stamp: str
    """``size mtime_ns ctime_ns inode device``, decimal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Receipt:
    """One installation."""

    name: str
    """Normalized distribution name."""
    version: str
    target: str
    wheel: str
    """Its file name."""
    wheel_sha256: str
    release_sha256: str
    """Of ``release.json``; empty for a lone wheel."""
    lock_sha256: str
    """Of the lock that the dependencies came from; empty where none were installed."""
    policy: str
    """Where the policy was read from."""
    policy_sha256: str
    channel: str
    root: str
    level: str
    """What a signature under that root proves, in the policy's words."""
    signer: str
    """The policy's rule that matched."""
    identity: str
    issuer: str
    signed: str
    """RFC 3339 time of the signature."""
    installed: str
    """RFC 3339 time of the installation, by this machine's clock."""
    wheelmark: str
    """Version that installed."""
    installer: str
    """``uv`` or ``pip``."""
    python: str
    site: str
    """Real path of site-packages."""
    info: str
    """Name of the dist-info folder."""
    owned: tuple[str, ...]
    """Folders that belong to the distribution with all below them, relative to ``site``."""
    unchecked: tuple[str, ...]
    """What nobody looked at: ``card``, where the environment was made for another machine."""
    files: Mapping[str, FileRecord]
    """Path relative to ``site`` -> what it was."""
    startup: Mapping[str, str]
    """Files of site-packages that every start runs -> sha256, as they were."""

    def as_bytes(self) -> bytes:
        """Canonical JSON."""
        return digests.canonical_json({"schema": SCHEMA, **dataclasses.asdict(self)})


def stamp(path: Path) -> str:
    """The stamp of a file as it is now."""
    found = path.lstat()
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino} {found.st_dev}"


def record_files(paths: Iterable[Path], layout: Layout) -> dict[str, FileRecord]:
    """Digests and stamps of files, by their names in RECORD.

    Raises:
        InputError: One changed while it was read, or cannot be read (``unreadable``).
    """
    found: dict[str, FileRecord] = {}
    for path in paths:
        try:
            before = stamp(path)
            sha256 = digests.sha256_file(path)
            after = stamp(path)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error
        if before != after:
            raise InputError(f"{path} changed while it was read", reason="unreadable")
        found[layout.short(path)] = FileRecord(sha256=sha256, stamp=after)
    return found


def write_copy(layout: Layout, files: Mapping[str, FileRecord], wheel_sha256: str) -> None:
    """Write the copy into dist-info and list it in RECORD, so that an uninstaller takes it away."""
    path = layout.info / COPY
    record = layout.info / "RECORD"
    changing = {layout.short(record), layout.short(path)}
    data = digests.canonical_json(
        {
            "schema": COPY_SCHEMA,
            "wheel": wheel_sha256,
            "files": {name: dataclasses.asdict(item) for name, item in files.items() if name not in changing},
        }
    )
    replace(path, data, mode=0o644)
    rows = [row for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"))) if row]
    kept = [row for row in rows if row[0] != layout.short(path)]
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [*kept, [layout.short(path), f"sha256={digest}", str(len(data))]]
    )
    replace(record, text.getvalue().encode(), mode=0o644)


def replace(path: Path, data: bytes, *, mode: int) -> None:
    """Put a whole file in place at once."""
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


class Receipts:
    """The receipts of one environment.

    Args:
        site: Its site-packages.
        state: The state directory; default: this user's.
    """

    def __init__(self, site: Path, *, state: Path | None = None) -> None:
        self.site = site.resolve()
        self._state = state
        self._key = digests.sha256(os.fsencode(self.site))[:32]

    @property
    def folder(self) -> Path:
        """Where they lie, or would."""
        return (self._state or state_directory()) / _FOLDER / self._key

    def names(self) -> tuple[str, ...]:
        """Distributions that there are receipts of."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.json")))

    def read(self, name: str) -> Receipt | None:
        """The receipt of a distribution; ``None`` where there is none.

        Raises:
            InputError: It is malformed, or another environment's (``receipt-malformed``).
        """
        path = self.folder / f"{name}.json"
        if not os.path.lexists(path):
            return None
        try:
            data = read_bounded(path, _LIMIT)
            value = strictjson.load_object(data, what="receipt", limits=strictjson.Limits(size=_LIMIT))
            found = _read(value)
            if found.as_bytes() != data or found.name != name or found.site != str(self.site):
                raise ValueError("not in canonical form, or of something else")  # noqa: TRY301 - one way out
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the receipt {path} is malformed: {error}",
                fix="wheelmark install --replace, from a release that you trust",
                reason="receipt-malformed",
            ) from error
        return found

    def write(self, receipt: Receipt) -> Path:
        """Keep a receipt; there is no half-written one."""
        path = self._made() / f"{receipt.name}.json"
        replace(path, receipt.as_bytes(), mode=0o600)
        self.pending(receipt.name).unlink(missing_ok=True)
        return path

    def begin(self, name: str, wheel_sha256: str) -> None:
        """Say that an installation is under way: what lies there until it ends is ours and half-done."""
        folder = self._made()
        replace(self.pending(name), wheel_sha256.encode(), mode=0o600)
        (folder / f"{name}.json").unlink(missing_ok=True)

    def pending(self, name: str) -> Path:
        """The mark of an installation that began and did not end."""
        return self.folder / f"{name}.pending"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One installation at a time; a second waits."""
        with (self._made() / ".lock").open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _made(self) -> Path:
        state = self._state or state_directory(create=True)
        for folder in (state, state / _FOLDER, self.folder):
            private_directory(folder)
        return self.folder


def _read(value: Mapping[str, Any]) -> Receipt:
    rest = {key: item for key, item in value.items() if key != "schema"}
    if value.get("schema") != SCHEMA:
        raise ValueError(f"schema {value.get('schema')!s:.80}")
    texts = {"owned", "unchecked", "files", "startup"}
    for key, item in rest.items():
        if key not in texts and not isinstance(item, str):
            raise TypeError(f"{key} is no text")
    lists = {
        key: tuple(item for item in value[key] if isinstance(item, str)) for key in ("owned", "unchecked")
    }
    files = {
        str(name): FileRecord(sha256=str(item["sha256"]), stamp=str(item["stamp"]))
        for name, item in value["files"].items()
    }
    return Receipt(**{**rest, **lists, "files": files, "startup": dict(value["startup"])})


def now_text() -> str:
    """This machine's clock, RFC 3339 in whole seconds."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
