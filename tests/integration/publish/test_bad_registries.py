"""Registries that are slow, broken or lie: what passes is waited for, everything else is an error that says what it is."""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from publishing import PASSWORD, USER, Images
from registry import Handler, Registry, digest_of, served
from rows import report
from wheelmark.errors import InputError, RegistryError, WheelmarkError
from wheelmark.oci import client, types
from wheelmark.oci.auth import Credentials
from wheelmark.oci.blobs import CHUNK
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.reference import LayoutReference, Reference
from wheelmark.oci.referrers import referrers
from wheelmark.oci.transport import Patience
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish import Connection, copy
from wheelmark.publish.places import LayoutSource, RegistryPlace
from wheelmark.publish.transfer import Wanted, transfer

NAME = "team/app"
LARGE = (2 * CHUNK) + 12_345
"""Goes in three parts."""
Script = Callable[[Handler], bool]


@pytest.fixture
def server() -> Iterator[Registry]:
    with served(Registry()) as registry:
        yield registry


class Waits(list[float]):
    """Seconds that a client waited; none pass."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


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


def first(times: int, condition: Callable[[Handler], bool], answer: Callable[[Handler], None]) -> Script:
    """Answer the first requests that fit in a way of one's own; the rest go through."""
    left = [times]

    def script(handler: Handler) -> bool:
        if left[0] and condition(handler):
            left[0] -= 1
            answer(handler)
            return True
        return False

    return script


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.read_body()
        handler.answer(code, body, headers=headers)

    return answer


def cut(handler: Handler) -> None:
    """Close in the middle of whatever it is."""
    handler.close_connection = True
    handler.connection.close()


def is_method(*methods: str) -> Callable[[Handler], bool]:
    return lambda handler: handler.command in methods


def put_manifest(
    server: Registry, data: bytes, *, tag: str = "v", media_type: str = types.MANIFEST
) -> Reference:
    server.manifests[NAME, digest_of(data)] = (media_type, data)
    server.tags[NAME, tag] = digest_of(data)
    return Reference(host=server.host, repository=NAME, tag=tag)


EMPTY = Descriptor(media_type=types.EMPTY, sha256=digest_of(b"{}").removeprefix("sha256:"), size=2)
MANIFEST = ImageManifest(config=EMPTY, layers=(EMPTY,)).as_bytes()


# What passes


def test_429_is_waited_for_as_long_as_it_says(
    server: Registry, registry: client.Registry, waits: Waits
) -> None:
    reference = put_manifest(server, MANIFEST)
    server.script = first(2, is_method("GET"), status(429, {"Retry-After": "7"}))
    assert registry.manifest(reference) == MANIFEST
    assert waits == [7, 7]


def test_429_may_say_a_date(server: Registry, registry: client.Registry, waits: Waits) -> None:
    reference = put_manifest(server, MANIFEST)
    when = email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60), usegmt=True)
    server.script = first(1, is_method("GET"), status(429, {"Retry-After": when}))
    assert registry.manifest(reference) == MANIFEST
    assert 50 < waits[0] <= 60


def test_429_for_an_hour_is_not_waited_for(server: Registry, registry: client.Registry, waits: Waits) -> None:
    reference = put_manifest(server, MANIFEST)
    server.script = first(1, is_method("GET"), status(429, {"Retry-After": "3600"}))
    with pytest.raises(RegistryError, match="3,600 seconds") as caught:
        registry.manifest(reference)
    assert caught.value.reason == "registry-unreachable"
    assert not waits


def test_a_burst_of_500_is_waited_out_longer_each_time(
    server: Registry, registry: client.Registry, waits: Waits
) -> None:
    reference = put_manifest(server, MANIFEST)
    server.script = first(4, is_method("GET"), status(503))
    assert registry.manifest(reference) == MANIFEST
    assert all(0.5 * 2**at * 0.5 <= waited <= 0.5 * 2**at for at, waited in enumerate(waits))
    assert len(waits) == 4


def test_500_without_end_is_an_error_that_quotes_it(
    server: Registry, registry: client.Registry, waits: Waits
) -> None:
    said = json.dumps({"errors": [{"code": "UNKNOWN", "message": "disk is full"}]}).encode()
    server.script = first(99, is_method("GET"), status(500, body=said))
    with pytest.raises(RegistryError, match="UNKNOWN disk is full") as caught:
        registry.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-unreachable"
    assert len(waits) == 4


