"""Registries with TLS: of an authority that is named, of one that is not, run out, of another host, and none where it was expected."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from publishing import Images, command, docker_registry
from registry import Registry, served
from wheelmark.errors import Exit
from wheelmark.oci.connections import tls_problem
from wheelmark.oci.layout import Layout

_DAY = dt.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """A certificate authority of this test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / "authority.pem"
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_name("tests"))
            .issuer_name(_name("tests"))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + 10 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self.key, hashes.SHA256())
        )
        self.file.write_bytes(made.public_bytes(Encoding.PEM))

    def server(
        self, name: str, *, address: str = "127.0.0.1", ends: dt.timedelta = _DAY
    ) -> tuple[Path, Path]:
        """Certificate and key of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("tests"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * _DAY)
            .not_valid_after(now + ends)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, private


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def host(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry"), tls=authority.server("good")) as found:
        yield found


def knowing(authority: Authority) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(authority.file), "REQUESTS_CA_BUNDLE": ""}


def test_published_copied_and_copied_back(
    images: Images, authority: Authority, host: str, tmp_path: Path
) -> None:
    """Several workers at once, each of which finds the registry to speak TLS by itself."""
    known = knowing(authority)
    done = command(
        "publish",
        f"{host}/team/app",
        "--from",
        str(images.path),
        "--tag",
        "1",
        "--jobs",
        "8",
        environment=known,
    )
    assert done.returncode == 0, done.stderr
    done = command("copy", f"{host}/team/app:1", f"{host}/other/app:1", environment=known)
    assert done.returncode == 0, done.stderr
    done = command("copy", f"{host}/other/app:1", f"oci:{tmp_path / 'out'}", environment=known)
    assert done.returncode == 0, done.stderr
    assert Layout(tmp_path / "out").resolve("1").descriptor.sha256 == images.index.sha256


def refused(host: str, images: Images, environment: dict[str, str], *more: str) -> str:
    arguments = ("publish", f"{host}/none/app", "--from", str(images.path), *more, "--json")
    done = command(*arguments, environment=environment)
    assert done.returncode == Exit.REGISTRY, done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["reason"] == "registry-tls"
    return done.stderr


def test_an_authority_that_nobody_named(images: Images, host: str) -> None:
    said = refused(host, images, {"SSL_CERT_FILE": "", "REQUESTS_CA_BUNDLE": ""})
    assert "is not trusted" in said
    assert "SSL_CERT_FILE" in said


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [("expired", {"ends": -_DAY}, "expired"), ("stranger", {"address": "192.0.2.7"}, "mismatch")],
)
def test_certificates_that_do_not_fit(
    images: Images, authority: Authority, tmp_path: Path, name: str, options: dict[str, object], words: str
) -> None:
    pair = authority.server(name, **options)  # type: ignore[arg-type]
    with docker_registry(tmp_path / "registry", tls=pair) as host:
        said = refused(host, images, knowing(authority))
    assert "is not trusted" in said
    assert words in said


def test_tls_where_somebody_said_that_there_is_none(images: Images, authority: Authority, host: str) -> None:
    assert "speaks TLS" in refused(host, images, knowing(authority), "--plain-http")


def test_none_where_it_was_expected() -> None:
    with served(Registry()) as server, pytest.raises(requests.exceptions.SSLError) as caught:
        requests.get(f"https://{server.host}/v2/", timeout=10)
    problem = tls_problem(server.host, caught.value)
    assert problem is not None
    assert (problem.reason, "speaks no TLS" in problem.what) == ("registry-tls", True)
