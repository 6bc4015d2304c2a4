"""Roots that TUF keeps fresh, as they lie in the state directory: read without a network, refused when damaged."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.errors import BusyError, ConfigError, Exit
from wheelmark.trust import updating
from wheelmark.verify import reasons

BOOTSTRAP = digests.sha256(b"bootstrap")
ROOT = b"a root"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an update leaves behind."""
    made = tmp_path / "roots" / "tuf" / "ours"
    made.mkdir(parents=True, mode=0o700)
    for path in (tmp_path, tmp_path / "roots", tmp_path / "roots" / "tuf"):
        path.chmod(0o700)
    (made / f"root-{digests.sha256(ROOT)}.json").write_bytes(ROOT)
    (made / "bootstrap.json").write_bytes(b"bootstrap")
    write(made)
    return made


def write(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _record: None) -> None:
    record: dict[str, Any] = {
        "schemaVersion": 1,
        "url": "https://mirror.invalid",
        "bootstrapSha256": BOOTSTRAP,
        "rootSha256": digests.sha256(ROOT),
        "timestampVersion": 7,
        "vouched": "2026-01-02T03:04:05+00:00",
    }
    change(record)
    (folder / "update.json").write_text(json.dumps(record))


def reason(name: str, directory: Path, bootstrap: str = BOOTSTRAP) -> str:
    with pytest.raises(ConfigError) as caught:
        updating.updated_root(name, bootstrap_sha256=bootstrap, directory=directory)
    assert caught.value.exit_code is Exit.CONFIG
    return caught.value.reason


def test_what_is_read(folder: Path, tmp_path: Path) -> None:
    found = updating.updated_root("ours", bootstrap_sha256=BOOTSTRAP, directory=tmp_path)
    assert found == updating.UpdatedRoot(
        name="ours",
        path=folder / f"root-{digests.sha256(ROOT)}.json",
        data=ROOT,
        sha256=digests.sha256(ROOT),
        vouched=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        url="https://mirror.invalid",
        bootstrap_sha256=BOOTSTRAP,
        version=7,
    )
    assert updating.updated_roots(tmp_path) == (found,)
    assert updating.stored_url("ours", tmp_path) == "https://mirror.invalid"
    assert updating.first_root("ours", tmp_path) == b"bootstrap"


def test_absent_names_the_command(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError) as caught:
        updating.updated_root("public", bootstrap_sha256=BOOTSTRAP, directory=tmp_path)
    assert caught.value.reason == "root-absent"
    assert caught.value.fix == "wheelmark trust update public"
    assert updating.updated_roots(tmp_path) == ()
    assert updating.first_root("public", tmp_path) is None
    assert updating.stored_url("public", tmp_path) == updating.PUBLIC_URL
    assert updating.stored_url("ours", tmp_path) == ""


@pytest.mark.usefixtures("folder")
def test_another_beginning_is_refused(tmp_path: Path) -> None:
    assert reason("ours", tmp_path, digests.sha256(b"other")) == "root-digest"


@pytest.mark.parametrize("name", ["", "../ours", "Ours", "a/b", "x" * 65])
def test_names(name: str, tmp_path: Path) -> None:
    assert reason(name, tmp_path) == "root-name"
    with pytest.raises(ConfigError) as caught:
        updating.update_root(name, url="https://mirror.invalid", bootstrap=b"", directory=tmp_path)
    assert caught.value.reason == "root-name"


@pytest.mark.parametrize(
    "url", ["", "mirror.invalid", "file:///etc/passwd", "https://", "ftp://mirror.invalid"]
)
def test_addresses(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        updating.update_root("ours", url=url, bootstrap=b"", directory=tmp_path)
    assert caught.value.reason == "root-url"


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(schemaVersion=2),
        lambda record: record.update(vouched="yesterday"),
        lambda record: record.update(vouched="2026-01-02T03:04:05"),
        lambda record: record.update(vouched=5),
        lambda record: record.update(timestampVersion="7"),
        lambda record: record.update(rootSha256="../" + "0" * 61),
        lambda record: record.update(bootstrapSha256=None),
        lambda record: record.update(url=None),
        lambda record: record.update(rootSha256="0" * 64),
        lambda record: record.clear(),
    ],
)
def test_a_damaged_record(change: Callable[[dict[str, Any]], object], folder: Path, tmp_path: Path) -> None:
    write(folder, change)
    assert reason("ours", tmp_path) == "root-shape"


def test_damaged_bytes(folder: Path, tmp_path: Path) -> None:
    (folder / f"root-{digests.sha256(ROOT)}.json").write_bytes(ROOT + b"!")
    assert reason("ours", tmp_path) == "root-shape"
    (folder / "update.json").write_bytes(b"{")
    assert reason("ours", tmp_path) == "root-shape"


def test_a_folder_that_others_can_enter(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o750)
    assert reason("ours", tmp_path) == "state-permissions"


def test_an_update_waits_for_another_and_then_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "_PATIENCE", 0.0)
    with updating._locked(folder), pytest.raises(BusyError) as caught:
        updating.update_root("ours", url="https://mirror.invalid", bootstrap=b"bootstrap", directory=tmp_path)
    assert caught.value.reason == "root-busy"


def test_the_public_bootstrap_is_the_packages() -> None:
    value = json.loads(updating.public_root())["signed"]
    assert value["_type"] == "root"
    assert value["consistent_snapshot"] is True


def test_reading_needs_no_tuf_library() -> None:
    code = (
        "import sys; from wheelmark.trust import updating; updating.updated_roots; "
        "sys.exit(any(name in sys.modules for name in ('tuf', 'sigstore', 'urllib3')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_codes_stand_in_the_table() -> None:
    codes = {"root-unreachable", "root-update", "root-bootstrap", "root-url", "root-name", "root-absent"}
    assert codes <= set(reasons.TABLE)
