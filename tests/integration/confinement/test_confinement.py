"""A project's code can see neither the signing state nor the pipeline's processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from presence import not_run
from wheelmark.confinement import confined, obstacle

LOOK = """
import json, os, pathlib, sys
state = pathlib.Path(sys.argv[1])
seen = {"state": sorted(map(str, state.rglob("*"))), "pid": os.getpid(), "variables": ""}
for folder in pathlib.Path("/proc").iterdir():
    if folder.name.isdigit() and folder.name != str(os.getpid()):
        try:
            seen["variables"] += (folder / "environ").read_bytes().decode("utf-8", "replace")
        except OSError:
            pass
try:
    (state / "planted").write_text("x")
    seen["wrote"] = True
except OSError as error:
    seen["wrote"] = False
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seen["unmounted"] = libc.umount2(os.fsencode(state), 2) == 0
print(json.dumps(seen))
"""


@pytest.fixture(autouse=True)
def _possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    (state / "embedded").mkdir(parents=True)
    (state / "embedded" / "ca.key.pem").write_text("a key")
    state.chmod(0o700)
    monkeypatch.setenv("WHEELMARK_STATE", str(state))
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", "a-token-of-the-pipeline")
    if obstacle():
        not_run(f"no namespaces: {obstacle()}")


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    scrubbed = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        confined(command), capture_output=True, text=True, check=False, env=scrubbed, timeout=60
    )


def test_neither_keys_nor_tokens_are_to_be_seen(tmp_path: Path) -> None:
    done = run(sys.executable, "-c", LOOK, str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["state"] == []
    assert seen["wrote"] is False
    assert seen["unmounted"] is False
    assert "a-token-of-the-pipeline" not in seen["variables"]
    assert (tmp_path / "state" / "embedded" / "ca.key.pem").read_text() == "a key"
    # The same look without confinement does find them: the test looks in the right places.
    bare = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert "ca.key.pem" in bare.stdout


def test_status_and_signals_come_through() -> None:
    assert run("/bin/sh", "-c", "exit 7").returncode == 7
    assert run("/bin/sh", "-c", "kill -ABRT $$").returncode == -signal.SIGABRT
    assert run("/bin/sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    assert run("/bin/sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    missing = run("/no/such/program")
    assert missing.returncode == 127
    assert "/no/such/program" in missing.stderr


def test_nothing_outlives_the_pipeline(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    program = (
        f"import time, pathlib\nwhile True:\n    pathlib.Path({str(mark)!r}).touch()\n    time.sleep(0.05)\n"
    )
    process = subprocess.Popen(confined([sys.executable, "-c", program]), start_new_session=True)
    while not mark.exists():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    mark.unlink()
    time.sleep(0.5)
    assert not mark.exists()


def test_standard_streams_and_folder_are_the_callers(tmp_path: Path) -> None:
    done = subprocess.run(
        confined(["/bin/sh", "-c", "pwd; cat"]),
        input="said",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"{tmp_path}\nsaid"
