"""``wheelmark trust update`` against a real TUF repository on loopback.

Sigstore's public repository is not asked: tests have no network. Its bootstrap is (``test_updating.py``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuf_repository import Repository, served
from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import ConfigError
from wheelmark.sign import embedded
from wheelmark.trust import updating
from wheelmark.trust.state import embedded_root_path


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Two roots that can be used."""
    home = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(home)
    first = embedded_root_path(home).read_bytes()
    embedded.rotate(home)
    return first, embedded_root_path(home).read_bytes()


@pytest.fixture
def repository(tmp_path: Path, targets: tuple[bytes, bytes]) -> Repository:
    made = Repository(tmp_path / "repository")
    made.publish(targets[0])
    return made


@pytest.fixture
def url(repository: Repository) -> Iterator[str]:
    with served(repository.folder) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHEELMARK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "state"


def kept(repository: Repository, home: Path) -> updating.UpdatedRoot:
    return updating.updated_root("ours", bootstrap_sha256=digests.sha256(repository.first), directory=home)


def update(repository: Repository, url: str, home: Path) -> None:
    updating.update_root("ours", url=url, bootstrap=repository.first, directory=home)


def refused(repository: Repository, url: str, home: Path) -> ConfigError:
    """The error of an update that has to change nothing."""
    before = kept(repository, home)
    with pytest.raises(ConfigError) as caught:
        update(repository, url, home)
    assert kept(repository, home) == before
    return caught.value


