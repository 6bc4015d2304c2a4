"""The evidence store: what is known of images that were verified on this machine, kept so that a hook can judge them again.

For each image, by the digest of its manifest: the bytes of manifest, configuration and of the indexes that hold it, and its
bundles. Never a verdict: policy, clock and deny list are looked at anew each time. Everything that has a digest is kept
under it and hashed when it is read. What has none is that there is a record at all: every blob of the image was hashed
and every layer read, and nothing was wrong with them. That is believed because nobody else can write here: the folder
is of mode 0700, or root's own with mode 0755 where hooks of other users read it. A store is made where nothing is or an
empty folder; a folder with something else in it is never made into one.

    store.json            what this folder is
    blobs/sha256/<hex>    documents and bundles
    images/<hex>          one image: a line with the sha256 of what follows, then the record (canonical JSON)
    facts/, memory/       what bundles proved (``FactsCache``), what this machine has seen (``Memory``)
    taken/                private copies while an image is pulled
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import wheelmark
from wheelmark import digests, manifest, strictjson
from wheelmark.errors import ConfigError, InputError, RejectedError, StateError
from wheelmark.oci import layout, types
from wheelmark.plainfiles import read_bounded
from wheelmark.trust import state
from wheelmark.verify import FactsCache, Memory
from wheelmark.verify.bundle import LIMITS as BUNDLE_LIMITS
from wheelmark.verify.handle import private_copies
from wheelmark.verify.policy import permissions

SCHEMA = "https://wheelmark.dev/image-evidence/v1"
SYSTEM = Path("/var/lib/wheelmark/images")
"""Of root, and of hooks of root's engine."""
_TAKEN = "taken"
_MARK = "store.json"
_MARK_BYTES = digests.canonical_json({"schema": SCHEMA})
_IMAGES, _BLOBS, _FACTS, _MEMORY, _LOCK = "images", "blobs/sha256", "facts", "memory", "lock"
_LIMITS = strictjson.Limits(size=8 << 20, depth=6, items=2 * types.MAX_DESCRIPTORS)
_DIGEST = re.compile("[0-9a-f]{64}")
_WRITING = ".writing-"
"""How names of files begin that are being written, under the lock."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MEMBERS = {"schema", "manifest", "size", "config", "indexes", "bundles", "reference", "kept", "verifier"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageEvidence:
    """What is kept of one image."""

    sha256: str
    """Of its manifest."""
    manifest: bytes
    config: bytes
    indexes: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """sha256 -> bytes of each index that holds it by digest, itself or through another one of these; outermost first."""
    bundles: Mapping[str, bytes]
    """sha256 -> Sigstore bundle: those attached to the image or to one of the indexes, and those that were given."""
    reference: str = ""
    """Where it was pulled from."""
    kept: str = ""
    """When, RFC 3339."""


def default_store() -> Path:
    """Where images' evidence is kept if nothing else is said: the system's place for root, else this user's state directory."""
    return SYSTEM if os.geteuid() == 0 else state.state_path() / _IMAGES


