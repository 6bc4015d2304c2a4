"""``wheelmark trust``: every step of a domain's life, for people and for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import Exit


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: object) -> Any:
        assert main(["trust", *map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


def test_a_whole_life(ask: Any, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("show") == {"roots": []}
    assert not state.exists()
    (created,) = ask("create")["roots"]
    assert created["name"] == "this-machine"
    assert created["sha256"] == digests.sha256_file(Path(created["path"]))
    assert ask("export", tmp_path / "root.json")["roots"] == [created]
    (rotated,) = ask("rotate")["roots"]
    assert rotated["sha256"] != created["sha256"]
    assert [bool(window["end"]) for window in rotated["windows"]] == [True, False]
    assert ask("backup", tmp_path / "backup.tar")["roots"] == [rotated]
    assert (
        ask("import", tmp_path / "root.json", "--name", "before")["roots"][0]["sha256"] == created["sha256"]
    )
    assert [root["name"] for root in ask("show")["roots"]] == ["this-machine", "before"]
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "elsewhere"))
    (restored,) = ask("restore", tmp_path / "backup.tar")["roots"]
    assert restored["sha256"] == rotated["sha256"]


def test_people_are_told_what_it_proves_and_what_is_secret(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["trust", "show"]) == 0
    assert "no roots on this machine" in capsys.readouterr().out
    assert main(["trust", "create"]) == 0
    text = capsys.readouterr().out
    assert "nothing more" in text
    assert "sha256" in text
    assert main(["trust", "backup", str(tmp_path / "backup.tar")]) == 0
    assert "can sign as this machine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["rotate"], Exit.STATE, "trust-absent"),
        (["export", "x.json"], Exit.STATE, "trust-absent"),
        (["backup", "x.tar"], Exit.STATE, "trust-absent"),
        (["restore", "absent.tar"], Exit.INPUT, "backup"),
        (["import", "absent.json", "--name", "x"], Exit.CONFIG, "root-absent"),
    ],
)
def test_refusals(
    arguments: list[str], code: Exit, reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = [str(tmp_path / item) if "." in item else item for item in arguments]
    assert main(["trust", "--json", *arguments]) == code
    assert json.loads(capsys.readouterr().out)["reason"] == reason


def test_an_open_state_directory_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.mkdir()
    state.chmod(0o755)
    assert main(["trust", "--json", "create"]) == Exit.CONFIG
    assert json.loads(capsys.readouterr().out)["reason"] == "state-permissions"


def test_without_the_build_extra(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only reads works where asn1crypto and pyjwt are not; what needs keys says what to install."""
    for name in [name for name in sys.modules if name.startswith("wheelmark.sign")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asn1crypto", None)
    assert main(["trust", "show", "--json"]) == 0
    capsys.readouterr()
    assert main(["trust", "create", "--json"]) == Exit.TOOL
    assert json.loads(capsys.readouterr().out)["reason"] == "tool-absent"
    assert not state.exists()
