"""The state directory: where it is, and that nobody else can enter it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wheelmark.errors import ConfigError
from wheelmark.trust import state


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(state.VARIABLE, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state.state_directory() == tmp_path / "home" / ".local" / "state" / "wheelmark"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert state.state_directory() == tmp_path / "home" / ".local" / "state" / "wheelmark"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state.state_directory() == tmp_path / "xdg" / "wheelmark"
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "named"))
    assert state.state_directory() == tmp_path / "named"
    assert state.embedded_root_path() == tmp_path / "named" / "embedded" / "trusted_root.json"
    assert not (tmp_path / "named").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_made_private_under_any_umask(
    umask: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "a" / "b"))
    before = os.umask(umask)
    try:
        made = state.state_directory(create=True)
    finally:
        os.umask(before)
    assert mode(made) == 0o700
    assert state.state_directory(create=True) == made


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
@pytest.mark.parametrize("create", [True, False])
def test_any_access_of_others_is_refused(
    bit: int, *, create: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o700 | bit)
    monkeypatch.setenv(state.VARIABLE, str(folder))
    with pytest.raises(ConfigError) as caught:
        state.state_directory(create=create)
    assert caught.value.reason == "state-permissions"
    assert "chmod 700" in str(caught.value)


def test_what_belongs_to_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(state.VARIABLE, str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(ConfigError) as caught:
        state.state_directory()
    assert caught.value.reason == "state-permissions"


@pytest.mark.parametrize("create", [True, False])
def test_a_file_is_refused(*, create: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("x")
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "state"))
    with pytest.raises(ConfigError) as caught:
        state.state_directory(create=create)
    assert caught.value.reason == "state-directory"


def test_a_link_is_judged_by_where_it_leads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "link").symlink_to("open")
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "link"))
    with pytest.raises(ConfigError) as caught:
        state.state_directory(create=True)
    assert caught.value.reason == "state-permissions"
    (tmp_path / "open").chmod(0o700)
    assert state.state_directory(create=True) == tmp_path / "link"


def test_a_folder_that_vanished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        state.check_private(tmp_path / "gone")
    assert caught.value.reason == "state-directory"