def test_a_connection_that_is_cut_is_made_again(server: Registry, registry: client.Registry) -> None:
    reference = put_manifest(server, MANIFEST)
    server.script = first(3, is_method("GET"), cut)
    assert registry.manifest(reference) == MANIFEST


def test_nobody_there(registry: client.Registry, server: Registry, waits: Waits) -> None:
    with served(Registry()) as gone:
        host = gone.host
    alone = client.Registry(host, sleep=waits)
    with pytest.raises(RegistryError, match="refused") as caught:
        alone.resolve(Reference(host=host, repository=NAME, tag="v"))
    assert (caught.value.reason, int(caught.value.exit_code)) == ("registry-unreachable", 16)


# Lies about digests


@pytest.mark.parametrize("by_digest", [False, True])
def test_a_manifest_under_a_wrong_digest_header(
    server: Registry, registry: client.Registry, *, by_digest: bool
) -> None:
    reference = put_manifest(server, MANIFEST)
    if by_digest:
        reference = reference.at(digest=digest_of(MANIFEST))
    headers = {"Docker-Content-Digest": digest_of(b"other"), "Content-Type": types.MANIFEST}
    server.script = first(1, is_method("GET"), status(200, headers, MANIFEST))
    with pytest.raises(RegistryError) as caught:
        registry.manifest(reference)
    assert caught.value.reason == "registry-digest"


def test_a_manifest_that_is_not_the_one_of_its_digest(server: Registry, registry: client.Registry) -> None:
    reference = put_manifest(server, MANIFEST)
    server.script = first(1, is_method("GET"), status(200, {"Content-Type": types.MANIFEST}, MANIFEST + b" "))
    with pytest.raises(RegistryError) as caught:
        registry.manifest(reference.at(digest=digest_of(MANIFEST)))
    assert caught.value.reason == "registry-digest"


def test_a_pushed_manifest_that_was_taken_as_another(server: Registry, registry: client.Registry) -> None:
    server.script = first(1, is_method("PUT"), status(201, {"Docker-Content-Digest": digest_of(b"other")}))
    with pytest.raises(RegistryError) as caught:
        registry.push_manifest(Reference(host=server.host, repository=NAME), MANIFEST, types.MANIFEST)
    assert caught.value.reason == "registry-digest"


@pytest.mark.parametrize("headers", [{"Docker-Content-Digest": digest_of(b"x")}, {"Content-Length": "3"}])
def test_a_blob_that_is_there_as_another(
    server: Registry, registry: client.Registry, headers: dict[str, str]
) -> None:
    server.script = first(1, is_method("HEAD"), status(200, headers))
    with pytest.raises(RegistryError) as caught:
        registry.holds_blob(NAME, EMPTY)
    assert caught.value.reason == "registry-digest"


@pytest.mark.parametrize("wrong", [b"[]", b"{} ", b"{"])
def test_a_blob_of_other_bytes(server: Registry, registry: client.Registry, wrong: bytes) -> None:
    server.script = first(99, is_method("GET"), status(200, {}, wrong))
    with pytest.raises(RegistryError) as caught, registry.open_blob(NAME, EMPTY) as blob:
        blob.check()
    # One that is too short looks like one that broke off, and is asked for until patience ends.
    assert caught.value.reason == ("registry-unreachable" if len(wrong) < 2 else "registry-digest")


