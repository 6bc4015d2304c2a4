"""The log says what was answered, under real podman and runc: nothing is written down as accepted that was then refused."""

from __future__ import annotations

import fcntl
import json
import time

import hooking
from hooking import GOOD, Host, image_in
from wheelmark.deploy.hook import GRACE, SECONDS


def _accepted(host: Host) -> int:
    lines = host.log.read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["accepted"] for line in lines)


def test_an_acceptance_that_cannot_be_remembered(host: Host) -> None:
    assert host.starts(GOOD)
    lock = host.store / "memory" / "lock"
    lock.unlink()
    lock.mkdir()
    before = _accepted(host)
    assert not host.starts(GOOD)
    assert host.reasons() == {"memory"}
    assert _accepted(host) == before
    lock.rmdir()
    assert host.starts(GOOD)


def test_a_store_that_something_holds(host: Host) -> None:
    """The hook ends by itself: of one that the engine has to end, a part goes on, and runc waits for that."""
    assert host.starts(GOOD)
    before = _accepted(host)
    with (host.store / "memory" / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begun = time.monotonic()
        done = host.run(GOOD)
        seconds = time.monotonic() - begun
    assert (done.code in hooking.REFUSED, done.out) == (True, "")
    assert "hook-timeout" in done.err
    assert host.reasons() == {"hook-timeout"}
    assert _accepted(host) == before
    assert SECONDS <= seconds < SECONDS + 2 * GRACE
    assert host.starts(GOOD)


def test_a_log_that_something_holds(host: Host) -> None:
    assert host.starts(GOOD)
    before = host.log.read_bytes()
    with host.log.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = host.run(GOOD)
    assert (done.code in hooking.REFUSED, done.out) == (True, "")
    assert "hook-timeout" in done.err
    assert host.log.read_bytes() == before


def test_what_is_denied_after_init_is_not_seen_and_what_is_denied_before_it_is(host: Host) -> None:
    """The hook runs when the runtime makes the container, which ``podman init`` has it do."""

    def podman(*arguments: object) -> int:
        return host.podman("--hooks-dir", host.folder / "hooks", *arguments).code

    for name in ("early", "late"):
        assert podman("create", "--name", name, GOOD) == 0
    assert podman("init", "early") == 0
    policy = host.policy.read_text(encoding="utf-8")
    digest = image_in(host.folder / "layouts" / "good").sha256
    denied = f'{policy}\n[[deny]]\nsha256 = "{digest}"\nwhy = "leaks"\n'
    host.policy.write_text(denied, encoding="utf-8")
    lines = len(host.log.read_bytes().splitlines())
    assert podman("start", "--attach", "early") == 0
    assert len(host.log.read_bytes().splitlines()) == lines  # nobody was asked
    assert podman("init", "late") != 0
    assert host.reasons() == {"denied"}
    assert podman("start", "--attach", "late") != 0
    assert podman("start", "--attach", "early") != 0  # made anew, and so asked about
    assert host.reasons() == {"denied"}
