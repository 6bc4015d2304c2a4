"""Row 38: a policy, root or key that others can write is refused where nobody looks (install and hooks)."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import Forge
from rows import row
from wheelmark import digests
from wheelmark.errors import ConfigError, Exit
from wheelmark.trust import state
from wheelmark.verify.policy import load_policy
from wheelmark.verify.policy.permissions import also_owned_by, check_ownership, read_owned

STRANGER = 54321


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that only we can write, as every folder above it (or a sticky one)."""
    made = tmp_path / "home"
    made.mkdir(mode=0o755)
    (made / "policy.toml").write_bytes(b"schema = 1\n")
    (made / "policy.toml").chmod(0o644)
    return made


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a path somebody else's: for real where we may, else by being another user ourselves."""

    def to_stranger(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return to_stranger


def refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_ownership(path)
    assert caught.value.exit_code is Exit.CONFIG
    return caught.value


def refused(path: Path, *hints: str) -> ConfigError:
    error = refusal(path)
    assert error.reason == "policy-permissions"
    for hint in hints:
        assert hint in str(error)
    return error


def test_what_only_we_can_write_is_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_ownership(home / "policy.toml")
    assert read_owned(home / "policy.toml", 6) == b"schema"
    monkeypatch.chdir(home)
    check_ownership(Path("policy.toml"))
    check_ownership(Path("./../home//policy.toml"))
    check_ownership(Path("/etc/passwd"))


@row(38, "policy-permissions")
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o602, 0o777])
def test_file_that_others_can_write(home: Path, mode: int) -> None:
    path = home / "policy.toml"
    path.chmod(mode)
    refused(path, str(path), f"{mode:04o}", f"chmod go-w {path}")


@row(38, "policy-permissions")
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_folder_above_that_others_can_write(home: Path, mode: int) -> None:
    inner = home / "inner"
    inner.mkdir()
    (inner / "policy.toml").write_bytes(b"")
    home.chmod(mode)
    refused(inner / "policy.toml", f"{home} can be written", f"chmod go-w {home}", f"{mode:04o}")


@row(38, "policy-permissions")
@pytest.mark.parametrize("which", ["file", "folder", "link"])
def test_what_belongs_to_somebody_else(home: Path, give: Callable[[Path], None], which: str) -> None:
    path = home / "policy.toml"
    if which == "link":
        path = home / "link.toml"
        path.symlink_to("policy.toml")
    give({"file": path, "folder": home, "link": path}[which])
    refused(path, "belongs to user", "chown")


def test_a_further_owner_counts_only_while_it_is_said(home: Path, give: Callable[[Path], None]) -> None:
    path = home / "policy.toml"
    give(path)
    owner = path.stat().st_uid
    refused(path, "belongs to user")
    with also_owned_by(owner + 1):
        refused(path, "belongs to user")
    with also_owned_by(owner):
        check_ownership(path)
        path.chmod(0o666)
        refused(path, "can be written by others")
    path.chmod(0o644)
    refused(path, "belongs to user")


