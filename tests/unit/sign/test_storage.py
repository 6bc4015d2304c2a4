"""Record files after crashes and with several writers; locks; atomic writes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wheelmark.errors import BusyError, StateError
from wheelmark.sign.embedded import storage
from wheelmark.sign.embedded.storage import Records

ENTRIES = [b"first", b"", b"third " * 5]


def write(path: Path, entries: list[bytes]) -> None:
    records = Records(path)
    for entry in entries:
        with records.exclusively():
            records.append(entry)
    records.close()


def read(path: Path) -> list[bytes]:
    records = Records(path)
    try:
        with records.exclusively() as found:
            return found
    finally:
        records.close()


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "r", ENTRIES)
    assert read(tmp_path / "r") == ENTRIES
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o600


def test_a_torn_last_record_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    write(tmp_path / "whole", ENTRIES)
    data = (tmp_path / "whole").read_bytes()
    write(tmp_path / "two", ENTRIES[:2])
    kept = len((tmp_path / "two").read_bytes())
    for length in range(kept, len(data)):
        path = tmp_path / "torn"
        path.write_bytes(data[:length])
        assert read(path) == ENTRIES[:2]
        assert len(path.read_bytes()) == kept
        write(path, [b"next"])
        assert read(path) == [*ENTRIES[:2], b"next"]
        path.unlink()


def test_a_torn_beginning_is_begun_again(tmp_path: Path) -> None:
    write(tmp_path / "whole", [])
    write(tmp_path / "whole", [b"x"])
    magic = (tmp_path / "whole").read_bytes()[:20]
    for length in range(20):
        path = tmp_path / f"torn{length}"
        path.write_bytes(magic[:length])
        assert read(path) == []
        assert path.read_bytes() == magic


def test_a_last_record_whose_blocks_never_arrived_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path / "r", ENTRIES)
    data = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(data[:-20] + bytes(20))
    assert read(tmp_path / "r") == ENTRIES[:2]
    (tmp_path / "r").write_bytes((tmp_path / "r").read_bytes() + bytes(4096))
    assert read(tmp_path / "r") == ENTRIES[:2]


@pytest.mark.parametrize("offset", range(20, 20 + 12 + 5 + 12))
def test_damage_before_the_last_record_is_never_repaired(offset: int, tmp_path: Path) -> None:
    path = tmp_path / "r"
    write(path, ENTRIES)
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StateError) as caught:
        read(path)
    assert caught.value.reason == "trust-log"
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("data", [b"something else, longer than the magic", b"else"])
def test_another_file_is_not_taken_for_records(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(data)
    with pytest.raises(StateError) as caught:
        read(tmp_path / "r")
    assert caught.value.reason == "trust-log"
    assert (tmp_path / "r").read_bytes() == data


def test_a_file_that_shrank_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "r", ENTRIES)
    records = Records(tmp_path / "r")
    with records.exclusively():
        pass
    with (tmp_path / "r").open("r+b") as stream:
        stream.truncate(25)
    with pytest.raises(StateError) as caught, records.exclusively():
        pass
    records.close()
    assert caught.value.reason == "trust-log"


def test_a_link_in_the_place_of_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Records(tmp_path / "r")
    assert not (tmp_path / "elsewhere").exists()


def test_two_open_files_see_each_others_records(tmp_path: Path) -> None:
    one, two = Records(tmp_path / "r"), Records(tmp_path / "r")
    seen: list[list[bytes]] = []
    for records, entry in ((one, b"a"), (two, b"b"), (two, b"c"), (one, b"d")):
        with records.exclusively() as added:
            seen.append(added)
            records.append(entry)
    one.close()
    two.close()
    assert seen == [[], [b"a"], [], [b"b", b"c"]]
    assert read(tmp_path / "r") == [b"a", b"b", b"c", b"d"]


def test_threads_of_one_file_and_another_process_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "r"
    script = (
        "import sys; from pathlib import Path; from wheelmark.sign.embedded.storage import Records\n"
        "records = Records(Path(sys.argv[1]))\n"
        "for number in range(60):\n"
        "    with records.exclusively(): records.append(b'process %d' % number)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    records = Records(path)

    def append(name: str) -> None:
        for number in range(40):
            with records.exclusively():
                records.append(f"{name} {number}".encode())

    threads = [threading.Thread(target=append, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait(timeout=60) == 0
    records.close()
    found = [entry.decode().split() for entry in read(path)]
    for name, count in (("one", 40), ("two", 40), ("process", 60)):
        assert [int(number) for who, number in found if who == name] == list(range(count))


def test_an_exclusive_lock_keeps_others_out_and_a_shared_one_shares(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with storage.lock(path, exclusive=False), storage.lock(path, exclusive=False, patience=0):
        with pytest.raises(BusyError) as caught, storage.lock(path, exclusive=True, patience=0):
            pass
        assert caught.value.reason == "trust-busy"
    with (
        storage.lock(path, exclusive=True),
        pytest.raises(BusyError),
        storage.lock(path, exclusive=False, patience=0),
    ):
        pass
    with storage.lock(path, exclusive=True, patience=0):
        pass


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    storage.write_atomically(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    storage.write_new(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        storage.write_new(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
