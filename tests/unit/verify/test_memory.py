"""What this machine remembers: only what was accepted, only upwards, and readable or an error of its own."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest

from wheelmark.errors import ConfigError
from wheelmark.trust import state
from wheelmark.verify.memory import LAST_SEEN, SEQUENCES, Memory
from wheelmark.verify.verdict import Accepted, Rejected, Report, Verdict

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(days=1)


def accepted(promotion: str = "", sequence: int = 0) -> Accepted:
    return Accepted(
        subject="w.whl",
        sha256="a" * 64,
        level="l",
        root="r",
        signer="s",
        identity="i",
        issuer="o",
        time=NOW,
        predicates=("p",),
        promotion=promotion,
        sequence=sequence,
    )


def report(*verdicts: Verdict) -> Report:
    return Report(path="w.whl", policy="p.toml", verdicts=verdicts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def test_nothing_is_remembered_at_first(folder: Path) -> None:
    found = Memory(folder).circumstances(NOW, "prod")
    assert (found.now, found.channel, found.last_seen, found.sequences) == (NOW, "prod", None, {})
    assert not folder.exists()


def test_what_was_accepted_raises_time_and_sequences(folder: Path) -> None:
    memory = Memory(folder)
    memory.remember(
        report(accepted("demo/prod", 5), accepted("demo/prod", 7), accepted("b/prod", 1)), now=NOW
    )
    found = Memory(folder).circumstances(LATER)
    assert found.last_seen == NOW
    assert found.sequences == {"demo/prod": 7, "b/prod": 1}
    memory.remember(report(accepted("demo/prod", 6)), now=NOW - dt.timedelta(hours=1))
    assert Memory(folder).circumstances(LATER) == found
    memory.remember(report(accepted("demo/prod", 8)), now=LATER)
    found = Memory(folder).circumstances(LATER)
    assert (found.last_seen, found.sequences["demo/prod"]) == (LATER, 8)
    assert {entry.name for entry in folder.iterdir()} == {"lock", LAST_SEEN, SEQUENCES}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in folder.iterdir())


def test_what_was_refused_teaches_nothing(folder: Path) -> None:
    refused = Rejected(subject="x", reason="signature", text="t")
    Memory(folder).remember(report(refused), now=NOW)
    Memory(folder).remember(report(accepted("demo/prod", 5), refused), now=NOW)
    Memory(folder).remember(report(), now=NOW)
    assert not folder.exists()


def test_a_clock_that_was_wrong_once_is_repaired_by_removing_one_file(folder: Path) -> None:
    wrong = NOW + dt.timedelta(days=40_000)
    Memory(folder).remember(report(accepted("demo/prod", 5)), now=wrong)
    assert Memory(folder).circumstances(NOW).last_seen == wrong
    (folder / LAST_SEEN).unlink()
    found = Memory(folder).circumstances(NOW)
    assert found.last_seen is None
    assert found.sequences == {"demo/prod": 5}


@pytest.mark.parametrize("name", [LAST_SEEN, SEQUENCES])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"schema":"https://wheelmark.dev/memory/v2","lastSeen":"2026-06-01T12:00:00+00:00"}',
        b'{"schema":"https://wheelmark.dev/memory/v1","lastSeen":"2026-06-01T12:00:00"}',
        b'{"schema":"https://wheelmark.dev/memory/v1","lastSeen":"soon"}',
        b'{"schema":"https://wheelmark.dev/memory/v1","lastSeen":7}',
        b'{"schema":"https://wheelmark.dev/memory/v1","sequences":[]}',
        b'{"schema":"https://wheelmark.dev/memory/v1","sequences":{"a/b":"5"}}',
        b'{"schema":"https://wheelmark.dev/memory/v1","sequences":{"a/b":true}}',
    ],
)
def test_a_torn_memory_is_an_error_of_its_own(folder: Path, name: str, data: bytes) -> None:
    state.private_directory(folder)
    (folder / name).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        Memory(folder).circumstances(NOW)
    assert caught.value.reason == "memory"
    with pytest.raises(ConfigError):
        Memory(folder).remember(report(accepted("demo/prod", 5)), now=NOW)
    assert (folder / name).read_bytes() == data


@pytest.mark.parametrize("name", [LAST_SEEN, "lock"])
def test_links_are_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    state.private_directory(folder)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError) as caught:
        Memory(folder).remember(report(accepted()), now=NOW)
    assert caught.value.reason == "memory"
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    for ask in (
        lambda: Memory(folder).circumstances(NOW),
        lambda: Memory(folder).remember(report(accepted()), now=NOW),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert caught.value.reason == "state-permissions"


def test_a_memory_that_cannot_be_written_is_no_success(folder: Path) -> None:
    state.private_directory(folder)
    (folder / LAST_SEEN).mkdir()
    with pytest.raises(ConfigError) as caught:
        Memory(folder).remember(report(accepted()), now=NOW)
    assert caught.value.reason == "memory"


def test_a_full_disk_is_no_success(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state, "write_private", full)
    with pytest.raises(ConfigError) as caught:
        Memory(folder).remember(report(accepted()), now=NOW)
    assert caught.value.reason == "memory"


def test_many_at_once_lose_nothing(folder: Path) -> None:
    def learn(number: int) -> None:
        Memory(folder).remember(report(accepted(f"p{number}/prod", number + 1)), now=NOW)

    threads = [threading.Thread(target=learn, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Memory(folder).circumstances(NOW).sequences == {f"p{n}/prod": n + 1 for n in range(12)}


def test_the_memory_of_this_machine_is_in_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "state"))
    Memory.of_this_machine().remember(report(accepted("demo/prod", 1)), now=NOW)
    assert (tmp_path / "state" / "memory" / SEQUENCES).exists()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_clock_is_asked_after_the_memory_was_read(folder: Path) -> None:
    """A verification that ends meanwhile, in another process, does not make this one's clock look as if it were behind."""
    memory = Memory(folder)

    def clock() -> dt.datetime:
        memory.remember(report(accepted()), now=NOW + dt.timedelta(milliseconds=20))
        return NOW

    seen = memory.circumstances(clock)
    assert (seen.now, seen.last_seen) == (NOW, None)
    assert memory.circumstances(NOW).last_seen == NOW + dt.timedelta(milliseconds=20)
