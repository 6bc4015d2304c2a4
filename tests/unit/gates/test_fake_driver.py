"""How C is compiled on machines that have little."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelmark.errors import ToolError
from wheelmark.gates.fake_driver import build_fake_driver, find_c_compiler


def programs(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / name).chmod(0o755)


@pytest.fixture(autouse=True)
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def test_gxx_alone_is_enough(bare_path: Path) -> None:
    programs(bare_path, "g++")
    assert find_c_compiler() == (str(bare_path / "g++"), "-x", "c")
    programs(bare_path, "gcc")
    assert find_c_compiler() == (str(bare_path / "gcc"),)
    programs(bare_path, "cc")
    assert find_c_compiler() == (str(bare_path / "cc"),)


def test_without_any_the_error_says_what_to_install(bare_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        build_fake_driver(bare_path)
    assert caught.value.reason == "no-compiler"
    assert "apt-get install" in caught.value.fix
