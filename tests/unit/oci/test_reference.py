"""Names of images: what is parsed prints as it was; what the specification does not allow is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from wheelmark.errors import InputError
from wheelmark.oci.reference import (
    LayoutReference,
    Reference,
    is_host,
    is_loopback,
    parse_location,
    parse_reference,
)

DIGEST = "sha256:" + "0a" * 32
HOSTS = ("registry.example", "localhost", "localhost:5000", "127.0.0.1:1", "[::1]:5000", "A-b.C", "x:65535")
REPOSITORIES = ("a", "a/b", "a0.b_c__d---e/f/g")
TAGS = ("", "1", "v1.2-3_x", "_", "A" * 128)


@pytest.mark.parametrize(
    ("host", "repository", "tag", "digest"),
    list(itertools.product(HOSTS, REPOSITORIES, TAGS, ("", DIGEST))),
)
def test_what_is_parsed_prints_as_it_was(host: str, repository: str, tag: str, digest: str) -> None:
    made = Reference(host=host, repository=repository, tag=tag, digest=digest)
    assert parse_reference(str(made)) == made
    assert parse_location(str(made)) == made
    assert made.asked == (digest or tag)


@pytest.mark.parametrize(
    ("path", "tag", "digest"),
    list(itertools.product(("a", "/a/b", "../x y", ".", "a.b"), ("", "v1"), ("", DIGEST))),
)
def test_layouts_too(path: str, tag: str, digest: str) -> None:
    made = LayoutReference(path=Path(path), tag=tag, digest=digest)
    assert parse_location(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "app",
        "team/app",
        "registry.example",
        "registry.example/",
        "registry.example/App",
        "registry.example//a",
        "registry.example/a/",
        "registry.example/a..b",
        "registry.example/a___b",
        "registry.example/-a",
        "registry.example/a:",
        "registry.example/a@",
        "registry.example/a:.b",
        f"registry.example/a:{'x' * 129}",
        "registry.example/a:b:c",
        "registry.example/a@sha256:12",
        f"registry.example/a@{DIGEST.upper()}",
        f"registry.example/a@sha512:{'0' * 128}",
        f"registry.example/a@{DIGEST}@{DIGEST}",
        f"registry.example/{'a/' * 130}a",
        "registry.example:0/a",
        "registry.example:65536/a",
        "registry.example:x/a",
        "-registry.example/a",
        "registry..example/a",
        "user:pw@registry.example/a",
        "http://registry.example/a",
        "registry.example/a?x",
        "registry.example/a b",
        "registry.example/a\n",
        "[::g]:1/a",
        "[::1/a",
        "oci:",
        "oci::v1",
        "oci:a:",
        "oci:a:b:c",
        "oci:a@x",
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_location(text)
    assert caught.value.reason == "registry-reference"


@pytest.mark.parametrize("path", ["a:b", "a@b"])
def test_a_path_that_would_be_read_otherwise(path: str) -> None:
    with pytest.raises(InputError) as caught:
        LayoutReference(path=Path(path))
    assert caught.value.reason == "registry-reference"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("LOCALHOST:5000", True),
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("10.0.0.1", False),
        ("[::2]", False),
        ("user@localhost", False),
        ("", False),
    ],
)
def test_what_is_this_machine(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_host_with_a_zone_or_a_user_is_none() -> None:
    assert not any(is_host(text) for text in ("[fe80::1%eth0]", "u@h", "h/", "h ", "h:", ""))
