"""An archive of Debian packages for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from debianarchive import Archive, Keys, serve
from presence import need_program


@pytest.fixture(scope="session")
def keys() -> Iterator[Keys]:
    made = Keys("archive")
    yield made
    made.close()


@pytest.fixture(scope="session")
def other_keys() -> Iterator[Keys]:
    made = Keys("somebody")
    yield made
    made.close()


@pytest.fixture
def archive(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """``tool`` needs ``library``, which needs ``tables`` (for all CPUs) and ``shell``; a fix of ``library`` in -security."""
    for program in ("apt-get", "gpgv"):
        need_program(program)
    for name in ("http_proxy", "HTTP_PROXY", "WHEELMARK_DEBIAN_POOL", "WHEELMARK_DEBIAN_SNAPSHOT"):
        monkeypatch.delenv(name, raising=False)
    made = Archive(root=tmp_path / "archive", keys=keys)
    for architecture in ("amd64", "arm64"):
        made.add(
            "tool", "2.0-1+b1", architecture=architecture, depends="library (>= 1.1)", source="tools (2.0-1)"
        )
        made.add("library", "1:1.1-1", architecture=architecture, depends="tables, shell")
        made.add(
            "library",
            "1:1.1-1+deb12u1",
            architecture=architecture,
            depends="tables, shell",
            suite="bookworm-security",
        )
    made.add("tables", "2026a-0", architecture="all", suite="bookworm-updates")
    made.add("shell", "5.2", depends="")
    made.publish()
    with serve(made):
        yield made
