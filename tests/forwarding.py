"""A server between a client and a registry that counts requests and can do something at one of them."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Forwarder:
    """Where requests go on to, and what is done when each comes in."""

    def __init__(self, upstream: str, at_request: Callable[[int], None] = lambda _number: None) -> None:
        self.upstream = upstream
        self.at_request = at_request
        self.count = 0
        self.lock = threading.Lock()
        self.host = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forwarder: Forwarder

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def _forward(self) -> None:
        forwarder = self.forwarder
        with forwarder.lock:
            forwarder.count += 1
            forwarder.at_request(forwarder.count)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with contextlib.closing(http.client.HTTPConnection(forwarder.upstream, timeout=60)) as onward:
            self._answer(onward, body)

    def _answer(self, onward: http.client.HTTPConnection, body: bytes) -> None:
        headers = {key: value for key, value in self.headers.items() if key.lower() != "connection"}
        onward.request(self.command, self.path, body=body or None, headers=headers)
        answer = onward.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in {"transfer-encoding", "connection", "content-length", "date", "server"}:
                self.send_header(key, value)
        if answer.status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815 - http.server's names


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients of these tests go away in the middle."""


@contextlib.contextmanager
def forwarded(forwarder: Forwarder) -> Iterator[Forwarder]:
    """The server on a free port of loopback; ``forwarder.host`` names it."""
    server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"forwarder": forwarder}))
    forwarder.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield forwarder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
