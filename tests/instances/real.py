"""The real servers of a private instance, started on loopback: Fulcio, rekor-tiles and timestamp-authority.

Built from Debian's sources by ``tests/interop/servers.py``; the issuer and the certificate log are ours
(``oidc``, ``ctlog``): the former is anybody's, the latter is not packaged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from instances import pki
from instances.config import Log, Services
from instances.ctlog import logging_certificates
from instances.oidc import issuing

ORIGIN = "log.private.invalid"
PASSWORD = "private instance"  # noqa: S105 - of a key that lives as long as one test


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """What kind of instance it is."""

    authority: str = "p384"
    authority_between: int = 1
    ct_log: str = "p256"
    log: str = "ed25519"
    timestamps: str = "p256"
    timestamps_between: int = 1
    chain_in_response: bool = False
    created: bool = False
    """Whether the timestamp authority answers 201, as older ones do."""
    issuer_type: str = "email"
    issuer_settings: Mapping[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def running(programs: Path, folder: Path, shape: Shape) -> Iterator[Services]:
    """Start everything; end it afterwards."""
    with contextlib.ExitStack() as stack:
        issuer = stack.enter_context(issuing())
        ct_key = pki.make_key(shape.ct_log)
        _write_public(folder / "ct.pub.pem", ct_key)
        _, ct_url = stack.enter_context(logging_certificates(ct_key))
        fulcio, more, rekor, rekor_grpc, timestamps = _free_ports(5)

        chain = pki.authority(
            "fulcio", shape.authority, between=shape.authority_between, usage=ExtendedKeyUsageOID.CODE_SIGNING
        )
        certificates, key = chain.write(folder, "fulcio", password=PASSWORD)
        (folder / "fulcio.json").write_text(
            json.dumps(
                {
                    "OIDCIssuers": {
                        issuer.url: {
                            "IssuerURL": issuer.url,
                            "ClientID": "sigstore",
                            "Type": shape.issuer_type,
                            **{k: v.format(url=issuer.url) for k, v in shape.issuer_settings.items()},
                        }
                    }
                }
            )
        )
        _start(
            stack,
            folder,
            [
                programs / "fulcio",
                f"--fileca-cert={certificates}",
                f"--fileca-key={key}",
                f"--fileca-key-passwd={PASSWORD}",
                f"--ct-log-url={ct_url}",
                f"--config-path={folder / 'fulcio.json'}",
                f"--port={fulcio}",
                f"--grpc-port={more}",
            ],
            fulcio,
        )

        tsa = pki.timestamping(shape.timestamps, between=shape.timestamps_between)
        certificates, key = tsa.write(folder, "tsa", password=PASSWORD)
        command: list[object] = [
            programs / "timestamp-server",
            "serve",
            "--timestamp-signer=file",
            f"--file-signer-key-path={key}",
            f"--file-signer-passwd={PASSWORD}",
            f"--certificate-chain-path={certificates}",
            "--disable-ntp-monitoring",
            "--host=127.0.0.1",
            f"--port={timestamps}",
        ]
        if shape.chain_in_response:
            command.append("--include-chain-in-response")
        if shape.created:
            command.append("--use-http-201")
        _start(stack, folder, command, timestamps)

        log_key = ed25519.Ed25519PrivateKey.generate() if shape.log == "ed25519" else pki.make_key(shape.log)
        _write_public(folder / "log2.pub.pem", log_key)
        data = log_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "log.key.pem").write_bytes(data)
        _start(
            stack,
            folder,
            [
                programs / "rekor-server",
                "serve",
                f"--hostname={ORIGIN}",
                f"--http-port={rekor}",
                f"--grpc-port={rekor_grpc}",
                "--http-metrics-port=0",
                f"--signer-filepath={folder / 'log.key.pem'}",
                f"--storage-dir={folder / 'tiles'}",
                "--checkpoint-interval=1s",
            ],
            rekor,
        )
        yield Services(
            folder=folder,
            issuer=issuer,
            fulcio=f"http://127.0.0.1:{fulcio}",
            logs=(Log(url=f"http://127.0.0.1:{rekor}", version=2, origin=ORIGIN),),
            timestamps=f"http://127.0.0.1:{timestamps}/api/v1/timestamp",
            certificates=ct_url,
        )


def _write_public(path: Path, key: pki.Key | ed25519.Ed25519PrivateKey) -> None:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]


def _start(stack: contextlib.ExitStack, folder: Path, command: Sequence[object], port: int) -> None:
    name = Path(str(command[0])).name
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        said = (folder / f"{name}.log").read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"{name} ended: {said}"
        assert time.monotonic() < deadline, f"{name} does not listen: {said}"
        time.sleep(0.05)