def test_sticky_folder_may_be_shared(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    path = shared / "policy.toml"
    path.write_bytes(b"")
    check_ownership(path)
    (shared / "link.toml").symlink_to(home / "policy.toml")
    check_ownership(shared / "link.toml")
    shared.chmod(0o777)
    refused(path, f"chmod go-w {shared}")
    shared.chmod(0o1777)
    path.chmod(0o646)
    refused(path)


def test_sticky_folder_holds_no_second_name_of_ours(home: Path, tmp_path: Path) -> None:
    """Another user may link a file of ours there, an old policy for instance, under the name that we ask for."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    os.link(home / "policy.toml", shared / "policy.toml")
    refused(shared / "policy.toml", "has 2 names", "cp ")
    check_ownership(home / "policy.toml")
    (home / "link").symlink_to("policy.toml")
    os.link(home / "link", shared / "link", follow_symlinks=False)
    refused(shared / "link", "has 2 names")
    # A link there that leads to another name there does not lose the rule on the way.
    (shared / "again").symlink_to("policy.toml")
    refused(shared / "again", "has 2 names")


def test_sticky_file_is_no_sticky_folder(home: Path) -> None:
    path = home / "policy.toml"
    path.chmod(0o1666)
    assert path.stat().st_mode & stat.S_ISVTX
    refused(path)


def test_each_hop_of_a_link_counts(home: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    (loose / "hop").symlink_to(home)
    (home / "way").symlink_to(loose / "hop")
    refused(home / "way" / "policy.toml", f"{loose} can be written", "on the way to")
    loose.chmod(0o755)
    check_ownership(home / "way" / "policy.toml")
    (home / "relative").symlink_to("../home/./policy.toml")
    check_ownership(home / "relative")
    (home / "root").symlink_to("/")
    refused(home / "root", "no plain file")


def test_links_in_a_circle(home: Path) -> None:
    (home / "one").symlink_to("two")
    (home / "two").symlink_to("one")
    refused(home / "one", "circle")


def test_what_is_no_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(home, "no plain file")
    os.mkfifo(home / "pipe")
    refused(home / "pipe", "no plain file")
    assert refusal(home / "absent").reason == "policy-absent"
    assert refusal(home / "policy.toml" / "inside").reason == "policy-absent"
    monkeypatch.chdir(home)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert refusal(home / "socket").reason == "policy-absent"


def test_what_is_read_is_what_was_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is exchanged right after it was looked at: what comes is still the one that was."""
    path = home / "policy.toml"
    genuine = os.dup

    def exchange(descriptor: int) -> int:
        other = home / "other"
        other.write_bytes(b"evil")
        other.rename(path)
        return genuine(descriptor)

    monkeypatch.setattr(os, "dup", exchange)
    assert read_owned(path, 100) == b"schema = 1\n"
    assert path.read_bytes() == b"evil"


def test_no_descriptor_is_left(home: Path) -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - the numbers
    check_ownership(home / "policy.toml")
    refusal(home / "absent")
    (home / "policy.toml").chmod(0o666)
    refusal(home / "policy.toml")
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


@pytest.fixture
def whole(home: Path, forge: Forge) -> Path:
    """A policy with a root and a key beside it."""
    pem = ec.generate_private_key(ec.SECP256R1()).public_key()
    (home / "lab.pub").write_bytes(pem.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (home / "root.json").write_bytes(forge.root_bytes)
    for name in ("lab.pub", "root.json"):
        (home / name).chmod(0o644)
    (home / "policy.toml").write_text(
        f"""
schema = 1
[[root]]
name = "main"
path = "root.json"
sha256 = "{digests.sha256(forge.root_bytes)}"
level = "a word"
[[signer]]
name = "lab"
root = "main"
key = "lab.pub"
sha256 = "{digests.sha256((home / "lab.pub").read_bytes())}"
[[require]]
kind = "wheel"
predicates = ["provenance"]
signers = ["lab"]
""",
        encoding="utf-8",
    )
    return home / "policy.toml"


@row(38, "policy-permissions")
@pytest.mark.parametrize("name", ["policy.toml", "root.json", "lab.pub"])
def test_install_and_hooks_ask_and_verify_does_not(whole: Path, name: str) -> None:
    assert load_policy(whole, strict=True) == load_policy(whole)
    (whole.parent / name).chmod(0o666)
    assert load_policy(whole).signers
    with pytest.raises(ConfigError) as caught:
        load_policy(whole, strict=True)
    assert caught.value.reason == "policy-permissions"
    assert name in str(caught.value)


def test_this_machines_root_is_asked_too(
    home: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, give: Callable[[Path], None]
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    shipped = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"
    (home / "policy.toml").write_bytes(shipped.read_bytes())
    assert load_policy(home / "policy.toml", strict=True).development
    path = state.embedded_root_path()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o666)
    try:
        with pytest.raises(ConfigError) as caught:
            load_policy(home / "policy.toml", strict=True)
    finally:
        path.chmod(mode)
    assert caught.value.reason == "policy-permissions"
    give(home / "policy.toml")
    with pytest.raises(ConfigError) as caught:
        load_policy(home / "policy.toml", strict=True)
    assert caught.value.reason == "policy-permissions"
