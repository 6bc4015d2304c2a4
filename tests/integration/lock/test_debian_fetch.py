"""Packages fetched from mirrors that lose, change, cut, delay and refuse them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from debianarchive import NOW, Archive, table
from presence import need_program, not_run
from wheelmark import digests
from wheelmark.errors import LockError
from wheelmark.lock.debian import DebianLock, Machine, Patience, fetch_packages, resolve_debian

QUICK = Patience(connect=2, read=0.4, tries=2, pause=0.01)


@pytest.fixture
def lock(archive: Archive, tmp_path: Path) -> DebianLock:
    made = resolve_debian(
        table("tool", waived=("shell",)),
        "amd64",
        cache=tmp_path / "cache",
        machine=archive.machine(),
        now=NOW,
    )
    archive.asked.clear()
    return made


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return tmp_path / "pool"


def refused(archive: Archive, lock: DebianLock, pool: Path, machine: Machine | None = None) -> LockError:
    with pytest.raises(LockError) as caught:
        fetch_packages(lock, pool=pool, machine=machine or archive.machine(), patience=QUICK)
    return caught.value


def whole(lock: DebianLock, pool: Path) -> set[str]:
    """Names of the packages that lie in the pool; nothing else may."""
    files = {path.name for path in pool.iterdir()}
    assert files <= {f"{package.sha256}.deb" for package in lock.packages}
    assert all(digests.sha256_file(pool / name) == name.removesuffix(".deb") for name in files)
    return {package.name for package in lock.packages if f"{package.sha256}.deb" in files}


ALL = {"library", "tables", "tool"}


def test_every_package_comes_once_and_is_hashed_again(archive: Archive, lock: DebianLock, pool: Path) -> None:
    said: list[str] = []
    files = fetch_packages(lock, pool=pool, machine=archive.machine(), progress=said.append)
    assert set(files) == {package.sha256 for package in lock.packages}
    assert all(digests.sha256_file(path) == sha256 for sha256, path in files.items())
    assert len(said) == len(archive.asked) == 3
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o644}
    path = next(iter(files.values()))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert fetch_packages(lock, pool=pool, machine=archive.machine()) == files
    assert len(archive.asked) == 4
    assert whole(lock, pool) == ALL


def test_a_full_pool_asks_nobody_and_needs_no_apt(
    archive: Archive, lock: DebianLock, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_packages(lock, pool=pool, machine=archive.machine())
    monkeypatch.setenv("PATH", "")
    archive.stop.set()
    assert len(fetch_packages(lock, pool=pool)) == 3
    assert len(archive.asked) == 3


@pytest.mark.parametrize("fault", ["other", "longer"])
def test_other_bytes_are_refused_and_not_kept(
    archive: Archive, lock: DebianLock, pool: Path, fault: str
) -> None:
    archive.faults["tool_"] = [fault] * 9
    error = refused(archive, lock, pool)
    assert (error.reason, "tool 2.0-1+b1" in error.what) == ("debian-digest", True)
    assert whole(lock, pool) == ALL - {"tool"}


def test_versions_that_left_the_mirror_are_a_stale_lock_that_says_what_to_do(
    archive: Archive, lock: DebianLock, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    fetch_packages(lock, pool=kept, machine=archive.machine())
    for package in lock.packages:
        if package.name != "tables":
            for file in archive.root.rglob(Path(package.path).name):
                file.unlink()
    error = refused(archive, lock, pool)
    assert error.reason == "debian-stale"
    assert "library 1:1.1-1+deb12u1" in error.what
    assert "tool 2.0-1+b1" in error.what
    assert "tables" not in error.what
    for word in ("nox -s lock", "WHEELMARK_DEBIAN_POOL", "WHEELMARK_DEBIAN_SNAPSHOT"):
        assert word in error.fix
    monkeypatch.setenv("WHEELMARK_DEBIAN_POOL", str(kept))
    fetch_packages(lock, pool=pool, machine=archive.machine(), patience=QUICK)
    assert whole(lock, pool) == ALL


def test_a_snapshot_is_asked_last(archive: Archive, lock: DebianLock, pool: Path) -> None:
    shutil.move(archive.root / "debian" / "pool", archive.root / "dated" / "debian" / "pool")
    shutil.move(
        archive.root / "debian-security" / "pool", archive.root / "dated" / "debian-security" / "pool"
    )
    assert refused(archive, lock, pool).reason == "debian-stale"
    archive.asked.clear()
    machine = archive.machine(snapshot=f"{archive.url}/dated/{{archive}}/")
    fetch_packages(lock, pool=pool, machine=machine, patience=QUICK)
    assert whole(lock, pool) == ALL
    for package in lock.packages:
        paths = [path for path in archive.asked if path.endswith(Path(package.path).name)]
        assert [path.startswith("/dated/") for path in paths] == [False, True]


@pytest.mark.parametrize("fault", ["shorter", "500", "503", "hang"])
def test_what_fails_once_is_asked_again(archive: Archive, lock: DebianLock, pool: Path, fault: str) -> None:
    archive.faults["tool_"] = [fault]
    fetch_packages(lock, pool=pool, machine=archive.machine(), patience=QUICK)
    assert whole(lock, pool) == ALL
    assert len(archive.asked) == 4


@pytest.mark.parametrize(
    ("fault", "words"),
    [("shorter", ""), ("500", "HTTP 500"), ("503", "HTTP 503"), ("hang", "in time"), ("drip", "too slowly")],
)
def test_what_always_fails_is_no_stale_lock_and_the_next_run_finishes(
    archive: Archive, lock: DebianLock, pool: Path, fault: str, words: str
) -> None:
    archive.faults["tool_"] = [fault] * 9
    error = refused(archive, lock, pool)
    assert (error.reason, words in error.what, "tool" in error.what) == ("debian-fetch", True, True)
    assert whole(lock, pool) == ALL - {"tool"}
    archive.faults.clear()
    archive.asked.clear()
    fetch_packages(lock, pool=pool, machine=archive.machine(), patience=QUICK)
    assert [Path(path).name.partition("_")[0] for path in archive.asked] == ["tool"]
    assert whole(lock, pool) == ALL


def test_a_lost_version_beside_a_broken_mirror_is_not_called_stale(
    archive: Archive, lock: DebianLock, pool: Path
) -> None:
    archive.faults |= {"tool_": ["404"] * 9, "library_": ["500"] * 9}
    assert refused(archive, lock, pool).reason == "debian-fetch"


def test_a_mirror_with_other_bytes_does_not_keep_the_next_from_being_asked(
    archive: Archive, lock: DebianLock, pool: Path
) -> None:
    good = archive.machine()
    bad = tuple(dataclasses.replace(item, uri=f"{archive.url}/bad/x") for item in good.sources)
    for package in lock.packages:
        path = archive.root / "bad" / "x" / package.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"?" * package.size)
    both = dataclasses.replace(good, sources=(*bad, *good.sources))
    fetch_packages(lock, pool=pool, machine=both, patience=QUICK)
    assert whole(lock, pool) == ALL


def test_a_folder_with_other_bytes_is_passed_over(
    archive: Archive, lock: DebianLock, pool: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for package in lock.packages:
        (folder / f"{package.sha256}.deb").write_bytes(b"?" * package.size)
    fetch_packages(lock, pool=pool, folder=folder, machine=archive.machine(), patience=QUICK)
    assert whole(lock, pool) == ALL
    nowhere = Machine(sources=(), keyring=archive.keys.keyring)
    with pytest.raises(LockError) as caught:
        fetch_packages(lock, pool=tmp_path / "empty", folder=folder, machine=nowhere)
    assert (caught.value.reason, str(folder) in caught.value.what) == ("debian-digest", True)


def test_without_any_source_the_suites_are_named(archive: Archive, lock: DebianLock, pool: Path) -> None:
    error = refused(archive, lock, pool, Machine(sources=(), keyring=archive.keys.keyring))
    assert error.reason == "debian-source"
    assert "bookworm-security" in error.what
    assert "wheelmark lock --fetch" in error.fix


def test_an_archive_on_this_disk_is_read_without_a_server(
    archive: Archive, lock: DebianLock, pool: Path
) -> None:
    sources = tuple(
        dataclasses.replace(item, uri=item.uri.replace(archive.url, f"file://{archive.root}"))
        for item in archive.machine().sources
    )
    fetch_packages(lock, pool=pool, machine=archive.machine(sources=sources))
    assert whole(lock, pool) == ALL
    assert archive.asked == []


def test_no_message_holds_the_password_of_a_mirror(archive: Archive, lock: DebianLock, pool: Path) -> None:
    archive.faults["tool_"] = ["500"] * 9
    sources = tuple(
        dataclasses.replace(item, uri=item.uri.replace("http://", "http://me:secret@"))
        for item in archive.machine().sources
    )
    error = refused(archive, lock, pool, archive.machine(sources=sources))
    assert error.reason == "debian-fetch"
    assert "secret" not in str(error)


def test_what_a_killed_run_left_is_removed_later(archive: Archive, lock: DebianLock, pool: Path) -> None:
    pool.mkdir()
    for name in ("old", "young"):
        (pool / f".{name}.partial").write_bytes(b"half")
    os.utime(pool / ".old.partial", (0, 0))
    fetch_packages(lock, pool=pool, machine=archive.machine())
    assert [path.name for path in pool.glob(".*")] == [".young.partial"]


def test_a_pool_that_is_no_folder_is_named(archive: Archive, lock: DebianLock, pool: Path) -> None:
    pool.write_bytes(b"")
    assert refused(archive, lock, pool).reason == "debian-pool"


FULL = """
import sys
from pathlib import Path
from wheelmark.errors import LockError
from wheelmark.lock.debian import AptSource, Machine, fetch_packages, read_debian_lock
pool = Path(sys.argv[1])
sources = tuple(AptSource(uri=sys.argv[3] + folder, suite=suite, components=("main",)) for suite, folder in (
    ("bookworm", "/debian"), ("bookworm-updates", "/debian"), ("bookworm-security", "/debian-security")))
