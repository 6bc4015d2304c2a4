"""A real TUF repository in a folder, made with the tuf library's metadata API, and served on loopback.

Source: The Update Framework specification 1.0, sections 4 (formats) and 6.2 (consistent snapshots).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined] # as below
from tuf.api.metadata import (  # type: ignore[attr-defined] # exported, though not by name
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

TARGET = "trusted_root.json"
ROLES = ("root", "timestamp", "snapshot", "targets")


class Repository:
    """One repository: ``publish`` signs new versions of everything, with new targets.

    Args:
        folder: Where its files are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "targets").mkdir(parents=True)
        self._signers = {role: CryptoSigner.generate_ed25519() for role in ROLES}
        self._versions = dict.fromkeys(ROLES, 0)
        self._previous: CryptoSigner | None = None
        self.sign_root()

    @property
    def first(self) -> bytes:
        """The bootstrap."""
        return (self.folder / "1.root.json").read_bytes()

    def rotate(self, *roles: str) -> None:
        """New keys for ``roles``, and a root that says so."""
        for role in roles:
            if role == "root":
                self._previous = self._signers["root"]
            self._signers[role] = CryptoSigner.generate_ed25519()
        self.sign_root()

    def sign_root(self) -> None:
        root = Root(expires=_after(365), version=self._next("root"), consistent_snapshot=True)
        for role in ROLES:
            root.add_key(self._signers[role].public_key, role)
        metadata = Metadata(root)
        metadata.sign(self._signers["root"])
        if self._previous is not None:
            metadata.sign(self._previous, append=True)
            self._previous = None
        metadata.to_file(str(self.folder / f"{root.version}.root.json"))

    def publish(self, data: bytes, *, name: str = TARGET, expires: dt.datetime | None = None) -> None:
        """Sign targets, snapshot and timestamp over ``data``, called ``name``."""
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "targets" / f"{digest}.{name}").write_bytes(data)
        targets = Targets(expires=_after(365), version=self._next("targets"))
        targets.targets[name] = TargetFile.from_data(name, data)
        self._write("targets", Metadata(targets))
        self.snapshot()
        self.timestamp(expires=expires)

    def snapshot(self) -> None:
        snapshot = Snapshot(expires=_after(30), version=self._next("snapshot"))
        snapshot.meta["targets.json"] = MetaFile(version=self._versions["targets"])
        self._write("snapshot", Metadata(snapshot))

    def timestamp(self, *, expires: dt.datetime | None = None) -> None:
        timestamp = Timestamp(expires=expires or _after(7), version=self._next("timestamp"))
        timestamp.snapshot_meta = MetaFile(version=self._versions["snapshot"])
        self._write("timestamp", Metadata(timestamp))

    def roll_back(self, role: str, version: int) -> None:
        """Forget the versions of ``role`` after ``version``: the next one is signed with a number that was there."""
        self._versions[role] = version - 1

    def target(self) -> Path:
        """The file of the newest target."""
        return max((self.folder / "targets").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    def _write(
        self, role: str, metadata: Metadata[Targets] | Metadata[Snapshot] | Metadata[Timestamp]
    ) -> None:
        metadata.sign(self._signers[role])
        name = f"{role}.json" if role == "timestamp" else f"{self._versions[role]}.{role}.json"
        metadata.to_file(str(self.folder / name))

    def _next(self, role: str) -> int:
        self._versions[role] += 1
        return self._versions[role]


@contextlib.contextmanager
def served(folder: Path, seen: Callable[[str], None] = lambda _path: None) -> Iterator[str]:
    """Serve a folder on loopback; ``seen`` is called with each path before it is answered."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            seen(self.path)
            super().do_GET()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _after(days: int) -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=days)
