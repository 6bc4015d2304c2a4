"""Images with real bundles to publish, registries to publish them to, and the command that does it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from forging import Forge
from imaging import AMD64, ARM64, GOOD, Draft, Entry, provenance, statement, tar
from presence import need_program
from wheelmark.attest.predicates import SBOM
from wheelmark.attest.statement import Subject
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.publish import attach

USER, PASSWORD = "tester", "s3cret"
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n"
"""bcrypt of the password, with a fixed salt."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """A layout as a release has it: two images, an index over them, bundles about each."""

    path: Path
    images: tuple[Descriptor, Descriptor]
    index: Descriptor

    @property
    def all(self) -> tuple[Descriptor, ...]:
        return (*self.images, self.index)


def make_images(path: Path, forge: Forge, *, size: int = 18 << 20) -> Images:
    """Write them.

    Args:
        path: The layout.
        forge: Signs.
        size: Bytes of the one large layer, which goes in three parts at 18 MiB.
    """
    writer = LayoutWriter(path)
    large = tar(*GOOD, Entry(name="large", data=random.Random(4).randbytes(size)))
    first = Draft(layers=[tar(*GOOD), large], compress=False).write(writer, tag="cpu-x86_64", platform=AMD64)
    second = Draft(target="cpu-aarch64", platform=ARM64).write(writer, tag="cpu-aarch64", platform=ARM64)
    held = tuple(dataclasses.replace(item, annotations={}) for item in (first, second))
    index = writer.add(
        ImageIndex(manifests=held).as_bytes(), types.INDEX, annotations={types.REFERENCE: "cpu"}
    )
    writer.finish([first, second, index])
    made = Images(path=path, images=(first, second), index=index)
    signed = forge.sign(provenance(*(item.sha256 for item in made.all)))
    for item in made.all:
        attach(path, item.digest, signed)
    subjects = [Subject(name="images/cpu-x86_64", sha256=first.sha256)]
    component = {
        "type": "container",
        "name": "images/cpu-x86_64",
        "hashes": [{"alg": "SHA-256", "content": first.sha256}],
    }
    sbom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": component}}
    attach(path, first.digest, forge.sign(statement(subjects, SBOM, sbom)))
    return made


def credentials(folder: Path, host: str) -> dict[str, str]:
    """An environment in which every client finds the password, and nothing of this machine's user."""
    folder.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return {
        "DOCKER_CONFIG": str(folder),
        "REGISTRY_AUTH_FILE": str(folder / "config.json"),
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": "",
    }


@contextlib.contextmanager
def docker_registry(
    folder: Path, *, password: bool = False, tls: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Debian's docker-registry on a free port; its host. With TLS where certificate and key are given."""
    program = need_program("docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": host},
    }
    if tls is not None:
        config["http"] = {"addr": host, "tls": dict(zip(("certificate", "key"), map(str, tls), strict=True))}
    if password:
        (folder / "htpasswd").write_text(_HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")],
            stdout=log,
            stderr=log,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        _await(host, running)
        yield host
    finally:
        running.terminate()
        running.wait(timeout=30)


def _await(host: str, running: subprocess.Popen[bytes]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        if running.poll() is not None:
            break
        try:
            with opener.open(f"http://{host}/v2/", timeout=5):
                return
        except urllib.error.HTTPError:
            return  # 401: it is there
        except OSError:
            time.sleep(0.05)
    raise AssertionError("docker-registry did not start")


def command(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``wheelmark`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "wheelmark", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
