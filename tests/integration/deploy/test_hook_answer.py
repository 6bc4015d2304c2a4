"""The log says what was answered, under real podman and runc: nothing is written down as accepted that was then refused."""

from __future__ import annotations

import fcntl
import json
import time

import hooking
from hooking import GOOD, Host
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
