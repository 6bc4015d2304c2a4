"""The services over HTTP: what other clients send them, and what they refuse."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wheelmark.sign import embedded


@pytest.fixture
def address(state: Path) -> Iterator[tuple[embedded.Instance, int]]:
    with embedded.open_instance(state) as instance, instance.serving() as config:
        url = json.loads(config)["signingConfig"]["caUrls"][0]["url"]
        port = urlsplit(url).port
        assert port is not None
        yield instance, port


def post(
    port: int, path: str, body: bytes, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_key_and_a_proof_as_cosign_and_sigstore_go_send_them(
    address: tuple[embedded.Instance, int],
) -> None:
    instance, port = address
    key = ec.generate_private_key(ec.SECP256R1())
    proof = key.sign(embedded.RELEASE_IDENTITY.encode(), ec.ECDSA(hashes.SHA256()))
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    body = {
        "credentials": {"oidcIdentityToken": instance.mint(embedded.RELEASE_IDENTITY)},
        "publicKeyRequest": {
            "publicKey": {"algorithm": "ECDSA", "content": pem},
            "proofOfPossession": base64.b64encode(proof).decode(),
        },
    }
    status, answer = post(port, "/api/v2/signingCert", json.dumps(body).encode())
    assert status == 200
    assert "signedCertificateEmbeddedSct" in answer


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/api/v2/signingCert", b"{}", {}, 400),
        ("/api/v2/signingCert", b"{}", {"Authorization": "Bearer x.y.z"}, 400),
        ("/api/v2/signingCert", b"not json", {}, 400),
        ("/api/v2/log/entries", b"{}", {}, 400),
        ("/api/v2/log/entries", b'{"a":1,"a":1}', {}, 400),
        ("/api/v2/log/entries", b"[" * 1000, {}, 400),
        ("/api/v1/timestamp", b"junk", {}, 400),
        ("/api/v1/log/entries", b"{}", {}, 404),
        ("/", b"{}", {}, 404),
        ("/api/v1/timestamp", b"", {"Content-Length": "2000000"}, 400),
        ("/api/v1/timestamp", b"", {"Content-Length": "-1"}, 400),
        ("/api/v1/timestamp", b"", {"Content-Length": "many"}, 400),
    ],
)
def test_refusals_say_why(
    path: str, body: bytes, headers: dict[str, str], status: int, address: tuple[embedded.Instance, int]
) -> None:
    _instance, port = address
    found, answer = post(port, path, body, headers)
    assert found == status
    assert answer["message"]
    # The services go on.
    assert post(port, "/api/v2/log/entries", b"{}")[0] == 400


def test_afterwards_nothing_listens(state: Path) -> None:
    with embedded.open_instance(state) as instance, instance.serving() as config:
        port = urlsplit(json.loads(config)["signingConfig"]["caUrls"][0]["url"]).port
        assert port is not None
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
