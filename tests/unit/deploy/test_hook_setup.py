"""What an installation of the hook consists of: the launcher, the code behind it, and whose a file is."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from wheelmark.deploy.hookcode import check_code
from wheelmark.deploy.hooklauncher import ACCEPTED, launcher
from wheelmark.deploy.hooksetup import is_ours
from wheelmark.errors import ConfigError

SOURCED = ("/bin/sh", "-c", '. "$0"; exit 1')
"""As the engine's file has it."""


def started(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    script = folder / "hook.sh"
    script.write_text(launcher(command), encoding="utf-8")
    return subprocess.run([*SOURCED, str(script)], capture_output=True, text=True, check=False, input="{}")


@pytest.mark.parametrize(("code", "ended"), [(ACCEPTED, 0), (0, 1), (1, 1), (3, 3), (5, 5), (126, 126)])
def test_only_the_hook_s_own_word_is_a_yes(tmp_path: Path, code: int, ended: int) -> None:
    done = started(tmp_path, [sys.executable, "-c", f"raise SystemExit({code})"])
    assert done.returncode == ended
    assert ("had decided" in done.stderr) is (code == 0)


def test_an_interpreter_that_is_gone_or_killed_is_a_no(tmp_path: Path) -> None:
    assert started(tmp_path, [str(tmp_path / "gone")]).returncode == 127
    assert started(tmp_path, [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]).returncode not in {
        0,
        ACCEPTED,
    }


def test_what_the_hook_reads_and_is_given_passes_through(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s a; $(folder) "x"'
    odd.mkdir()
    program = odd / "p.py"
    program.write_text(
        f"import sys\nassert sys.stdin.read() == '{{}}'\nassert sys.argv[1] == '--launched'\nsys.exit({ACCEPTED})\n"
    )
    assert started(tmp_path, [sys.executable, str(program)]).returncode == 0


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.9])
def test_a_launcher_that_is_cut_short(tmp_path: Path, share: float) -> None:
    text = launcher([sys.executable, "-c", f"raise SystemExit({ACCEPTED})"])
    script = tmp_path / "hook.sh"
    script.write_text(text[: int(len(text) * share)], encoding="utf-8")
    done = subprocess.run([*SOURCED, str(script)], capture_output=True, check=False, input=b"{}")
    assert done.returncode != 0 or "exit 0" in script.read_text(encoding="utf-8")
    script.unlink()
    assert subprocess.run([*SOURCED, str(script)], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("part", ["/a\nb", "/a\x00b", "/a\x1bb"])
def test_a_path_that_no_script_can_say(part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        launcher([part])
    assert caught.value.reason == "hook-config"


def test_code_that_others_can_write_is_refused(tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True, with_pip=False).create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    check_code(python)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    file = site / "deep" / "module.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    check_code(python)
    for path, mode in ((file, 0o666), (file.parent, 0o777), (site, 0o775)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(ConfigError) as caught:
            check_code(python)
        assert caught.value.reason == "policy-permissions"
        assert str(path) in caught.value.what
        path.chmod(before)
    for path in (tmp_path / "env" / "pyvenv.cfg",):
        path.chmod(0o666)
        with pytest.raises(ConfigError, match=r"pyvenv.cfg"):
            check_code(python)
        path.chmod(0o644)
    far = tmp_path / "far"
    (far / "package").mkdir(parents=True)
    (far / "package" / "module.py").write_text("x = 1\n")
    (site / "linked").symlink_to(far / "package")
    (site / "module.py").symlink_to(far / "package" / "module.py")
    (site / "round").symlink_to(site)
    (site / "dangling").symlink_to(far / "nothing")
    check_code(python)
    (far / "package" / "module.py").chmod(0o666)
    with pytest.raises(ConfigError, match=r"module.py"):
        check_code(python)
    (far / "package" / "module.py").chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    (site / "more.pth").write_text(f"{elsewhere}\n")
    with pytest.raises(ConfigError) as caught:
        check_code(python)
    assert str(elsewhere) in caught.value.what


def test_an_interpreter_that_does_not_run(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        check_code(program)
    assert caught.value.reason == "hook-config"


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ('{"hook": {"args": ["/bin/sh", "/etc/wheelmark/hook.sh"]}}', True),
        ('{"hook": {"args": ["/x/python", "-I", "-m", "wheelmark.deploy.hook"]}}', True),
        ('{"hook": {"args": ["/bin/sh", "/etc/other.sh"]}}', False),
        ('{"hook": {"args": []}}', False),
        ('{"hook": {"path": "/bin/true"}}', False),
        ("[]", False),
        ("wheelmark.deploy.hook", False),
    ],
)
def test_whose_a_file_of_the_engine_is(tmp_path: Path, text: str, *, ours: bool) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    assert is_ours(tmp_path / "x.json") is ours
