"""Several publishers list different referrers of one image at once, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from publishing import docker_registry
from registry import Registry as Server
from registry import served
from wheelmark.errors import InputError, RegistryError
from wheelmark.oci import types
from wheelmark.oci.client import ABSENT, Registry
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.reference import Reference
from wheelmark.oci.referrers import list_by_tag, referrers
from wheelmark.oci.types import Descriptor, ImageIndex, ImageManifest
from wheelmark.publish.places import LayoutSource, RegistryPlace

WRITERS = 8
REPOSITORY = "team/app"
KINDS = ("docker-registry", "no API, If-Match heeded", "no API, If-Match not heeded", "referrers API")


@pytest.fixture(params=KINDS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    kind = request.param
    if kind == "docker-registry":
        with docker_registry(tmp_path / "registry") as found:
            yield found
        return
    server = Server(referrers_api=kind == "referrers API", heeds_if_match="not heeded" not in kind)
    with served(server) as registry:
        yield registry.host


@pytest.fixture
def artifacts(host: str, tmp_path: Path) -> tuple[Descriptor, list[tuple[Descriptor, bytes]]]:
    """An image in the registry, and what will refer to it."""
    writer = LayoutWriter(tmp_path / "layout")
    empty = writer.add(b"{}", types.EMPTY)
    image = ImageManifest(config=empty, layers=(empty,)).as_bytes()
    place = RegistryPlace(Registry(host), REPOSITORY)
    subject = types.descriptor_of(image, types.MANIFEST)
    writer.finish([writer.add(image, types.MANIFEST)])
    source = LayoutSource(tmp_path / "layout")
    place.take_blob(empty, lambda: source.open_blob(empty))
    place.take_document(subject, image)
    made = []
    for number in range(WRITERS):
        data = ImageManifest(
            config=empty,
            layers=(empty,),
            subject=subject,
            artifact_type="application/vnd.example.note",
            annotations={"number": str(number)},
        ).as_bytes()
        made.append(
            (types.descriptor_of(data, types.MANIFEST, artifact_type="application/vnd.example.note"), data)
        )
    return subject, made


def test_no_entry_is_lost(host: str, artifacts: tuple[Descriptor, list[tuple[Descriptor, bytes]]]) -> None:
    subject, made = artifacts
    together = threading.Barrier(WRITERS)

    def write(item: tuple[Descriptor, bytes]) -> None:
        place = RegistryPlace(Registry(host), REPOSITORY)
        together.wait()
        place.take_referrers({subject.sha256: [item]})

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, made))
    found = referrers(Registry(host), REPOSITORY, subject.sha256)
    assert {item.sha256 for item in found} == {item.sha256 for item, _ in made}


def test_an_entry_that_somebody_wrote_over_is_put_back(tmp_path: Path) -> None:
    """What an unheeding registry allows: another client writes back a list that it read before ours."""
    with served(Server(referrers_api=False, heeds_if_match=False)) as server:
        tag = Reference(host=server.host, repository=REPOSITORY, tag=types.fallback_tag("a" * 64))
        ours, theirs = (
            Descriptor(media_type=types.MANIFEST, sha256=digit * 64, size=1, artifact_type="x/y")
            for digit in "bc"
        )
        overwrites = [ImageIndex(manifests=(theirs,)).as_bytes()] * 2

        def sleep(_seconds: float) -> None:
            if overwrites:
                Registry(server.host).push_manifest(tag, overwrites.pop(), types.INDEX)

        list_by_tag(Registry(server.host, sleep=sleep), REPOSITORY, {"a" * 64: [ours]})
        found = referrers(Registry(server.host), REPOSITORY, "a" * 64)
        assert {item.sha256 for item in found} == {ours.sha256, theirs.sha256}


def test_others_that_write_without_end_are_an_error() -> None:
    with served(Server(referrers_api=False, heeds_if_match=False)) as server:
        tag = Reference(host=server.host, repository=REPOSITORY, tag=types.fallback_tag("a" * 64))
        ours = Descriptor(media_type=types.MANIFEST, sha256="b" * 64, size=1)
        empty = ImageIndex(manifests=()).as_bytes()

        def sleep(_seconds: float) -> None:
            Registry(server.host).push_manifest(tag, empty, types.INDEX)

        with pytest.raises(RegistryError) as caught:
            list_by_tag(Registry(server.host, sleep=sleep), REPOSITORY, {"a" * 64: [ours]})
        assert caught.value.reason == "registry-conflict"


def test_if_match_is_heeded_where_it_can_be() -> None:
    with served(Server(referrers_api=False)) as server:
        registry = Registry(server.host)
        tag = Reference(host=server.host, repository=REPOSITORY, tag="t")
        empty = ImageIndex(manifests=()).as_bytes()
        registry.push_manifest(tag, empty, types.INDEX, if_match=ABSENT)
        for state in (ABSENT, '"sha256:other"'):
            with pytest.raises(RegistryError) as caught:
                registry.push_manifest(tag, empty, types.INDEX, if_match=state)
            assert caught.value.reason == "registry-conflict"
        found = registry.find(tag)
        assert found is not None
        registry.push_manifest(tag, empty, types.INDEX, if_match=found.etag)


@pytest.mark.parametrize("writes", [1001, 10_001])
def test_a_list_that_grows_too_long_is_not_written(writes: int) -> None:
    with served(Server(referrers_api=False)) as server:
        many = [Descriptor(media_type=types.MANIFEST, sha256=f"{n:064x}", size=1) for n in range(writes)]
        with pytest.raises(InputError) as caught:
            list_by_tag(Registry(server.host), REPOSITORY, {"a" * 64: many})
        assert caught.value.reason == "registry-limit"
        assert not server.writes
