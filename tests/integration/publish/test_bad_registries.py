"""Registries that are slow, broken or lie: what passes is waited for, everything else is an error that says what it is."""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import json
import threading

import pytest

from badregistries import EMPTY, MANIFEST, NAME, Waits, cut, first, is_method, put_manifest, some, status
from registry import Handler, Registry, digest_of, served
from rows import report
from wheelmark.errors import InputError, RegistryError
from wheelmark.oci import client, types
from wheelmark.oci.reference import Reference
from wheelmark.oci.referrers import referrers
from wheelmark.oci.transport import Patience
from wheelmark.oci.types import Descriptor, ImageManifest
from wheelmark.publish.places import LayoutSource

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
