"""Which OCI runtime podman uses, and that whoever has none is told so with the command that mends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wheelmark.cli import main
from wheelmark.gates.image.podman import preferred_runtime


def programs(folder: Path, *names: str) -> str:
    """A folder for PATH that holds only these."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho podman version 4.3.1\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [(("crun", "runc"), "runc"), (("runc",), "runc"), (("crun",), "crun"), (("podman",), "")],
)
def test_runc_then_crun_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], chosen: str
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", *names))
    assert preferred_runtime() == chosen


@pytest.mark.parametrize(
    ("names", "found"),
    [(("podman", "crun"), "podman version 4.3.1, crun"), (("podman",), ""), (("runc",), "")],
)
def test_doctor_asks_for_podman_and_a_runtime(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, ...],
    found: str,
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", *names))
    main(["doctor", "--json"])
    needs = {need["name"]: need for need in json.loads(capsys.readouterr().out)["needs"]}
    assert (needs["containers"]["found"], needs["containers"]["fix"]) == (
        found,
        "" if found else "apt-get install podman runc",
    )
