"""The hook under crun, which shows nothing of what a hook says and lets annotations lead that into files."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import hooking
from checkouts import Ran
from forging import Forge
from hooking import GOOD, OTHER, REFUSED, SAYS, Host
from presence import need_program


@pytest.fixture(scope="module")
def crun(program: bytes, domain: tuple[Path, Forge]) -> Iterator[Host]:
    hooking.need_podman()
    need_program("crun")
    with hooking.opened(program, domain, "vfs") as host:
        assert host.pull(host.layout("good"), GOOD).report.accepted
        host.install()
        yield host


_WITHOUT_VERSION_2 = 'mount -t tmpfs none /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
"""crun 1.8 does not start where cgroups of both versions have controllers; in a mount namespace of its own it sees one."""


def start(host: Host, image: str, *options: object) -> Ran:
    """``podman run`` with the hook."""
    engine = (*host.engine, "--runtime", "crun", "--hooks-dir", host.folder / "hooks")
    command = [*engine, "run", "--rm", "--cgroups=disabled", *options, image]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _WITHOUT_VERSION_2, "sh", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def test_what_was_verified_starts(crun: Host) -> None:
    done = start(crun, GOOD)
    assert (done.code, done.out) == (0, SAYS), done.err
    assert crun.reasons() == set()


def test_what_was_not_does_not(crun: Host) -> None:
    crun.slip_in(crun.layout("unsigned", signed=False), OTHER)
    done = start(crun, OTHER)
    assert (done.code in REFUSED, done.out) == (True, "")
    assert crun.reasons() == {"hook-unknown-image"}


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_an_annotation_that_leads_the_output_of_hooks_into_a_file(
    crun: Host, tmp_path: Path, name: str
) -> None:
    """crun makes the file before it starts any hook; the container does not start, and the reason is in the log."""
    done = start(crun, GOOD, "--annotation", f"run.oci.hooks.{name}={tmp_path / 'said'}")
    assert (done.code in REFUSED, done.out) == (True, "")
    assert crun.reasons() == {"hook-output"}


def test_a_policy_that_is_not_there(crun: Host) -> None:
    kept = crun.policy.rename(crun.folder / "aside.toml")
    try:
        done = start(crun, GOOD)
        assert (done.code in REFUSED, done.out) == (True, "")
        assert crun.reasons() == {"policy-absent"}
    finally:
        kept.rename(crun.policy)


def test_a_store_that_something_holds(crun: Host) -> None:
    """crun does not wait for what its time limit leaves behind, which is none: nothing is written down as accepted later."""
    assert start(crun, GOOD).code == 0
    before = crun.log.read_text(encoding="utf-8").count('"accepted":true')
    with (crun.store / "memory" / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = start(crun, GOOD)
    assert (done.code in REFUSED, done.out) == (True, "")
    assert crun.reasons() == {"hook-timeout"}
    assert crun.log.read_text(encoding="utf-8").count('"accepted":true') == before
