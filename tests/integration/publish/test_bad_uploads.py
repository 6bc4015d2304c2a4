"""Registries that misbehave while something is sent to them, and where secrets go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from badregistries import EMPTY, MANIFEST, NAME, Waits, cut, first, is_method, put_manifest, some, status
from publishing import PASSWORD, USER, Images
from registry import Handler, Registry, served
from rows import report
from wheelmark.errors import InputError, RegistryError, WheelmarkError
from wheelmark.oci import client, types
from wheelmark.oci.auth import Credentials
from wheelmark.oci.blobs import CHUNK
from wheelmark.oci.reference import LayoutReference, Reference
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish import Connection, copy
from wheelmark.publish.places import LayoutSource, RegistryPlace
from wheelmark.publish.transfer import Wanted, transfer

# Redirects, and where secrets go


@pytest.fixture
def elsewhere() -> Iterator[Registry]:
    with served(Registry()) as registry:
        yield registry


def with_password(server: Registry, waits: Waits, **more: Any) -> client.Registry:
    return client.Registry(
        server.host, sleep=waits, find=lambda _name: Credentials(user=USER, secret=PASSWORD), **more
    )


def test_redirects_in_a_circle(server: Registry, registry: client.Registry) -> None:
    server.script = first(
        99, is_method("GET"), lambda handler: handler.answer(307, headers={"Location": handler.path})
    )
    with pytest.raises(InputError) as caught:
        registry.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-limit"


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_secret_does_not_go_with_a_redirect(
    server: Registry, elsewhere: Registry, waits: Waits, auth: str
) -> None:
    server.auth = auth
    elsewhere.blobs[NAME, EMPTY.digest] = b"{}"
    headers: list[dict[str, str]] = []

    def away(handler: Handler) -> bool:
        if handler.headers.get("Authorization") and "/blobs/" in handler.path:
            handler.answer(307, headers={"Location": f"http://{elsewhere.host}{handler.path}"})
            return True
        return False

    def note(handler: Handler) -> bool:
        headers.append(dict(handler.headers))
        return False

    server.script, elsewhere.script = away, note
    with with_password(server, waits).open_blob(NAME, EMPTY) as blob:
        blob.check()
    assert [item for item in headers if "Authorization" in item] == []
    assert len(headers) == 1


def test_another_host_that_asks_gets_nothing(server: Registry, elsewhere: Registry, waits: Waits) -> None:
    elsewhere.auth = "basic"
    headers: list[dict[str, str]] = []
    server.script = first(
        99,
        is_method("GET"),
        lambda handler: handler.answer(307, headers={"Location": f"http://{elsewhere.host}{handler.path}"}),
    )

    def note(handler: Handler) -> bool:
        headers.append(dict(handler.headers))
        return False

    elsewhere.script = note
    with pytest.raises(RegistryError) as caught, with_password(server, waits).open_blob(NAME, EMPTY) as blob:
        blob.check()
    assert caught.value.reason == "registry-auth"
    assert [item for item in headers if "Authorization" in item] == []


def test_a_write_is_not_redirected_to_a_read(server: Registry, registry: client.Registry) -> None:
    server.script = first(1, is_method("PUT"), status(302, {"Location": "/v2/"}))
    with pytest.raises(RegistryError) as caught:
        registry.push_manifest(Reference(host=server.host, repository=NAME), MANIFEST, types.MANIFEST)
    assert caught.value.reason == "registry-answer"


def test_a_token_service_without_tls_gets_no_password(server: Registry, waits: Waits) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="http://tokens.example/",service="x"'}
    server.script = first(99, is_method("GET"), status(401, challenge))
    with pytest.raises(RegistryError, match="in the clear") as caught:
        with_password(server, waits).manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-auth"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("body", [b"{}", b'{"token": 7}', b"no json", b'{"token": "a\\nb"}'])
def test_a_token_service_without_a_token(server: Registry, waits: Waits, body: bytes) -> None:
    server.auth = "bearer"
    server.script = first(9, lambda handler: handler.path.startswith("/token"), status(200, {}, body))
    with pytest.raises(WheelmarkError) as caught:
        with_password(server, waits).manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason in {"registry-auth", "json-syntax"}


def test_a_token_that_ran_out_is_fetched_anew(server: Registry, waits: Waits) -> None:
    server.auth = "bearer"
    reference = put_manifest(server, MANIFEST)
    registry = with_password(server, waits)
    assert registry.manifest(reference) == MANIFEST
    server.tokens.clear()
    assert registry.manifest(reference) == MANIFEST
    assert sum(path.startswith("/token") for _, path in server.log) == 2


def test_an_identity_token_is_exchanged(server: Registry, waits: Waits) -> None:
    server.auth = "bearer"
    reference = put_manifest(server, MANIFEST)
    found = Credentials(user="<token>", secret=PASSWORD, is_token=True)
    registry = client.Registry(server.host, sleep=waits, find=lambda _name: found)
    assert registry.manifest(reference) == MANIFEST
    assert ("POST", "/token") in server.log


def test_many_threads_need_few_tokens(server: Registry, waits: Waits) -> None:
    server.auth = "bearer"
    reference = put_manifest(server, MANIFEST)
    registry = with_password(server, waits)
    threads = [threading.Thread(target=registry.manifest, args=(reference,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answered = [path for method, path in server.log if path.startswith("/token")]
    assert 1 <= len(answered) <= 8
    assert registry.manifest(reference) == MANIFEST


# Uploads


def test_a_mount_that_is_not_done_becomes_an_upload(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    assert registry.push_blob(NAME, blob, lambda: source.open_blob(blob), mount_from="other/app") is False
    assert server.blobs[NAME, blob.digest] == some(*layout)
    assert [path for method, path in server.log if method == "POST"] == [
        f"/v2/{NAME}/blobs/uploads/?mount=sha256%3A{blob.sha256}&from=other%2Fapp"
    ]
    server.script = first(1, lambda handler: "mount=" in handler.path, status(404))
    assert registry.push_blob("third", blob, lambda: source.open_blob(blob), mount_from="other/app") is False
    assert registry.push_blob("fourth", blob, lambda: source.open_blob(blob), mount_from=NAME) is True


@pytest.mark.parametrize("answer", [cut, status(500), status(429)])
def test_an_upload_that_breaks_goes_on_where_the_registry_says(
    server: Registry,
    registry: client.Registry,
    layout: tuple[LayoutSource, Descriptor],
    answer: Callable[[Handler], None],
) -> None:
    source, blob = layout
    patches: list[str] = []
    broken = first(1, lambda _handler: len(patches) == 2, answer)

    def script(handler: Handler) -> bool:
        if handler.command == "PATCH":
            patches.append(handler.headers["Content-Range"])
            return broken(handler)
        return False

    server.script = script
    registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert server.blobs[NAME, blob.digest] == some(*layout)
    assert patches == [
        f"0-{CHUNK - 1}",
        f"{CHUNK}-{2 * CHUNK - 1}",
        f"{CHUNK}-{2 * CHUNK - 1}",
        f"{2 * CHUNK}-{blob.size - 1}",
    ]


@pytest.mark.parametrize("kept", [0, 1000, CHUNK, CHUNK + 1000])
def test_a_part_of_which_only_some_bytes_arrived(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor], kept: int
) -> None:
    """The second part is cut, after which the registry has ``kept`` bytes: some of it, or less than it had said."""
    source, blob = layout

    def script(handler: Handler) -> bool:
        if handler.command == "PATCH" and handler.headers["Content-Range"].startswith(f"{CHUNK}-"):
            data = handler.read_body()
            (upload,) = server.uploads.values()
            upload += data
            del upload[kept:]
            cut(handler)
            server.script = None
            return True
        return False

    server.script = script
    registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert server.blobs[NAME, blob.digest] == some(*layout)


def test_an_upload_that_the_registry_lost_begins_anew(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout

    def lose(handler: Handler) -> None:
        server.uploads.clear()
        cut(handler)

    server.script = first(
        1,
        lambda handler: (
            handler.command == "PATCH"
            and len(server.uploads) == 1
            and bool(next(iter(server.uploads.values())))
        ),
        lose,
    )
    registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert server.blobs[NAME, blob.digest] == some(*layout)
    assert sum(method == "POST" for method, _ in server.log) == 2


def test_uploads_that_are_lost_each_time(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    server.script = first(99, is_method("PATCH"), status(404))
    with pytest.raises(RegistryError, match="loses each upload") as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "registry-unreachable"


def test_an_end_whose_answer_was_lost_is_an_end(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    """The registry took the blob, and the connection broke before it said so."""
    source, blob = layout

    def take(handler: Handler) -> None:
        server.blobs[NAME, blob.digest] = some(*layout)
        server.uploads.clear()
        cut(handler)

    server.script = first(1, is_method("PUT"), take)
    registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert sum(method == "POST" for method, _ in server.log) == 1


def test_more_than_was_sent(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    answer = status(202, {"Location": "/v2/x/blobs/uploads/1", "Range": f"0-{4 * CHUNK}"})
    server.script = first(1, is_method("PATCH"), answer)
    with pytest.raises(RegistryError) as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "registry-answer"


def test_an_upload_to_nowhere(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    server.script = first(1, is_method("POST"), status(202))
    with pytest.raises(RegistryError) as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "registry-answer"


def test_parts_that_are_too_large_to_hold(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    headers = {"Location": "/v2/x/blobs/uploads/1", "OCI-Chunk-Min-Length": str(1 << 30)}
    server.script = first(1, is_method("POST"), status(202, headers))
    with pytest.raises(InputError) as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "registry-limit"


@pytest.mark.parametrize("large", [False, True])
def test_a_blob_that_is_damaged_here_is_not_finished_there(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor], *, large: bool
) -> None:
    source, blob = layout
    if not large:
        blob = next(item for item in [EMPTY])
    path = source.layout.path / "blobs" / "sha256" / blob.sha256
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(InputError) as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "image-blob"
    assert not server.blobs
    assert not server.uploads  # and nothing half-sent lies about


# Whole images


@report("openai/openai-cli#37")
def test_a_registry_that_refuses_one_blob_shows_no_tag_and_the_next_run_finishes(
    server: Registry, images: Images, waits: Waits
) -> None:
    source = LayoutSource(images.path)
    item = source.resolve("cpu")
    wanted = [Wanted(descriptor=item, name="cpu", tags=("1",))]

    def target() -> RegistryPlace:
        registry = client.Registry(server.host, sleep=waits, find=lambda _name: None)
        return RegistryPlace(registry, NAME)

    server.script = first(1, is_method("PATCH"), status(413))
    with pytest.raises(RegistryError) as caught:
        transfer(wanted, source, target())
    assert caught.value.reason == "registry-answer"
    assert not server.tags
    assert not server.manifests
    there = len(server.blobs)
    done = transfer(wanted, source, target())
    assert sum(row.action.value == "present" for row in done.rows) == there
    assert server.tags[NAME, "1"] == item.digest


def test_what_a_registry_gives_wrongly_does_not_get_into_a_layout(
    server: Registry, images: Images, tmp_path: Path, waits: Waits
) -> None:
    source = LayoutSource(images.path)
    place = RegistryPlace(client.Registry(server.host, find=lambda _name: None), NAME)
    transfer([Wanted(descriptor=source.resolve("cpu"), name="cpu", tags=("1",))], source, place)
    key = max(server.blobs, key=lambda item: len(server.blobs[item]))
    right = server.blobs[key]
    server.blobs[key] = right[:-1] + b"?"
    reference = Reference(host=server.host, repository=NAME, tag="1")
    target = LayoutReference(path=tmp_path / "copied")
    with pytest.raises(RegistryError) as caught:
        copy(reference, target, connection=Connection())
    assert caught.value.reason == "registry-digest"
    assert not (tmp_path / "copied" / "index.json").exists()
    assert not list((tmp_path / "copied").glob(".writing-*"))
    server.blobs[key] = right
    copied = copy(reference, target)
    assert copied.digest == images.index.digest


def test_a_listed_referrer_that_is_none_is_left_out_and_said(
    server: Registry, waits: Waits, tmp_path: Path
) -> None:
    server.blobs[NAME, EMPTY.digest] = b"{}"
    reference = put_manifest(server, MANIFEST)
    subject = types.descriptor_of(MANIFEST, types.MANIFEST)
    stranger = ImageManifest(config=EMPTY, layers=(), annotations={"a": "b"}).as_bytes()
    put_manifest(server, stranger, tag="stranger")
    gone = Descriptor(media_type=types.MANIFEST, sha256="b" * 64, size=1)
    index = types.ImageIndex(manifests=(types.descriptor_of(stranger, types.MANIFEST), gone)).as_bytes()
    put_manifest(server, index, tag=types.fallback_tag(subject.sha256), media_type=types.INDEX)
    copied = copy(reference, LayoutReference(path=tmp_path / "copied"))
    assert sorted(note.rpartition(", ")[2] for note in copied.carried.notes) == [
        "and is none",
        "and is not there",
    ]


def test_a_cancelled_exchange_ends(server: Registry) -> None:
    cancel = threading.Event()
    registry = client.Registry(server.host, cancel=cancel, find=lambda _name: None)
    server.script = first(99, is_method("GET"), status(503, {"Retry-After": "100"}))
    threading.Timer(0.3, cancel.set).start()
    began = time.monotonic()
    with pytest.raises(RegistryError) as caught:
        registry.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-cancelled"
    assert time.monotonic() - began < 90  # the wait that was asked for did not happen


def test_docker_s_own_types_are_not_read(server: Registry, registry: client.Registry) -> None:
    reference = put_manifest(
        server, MANIFEST, media_type="application/vnd.docker.distribution.manifest.v2+json"
    )
    with pytest.raises(RegistryError, match="media type") as caught:
        registry.manifest(reference)
    assert caught.value.reason == "registry-answer"


def test_no_such_image(server: Registry, registry: client.Registry) -> None:
    with pytest.raises(RegistryError) as caught:
        registry.resolve(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-missing"
    with pytest.raises(RegistryError) as caught, registry.open_blob(NAME, EMPTY) as blob:
        blob.check()
    assert caught.value.reason == "registry-missing"
