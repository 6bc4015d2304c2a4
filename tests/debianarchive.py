"""A small signed Debian archive on loopback: real packages, a real key, and a server that can misbehave."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import email.utils
import functools
import hashlib
import http.server
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from presence import need_program
from wheelmark.config.recipe import Debian
from wheelmark.lock.debian import AptSource, Machine

SUITES = {"bookworm": "debian", "bookworm-updates": "debian", "bookworm-security": "debian-security"}
NOW = dt.datetime(2026, 10, 1, 12, tzinfo=dt.UTC)


class Keys:
    """A key of an archive, made by gpg."""

    def __init__(self, name: str) -> None:
        need_program("gpg")
        # A short path: the agent's socket lies in it.
        self.home = Path(tempfile.mkdtemp(prefix="wm-gpg-"))
        made = ("--passphrase", "", "--quick-gen-key", f"{name} <{name}@example.org>", "ed25519", "sign", "0")
        self._gpg("--faked-system-time", "20240101T000000", *made)
        self.keyring = self.home / "archive-keyring.gpg"
        self.keyring.write_bytes(self._gpg("--export"))
        listed = self._gpg("--with-colons", "--fingerprint").decode().splitlines()
        self.fingerprint = next(line.split(":")[9] for line in listed if line.startswith("fpr:"))

    def clearsign(self, text: bytes, *options: str) -> bytes:
        return self._gpg(*options, "--clearsign", given=text)

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", self.home, "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def _gpg(self, *arguments: str, given: bytes = b"") -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--pinentry-mode", "loopback"]
        done = subprocess.run([*command, *arguments], input=given, capture_output=True, check=True)
        return done.stdout


@functools.cache
def _deb(name: str, version: str, architecture: str, fields: str, size: int) -> bytes:
    need_program("dpkg-deb")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN" / "control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
            f"Maintainer: Nobody <nobody@example.org>\n{fields}Description: a test\n"
        )
        document = root / "usr" / "share" / "doc" / name / "copyright"
        document.parent.mkdir(parents=True)
        # Hard to compress, so that a package has about the size asked for.
        blocks = (hashlib.sha256(f"{name} {number}".encode()).hexdigest() for number in range(size // 32))
        document.write_text("\n".join(blocks) + "\n")
        made = Path(folder) / "made.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, made], check=True, capture_output=True
        )
        return made.read_bytes()


@dataclasses.dataclass(kw_only=True)
class Archive:
    """Files of the archive and what the server does with them."""

    root: Path
    keys: Keys
    url: str = ""
    asked: list[str] = dataclasses.field(default_factory=list)
    faults: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Part of a path -> what happens at the next requests for it, in turn."""
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    stanzas: dict[str, dict[tuple[str, str], str]] = dataclasses.field(
        default_factory=lambda: {suite: {} for suite in SUITES}
    )
    valid_until: dt.datetime | None = None

    def add(
        self,
        name: str,
        version: str,
        *,
        suite: str = "bookworm",
        architecture: str = "amd64",
        depends: str = "",
        source: str = "",
        size: int = 400,
    ) -> Path:
        """Put a package into the pool and the suite (``publish`` writes its index)."""
        extra = (f"Depends: {depends}\n" if depends else "") + (f"Source: {source}\n" if source else "")
        data = _deb(name, version, architecture, extra, size)
        plain = version.partition(":")[2] or version
        path = f"pool/main/{name[0]}/{name}/{name}_{plain}_{architecture}.deb"
        file = self.root / SUITES[suite] / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        self.stanzas[suite][name, architecture] = (
            f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n{extra}"
            f"Maintainer: Nobody <nobody@example.org>\nFilename: {path}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\nDescription: a test\n"
        )
        return file

    def publish(self, *, signer: Keys | None = None, options: Sequence[str] = ()) -> None:
        """Write and sign every suite's index."""
        for suite in SUITES:
            folder = self.suite(suite)
            lines = []
            for architecture in ("amd64", "arm64"):
                mine = [
                    text
                    for (_, kind), text in sorted(self.stanzas[suite].items())
                    if kind in {architecture, "all"}
                ]
                data = "\n".join(mine).encode()
                path = folder / "main" / f"binary-{architecture}" / "Packages"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                name = path.relative_to(folder).as_posix()
                lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n")
            text = self.release_text(suite, "".join(lines))
            (folder / "InRelease").write_bytes((signer or self.keys).clearsign(text, *options))

    def release_text(self, suite: str, listed: str) -> bytes:
        until = (
            f"Valid-Until: {email.utils.format_datetime(self.valid_until, usegmt=True)}\n"
            if self.valid_until
            else ""
        )
        return (
            f"Origin: Debian\nLabel: Debian\nSuite: stable\nCodename: {suite}\n"
            f"Date: {email.utils.format_datetime(NOW, usegmt=True)}\n{until}"
            f"Architectures: all amd64 arm64\nComponents: main\nSHA256:\n{listed}"
        ).encode()

    def suite(self, suite: str) -> Path:
        return self.root / SUITES[suite] / "dists" / suite

    def machine(self, **changes: object) -> Machine:
        """A machine whose apt has this archive."""
        sources = tuple(
            AptSource(uri=f"{self.url}/{folder}", suite=suite, components=("main",))
            for suite, folder in SUITES.items()
        )
        values: dict[str, object] = {"sources": sources, "keyring": self.keys.keyring, **changes}
        return Machine(**values)  # type: ignore[arg-type]


def table(*packages: str, waived: Sequence[str] = ()) -> Debian:
    """A recipe's table."""
    return Debian(suite="bookworm", packages=packages, waived=tuple(waived))


class _Handler(http.server.BaseHTTPRequestHandler):
    """Gives files of the archive, or does what ``faults`` says."""

    protocol_version = "HTTP/1.1"
    archive: Archive

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.archive.asked.append(self.path)
        fault = _next_fault(self.archive, self.path)
        path = self.archive.root / unquote(self.path).lstrip("/")
        data = path.read_bytes() if path.is_file() else None
        if data is None or fault.isdecimal():
            return self._answer(int(fault or 404) if data is not None else 404, b"")
        if fault in {"hang", "drip"}:
            return self._wait(data if fault == "drip" else b"")
        if fault == "shorter":
            self.close_connection = True
            return self._answer(200, data[: len(data) // 2], promised=len(data))
        changed = {"other": data[:-1] + bytes([data[-1] ^ 1]), "longer": data + bytes(4096)}
        return self._answer(200, changed.get(fault, data))

    def _answer(self, status: int, data: bytes, *, promised: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if promised is None else promised))
        if status == 503:
            self.send_header("Retry-After", "0")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def _wait(self, data: bytes) -> None:
        """Nothing at all, or a byte now and then."""
        self.close_connection = True
        if not data:
            self.archive.stop.wait(60)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            for at in range(len(data)):
                if self.archive.stop.wait(0.05):
                    return
                self.wfile.write(data[at : at + 1])


@contextlib.contextmanager
def serve(archive: Archive) -> Iterator[None]:
    """Serve the archive; sets its ``url``."""
    handler = type("Handler", (_Handler,), {"archive": archive})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    archive.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield
    finally:
        archive.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _next_fault(archive: Archive, path: str) -> str:
    for part, faults in archive.faults.items():
        if part in path and faults:
            return faults.pop(0)
    return ""
