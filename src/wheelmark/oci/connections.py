"""Connections on which the head of an answer has a time to be complete in.

A socket's timeout begins anew with each byte: a server that sends one every few seconds would hold a client for days.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from typing import Any

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection


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
