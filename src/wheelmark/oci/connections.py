"""Connections on which the head of an answer has a time to be complete in, and what is said of those that fail.

A socket's timeout begins anew with each byte: a server that sends one every few seconds would hold a client for days.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from wheelmark.errors import RegistryError

WANTS_TLS = b"HTTPS"
"""In what servers of TLS (Go's, nginx, Apache) answer in plain text, with status 400, to who speaks without."""


def why(error: BaseException) -> str:
    """The innermost cause; texts of the libraries are not shown: there may be tokens in their addresses."""
    word = type(error).__name__
    for found in _causes(error):
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        word = type(found).__name__
    return word


def tls_problem(host: str, error: BaseException) -> RegistryError | None:
    """The error of a TLS connection that no further attempt mends; ``None`` for any other."""
    for found in _causes(error):
        if isinstance(found, ssl.SSLCertVerificationError):
            return RegistryError(
                f"the certificate of {host} is not trusted: {found.verify_message or found.reason}",
                cause="it is signed by an authority that this machine does not know, has run out, or is another host's",
                fix="name the authority's certificate: SSL_CERT_FILE=FILE (or REQUESTS_CA_BUNDLE)",
                reason="registry-tls",
            )
        if isinstance(found, ssl.SSLError) and found.reason in {
            "WRONG_VERSION_NUMBER",
            "RECORD_LAYER_FAILURE",
        }:
            return RegistryError(
                f"{host} speaks no TLS",
                cause="it is a registry without TLS, or another program listens there",
                fix="--plain-http, if its network can be trusted",
                reason="registry-tls",
            )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        inner = getattr(found, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((item for item in found.args if isinstance(item, BaseException)), None)
        found = inner or found.__cause__ or found.__context__


class TimedAdapter(HTTPAdapter):
    """Makes such connections.

    Args:
        seconds: From the end of a request to the end of the answer's head.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(max_retries=0)

    def get_connection_with_tls_context(self, *args: Any, **more: Any) -> Any:
        """As ``requests`` calls it: the pool of connections for a request."""
        pool = super().get_connection_with_tls_context(*args, **more)
        secure = isinstance(pool, urllib3.HTTPSConnectionPool)
        pool.ConnectionCls = _TimedTls if secure else _Timed
        pool.conn_kw["head_seconds"] = self._seconds
        return pool


class _HeadInTime:
    """The part of a connection that awaits an answer's head."""

    def __init__(self, *args: Any, head_seconds: float, **more: Any) -> None:
        self._head_seconds = head_seconds
        super().__init__(*args, **more)

    def getresponse(self) -> Any:
        connection: Any = self
        sock = connection.sock

        late = threading.Event()

        def end() -> None:
            late.set()
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._head_seconds, end)
        timer.daemon = True
        timer.start()
        try:
            found = super().getresponse()  # type: ignore[misc]
        finally:
            timer.cancel()
        if late.is_set():
            # ``http.client`` takes a head that was cut off for one that is complete.
            found.close()
            raise TimeoutError(errno.ETIMEDOUT, "the head of the answer takes too long")
        return found


class _Timed(_HeadInTime, HTTPConnection):
    pass


class _TimedTls(_HeadInTime, HTTPSConnection):
    pass
