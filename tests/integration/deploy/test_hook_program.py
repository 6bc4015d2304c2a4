"""The program behind the hook, under real podman: an interpreter that is gone or lies starts nothing; what install and status say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import hooking
from forging import Forge
from hooking import GOOD, Host
from publishing import command
from wheelmark.errors import Exit


@pytest.fixture(scope="module")
def ready(program: bytes, domain: tuple[Path, Forge]) -> Iterator[Host]:
    hooking.need_podman()
    with hooking.opened(program, domain, "vfs") as host:
        assert host.pull(host.layout("good"), GOOD).report.accepted
        yield host


@pytest.mark.parametrize("lies", ["#!/bin/sh\nexit 0\n", "#!/bin/sh\nkill -9 $$\n", "#!/nowhere\n", None])
def test_an_interpreter_that_decides_nothing_starts_nothing(ready: Host, lies: str | None) -> None:
    ready.install()
    assert ready.starts(GOOD)
    script = ready.setup().launcher_path
    other = ready.folder / "python"
    other.unlink(missing_ok=True)
    if lies is not None:
        other.write_text(lies, encoding="utf-8")
        other.chmod(0o755)
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace(str(ready.setup().python), str(other)), encoding="utf-8")
    done = ready.run(GOOD)
    assert (done.code in hooking.REFUSED, done.out) == (True, "")
    ready.install()
    assert ready.starts(GOOD)


def hook(host: Host, *arguments: object) -> tuple[int, str, str]:
    places = (
        "--hooks-dir",
        host.folder / "hooks-by-command",
        "--config",
        host.folder / "by-command" / "hook.toml",
    )
    done = command("hook", *map(str, (*arguments, *places, "--store", host.store)))
    return done.returncode, done.stdout, done.stderr


def test_an_installation_again_keeps_what_was_said(ready: Host) -> None:
    config = ready.folder / "by-command" / "hook.toml"
    install = ("install", "--policy", ready.policy)
    assert hook(ready, *install, "--target", "cpu-x86_64", "--channel", "prod", "--log", ready.log)[0] == 0
    first = config.read_text(encoding="utf-8")
    code, out, _ = hook(ready, *install)
    assert (code, out.count("unchanged")) == (0, 3)
    assert config.read_text(encoding="utf-8") == first
    assert hook(ready, "status")[0] == 0
    assert hook(ready, *install, "--channel", "dev")[0] == 0
    assert 'channel = "dev"' in config.read_text(encoding="utf-8")
    assert 'targets = ["cpu-x86_64"]' in config.read_text(encoding="utf-8")
    assert hook(ready, *install, "--reset")[0] == 0
    assert "targets" not in config.read_text(encoding="utf-8")


def test_a_file_of_somebody_else_s(ready: Host) -> None:
    place = ready.folder / "hooks-by-command" / "wheelmark.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"hook": {"path": "/bin/true"}}), encoding="utf-8")
    for more in ((), ("--dry-run",)):
        code, _, err = hook(ready, "install", "--policy", ready.policy, *more)
        assert (code, "none of wheelmark's" in err) == (Exit.STATE, True)
        assert "true" in place.read_text(encoding="utf-8")
    assert hook(ready, "install", "--policy", ready.policy, "--replace")[0] == 0
    script = ready.folder / "by-command" / "hook.sh"
    script.write_text(script.read_text(encoding="utf-8") + "exit 0\n", encoding="utf-8")
    code, out, _ = hook(ready, "status")
    assert (code, str(script) in out) == (5, True)
    code, out, _ = hook(ready, "uninstall")
    assert (code, script.exists(), place.exists()) == (0, False, False)
    assert hook(ready, "uninstall")[1] == "not installed\n"
