"""Paths that an operator names: a device or a pipe is refused, neither read for ever nor waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forging import Forge
from wheelmark.cli import main
from wheelmark.errors import ConfigError
from wheelmark.trust import domain
from wheelmark.verify.policy import load_policy


@pytest.fixture(params=["/dev/zero", "pipe"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / str(request.param)


@pytest.fixture
def root(forge: Forge, tmp_path: Path) -> Path:
    path = tmp_path / "root.json"
    path.write_bytes(forge.root_bytes)
    return path


def reason(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([*map(str, arguments), "--json"]) != 0
    return str(json.loads(capsys.readouterr().out)["reason"])


def test_facts(endless: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason(capsys, "facts", root, "--root", endless) == "root-absent"
    assert reason(capsys, "facts", root, "--root", root, "--key", endless) == "key-absent"
    assert reason(capsys, "facts", root, "--policy", endless) == "policy-absent"
    assert reason(capsys, "facts", root, "--root", root, "--artifact", endless) == "unreadable"


def test_the_first_root_of_a_repository(
    endless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "state"))
    step = ("trust", "update", "ours", "--url", "https://mirror.invalid", "--bootstrap")
    assert reason(capsys, *step, endless) == "root-bootstrap"
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    assert reason(capsys, *step, large) == "root-bootstrap"


def test_roots_and_policies(endless: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        domain.import_root(endless, "theirs", tmp_path / "state")
    assert caught.value.reason == "root-absent"
    for strict in (False, True):
        with pytest.raises(ConfigError) as refused:
            load_policy(endless, strict=strict)
        assert refused.value.reason in {"policy-absent", "policy-permissions"}
