"""Another local process talks to the embedded services while something is signed."""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from wheelmark.sign import embedded
from wheelmark.sign.embedded import server


def asked(url: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """The first line of an answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{name}: {text}" for name, text in headers.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return connection.recv(4096).partition(b"\r\n")[0]


def test_strangers_get_no_certificate_and_leave_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = json.dumps({"publicKeyRequest": {}}).encode()
    with embedded.open_instance(tmp_path / "state") as instance, server.serving(instance) as url:
        assert urlsplit(url).hostname == "127.0.0.1"
        for token in ("", "Bearer ", "Bearer a.b.c", "Basic eDp4"):
            headers = {"Content-Length": str(len(request)), "Authorization": token}
            assert asked(url, "/api/v2/signingCert", request, headers).startswith(b"HTTP/1.1 400")
        for length in ("9" * 5000, "-1", "1e3", "0x10", "", str(2 << 20)):
            assert asked(url, "/api/v1/timestamp", b"", {"Content-Length": length}).startswith(
                b"HTTP/1.1 400"
            )
        assert asked(url, "/api/v2/token", b"", {"Content-Length": "0"}).startswith(b"HTTP/1.1 404")
        parts = urlsplit(url)
        for _ in range(20):
            connection = socket.create_connection((parts.hostname or "", parts.port or 0))
            # Closed with a reset, in the middle of a request.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(b"POST /api")
            connection.close()
        time.sleep(0.2)
        assert asked(url, "/api/v1/timestamp", b"", {"Content-Length": "0"}).startswith(b"HTTP/1.1 400")
    assert "Traceback" not in capfd.readouterr().err
