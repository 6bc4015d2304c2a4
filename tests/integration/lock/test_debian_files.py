"""The Debian locks of a project: written, kept, compared, checked, fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debianarchive import Archive
from wheelmark.cli import main
from wheelmark.config import Declaration, HostArch, load_declaration
from wheelmark.errors import ConfigError, LockError
from wheelmark.lock import LockState
from wheelmark.lock.debian import DebianResult, debian_lock_path, fetch_debian, lock_debian

ROOT = Path(__file__).parents[3]
RECIPE = """schema = 1
[debian]
suite = "bookworm"
packages = ["tool"]
waived = ["shell"]
[python]
version = "3.11"
executable = "/usr/bin/python3.11"
site = "/usr/local/lib/python3.11/dist-packages"
[dependencies]
lock = "runtime-cpu.txt"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declaration:
    """One with an image for each CPU."""
    monkeypatch.delenv("WHEELMARK_DEBIAN_ADVISORIES", raising=False)
    root = tmp_path / "project"
    (root / "containers").mkdir(parents=True)
    (root / "containers" / "image.toml").write_text(RECIPE)
    lines = [
        line
        for line in (ROOT / "wheelmark.toml").read_text(encoding="utf-8").splitlines()
        if not line.startswith("image =")
    ]
    text = "\n".join(lines)
    for target in ("cpu-x86_64", "cpu-aarch64"):
        name = f'target = "{target}"'
        text = text.replace(name, f'{name}\nimage = "containers/image.toml"')
    (root / "wheelmark.toml").write_text(text)
    return load_declaration(root / "wheelmark.toml")


def locked(project: Declaration, archive: Archive, tmp_path: Path) -> tuple[DebianResult, ...]:
    return lock_debian(project, cache=tmp_path / "cache", machine=archive.machine())


def data_of(project: Declaration) -> list[bytes]:
    return [debian_lock_path(project.root, host).read_bytes() for host in HostArch]


def test_each_cpu_has_its_lock_and_it_stays_as_it_is(
    project: Declaration, archive: Archive, tmp_path: Path
) -> None:
    results = locked(project, archive, tmp_path)
    assert [(item.name, item.state, item.packages) for item in results] == [
        ("debian-amd64.json", LockState.WRITTEN, 3),
        ("debian-arm64.json", LockState.WRITTEN, 3),
    ]
    before = data_of(project)
    assert b"127.0.0.1" not in b"".join(before)
    # A new index with the same packages, as archives write several a day.
    archive.publish()
    again = locked(project, archive, tmp_path)
    assert {item.state for item in again} == {LockState.UNCHANGED}
    assert data_of(project) == before
    (fetched, _) = fetch_debian(project, tmp_path / "pool", machine=archive.machine())
    assert {path.stem for path in (tmp_path / "pool").iterdir()} >= {item.sha256 for item in fetched.packages}


def test_what_changed_is_said_with_the_advisories_that_it_answers(
    project: Declaration, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked(project, archive, tmp_path)
    archive.add("tool", "2.0-2", depends="library, extra")
    archive.add("extra", "1", architecture="all")
    archive.publish()
    folder = tmp_path / "advisories"
    folder.mkdir()
    manifest = {
        "schema": "https://wheelmark.dev/advisories/v1",
        "source": "test",
        "date": "2026-09-30",
        "coverage": {"ecosystem": "Debian:12", "packages": "all"},
    }
    advisory = {
        "id": "DSA-1-1",
        "affected": [
            {
                "package": {"ecosystem": "Debian:12", "name": "tools"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0-2"}]}],
            }
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "DSA-1-1.json").write_text(json.dumps(advisory))
    monkeypatch.setenv("WHEELMARK_DEBIAN_ADVISORIES", str(folder))
    archive.stanzas["bookworm"]["tool", "amd64"] += "Source: tools (2.0-2)\n"
    archive.publish()
    amd64, arm64 = locked(project, archive, tmp_path)
    assert [change.as_line() for change in amd64.changes] == [
        "+ extra 1",
        "↑ tool 2.0-1+b1 -> 2.0-2  fixes DSA-1-1",
    ]
    assert amd64.advisories == "test, 2026-09-30"
    assert (arm64.changes, arm64.state) == ((), LockState.UNCHANGED)


def test_without_security_data_advisories_are_unchecked(
    project: Declaration, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked(project, archive, tmp_path)
    for version in ("2.0-2", "2.0-3"):
        archive.add("tool", version, depends="library")
        archive.publish()
        amd64, _ = locked(project, archive, tmp_path)
        assert amd64.changes[0].fixes is None
        assert amd64.changes[0].as_line().endswith("advisories: UNCHECKED")
        assert amd64.advisories.startswith("UNCHECKED: ")
        # The second time with a folder that cannot be used.
        monkeypatch.setenv("WHEELMARK_DEBIAN_ADVISORIES", str(tmp_path))


def test_a_check_needs_no_network_and_sees_another_table_a_changed_and_an_absent_lock(
    project: Declaration, archive: Archive, tmp_path: Path
) -> None:
    locked(project, archive, tmp_path)
    archive.asked.clear()

    def states() -> list[LockState]:
        return [item.state for item in lock_debian(project, cache=tmp_path, check=True)]

    assert states() == [LockState.UNCHANGED, LockState.UNCHANGED]
    recipe = project.root / "containers" / "image.toml"
    recipe.write_text(RECIPE.replace('waived = ["shell"]', 'waived = ["shell"]\ndrop = ["usr/share/man/**"]'))
    assert states() == [LockState.UNCHANGED, LockState.UNCHANGED], "what is dropped is not resolved"
    recipe.write_text(RECIPE.replace('waived = ["shell"]\n', ""))
    assert states() == [LockState.STALE, LockState.STALE]
    with pytest.raises(LockError) as caught:
        fetch_debian(project, tmp_path / "pool", machine=archive.machine())
    assert caught.value.reason == "lock-stale"
    recipe.write_text(RECIPE)
    path = debian_lock_path(project.root, HostArch.X86_64)
    path.write_bytes(path.read_bytes() + b" ")
    debian_lock_path(project.root, HostArch.AARCH64).unlink()
    assert states() == [LockState.STALE, LockState.STALE]
    assert archive.asked == []


def test_images_of_one_cpu_share_a_lock(project: Declaration, archive: Archive, tmp_path: Path) -> None:
    (project.root / "containers" / "other.toml").write_text(RECIPE.replace('"tool"', '"library"'))
    path = project.root / "wheelmark.toml"
    name = 'target = "cuda-sm80"'
    path.write_text(path.read_text().replace(name, f'{name}\nimage = "containers/other.toml"'))
    with pytest.raises(ConfigError) as caught:
        locked(load_declaration(path), archive, tmp_path)
    assert caught.value.reason == "recipe-debian"


def test_a_folder_is_filled_by_the_command(
    project: Declaration,
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    locked(project, archive, tmp_path)
    fetch_debian(project, tmp_path / "kept", machine=archive.machine())
    monkeypatch.setenv("WHEELMARK_DEBIAN_POOL", str(tmp_path / "kept"))
    pool = tmp_path / "pool"
    assert main(["lock", "--json", "--project", str(project.root), "--fetch", str(pool)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(row["architecture"], row["packages"]) for row in said["locks"]] == [("amd64", 3), ("arm64", 3)]
    assert len(list(pool.iterdir())) == 5
