"""Images that are published, and the registries that they are published to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from forging import Forge, forging
from publishing import Images, docker_registry, make_images
from registry import Registry, served

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