class TestUpdate:
    def test_first_and_next(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        began = dt.datetime.now(dt.UTC)
        stored = updating.update_root("ours", url=url, bootstrap=repository.first, directory=home)
        first = kept(repository, home)
        assert (stored.sha256, stored.path) == (first.sha256, first.path)
        assert first.data == targets[0] == stored.path.read_bytes()
        assert began <= first.vouched <= dt.datetime.now(dt.UTC)
        assert (first.url, first.version) == (url, 1)
        repository.publish(targets[1])
        update(repository, url, home)
        second = kept(repository, home)
        assert second.data == targets[1]
        assert second.vouched > first.vouched
        assert not first.path.exists()

    def test_nothing_new_still_vouches(self, repository: Repository, url: str, home: Path) -> None:
        update(repository, url, home)
        first = kept(repository, home)
        update(repository, url, home)
        assert kept(repository, home).vouched > first.vouched

    def test_rotated_keys(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        update(repository, url, home)
        for roles in (("root",), ("root", "timestamp"), ("snapshot", "targets")):
            repository.rotate(*roles)
        repository.publish(targets[1])
        update(repository, url, home)
        assert kept(repository, home).data == targets[1]
        # From nothing, over all four roots.
        update(repository, url, home.with_name("other"))
        assert kept(repository, home.with_name("other")).data == targets[1]

    def test_everything_is_private(self, repository: Repository, url: str, home: Path) -> None:
        before = os.umask(0)
        try:
            update(repository, url, home)
        finally:
            os.umask(before)
        folder = home / "roots" / "tuf" / "ours"
        for path in (home, home / "roots", folder.parent, folder, folder / "metadata"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert sorted(path.name for path in folder.iterdir()) == [
            "bootstrap.json",
            "lock",
            "metadata",
            f"root-{kept(repository, home).sha256}.json",
            "update.json",
        ]

    def test_several_at_once(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        update(repository, url, home)
        repository.publish(targets[1])
        failures: list[BaseException] = []

        def again() -> None:
            try:
                update(repository, url, home)
                kept(repository, home)
            except BaseException as error:  # noqa: BLE001 - shown by the assertion
                failures.append(error)

        threads = [threading.Thread(target=again) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert kept(repository, home).data in targets
        for thread in threads:
            thread.join()
        assert failures == []
        assert kept(repository, home).data == targets[1]


class TestRefusals:
    @pytest.fixture(autouse=True)
    def _begun(self, repository: Repository, url: str, home: Path) -> None:
        update(repository, url, home)

    def test_expired_timestamp(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1], expires=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        error = refused(repository, url, home)
        assert error.reason == "root-update"
        assert "expired" in error.what

    def test_rolled_back_timestamp(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1])
        update(repository, url, home)
        repository.roll_back("timestamp", 1)
        repository.timestamp()
        assert refused(repository, url, home).reason == "root-update"

    def test_rolled_back_timestamp_after_the_client_lost_its_metadata(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1])
        update(repository, url, home)
        (home / "roots" / "tuf" / "ours" / "metadata" / "timestamp.json").write_bytes(b"")
        repository.roll_back("timestamp", 1)
        repository.timestamp()
        assert "after 2" in refused(repository, url, home).what

    def test_rolled_back_snapshot(self, repository: Repository, url: str, home: Path) -> None:
        repository.snapshot()
        repository.timestamp()
        update(repository, url, home)
        repository.roll_back("snapshot", 1)
        repository.snapshot()
        repository.timestamp()
        assert refused(repository, url, home).reason == "root-update"

    def test_rolled_back_targets(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1])
        update(repository, url, home)
        repository.roll_back("targets", 1)
        repository.publish(targets[0])
        assert refused(repository, url, home).reason == "root-update"

    @pytest.mark.parametrize("change", ["other bytes", "longer", "shorter", "empty"])
    def test_other_target_than_the_metadata_say(
        self, change: str, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1])
        data = {
            "other bytes": targets[1].replace(b"embedded", b"embedddd", 1),
            "longer": targets[1] + b" ",
            "shorter": targets[1][:-1],
            "empty": b"",
        }[change]
        repository.target().write_bytes(data)
        assert refused(repository, url, home).reason == "root-update"

    @pytest.mark.parametrize("name", ["timestamp.json", "2.snapshot.json", "2.targets.json"])
    @pytest.mark.parametrize("change", ["signature", "junk", "array"])
    def test_tampered_metadata(
        self,
        name: str,
        change: str,
        repository: Repository,
        url: str,
        home: Path,
        targets: tuple[bytes, bytes],
    ) -> None:
        repository.publish(targets[1])
        path = repository.folder / name
        value = json.loads(path.read_bytes())
        value["signatures"][0]["sig"] = "00" * 64
        path.write_bytes({"signature": json.dumps(value).encode(), "junk": b"\xff{", "array": b"[]"}[change])
        assert refused(repository, url, home).reason == "root-update"

    def test_root_that_the_old_root_did_not_sign(
        self, repository: Repository, url: str, home: Path, tmp_path: Path
    ) -> None:
        other = Repository(tmp_path / "attacker")
        other.rotate("root")
        (repository.folder / "2.root.json").write_bytes((other.folder / "2.root.json").read_bytes())
        assert refused(repository, url, home).reason == "root-update"

    def test_another_repository(self, repository: Repository, home: Path, tmp_path: Path) -> None:
        other = Repository(tmp_path / "other")
        other.publish(b"{}")
        with served(other.folder) as url:
            assert refused(repository, url, home).reason == "root-update"

    def test_target_that_is_no_root(self, repository: Repository, url: str, home: Path) -> None:
        repository.publish(b'{"mediaType": "text/plain"}')
        assert refused(repository, url, home).reason == "root-shape"

    def test_target_over_the_limit(self, repository: Repository, url: str, home: Path) -> None:
        repository.publish(b" " * ((4 << 20) + 1))
        error = refused(repository, url, home)
        assert error.reason == "root-update"
        assert "4,194,305 bytes" in error.what

    def test_repository_without_the_target(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1], name="another.json")
        error = refused(repository, url, home)
        assert error.reason == "root-update"
        assert "no target" in error.what

    def test_no_such_target(
        self, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
    ) -> None:
        repository.publish(targets[1])
        repository.target().unlink()
        assert refused(repository, url, home).reason == "root-unreachable"

    def test_unreachable(self, repository: Repository, home: Path) -> None:
        with served(repository.folder) as url:
            pass
        assert refused(repository, url, home).reason == "root-unreachable"

    def test_another_bootstrap(self, repository: Repository, url: str, home: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            updating.update_root("ours", url=url, bootstrap=repository.first + b" ", directory=home)
        assert caught.value.reason == "root-bootstrap"
        with pytest.raises(ConfigError) as caught:
            updating.update_root("theirs", url=url, bootstrap=b"{}", directory=home)
        assert caught.value.reason == "root-bootstrap"


CODE = """
import sys
from pathlib import Path
from wheelmark.trust import updating

print("ready", flush=True)
sys.stdin.readline()
url, first, home = sys.argv[1:]
updating.update_root("ours", url=url, bootstrap=Path(first).read_bytes(), directory=Path(home))
"""


@contextlib.contextmanager
def updating_process(repository: Repository, url: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun to update."""
    command = [sys.executable, "-c", CODE, url, str(repository.folder / "1.root.json"), str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        yield process


@pytest.mark.parametrize("at", ["timestamp.json", "2.snapshot.json", "2.targets.json", "/targets/"])
def test_killed_half_way(
    at: str, repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
) -> None:
    update(repository, url, home)
    repository.publish(targets[1])
    reached, ended = threading.Event(), threading.Event()

    def seen(path: str) -> None:
        if at in path and not reached.is_set():
            reached.set()
            ended.wait(30)

    with served(repository.folder, seen) as slow:
        with updating_process(repository, slow, home) as process:
            assert reached.wait(60)
            process.kill()
        ended.set()
    assert kept(repository, home).data == targets[0]
    update(repository, url, home)
    assert kept(repository, home).data == targets[1]


def test_killed_at_any_moment(
    repository: Repository, url: str, home: Path, targets: tuple[bytes, bytes]
) -> None:
    """The process dies after so many milliseconds: whatever lies there then can be used, and updated."""
    update(repository, url, home)
    for turn, delay in enumerate((0.05, 0.1, 0.2, 0.4)):
        repository.publish(targets[turn % 2])
        with updating_process(repository, url, home) as process:
            time.sleep(delay)
            process.kill()
        assert kept(repository, home).data in targets
    update(repository, url, home)
    assert kept(repository, home).data == targets[1]


@pytest.mark.usefixtures("home")
class TestCommand:
    def test_it_remembers_where_and_what_to_begin_with(
        self, repository: Repository, url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bootstrap = str(repository.folder / "1.root.json")
        arguments = ["trust", "update", "ours", "--json"]
        assert main([*arguments, "--url", url, "--bootstrap", bootstrap]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["bootstrap"] == digests.sha256(repository.first)
        assert main(arguments) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["roots"] == said["roots"]
        assert main(["trust", "show", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["roots"] == said["roots"]

    def test_a_new_name_needs_both(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trust", "update", "ours", "--url", url]) == 5
        assert "--bootstrap" in capsys.readouterr().err
