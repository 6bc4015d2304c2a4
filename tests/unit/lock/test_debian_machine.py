"""What apt's folder says of Debian's mirrors."""

from __future__ import annotations

from pathlib import Path

from wheelmark.lock.debian import AptSource, Machine
from wheelmark.lock.debian.machine import read_sources, shown

ONE_LINE = """
# deb http://commented.example/debian bookworm main
deb http://one.example/debian/ bookworm main contrib  # a remark
deb-src http://one.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://two.example/debian bookworm-updates main
deb [signed-by=/etc/apt/keyrings/another.gpg] http://another.example/apt bookworm main
deb http://flat.example/ ./
deb cut
"""
DEB822 = """# Comment
Types: deb deb-src
URIs: http://three.example/debian
# comment inside
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://security.example/debian-security http://security2.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://node.example/node
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
"""


def source(uri: str, suite: str, *components: str) -> AptSource:
    return AptSource(uri=uri, suite=suite, components=components or ("main",))


def test_both_formats_are_read_and_others_archives_left_out(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(ONE_LINE)
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "debian.sources.save").write_text(DEB822.replace("three", "saved"))
    (parts / "more.list").write_text("deb http://four.example/debian bookworm main\n")
    assert read_sources(tmp_path) == (
        source("http://one.example/debian", "bookworm", "main", "contrib"),
        source("http://two.example/debian", "bookworm-updates"),
        source("http://three.example/debian", "bookworm"),
        source("http://three.example/debian", "bookworm-updates"),
        source("http://security.example/debian-security", "bookworm-security"),
        source("http://security2.example/debian-security", "bookworm-security"),
        source("http://four.example/debian", "bookworm"),
    )


def test_a_machine_without_apt_has_no_sources(tmp_path: Path) -> None:
    assert read_sources(tmp_path) == ()


def test_a_snapshot_comes_last_and_knows_the_two_archives(tmp_path: Path) -> None:
    machine = Machine(
        sources=(source("http://one.example/debian", "bookworm"),),
        keyring=tmp_path,
        snapshot="http://snapshot.example/archive/{archive}/20261001T000000Z/",
    )
    assert [item.uri for item in machine.sources_of("bookworm")] == [
        "http://one.example/debian",
        "http://snapshot.example/archive/debian/20261001T000000Z",
    ]
    assert [(item.uri, item.dated) for item in machine.sources_of("bookworm-security")] == [
        ("http://snapshot.example/archive/debian-security/20261001T000000Z", True)
    ]


def test_proxies_are_apts(tmp_path: Path) -> None:
    def machine(**settings: str) -> Machine:
        pairs = tuple((key.replace("_", "::"), value) for key, value in settings.items())
        return Machine(sources=(), keyring=tmp_path, settings=pairs)

    assert machine().proxies() == {}
    assert machine(Acquire_http_Proxy="http://p:1/").proxies() == {
        "http": "http://p:1/",
        "https": "http://p:1/",
    }
    both = machine(Acquire_http_Proxy="http://p:1/", Acquire_https_Proxy="DIRECT")
    assert both.proxies() == {"http": "http://p:1/"}


def test_what_is_shown_of_a_url_holds_no_secret() -> None:
    assert shown("https://me:secret@mirror.example/debian?token=secret") == "https://mirror.example/debian"
