"""A small HTTP server on loopback for parts of a private instance that tests play themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request gets."""

    body: Any
    """JSON, or bytes as they are."""
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def served_json(answer: Callable[[str, bytes], Answer]) -> Iterator[str]:
    """Listen on a free loopback port; ``answer`` is called with path and body of each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(self.path, body)
            data = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
            self.send_response(found.status)
            for name, value in {"Content-Type": "application/json", **found.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        do_GET = do_POST = _answer  # noqa: N815 - the base class's names

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