class EvidenceStore:
    """The store in one directory.

    Args:
        directory: Itself; no symbolic link.
        write: Whether something will be kept in it: it may be absent or empty then, and is made (with mode 0700 where
            absent) when something is. Nothing is written before that.

    Raises:
        ConfigError: It is not there, somebody else could write in it, it is none, or none can be made there (``store``).
    """

    def __init__(self, directory: Path, *, write: bool = False) -> None:
        self.directory = directory.absolute()
        try:
            status = self._status()
            self._own = status is None or status.st_uid == os.geteuid()
            self._shared = status is not None and bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
            if write and not self._own and status is not None:
                raise self._unusable(f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}")
            if status is None and not write:
                raise self._unusable("it is not there")
            if status is None or not self._is_marked():
                self._check_place(status, write=write)
            elif permissions.read_owned(self.directory / _MARK, 1000) != _MARK_BYTES:
                raise self._unusable(f"its {_MARK} is none of this version")
        except ConfigError as error:
            raise error if error.reason == "store" else self._unusable(error.what, fix=error.fix) from error
        except OSError as error:
            raise self._unusable(str(error.strerror)) from error

    def _status(self) -> os.stat_result | None:
        """Of the folder; ``None`` where there is nothing of that name."""
        try:
            status = self.directory.lstat()
        except FileNotFoundError:
            return None
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            raise self._unusable(
                "it is a symbolic link", fix=f"name the folder itself: {self.directory.resolve()}"
            )
        if not stat.S_ISDIR(status.st_mode):
            raise self._unusable("it is no folder")
        if mode & _OTHERS_WRITE:
            raise self._unusable(
                f"others can write in it (mode {mode:04o})", fix=f"chmod go-w {self.directory}"
            )
        return status

    def _is_marked(self) -> bool:
        try:
            (self.directory / _MARK).lstat()
        except FileNotFoundError:
            return False
        return True

    def _check_place(self, status: os.stat_result | None, *, write: bool) -> None:
        """Whether a store can be made here; where it will not be written in, it would have to be one already."""
        found = [] if status is None else sorted(item.name for item in self.directory.iterdir())
        foreign = [name for name in found if name != _LOCK and not name.startswith(_WRITING)]
        if foreign or not write:
            raise self._unusable(
                f"it has no {_MARK}" + (f", and is not empty ({foreign[0]} lies in it)" if foreign else ""),
                fix="name a folder that is empty or not there yet: wheelmark pull makes a store of it",
            )
        there = [parent for parent in (self.directory, *self.directory.parents) if os.path.lexists(parent)]
        permissions.check_folder(there[0])
        for parent in there[0].resolve(), *there[0].resolve().parents:
            for name, what in ((layout.MARK, "an image layout"), (manifest.NAME, "a release directory")):
                if (parent / name).is_file():
                    raise self._unusable(
                        f"it lies in {what}, {parent}, where nothing else may be",
                        fix="name a folder elsewhere with --store",
                    )

    def make(self) -> None:
        """Make it where it is not there yet, and clear away what a writer left over that was killed.

        Raises:
            ConfigError: It cannot be made (``store``).
            StateError: It cannot be written (``store-write``).
        """
        with self._locked():
            pass

    def _prepare(self) -> None:
        with self._write_errors(self.directory):
            for item in self.directory.glob(f"{_WRITING}*"):
                item.unlink()
            if not self._is_marked():
                self._write(_MARK, _MARK_BYTES)
            for name in (_IMAGES, "blobs", _BLOBS):
                folder = self.directory / name
                if not folder.exists():
                    folder.mkdir()
                    folder.chmod(0o755 if self._shared else 0o700)

    @contextlib.contextmanager
    def private_copies(self) -> Iterator[Path]:
        """A new folder in the store that only this user can enter, removed at the end.

        Raises:
            ConfigError: Others can enter where it would be (``store``).
            StateError: It cannot be written (``store-write``).
        """
        self.make()
        with contextlib.ExitStack() as held:
            try:
                folder = held.enter_context(private_copies(self.directory / _TAKEN))
            except ConfigError as error:
                cause = error.__cause__
                if isinstance(cause, OSError):
                    raise self._unwritten(self.directory / _TAKEN, cause) from error
                raise self._unusable(error.what, fix=error.fix) from error
            yield folder

    def cache(self) -> FactsCache | None:
        """Where facts of bundles are kept; nowhere for a user who only reads."""
        return FactsCache(self.directory / _FACTS) if self._own else None

    def memory(self) -> Memory:
        """What was seen before, of whoever owns the store; a user who only reads has a memory of their own."""
        return Memory(self.directory / _MEMORY) if self._own else Memory.of_this_machine()

    def keep(self, evidence: ImageEvidence) -> None:
        """Keep an image's evidence, in place of what was kept of it before.

        Raises:
            StateError: It cannot be written (``store-write``).
        """
        documents = {
            **{digests.sha256(data): data for data in (evidence.manifest, evidence.config)},
            **evidence.indexes,
            **evidence.bundles,
        }
        record = {
            "schema": SCHEMA,
            "manifest": evidence.sha256,
            "size": len(evidence.manifest),
            "config": digests.sha256(evidence.config),
            "indexes": list(evidence.indexes),
            "bundles": sorted(evidence.bundles),
            "reference": evidence.reference,
            "kept": evidence.kept or dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "verifier": wheelmark.__version__,
        }
        body = digests.canonical_json(record)
        with self._locked():
            for sha256, data in documents.items():
                self._write(f"{_BLOBS}/{sha256}", data)
            self._write(f"{_IMAGES}/{evidence.sha256}", digests.sha256(body).encode() + b"\n" + body)

    def find(self, sha256: str) -> ImageEvidence | None:
        """What is kept of the image with this manifest; ``None`` where it was never verified here.

        Raises:
            RejectedError: What is kept is torn or was changed (``store-changed``).
        """
        record = self._record(sha256)
        if record is None:
            return None
        try:
            return ImageEvidence(
                sha256=sha256,
                manifest=self._blob(sha256, types.DOCUMENT_LIMIT),
                config=self._blob(record["config"], types.CONFIG_LIMIT),
                indexes={name: self._blob(name, types.DOCUMENT_LIMIT) for name in record["indexes"]},
                bundles={name: self._blob(name, BUNDLE_LIMITS.size) for name in record["bundles"]},
                reference=record["reference"],
                kept=record["kept"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._changed(sha256, f"{type(error).__name__}: {error}") from error

    def images(self) -> tuple[str, ...]:
        """sha256 of the manifests of all images in it."""
        try:
            names = sorted(item.name for item in (self.directory / _IMAGES).iterdir())
        except FileNotFoundError:
            return ()  # nothing was kept yet
        except OSError as error:
            raise self._unusable(str(error.strerror)) from error
        return tuple(name for name in names if _DIGEST.fullmatch(name))

    def forget(self, sha256: str) -> bool:
        """Remove an image's evidence; whether there was any. Containers of it will not start any more.

        Raises:
            StateError: It cannot be removed (``store-write``).
            RejectedError: What is kept of another image is torn (``store-changed``): what it needs is not known.
        """
        with self._locked():
            path = self.directory / _IMAGES / sha256
            if not _DIGEST.fullmatch(sha256) or not path.exists():
                return False
            used: set[str] = set()
            for other in self.images():
                if other != sha256 and (record := self._record(other)) is not None:
                    used |= {other, record["config"], *record["indexes"], *record["bundles"]}
            with self._write_errors(path):
                path.unlink()
                for blob in (self.directory / _BLOBS).iterdir():
                    if blob.name not in used:
                        blob.unlink()
            return True

    def _record(self, sha256: str) -> dict[str, Any] | None:
        path = self.directory / _IMAGES / sha256
        if not _DIGEST.fullmatch(sha256) or not os.path.lexists(path):
            return None
        try:
            head, _, body = read_bounded(path, _LIMITS.size).partition(b"\n")
            if head.decode("latin-1") != digests.sha256(body):
                raise self._changed(sha256, "its record is torn")
            record = strictjson.load_object(body, what="a record", limits=_LIMITS)
        except InputError as error:
            raise self._changed(sha256, error.what) from error
        if set(record) != _MEMBERS or record["schema"] != SCHEMA or record["manifest"] != sha256:
            raise self._changed(sha256, "its record is another one's, or of another version")
        lists = [record["indexes"], record["bundles"]]
        if not all(isinstance(item, list) for item in lists):
            raise self._changed(sha256, "its record has another form")
        names = [record["config"], *lists[0], *lists[1]]
        if not all(isinstance(name, str) and _DIGEST.fullmatch(name) for name in names):
            raise self._changed(sha256, "its record names what is no digest")
        return record

    def _blob(self, sha256: str, limit: int) -> bytes:
        try:
            data = read_bounded(self.directory / _BLOBS / sha256, limit)
        except InputError as error:
            raise self._changed(sha256, error.what) from error
        if digests.sha256(data) != sha256:
            raise self._changed(sha256, "other bytes lie under this digest")
        return data

    def _write(self, name: str, data: bytes) -> None:
        path = self.directory / name
        with self._write_errors(path):
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=_WRITING)
            try:
                with os.fdopen(handle, "wb") as stream:
                    os.fchmod(stream.fileno(), 0o644 if self._shared else 0o600)
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time; readers see a record and what it names whole, or the record of before."""
        try:
            if self._status() is None:
                state.private_directory(self.directory)
        except ConfigError as error:
            raise self._unusable(error.what) from error
        with self._write_errors(self.directory / _LOCK):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.directory / _LOCK, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._prepare()
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _write_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritten(path, error) from error

    def _unwritten(self, path: Path, error: OSError) -> StateError:
        return StateError(
            f"cannot write {path}: {error.strerror}",
            cause="the disk is full, or the store is somebody else's",
            fix="free some space, or name a store of your own with --store",
            reason="store-write",
        )

    def _unusable(self, why: str, *, fix: str = "") -> ConfigError:
        return ConfigError(
            f"the evidence store {self.directory} cannot be used: {why}",
            cause=""
            if fix
            else "nothing was pulled into it yet, or it is no folder of root's or yours alone",
            fix=fix
            or "wheelmark pull makes it, in a folder that is empty or not there yet; name another with --store",
            reason="store",
        )

    def _changed(self, sha256: str, why: str) -> RejectedError:
        return RejectedError(
            f"the evidence store {self.directory} holds {sha256[:100]} changed: {why}",
            cause="the disk lost what was written last, or somebody changed it",
            fix="pull the image again with wheelmark pull",
            reason="store-changed",
        )
