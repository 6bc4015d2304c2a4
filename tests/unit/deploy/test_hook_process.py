"""The hook as a process: what a runtime might hand it, and what ends it; nothing but its own word is a yes."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wheelmark.deploy import hooksetup
from wheelmark.deploy.hook import GRACE, MODULE, SECONDS, decide
from wheelmark.deploy.hookconfig import HookConfig
from wheelmark.verify import AuditLog
from wheelmark.verify.circumstances import machine_clock

BUNDLE = f"/x/overlay-containers/{'c' * 64}/userdata"
NOWHERE = json.dumps({"id": "c" * 64, "bundle": BUNDLE}).encode()
"""Of a container that no engine knows."""


@pytest.fixture
def config(tmp_path: Path) -> HookConfig:
    made = HookConfig(policy=tmp_path / "policy.toml", store=tmp_path / "store", log=tmp_path / "log")
    (tmp_path / "hook.toml").write_text(made.as_toml(), encoding="utf-8")
    (tmp_path / "hook.toml").chmod(0o644)
    return made


def _command(config: HookConfig) -> list[str]:
    return [sys.executable, "-I", "-m", MODULE, "--config", str(config.log.with_name("hook.toml"))]


def _limited(config: HookConfig, work: str) -> list[str]:
    """The hook, or other work, with a second for an answer and a second more to say so."""
    place = str(config.log.with_name("hook.toml"))
    code = f"import sys, time\nfrom wheelmark.deploy import hook\nhook.limit_time(1, 1)\n{work}\n"
    return [sys.executable, "-I", "-c", code, place]


MAIN = "sys.exit(hook.main(['--config', sys.argv[1]]))"


def _state(**changes: object) -> bytes:
    return json.dumps({"id": "c" * 64, "bundle": BUNDLE, **changes}).encode()


def _refused(done: subprocess.CompletedProcess[bytes], reason: str) -> None:
    """One line that a terminal shows as it is, and an exit code that is no yes, with the launcher or without."""
    assert done.returncode not in {0, 42}
    assert done.stdout == b""
    said = done.stderr.decode()
    assert said.startswith("wheelmark: refused ")
    assert said.removesuffix("\n").isprintable()
    assert f": {reason}: " in said


def _logged(config: HookConfig) -> list[str]:
    """Reasons in the log, in which nothing was accepted."""
    if not config.log.exists():
        return []
    AuditLog(config.log).check()
    text = config.log.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    entries = [json.loads(line) for line in text.splitlines()]
    assert not any(entry["accepted"] for entry in entries)
    assert all(entry["subject"].isprintable() for entry in entries)
    return [entry["reason"] for entry in entries]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b"", "json-syntax"),
        (b" " * (5 << 20), "json-too-large"),
        (b"\x1b[2J\x00\xff", "json-syntax"),
        (b"[" * 100_000, "json-too-deep"),
        (_state(annotations=[]), "hook-no-image"),
        (_state(annotations=["run.oci.hooks.stderr"]), "hook-state"),
        (_state(bundle=f"/x\x00{BUNDLE}"), "hook-no-image"),
        (_state(id="c" * 1_000_000), "hook-no-image"),
        (_state(id="\x1b[2J\naccepted\n\x07"), "hook-no-image"),
        (_state(id="\u009b2J\u202e\u2028"), "hook-no-image"),
        (_state(id=["c" * 64]), "hook-state"),
        (b'{"id": "\\ud800", "bundle": "/x"}', "json-syntax"),
        (NOWHERE, "hook-no-image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_runtime_might_hand_over(config: HookConfig, state: bytes, reason: str) -> None:
    done = subprocess.run(_command(config), input=state, capture_output=True, check=False, timeout=60)
    _refused(done, reason)
    assert _logged(config) == [reason]


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", "</dev/null"])
def test_without_standard_input(config: HookConfig, closed: str) -> None:
    command = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *_command(config)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode not in {0, 42}
    assert _logged(config) == ["json-syntax"]
    if "2>&-" not in closed:
        _refused(done, "json-syntax")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_it_without_a_yes(config: HookConfig, number: signal.Signals) -> None:
    process = subprocess.Popen(
        _command(config), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    with process.stdin:
        time.sleep(1)  # by then, or later, it waits for the state; at any time the answer is the same
        process.send_signal(number)
        assert process.wait(timeout=60) not in {0, 42}
    assert _logged(config) == []


def test_a_state_that_never_comes(config: HookConfig) -> None:
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        try:
            done = subprocess.run(
                _limited(config, MAIN), stdin=silent.stdout, capture_output=True, check=False, timeout=30
            )
        finally:
            silent.kill()
    _refused(done, "hook-timeout")
    assert _logged(config) == []


def test_a_log_that_somebody_else_holds(config: HookConfig) -> None:
    config.log.touch(mode=0o600)
    with config.log.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(
            _limited(config, MAIN), input=NOWHERE, capture_output=True, check=False, timeout=30
        )
        _refused(done, "hook-timeout")
    assert _logged(config) == []


def test_what_does_not_heed_the_time_is_ended() -> None:
    work = "while True:\n  try:\n    time.sleep(60)\n  except Exception:\n    pass"
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import time\nfrom wheelmark.deploy import hook\nhook.limit_time(1, 1)\n{work}",
    ]
    assert subprocess.run(command, check=False, timeout=30).returncode == -signal.SIGALRM


def test_it_ends_before_the_engine_ends_its_launcher(config: HookConfig, tmp_path: Path) -> None:
    """What the launcher started would live on, and write an acceptance down of a container that was not started."""
    made = hooksetup.Setup(hooks=tmp_path, config_path=tmp_path / "hook.toml", config=config)
    assert json.loads(made.hook_json())["hook"]["timeout"] - 5 >= SECONDS + GRACE


def test_a_log_that_cannot_be_written_is_a_refusal(config: HookConfig) -> None:
    config.log.mkdir()
    report = decide(NOWHERE, config, now=machine_clock)
    assert (report.accepted, report.reasons()) == (False, ("hook-no-image", "audit-log"))
