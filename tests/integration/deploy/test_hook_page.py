"""What the page on deploying images shows first is what its commands say, under real podman and runc."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hooking
from checkouts import REPOSITORY
from hooking import Host

PAGE = REPOSITORY / "docs" / "deploying-images.md"
COMMAND = "# "
LEFT_OUT = "…"
UNSIGNED = "example.org/unsigned:1"
_CHANGING = (
    (r"sha256:[0-9a-f]+…?", "sha256:…"),
    (r"\b[0-9,]+ bytes", "N bytes"),
    (r"\b(container|image) [0-9a-f]{12}\b", r"\1 …"),
    (r"\d{4}-\d\d-\d\dT[0-9:.+]+", "TIME"),
    (r"Error: OCI runtime error: .*? stderr: ", "Error: "),
)
"""Digests, sizes, times, and what podman and runc say in their own words."""


def transcript(text: str) -> list[tuple[str, str]]:
    """Commands and what they print, of the first block of a console."""
    block = text.partition("```console\n")[2].partition("```\n")[0]
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith(COMMAND):
            found.append((line.removeprefix(COMMAND), ""))
        else:
            command, said = found.pop()
            found.append((command, f"{said}{line}\n"))
    return found


def stable(text: str) -> str:
    """What is the same on every machine, its lines joined: the page breaks them elsewhere."""
    text = " ".join(text.split())
    for pattern, instead in _CHANGING:
        text = re.sub(pattern, instead, text)
    return text


def is_shown(page: str, said: str) -> bool:
    """Whether the page shows what was said; a line with nothing but the mark leaves any number of lines out."""
    parts = re.split(rf"^{LEFT_OUT}$", page, flags=re.MULTILINE)
    return re.fullmatch(".*".join(re.escape(stable(part)) for part in parts), stable(said)) is not None


def _script(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def machine(bare: Host) -> Host:
    """One whose ``wheelmark`` and ``podman`` are given places of the test's own, and nothing else."""
    podman = shutil.which("podman")
    engine = " ".join((str(podman), *bare.engine[1:]))
    hooks, python = bare.folder / "hooks", f"{sys.executable} -m wheelmark"
    places = f"--store {bare.store} --config {bare.folder / 'hook.toml'} --hooks-dir {hooks}"
    _script(
        bare.folder / "bin" / "wheelmark",
        f'[ "$1" = hook ] && exec {python} "$@" {places}',
        f'exec {python} "$@" --store {bare.store} --engine "{engine}"',
    )
    _script(bare.folder / "bin" / "podman", f'exec {engine} --hooks-dir {hooks} "$@"')
    unsigned = bare.slip_in(bare.layout("unsigned", signed=False), UNSIGNED)
    for change in (("untag", unsigned), ("tag", unsigned, UNSIGNED)):  # the only name that it has
        assert bare.podman(*change).code == 0
    images = bare.folder / "dist" / "images"
    shutil.copytree(bare.layout("good"), images)
    index = images / "index.json"
    value = index.read_text(encoding="utf-8").replace(json.dumps("v1"), json.dumps("cpu-x86_64"))
    index.write_text(value, encoding="utf-8")
    policy = bare.policy.read_text(encoding="utf-8")
    level = "integrity and same-machine origin, nothing more"
    bare.policy.write_text(policy.replace("a test's own", level), encoding="utf-8")
    return bare


def test_the_page_shows_what_its_commands_say(machine: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine.folder
    places = {
        str(folder / "hooks"): "/usr/share/containers/oci/hooks.d",
        str(folder / "hook."): "/etc/wheelmark/hook.",
        str(machine.policy): "/etc/wheelmark/policy.toml",
        str(machine.store): "/var/lib/wheelmark/images",
        str(shutil.which("podman")): "podman",
    }
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin")
    shown = transcript(PAGE.read_text(encoding="utf-8"))
    assert [command.split()[0] for command, _ in shown] == [
        "wheelmark",
        "wheelmark",
        "wheelmark",
        "podman",
        "podman",
    ]
    for command, page in shown:
        script = command.replace("/etc/wheelmark/policy.toml", str(machine.policy))
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        said = done.stdout
        for mine, documented in places.items():
            said = said.replace(mine, documented)
        assert is_shown(page, said), f"{command}\n{said}"


def test_a_page_that_shows_something_else_is_found() -> None:
    shown = transcript(PAGE.read_text(encoding="utf-8"))
    refused = shown[-1][1]
    assert is_shown(refused, refused)
    assert not is_shown(refused, refused.replace("hook-unknown-image", "hook-no-image"))
    assert not is_shown(refused, refused.replace("\n126\n", "\n0\n"))
    assert is_shown("a\n…\nb\n", "a\nx\ny\nb\n")
    assert not is_shown("a\n…\nb\n", "a\nx\ny\n")
    assert hooking.SAYS in shown[3][1]