def test_a_blob_that_was_taken_as_another(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    source, blob = layout
    server.script = first(1, is_method("PUT"), status(201, {"Docker-Content-Digest": digest_of(b"other")}))
    with pytest.raises(RegistryError) as caught:
        registry.push_blob(NAME, blob, lambda: source.open_blob(blob))
    assert caught.value.reason == "registry-digest"


# Downloads


def some(source: LayoutSource, blob: Descriptor) -> bytes:
    with source.layout.open_blob(blob) as opened:
        return b"".join(iter(lambda: opened.read(1 << 20), b""))


def test_a_download_that_breaks_goes_on_where_it_broke(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    data = some(*layout)
    server.blobs[NAME, layout[1].digest] = data
    ranges: list[str] = []

    def script(handler: Handler) -> bool:
        ranges.append(handler.headers.get("Range", ""))
        start = int(ranges[-1].removeprefix("bytes=").removesuffix("-") or 0)
        if len(ranges) > 4:
            return False
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        handler.wfile.write(data[start : start + (3 << 20)])
        handler.close_connection = True
        return True

    server.script = script
    with registry.open_blob(NAME, layout[1]) as blob:
        assert b"".join(iter(lambda: blob.read(1 << 20), b"")) == data
        blob.check()
    assert ranges == ["", *(f"bytes={at * (3 << 20)}-" for at in (1, 2, 3, 4))]


def test_a_registry_without_ranges_is_read_again_from_the_beginning(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    data = some(*layout)
    served_whole = [False]

    def script(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data if served_whole[0] else data[: 5 << 20])
        handler.close_connection = not served_whole[0]
        served_whole[0] = True
        return True

    server.script = script
    with registry.open_blob(NAME, layout[1]) as blob:
        blob.check()


def test_another_part_than_was_asked_for(
    server: Registry, registry: client.Registry, layout: tuple[LayoutSource, Descriptor]
) -> None:
    data = some(*layout)
    seen: list[str] = []

    def script(handler: Handler) -> bool:
        seen.append(handler.path)
        handler.send_response(200 if len(seen) == 1 else 206)
        handler.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: 1 << 20])
        handler.close_connection = True
        return True

    server.script = script
    with pytest.raises(RegistryError) as caught, registry.open_blob(NAME, layout[1]) as blob:
        blob.check()
    assert caught.value.reason == "registry-answer"


def test_a_body_that_always_breaks_off(server: Registry, registry: client.Registry, waits: Waits) -> None:
    reference = put_manifest(server, MANIFEST)

    def short(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", types.MANIFEST)
        handler.send_header("Content-Length", str(len(MANIFEST)))
        handler.end_headers()
        handler.wfile.write(MANIFEST[:20])
        handler.close_connection = True

    server.script = first(2, is_method("GET"), short)
    assert registry.manifest(reference) == MANIFEST
    server.script = first(99, is_method("GET"), short)
    with pytest.raises(RegistryError) as caught:
        registry.manifest(reference)
    assert caught.value.reason == "registry-unreachable"


# Answers without end


def pour(handler: Handler) -> None:
    """Chunks for ever."""
    handler.send_response(200)
    handler.send_header("Content-Type", types.MANIFEST)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
    handler.close_connection = True


@pytest.mark.row(22, "registry-limit")
def test_a_manifest_without_end(server: Registry, registry: client.Registry) -> None:
    server.script = first(1, is_method("GET"), pour)
    with pytest.raises(InputError) as caught:
        registry.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert (caught.value.reason, int(caught.value.exit_code)) == ("registry-limit", 6)


def test_a_manifest_that_says_it_is_huge_is_not_read(server: Registry, registry: client.Registry) -> None:
    server.script = first(1, is_method("GET"), status(200, {"Content-Length": str(1 << 40)}))
    with pytest.raises(InputError) as caught:
        registry.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    assert caught.value.reason == "registry-limit"


def test_a_blob_without_end_is_read_to_its_size(server: Registry, registry: client.Registry) -> None:
    server.script = first(1, is_method("GET"), pour)
    with pytest.raises(RegistryError) as caught, registry.open_blob(NAME, EMPTY) as blob:
        blob.check()
    assert caught.value.reason == "registry-digest"


@pytest.mark.row(22, "registry-limit")
def test_a_hundred_thousand_referrers(server: Registry, registry: client.Registry) -> None:
    page = [{"mediaType": types.MANIFEST, "digest": f"sha256:{n:064x}", "size": 1} for n in range(100)]
    body = json.dumps({"schemaVersion": 2, "mediaType": types.INDEX, "manifests": page}).encode()
    asked: list[str] = []

    def answer(handler: Handler) -> None:
        asked.append(handler.path)
        link = f'<{handler.path.partition("?")[0]}?at={len(asked)}>; rel="next"'
        handler.answer(200, body, headers={"Content-Type": types.INDEX, "Link": link})

    server.script = first(1000, lambda handler: "/referrers/" in handler.path, answer)
    with pytest.raises(InputError) as caught:
        referrers(registry, NAME, "a" * 64)
    assert caught.value.reason == "registry-limit"
    assert len(asked) == 11


@pytest.mark.row(22, "registry-limit")
def test_a_hundred_thousand_referrers_at_once(server: Registry, registry: client.Registry) -> None:
    for count in (10_001, 100_000):
        items = [{"mediaType": types.MANIFEST, "digest": f"sha256:{n:064x}", "size": 1} for n in range(count)]
        body = json.dumps({"schemaVersion": 2, "mediaType": types.INDEX, "manifests": items}).encode()
        put_manifest(server, body, tag=types.fallback_tag("a" * 64), media_type=types.INDEX)
        with pytest.raises(InputError) as caught:
            referrers(registry, NAME, "a" * 64)
        assert caught.value.reason == "registry-limit"


@pytest.mark.row(22, "registry-limit")
def test_empty_pages_without_end(server: Registry, registry: client.Registry) -> None:
    body = json.dumps({"schemaVersion": 2, "mediaType": types.INDEX, "manifests": []}).encode()
    link = {"Content-Type": types.INDEX, "Link": '<?again=1>; rel="next"'}
    server.script = first(1000, lambda handler: "/referrers/" in handler.path, status(200, link, body))
    with pytest.raises(InputError, match="pages") as caught:
        referrers(registry, NAME, "a" * 64)
    assert caught.value.reason == "registry-limit"


def test_pages_that_go_on_at_another_host(server: Registry, registry: client.Registry) -> None:
    body = json.dumps({"schemaVersion": 2, "mediaType": types.INDEX, "manifests": []}).encode()
    link = {"Content-Type": types.INDEX, "Link": '<http://127.0.0.1:1/v2/x>; rel="next"'}
    server.script = first(1, lambda handler: "/referrers/" in handler.path, status(200, link, body))
    with pytest.raises(RegistryError) as caught:
        referrers(registry, NAME, "a" * 64)
    assert caught.value.reason == "registry-answer"


@report("kyverno/kyverno#15327")
def test_referrers_of_the_api_and_of_the_tag_are_one_list(
    server: Registry, registry: client.Registry
) -> None:
    subject = types.descriptor_of(MANIFEST, types.MANIFEST)
    put_manifest(
        server, ImageManifest(config=EMPTY, layers=(EMPTY,), subject=subject).as_bytes(), tag="listed"
    )
    other = Descriptor(media_type=types.MANIFEST, sha256="b" * 64, size=1)
    index = types.ImageIndex(manifests=(other,)).as_bytes()
    put_manifest(server, index, tag=types.fallback_tag(subject.sha256), media_type=types.INDEX)
    assert {item.digest for item in referrers(registry, NAME, subject.sha256)} == {
        server.tags[NAME, "listed"],
        other.digest,
    }


# Slowness


def test_a_head_that_trickles_is_given_up(server: Registry, registry: client.Registry, waits: Waits) -> None:
    """One byte every tenth of a second: no socket ever times out."""
    ended = threading.Event()

    def trickle(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.1):
                handler.wfile.write(b"x")
        handler.close_connection = True

    server.script = first(99, is_method("GET"), trickle)
    impatient = client.Registry(
        server.host, sleep=waits, patience=Patience(attempts=2, head=0.5, silence=5), find=lambda _name: None
    )
    with pytest.raises(RegistryError) as caught:
        impatient.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    ended.set()
    assert caught.value.reason == "registry-unreachable"


def test_a_body_that_trickles_is_given_up(server: Registry, waits: Waits) -> None:
    ended = threading.Event()

    def trickle(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            handler.send_response(200)
            handler.send_header("Content-Length", "4000")
            handler.end_headers()
            while not ended.wait(0.1):
                handler.wfile.write(b"x")
        handler.close_connection = True

    server.script = first(99, is_method("GET"), trickle)
    impatient = client.Registry(
        server.host, sleep=waits, patience=Patience(attempts=2, silence=1, rate=1024), find=lambda _name: None
    )
    with pytest.raises(InputError) as caught:
        impatient.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    ended.set()
    assert caught.value.reason == "registry-limit"


def test_silence_is_given_up(server: Registry, waits: Waits) -> None:
    ended = threading.Event()

    def hold(handler: Handler) -> None:
        ended.wait()
        cut(handler)

    server.script = first(99, is_method("GET"), hold)
    impatient = client.Registry(
        server.host, sleep=waits, patience=Patience(attempts=2, silence=0.3), find=lambda _name: None
    )
    with pytest.raises(RegistryError) as caught:
        impatient.manifest(Reference(host=server.host, repository=NAME, tag="v"))
    ended.set()
    assert caught.value.reason == "registry-unreachable"


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
