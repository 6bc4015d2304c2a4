"""``wheelmark verify`` opens no socket: strace watches every system call that has to do with the network.

What is looked for is more than "asks nobody": no socket of any kind is made, and the watch itself is shown to see one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import releasing
from forging import Forge, forging
from presence import need_program, not_run
from releasing import draft
from wheelmark.sign import embedded

REPOSITORY = Path(__file__).resolve().parents[3]
POLICY = REPOSITORY / "policies" / "embedded-dev.toml"

CALL = re.compile(r"\d+ +(\w+)\(.*")


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


@pytest.fixture(scope="module")
def dist(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draft().write(tmp_path_factory.mktemp("release") / "dist", forge.sign, root=forge.root_bytes)


def traced(log: Path, state: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command under strace; the network calls of it and of its children are in ``log``."""
    full = [need_program("strace"), "-f", "-qq", "-o", str(log), "-e", "trace=network", *command]
    environment = {**os.environ, "WHEELMARK_STATE": str(state)}
    done = subprocess.run(full, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if "strace:" in done.stderr and "Operation not permitted" in done.stderr:
        not_run("this machine lets nobody trace processes")
    return done


def verify(log: Path, state: Path, *arguments: object, policy: Path = POLICY) -> int:
    command = [sys.executable, "-m", "wheelmark", "verify", *map(str, arguments), "--policy", str(policy)]
    return traced(log, state, *command).returncode


def test_what_is_accepted(forge: Forge, dist: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert verify(log, forge.home, dist) == 0
    assert log.read_text() == ""
    assert verify(log, forge.home, dist / "wheels" / releasing.file_name()) == 0
    assert log.read_text() == ""


def test_with_a_second_opinion_by_sigstore_python(forge: Forge, dist: Path, tmp_path: Path) -> None:
    """The other library could ask Sigstore's TUF repository, and does not.

    Its HTTP library tries, when it is imported, whether this machine can bind to ``::1``; nothing is ever sent.
    """
    text = POLICY.read_text(encoding="utf-8")
    assert "[[root]]" in text
    policy = tmp_path / "policy.toml"
    policy.write_text(text.replace("[[root]]", "[[root]]\nsecond_opinion = true", 1), encoding="utf-8")
    log = tmp_path / "log"
    assert verify(log, forge.home, dist, policy=policy) == 0
    calls = [CALL.match(line) for line in log.read_text().splitlines()]
    assert all(calls), log.read_text()
    assert {call[1] for call in calls if call} <= {"socket", "bind"}
    assert all('inet_pton(AF_INET6, "::1"' in call[0] for call in calls if call and call[1] == "bind")


def test_what_is_refused(forge: Forge, dist: Path, tmp_path: Path) -> None:
    """Bundles of another domain: whoever looked for their root elsewhere would do so here."""
    stranger = tmp_path / "stranger"
    embedded.create(stranger)
    log = tmp_path / "log"
    assert verify(log, stranger, dist) == 1
    assert log.read_text() == ""
    assert verify(log, tmp_path / "nothing", dist) == 5
    assert log.read_text() == ""


def test_the_watch_sees_a_socket(tmp_path: Path) -> None:
    """A planted fault: a child of the watched program makes one."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import socket; socket.socket()'])"
    log = tmp_path / "log"
    assert traced(log, tmp_path / "state", sys.executable, "-c", code).returncode == 0
    assert "AF_INET" in log.read_text()
