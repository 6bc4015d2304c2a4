"""Small real wheels, and an index on loopback that serves them with their metadata apart (PEP 503, PEP 658)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), *, body: str = ""
) -> Path:
    """A pure wheel with one module."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {text}\n" for text in requires
    )
    files = {
        f"{module}.py": body or f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={_record_hash(text)},{len(text.encode())}\n" for path, text in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(zipfile.ZipInfo(inner), text)
    return path


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@contextlib.contextmanager
def serve_index(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve the wheels of a folder; gives the index's URL and the list of paths that were asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(self.path)
            body = _answer(folder, self.path)
            self.send_response(404 if body is None else 200)
            self.send_header(
                "Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream"
            )
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(folder: Path, path: str) -> bytes | None:
    if path.startswith("/simple/"):
        module = path.split("/")[2].replace("-", "_")
        wheels = sorted(folder.glob(f"{module}-*.whl"))
        links = [
            f'<a href="/files/{wheel.name}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}" '
            f'data-core-metadata="true">{wheel.name}</a>'
            for wheel in wheels
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if wheels else None
    wheel = folder / path.removeprefix("/files/").removesuffix(".metadata")
    if not wheel.is_file():
        return None
    if not path.endswith(".metadata"):
        return wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(metadata)