try:
    fetch_packages(read_debian_lock(Path(sys.argv[2])), pool=pool, machine=Machine(sources=sources, keyring=pool))
except LockError as error:
    print(error.reason, [path.name for path in pool.iterdir() if path.name.endswith(".partial")])
"""


def test_a_full_disk_is_said_and_leaves_nothing_half_done(
    archive: Archive, pool: Path, tmp_path: Path
) -> None:
    """A real one: a file system of 64 KiB, mounted in a namespace of its own."""
    unshare = need_program("unshare")
    probe = subprocess.run([unshare, "-rm", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        not_run(f"no namespaces: {probe.stderr.strip()}")
    archive.add("large", "1", size=400_000)
    archive.publish()
    lock = resolve_debian(
        table("large"), "amd64", cache=tmp_path / "cache", machine=archive.machine(), now=NOW
    )
    file = tmp_path / "lock.json"
    file.write_bytes(lock.as_bytes())
    pool.mkdir()
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$4" -c "$5" "$1" "$2" "$3"'
    done = subprocess.run(
        [unshare, "-rm", "sh", "-euc", script, "sh", pool, file, archive.url, sys.executable, FULL],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("disk-full []\n", "", 0)


KILLED = """
import sys
from pathlib import Path
from wheelmark.lock.debian import AptSource, Machine, fetch_packages, read_debian_lock
sources = tuple(AptSource(uri=sys.argv[3] + folder, suite=suite, components=("main",)) for suite, folder in (
    ("bookworm", "/debian"), ("bookworm-updates", "/debian"), ("bookworm-security", "/debian-security")))
fetch_packages(read_debian_lock(Path(sys.argv[2])), pool=Path(sys.argv[1]),
    machine=Machine(sources=sources, keyring=Path()), progress=lambda line: print(line, flush=True))
"""


def test_a_run_that_is_killed_leaves_whole_packages_and_the_next_finishes(
    archive: Archive, lock: DebianLock, pool: Path, tmp_path: Path
) -> None:
    archive.faults["tool_"] = ["drip"]
    file = tmp_path / "lock.json"
    file.write_bytes(lock.as_bytes())
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, pool, file, archive.url], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        said = [run.stdout.readline() for _ in range(2)]
        run.kill()
    assert all(line.startswith("[") for line in said)
    assert {path.suffix for path in pool.iterdir()} == {".deb", ".partial"}
    archive.asked.clear()
    files = fetch_packages(lock, pool=pool, machine=archive.machine(), patience=QUICK)
    assert all(digests.sha256_file(path) == sha256 for sha256, path in files.items())
    assert len(archive.asked) == 1
