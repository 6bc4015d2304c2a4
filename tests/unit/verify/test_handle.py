"""Row 25: what was verified is what is used, whatever happens to the file meanwhile; and nothing is left behind."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rows import row
from wheelmark import digests
from wheelmark.errors import ConfigError, InputError, RejectedError, WheelmarkError
from wheelmark.trust import state
from wheelmark.verify.handle import take

DATA = b"verified bytes" * 100_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(DATA)
    return path


def refused(call: Callable[[], object]) -> WheelmarkError:
    with pytest.raises(WheelmarkError) as caught:
        call()
    return caught.value


def taking(path: Path, place: Path, **more: object) -> None:
    with take(path, place=place, **more):  # type: ignore[arg-type]
        pass


@row(25)
def test_the_copy_stays_what_was_taken_whatever_becomes_of_the_file(wheel: Path, place: Path) -> None:
    with take(wheel, place=place) as taken:
        wheel.write_bytes(b"another")
        (wheel.parent / "other").write_bytes(b"a third")
        (wheel.parent / "other").rename(wheel)
        assert (taken.sha256, taken.size) == (digests.sha256(DATA), len(DATA))
        with taken.open() as stream:
            assert stream.read() == DATA
        assert taken.path.read_bytes() == DATA
        assert taken.path.name == wheel.name
        assert stat.S_IMODE(taken.path.stat().st_mode) == 0o400
        assert stat.S_IMODE(taken.path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list(place.iterdir()) == []


def test_without_a_place_it_lies_in_the_state_directory(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "state"))
    with take(wheel, sha256=digests.sha256(DATA)) as taken:
        assert taken.path.is_relative_to(tmp_path / "state" / "taken")


@row(25, "file-digest")
def test_another_digest_is_refused_and_nothing_is_left(wheel: Path, place: Path) -> None:
    error = refused(lambda: taking(wheel, place, sha256="0" * 64))
    assert isinstance(error, RejectedError)
    assert error.reason == "file-digest"
    assert list(place.iterdir()) == []


def test_only_plain_files_are_taken(wheel: Path, place: Path) -> None:
    os.mkfifo(wheel.parent / "pipe")
    (wheel.parent / "link").symlink_to(wheel)
    for name in ("pipe", "link", "absent", "."):
        error = refused(lambda name=name: taking(wheel.parent / name, place))  # type: ignore[misc]
        assert isinstance(error, InputError)
        assert error.reason == "unreadable"
    assert not place.exists()


def test_a_file_over_the_limit_is_refused_before_and_while_it_is_read(wheel: Path, place: Path) -> None:
    assert refused(lambda: taking(wheel, place, limit=len(DATA) - 1)).reason == "input-limit"
    assert not place.exists()
    # A plain file whose size is said to be nothing: as one that grows while it is read.
    assert refused(lambda: taking(Path("/proc/self/maps"), place, limit=10)).reason == "input-limit"
    assert list(place.iterdir()) == []


def test_a_file_that_fails_while_it_is_read_is_refused(place: Path) -> None:
    error = refused(lambda: taking(Path("/proc/self/mem"), place))
    assert (type(error), error.reason) == (InputError, "unreadable")
    assert list(place.iterdir()) == []


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file of this process may grow beyond ``size``: what a full disk is to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said_and_nothing_is_left(wheel: Path, place: Path) -> None:
    with at_most(1000):
        error = refused(lambda: taking(wheel, place))
    assert (type(error), error.reason) == (ConfigError, "state-full")
    assert error.fix
    assert list(place.iterdir()) == []


def test_a_place_that_others_can_enter_or_that_is_no_folder_is_refused(wheel: Path, place: Path) -> None:
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    assert refused(lambda: taking(wheel, place)).reason == "state-permissions"
    file = wheel.parent / "file"
    file.write_bytes(b"")
    assert refused(lambda: taking(wheel, file)).reason == "state-directory"
    name = wheel.with_name("x" * 255)
    wheel.rename(name)
    assert refused(lambda: taking(name, name.parent / ("y" * 300))).reason == "state-directory"


def test_errors_of_the_user_of_the_copy_are_his_own(wheel: Path, place: Path) -> None:
    with pytest.raises(OSError, match="mine"), take(wheel, place=place):
        raise OSError(28, "mine")
    assert list(place.iterdir()) == []


HOLD = """
import sys, time
from pathlib import Path
from wheelmark.verify.handle import take
with take(Path(sys.argv[1]), place=Path(sys.argv[2])) as taken:
    print(taken.path, flush=True)
    time.sleep(60)
"""


def test_copies_in_use_stay_and_those_of_a_killed_process_go(wheel: Path, place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(wheel), str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        taking(wheel, place)
        assert held.read_bytes() == DATA
        (place / "copy-link").symlink_to(wheel.parent)
        process.send_signal(signal.SIGKILL)
    assert held.exists()
    taking(wheel, place)
    assert not held.exists()
    assert wheel.exists()
    (place / "copy-link").unlink()
    assert list(place.iterdir()) == []
