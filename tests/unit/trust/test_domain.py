"""Roots on this machine: exported, imported, listed; none of it gives a root any power."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from wheelmark import digests
from wheelmark.errors import ConfigError, StateError
from wheelmark.sign import embedded
from wheelmark.trust import domain


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture
def state(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "state")
    return tmp_path / "state"


def test_the_embedded_root_is_named_by_its_digest(state: Path) -> None:
    found = domain.embedded_root(state)
    assert found.sha256 == digests.sha256_file(state / "embedded" / "trusted_root.json")
    assert found.sha256 == embedded.show(state).root_sha256
    assert [window.end for window in found.windows] == [None]


def test_no_domain_no_root(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        domain.embedded_root(tmp_path / "nowhere")
    assert caught.value.reason == "trust-absent"


def test_a_root_that_others_could_replace_is_refused(state: Path) -> None:
    (state / "embedded").chmod(0o770)
    with pytest.raises(ConfigError) as caught:
        domain.embedded_root(state)
    assert caught.value.reason == "state-permissions"


def test_export_then_import_elsewhere(state: Path, tmp_path: Path) -> None:
    exported = domain.export_root(tmp_path / "root.json", state)
    other = tmp_path / "other"
    imported = domain.import_root(tmp_path / "root.json", "colleague", other)
    assert imported.sha256 == exported.sha256
    assert stat.S_IMODE(imported.path.stat().st_mode) == 0o600
    assert domain.imported_roots(other) == (imported,)
    assert domain.import_root(tmp_path / "root.json", "colleague", other) == imported
    assert domain.imported_roots(state) == ()


def test_an_export_replaces_nothing(state: Path, tmp_path: Path) -> None:
    (tmp_path / "root.json").write_text("mine")
    with pytest.raises(ConfigError) as caught:
        domain.export_root(tmp_path / "root.json", state)
    assert caught.value.reason == "export-target"
    assert (tmp_path / "root.json").read_text() == "mine"


def test_an_import_replaces_no_other_root(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    domain.export_root(tmp_path / "one.json", state)
    embedded.rotate(state)
    domain.export_root(tmp_path / "two.json", state)
    first = domain.import_root(tmp_path / "one.json", "colleague", other)
    with pytest.raises(ConfigError) as caught:
        domain.import_root(tmp_path / "two.json", "colleague", other)
    assert caught.value.reason == "root-name"
    assert digests.sha256_file(first.path) == first.sha256


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "-a", "a" * 65, "a\n"])
def test_names_are_plain(name: str, state: Path, tmp_path: Path) -> None:
    domain.export_root(tmp_path / "root.json", state)
    with pytest.raises(ConfigError) as caught:
        domain.import_root(tmp_path / "root.json", name, tmp_path / "other")
    assert caught.value.reason == "root-name"


@pytest.mark.parametrize(
    ("data", "reason"), [(b"{}", "root-shape"), (b"[", "root-shape"), (None, "root-absent")]
)
def test_what_is_no_root_is_not_imported(data: bytes | None, reason: str, tmp_path: Path) -> None:
    source = tmp_path / "root.json"
    if data is not None:
        source.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        domain.import_root(source, "x", tmp_path / "other")
    assert caught.value.reason == reason
    assert domain.imported_roots(tmp_path / "other") == ()
