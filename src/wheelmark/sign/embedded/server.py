"""The embedded services over HTTP on loopback, in this process, only while something is signed.

The ordinary clients speak HTTP, so that is what they get. Paths and status codes are those of fulcio (200),
rekor-tiles (201) and timestamp-authority (201). A request that a service refuses is answered with 400 and the
reason in ``google.rpc.Status`` form, as theirs are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from wheelmark import strictjson
from wheelmark.errors import InputError, WheelmarkError

_LOGGER = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_LARGEST = 1 << 20
"""Bytes of a request: a certificate, a digest and a signature fit many times."""
_LENGTH = re.compile(r"[0-9]{1,8}")
_INVALID_ARGUMENT, _INTERNAL = 3, 13  # google.rpc.Code


class Services(Protocol):
    """What is behind the paths."""

    def certify(self, token: str, request: Any) -> dict[str, Any]:
        """``POST /api/v2/signingCert``."""

    def log(self, request: Any) -> dict[str, Any]:
        """``POST /api/v2/log/entries``."""

    def timestamp(self, request: bytes) -> bytes:
        """``POST /api/v1/timestamp``."""


@contextlib.contextmanager
def serving(services: Services) -> Iterator[str]:
    """Listen on a free loopback port and hand over the URL; afterwards nothing listens any more."""
    _keep_from_proxies()

    class Handler(_Handler):
        pass

    Handler.services = services
    server = _Server((_LOOPBACK, 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="embedded-sigstore", daemon=True
    )
    thread.start()
    try:
        yield f"http://{_LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _keep_from_proxies() -> None:
    """Where the environment names an HTTP proxy, clients would send loopback requests to it."""
    for name in ("no_proxy", "NO_PROXY"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        if _LOOPBACK not in hosts:
            os.environ[name] = ",".join([*hosts, _LOOPBACK])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class's
        """Any local process can connect and leave: the debug log has it, and the signer's stderr does not."""
        _LOGGER.debug("connection from %s failed: %r", client_address, sys.exception())


class _Handler(BaseHTTPRequestHandler):
    services: Services
    protocol_version = "HTTP/1.1"
    # One write for a whole answer: headers and body apart would wait for the client's delayed ACK.
    wbufsize = -1
    disable_nagle_algorithm = True
    timeout = 30

    def do_POST(self) -> None:
        """Route one request."""
        try:
            self._route(self._body())
        except WheelmarkError as error:
            self._refuse(400, _INVALID_ARGUMENT, str(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            _LOGGER.exception("embedded services failed")
            self._refuse(500, _INTERNAL, f"{type(error).__name__}: {error}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Requests go to the debug log, not to stderr."""
        _LOGGER.debug(format, *args)

    def _route(self, body: bytes) -> None:
        if self.path == "/api/v2/signingCert":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            self._answer_json(200, self.services.certify(token, _json(body)))
        elif self.path == "/api/v2/log/entries":
            self._answer_json(201, self.services.log(_json(body)))
        elif self.path == "/api/v1/timestamp":
            self._answer(201, self.services.timestamp(body), "application/timestamp-reply")
        else:
            self._refuse(404, 5, f"no service at {self.path[:200]}")

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(text) or int(text) > _LARGEST:
            self.close_connection = True
            raise InputError("a request needs a length within the limit", reason="request-size")
        return self.rfile.read(int(text))

    def _refuse(self, status: int, code: int, message: str) -> None:
        self._answer_json(status, {"code": code, "message": message, "details": []})

    def _answer_json(self, status: int, value: dict[str, Any]) -> None:
        self._answer(status, json.dumps(value).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _json(body: bytes) -> Any:
    return strictjson.load_object(body, what="request")
