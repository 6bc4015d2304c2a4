"""Images that are published, and the registries that they are published to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from badregistries import LARGE, Waits
from forging import Forge, forging
from publishing import Images, docker_registry, make_images
from registry import Registry, served
from wheelmark.oci import client, types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.transport import Patience
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish.places import LayoutSource

KINDS = (
    "docker-registry",
    "docker-registry, htpasswd",
    "referrers API",
    "referrers API, Basic",
    "referrers API, Bearer",
)


@pytest.fixture(scope="session", autouse=True)
def _no_proxy() -> None:
    """Go's programs would send loopback requests to a proxy that the environment names."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = "127.0.0.1,localhost"


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


@pytest.fixture(scope="session")
def images(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Nobody changes them."""
    return make_images(tmp_path_factory.mktemp("made") / "images", forge)


@pytest.fixture(scope="module", params=KINDS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of each kind, empty when a module begins."""
    name, _, auth = request.param.partition(", ")
    if name == "docker-registry":
        with docker_registry(tmp_path_factory.mktemp("registry"), password=bool(auth)) as found:
            yield found
    else:
        with served(Registry(auth=auth.lower())) as registry:
            yield registry.host


@pytest.fixture
def server() -> Iterator[Registry]:
    with served(Registry()) as registry:
        yield registry


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def registry(server: Registry, waits: Waits) -> client.Registry:
    patience = Patience(attempts=5, silence=2, head=2, connect=2)
    return client.Registry(server.host, sleep=waits, patience=patience, find=lambda _repository: None)


@pytest.fixture
def layout(tmp_path: Path) -> tuple[LayoutSource, Descriptor]:
    """A layout with one large blob."""
    writer = LayoutWriter(tmp_path / "layout")
    blob = writer.add(bytes(range(256)) * (LARGE // 256), types.LAYER)
    manifest = ImageManifest(config=writer.add(b"{}", types.EMPTY), layers=(blob,))
    writer.finish([writer.add(manifest.as_bytes(), types.MANIFEST, annotations={types.REFERENCE: "v"})])
    return LayoutSource(tmp_path / "layout"), blob
