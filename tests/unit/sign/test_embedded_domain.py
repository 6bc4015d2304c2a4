"""The embedded domain on disk: permissions, rotation, crashes, backups."""

from __future__ import annotations

import io
import json
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from wheelmark import digests
from wheelmark.errors import BusyError, ConfigError, InputError, StateError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.sign.embedded import domain, storage
from wheelmark.trust import roots


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    return path


@pytest.fixture
def state(template: Path, tmp_path: Path) -> Path:
    """A domain of its own for each test; keys are slow to make, so they are copied."""
    shutil.copytree(template, tmp_path / "state")
    return tmp_path / "state"


def root(state: Path) -> bytes:
    return (state / "embedded" / "trusted_root.json").read_bytes()


def test_nothing_of_it_can_be_read_by_others(state: Path) -> None:
    for path in [state, *state.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_second_one_is_refused_and_the_first_stays(state: Path) -> None:
    before = root(state)
    with pytest.raises(ConfigError) as caught:
        embedded.create(state)
    assert caught.value.reason == "trust-exists"
    assert root(state) == before


def test_a_state_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    with pytest.raises(ConfigError) as caught:
        embedded.create(tmp_path / "state")
    assert caught.value.reason == "state-permissions"
    assert list((tmp_path / "state").iterdir()) == []


def test_two_domains_share_no_key(state: Path, tmp_path: Path) -> None:
    other = embedded.create(tmp_path / "other")
    mine = embedded.show(state)
    for found in (mine, other):
        assert found.issuer == embedded.ISSUER
    keys = [
        entry["publicKey"]["rawBytes"]
        for found in (mine, other)
        for entry in json.loads(found.trusted_root())["tlogs"] + json.loads(found.trusted_root())["ctlogs"]
    ]
    assert len(set(keys)) == len(keys) == 4


def test_the_root_says_what_it_is_and_is_canonical(state: Path) -> None:
    value = json.loads(root(state))
    assert digests.canonical_json(value) == root(state)
    for entry in value["certificateAuthorities"] + value["timestampAuthorities"]:
        assert entry["subject"]["organization"] == "self-issued, no external trust"
        assert entry["validFor"]["start"]
    assert b"127.0.0.1" not in root(state)


def test_rotation_closes_the_old_window_and_deletes_the_old_keys(state: Path) -> None:
    before = json.loads(root(state))
    rotated = embedded.rotate(state)
    after = json.loads(root(state))
    assert rotated.trusted_root() == root(state)
    for kind in ("tlogs", "ctlogs", "certificateAuthorities", "timestampAuthorities"):
        old, new = after[kind]
        window = (old.get("publicKey") or old)["validFor"]
        assert window["start"] < window["end"]
        assert (new.get("publicKey") or new)["validFor"].keys() == {"start"}
        del window["end"]
        assert old == before[kind][0]
    folder = state / "embedded"
    assert not list((folder / "generation-1").glob("*.key.pem"))
    assert len(list((folder / "generation-2").glob("*.key.pem"))) == 6
    material = roots.read_root(root(state), name="x", issuers=(), level="", canonical=True).material
    assert len({log.host for log in material.logs}) == 2


def test_rotating_thrice_keeps_every_generation(state: Path) -> None:
    for _ in range(3):
        embedded.rotate(state)
    found = embedded.show(state)
    assert [item.public.number for item in found.generations] == [1, 2, 3, 4]
    ends = [item.public.window.end for item in found.generations]
    assert None not in ends[:-1]
    assert ends[-1] is None


def test_a_domain_that_signs_is_not_rotated(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = storage._acquire

    def impatient(descriptor: int, path: Path, *, exclusive: bool, patience: float) -> None:
        original(descriptor, path, exclusive=exclusive, patience=min(patience, 0.05))

    monkeypatch.setattr(storage, "_acquire", impatient)
    with embedded.open_instance(state):
        with pytest.raises(BusyError) as caught:
            embedded.rotate(state)
        assert caught.value.reason == "trust-busy"
        assert len(embedded.show(state).generations) == 1
    assert len(embedded.rotate(state).generations) == 2


def test_a_second_first_signer_does_not_wait_until_the_first_ends(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw no domain; by the time that it would make one, another process had, and signs with it."""
    original, looks = domain.exists, [0]

    def late(folder: Path) -> bool:
        looks[0] += 1
        return looks[0] > 1 and original(folder)

    with embedded.open_instance(state) as one:
        monkeypatch.setattr(domain, "exists", late)
        monkeypatch.setattr(storage, "PATIENCE", 0.5)
        with embedded.open_instance(state) as two:
            assert one.domain.root_sha256 == two.domain.root_sha256
    assert looks[0] > 1


def test_what_a_crash_left_of_a_rotation_is_removed(state: Path) -> None:
    leftover = state / "embedded" / "generation-2"
    leftover.mkdir(mode=0o700)
    (leftover / "authority.key.pem").write_text("half a k")
    assert len(embedded.show(state).generations) == 1
    assert len(embedded.rotate(state).generations) == 2


def test_a_root_that_differs_is_made_again(state: Path) -> None:
    before = root(state)
    (state / "embedded" / "trusted_root.json").write_bytes(b"{}")
    embedded.show(state)
    assert root(state) == before
    (state / "embedded" / "trusted_root.json").unlink()
    embedded.show(state)
    assert root(state) == before


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("domain.json", b"{", "trust-domain"),
        ("domain.json", b'{"generations":[],"issuer":"x","schemaVersion":1}', "trust-domain"),
        ("domain.json", b'{"generations":[{"start":"now"}],"issuer":"x","schemaVersion":1}', "trust-domain"),
        (
            "domain.json",
            b'{"generations":[{"begin":"2026-01-01T00:00:00Z"}],"issuer":"x","schemaVersion":1}',
            "trust-domain",
        ),
        (
            "domain.json",
            b'{"generations":[{"start":"2026-01-01T00:00:00Z"}],"issuer":"x","schemaVersion":2}',
            "trust-domain",
        ),
        ("generation-1/authority.crt.pem", b"", "trust-domain"),
        ("generation-1/log.pub.pem", b"", "trust-keys"),
    ],
)
def test_damage_is_named(name: str, data: bytes, reason: str, state: Path) -> None:
    (state / "embedded" / name).write_bytes(data)
    with pytest.raises(StateError) as caught:
        embedded.show(state)
    assert caught.value.reason == reason


def test_swapped_keys_are_named(state: Path) -> None:
    folder = state / "embedded" / "generation-1"
    (folder / "log.key.pem").write_bytes((folder / "authority.key.pem").read_bytes())
    with pytest.raises(StateError) as caught, embedded.open_instance(state):
        pass
    assert caught.value.reason == "trust-keys"


def test_there_is_nothing_to_show_or_rotate_before_it_is_made(tmp_path: Path) -> None:
    actions: list[Callable[[Path], object]] = [
        embedded.show,
        embedded.rotate,
        lambda state: embedded.backup(tmp_path / "x.tar", state),
    ]
    for action in actions:
        with pytest.raises(StateError) as caught:
            action(tmp_path / "state")
        assert caught.value.reason == "trust-absent"


class TestBackup:
    def test_round_trip(self, state: Path, tmp_path: Path) -> None:
        embedded.rotate(state)
        made = embedded.backup(tmp_path / "backup.tar", state)
        assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600
        restored = embedded.restore(tmp_path / "backup.tar", tmp_path / "other")
        assert restored.root_sha256 == made.root_sha256
        assert digests.sha256_tree(tmp_path / "other" / "embedded") == digests.sha256_tree(state / "embedded")
        with embedded.open_instance(tmp_path / "other") as instance:
            assert instance.mint("https://embedded.invalid/x")

    def test_it_replaces_nothing(self, state: Path, tmp_path: Path) -> None:
        (tmp_path / "backup.tar").write_text("mine")
        with pytest.raises(ConfigError) as caught:
            embedded.backup(tmp_path / "backup.tar", state)
        assert caught.value.reason == "backup-target"
        assert (tmp_path / "backup.tar").read_text() == "mine"
        embedded.backup(tmp_path / "second.tar", state)
        before = digests.sha256_tree(state)
        with pytest.raises(ConfigError) as refused:
            embedded.restore(tmp_path / "second.tar", state)
        assert refused.value.reason == "trust-exists"
        assert digests.sha256_tree(state) == before

    @pytest.mark.parametrize("name", ["missing/backup.tar", "state"])
    def test_a_target_that_cannot_be_written(self, name: str, state: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            embedded.backup(tmp_path / name, state)
        assert caught.value.reason == "backup-target"

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("../escaped", tarfile.REGTYPE),
            ("/tmp/escaped", tarfile.REGTYPE),  # noqa: S108 - it must not be written
            ("generation-1/../../escaped", tarfile.REGTYPE),
            ("generation-1/authority.key.pem", tarfile.SYMTYPE),
            ("generation-1/authority.key.pem", tarfile.LNKTYPE),
            ("generation-1", tarfile.DIRTYPE),
            ("lock", tarfile.REGTYPE),
            ("domain.json", tarfile.FIFOTYPE),
        ],
    )
    def test_members_that_no_backup_has(self, name: str, kind: bytes, state: Path, tmp_path: Path) -> None:
        def change(archive: tarfile.TarFile) -> None:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = "../../../state/embedded/domain.json"
            archive.addfile(member)

        self._refused(self._changed(state, tmp_path, change), "backup", tmp_path)

    def test_a_member_twice(self, state: Path, tmp_path: Path) -> None:
        def change(archive: tarfile.TarFile) -> None:
            archive.addfile(tarfile.TarInfo("domain.json"), io.BytesIO())

        self._refused(self._changed(state, tmp_path, change), "backup", tmp_path)

    def test_what_is_no_tar_or_not_whole(self, state: Path, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(b"not a tar" * 200)
        self._refused(tmp_path / "x.tar", "backup", tmp_path)
        self._refused(tmp_path / "absent.tar", "backup", tmp_path)
        embedded.backup(tmp_path / "whole.tar", state)
        data = (tmp_path / "whole.tar").read_bytes()
        (tmp_path / "cut.tar").write_bytes(data[: len(data) // 3])
        self._refused(tmp_path / "cut.tar", "backup", tmp_path)
        with tarfile.open(tmp_path / "empty.tar", "w"):
            pass
        self._refused(tmp_path / "empty.tar", "backup", tmp_path)

    @pytest.mark.parametrize(
        "name", ["domain.json", "generation-1/log.pub.pem", "generation-1/tokens.key.pem"]
    )
    def test_one_without_a_file(self, name: str, state: Path, tmp_path: Path) -> None:
        embedded.backup(tmp_path / "whole.tar", state)
        with tarfile.open(tmp_path / "whole.tar") as whole, tarfile.open(tmp_path / "cut.tar", "w") as cut:
            for member in whole:
                if member.name != name:
                    cut.addfile(member, whole.extractfile(member))
        self._refused(tmp_path / "cut.tar", "backup", tmp_path)

    @staticmethod
    def _changed(state: Path, tmp_path: Path, change: Callable[[tarfile.TarFile], None]) -> Path:
        target = tmp_path / "changed.tar"
        embedded.backup(target, state)
        with tarfile.open(target, "a") as archive:
            change(archive)
        return target

    @staticmethod
    def _refused(source: Path, reason: str, tmp_path: Path) -> None:
        with pytest.raises(WheelmarkError) as caught:
            embedded.restore(source, tmp_path / "other")
        assert isinstance(caught.value, InputError)
        assert caught.value.reason == reason
        # Nothing was left behind, and a domain can be made in its place.
        assert not list((tmp_path / "other" / "embedded").glob("*generation*"))
        assert not list(tmp_path.rglob("escaped"))
        assert [path.name for path in (tmp_path / "other" / "embedded").iterdir()] == ["lock"]
