"""The hook under a user's own podman: it runs in a user namespace, where root's files belong to nobody."""

from __future__ import annotations

import dataclasses
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hooking
import wheelmark
from checkouts import Ran
from forging import forging
from presence import need_program, not_run
from wheelmark import digests

USER = "wheelmark-hooks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Someone:
    """A user with a podman of their own."""

    folder: Path
    python: Path

    def run(self, *command: object) -> Ran:
        variables = {
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "PATH": os.environ["PATH"],
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "WHEELMARK_STATE": str(self.folder / "home" / "state"),
        }
        words = [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(
            ["runuser", "-u", USER, "--", "env", "-i", *words, *map(str, command)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def wheelmark(self, *arguments: object) -> Ran:
        return self.run(self.python, "-m", "wheelmark", *arguments)

    def podman(self, *arguments: object) -> Ran:
        return self.run("podman", "--storage-driver", "vfs", *arguments)


def _shown(source: Path, target: Path) -> Path:
    """A folder of root's made visible to others, who cannot enter what is above it."""
    target.mkdir()
    subprocess.run(["mount", "--bind", "-o", "ro", str(source), str(target)], check=True, timeout=60)
    return target


def _of_itself(interpreter: Path, standard: Path, copy: Path) -> bool:
    """An interpreter's program whose library is sought beside it, where it names a folder that others may not enter.

    Another user would be given whatever library of that name the machine has, which is of another version.
    """
    named, beside = os.fsencode(standard / "lib"), b"$ORIGIN/../lib"
    data = interpreter.read_bytes()
    if named + b"\0" not in data or len(named) < len(beside):
        return False
    copy.write_bytes(data.replace(named + b"\0", beside.ljust(len(named) + 1, b"\0")))
    copy.chmod(0o755)
    return True


@pytest.fixture(scope="module")
def someone() -> Iterator[Someone]:
    hooking.need_podman()
    for name in ("newuidmap", "runuser", "useradd", "mount"):
        need_program(name)
    # Root's, since who could write an interpreter is looked at; and a name that podman makes a repository's name of.
    folder = Path(tempfile.gettempdir()) / f"wmr{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    mounts: list[Path] = []
    try:
        subprocess.run(
            ["useradd", "--system", "--add-subids-for-system", "--shell", "/bin/sh", USER], check=True
        )
        entry = pwd.getpwnam(USER)
        for name in ("home", "run"):
            (folder / name).mkdir(mode=0o700)
            os.chown(folder / name, entry.pw_uid, entry.pw_gid)
        standard = Path(sys.base_prefix)
        found_at = [Path(item) for item in sys.path if item and Path(item).is_dir()]
        ours = [item for item in dict.fromkeys(found_at) if not item.is_relative_to(standard)]
        places = {
            "python": standard,
            "source": Path(wheelmark.__file__).parents[1],
            **{f"site{index}": item for index, item in enumerate(ours)},
        }
        for name, place in places.items():
            mounts.append(_shown(place, folder / name))
        minor = f"python3.{sys.version_info.minor}"
        program, copy = folder / "python" / "bin" / minor, folder / "interpreter"
        if _of_itself(program, standard, copy):
            subprocess.run(["mount", "--bind", str(copy), str(program)], check=True, timeout=60)
            mounts.append(program)
        subprocess.run(
            [str(program), "-m", "venv", "--without-pip", str(folder / "env")],
            check=True,
            capture_output=True,
            timeout=120,
        )
        lines = "".join(f"{folder / name}\n" for name in places if name != "python")
        (folder / "env" / "lib" / minor / "site-packages" / "shown.pth").write_text(lines, encoding="utf-8")
        (folder / "containers.conf").write_text(hooking.ENGINE, encoding="utf-8")
        found = Someone(folder=folder, python=folder / "env" / "bin" / "python")
        probe = found.podman("unshare", "true")
        if probe.code:
            not_run(f"podman runs for root alone here: {probe.err.strip()[-300:]}")
        yield found
        found.podman("rm", "--force", "--all", "--time", "0")
        found.podman("unshare", "rm", "-rf", str(folder / "home" / ".local"))
        found.podman("system", "migrate")  # ends the process that keeps the user namespace
    finally:
        for place in reversed(mounts):
            subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=60)
        subprocess.run(["userdel", "--force", USER], check=False, capture_output=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def images(someone: Someone, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed and an unsigned layout, and a policy of that user which names root's copy of the trusted root."""
    home = tmp_path_factory.mktemp("domain") / "state"
    program = hooking.compile_program(tmp_path_factory.mktemp("program"))
    with forging(home) as forge:
        host = hooking.Host(folder=someone.folder, home=home, forge=forge, program=program, driver="vfs")
        made = host.layout("good"), host.layout("unsigned", signed=False)
        (someone.folder / "root.json").write_bytes(forge.root_bytes)
    root = f'path = "{someone.folder}/root.json"\nsha256 = "{digests.sha256(forge.root_bytes)}"'
    text = hooking.POLICY.replace('source = "this-machine"', root).replace("development = true\n", "")
    policy = someone.folder / "home" / "policy.toml"
    policy.write_text(text, encoding="utf-8")
    policy.chmod(0o600)
    os.chown(policy, (entry := pwd.getpwnam(USER)).pw_uid, entry.pw_gid)
    return made


def test_a_users_own_podman_starts_what_was_verified_and_nothing_else(
    someone: Someone, images: tuple[Path, Path]
) -> None:
    good, unsigned = images
    home = someone.folder / "home"
    installed = someone.wheelmark("hook", "install", "--rootless", "--policy", home / "policy.toml")
    assert installed.code == 0, installed.err
    for name in (".config/wheelmark/hook.toml", ".config/containers/oci/hooks.d/wheelmark.json"):
        assert f"{home / name}: written" in installed.out
    assert someone.wheelmark("hook", "status", "--rootless").code == 0
    pulled = someone.wheelmark(
        "pull", f"oci:{good}:v1", "--policy", home / "policy.toml", "--engine", "podman --storage-driver vfs"
    )
    assert pulled.code == 0, pulled.err
    # CONTAINERS_CONF, which these tests need, hides containers.conf.d: so the folder of hooks is named here.
    hooks = ("--hooks-dir", home / ".config/containers/oci/hooks.d", "run", "--rm")
    done = someone.podman(*hooks, "localhost/good:v1")
    assert (done.code, done.out) == (0, hooking.SAYS), done.err
    taken = someone.podman("pull", "--quiet", f"oci:{unsigned}:v1")
    assert taken.code == 0, taken.err
    refused = someone.podman(*hooks, taken.out.strip())
    assert refused.code in hooking.REFUSED
    assert (refused.out, "hook-unknown-image" in refused.err) == ("", True)
    assert someone.run("chmod", "666", home / "policy.toml").code == 0
    refused = someone.podman(*hooks, "localhost/good:v1")
    assert refused.code in hooking.REFUSED
    assert (refused.out, "policy-permissions" in refused.err) == ("", True)
    assert someone.run("chmod", "600", home / "policy.toml").code == 0
    log = someone.run("cat", home / "state" / "images" / "hook.log").out.splitlines()
    assert len(log) == 3
    for command in (["hook", "uninstall", "--rootless"], ["hook", "uninstall", "--rootless"]):
        assert someone.wheelmark(*command).code == 0
    # No boundary: the same user leaves the hook out. docs/deploying-images.md says so.
    assert someone.podman("run", "--rm", taken.out.strip()).out == hooking.SAYS


def test_root_and_users_are_told_apart(someone: Someone, images: tuple[Path, Path]) -> None:
    policy = someone.folder / "home" / "policy.toml"
    refused = someone.wheelmark(
        "hook", "install", "--policy", policy, "--hooks-dir", someone.folder / "home" / "h"
    )
    assert refused.code == 5
    assert "--rootless" in refused.err
