"""``wheelmark pull`` as a process that is ended, killed, run twice at a time, or out of room: nothing stays in the way."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import imaging
from forging import Forge
from hooking import Host
from imaging import Draft
from presence import need_program, not_run
from publishing import command
from pulling import engine_script, large_image, write_policy
from registry import Handler, Registry, served
from wheelmark.deploy.imagechoice import this_platform
from wheelmark.deploy.store import EvidenceStore
from wheelmark.oci.reference import parse_location
from wheelmark.publish import copy

SIZE = 4 << 20
WAIT = 120


class Stall:
    """A registry's answer to the first request for the large layer: half of it, and then nothing until it is told."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, handler: Handler) -> bool:
        name = handler.path.rpartition("/")[2]
        data = next((data for (_, digest), data in handler.registry.blobs.items() if digest == name), b"")
        if handler.command != "GET" or len(data) < SIZE or self.reached.is_set():
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: SIZE // 2])
        self.reached.set()
        self.go_on.wait(WAIT)
        with contextlib.suppress(OSError):
            handler.wfile.write(data[SIZE // 2 :])
        return True


class Machine:
    """A policy, a store, and a registry with an image whose large layer stalls when it is asked for the first time."""

    def __init__(self, folder: Path, server: Registry) -> None:
        self.folder = folder
        self.stall = Stall()
        self.ref = f"{server.host}/team/app:v1"
        self.store = folder / "store"

    def line(self, ref: str, engine: str) -> list[str]:
        policy = write_policy(self.folder / "policy.toml")
        options = ["--policy", str(policy), "--store", str(self.store), "--engine", engine]
        return [sys.executable, "-m", "wheelmark", "pull", ref, *options]

    def start(self, ref: str = "", *, engine: str = "none") -> subprocess.Popen[str]:
        # Whoever starts these tests in the background has them ignore SIGINT, and what they start too.
        return subprocess.Popen(
            ["env", "--default-signal=INT", *self.line(ref or self.ref, engine)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def pull(self, ref: str = "", *, engine: str = "none") -> subprocess.CompletedProcess[str]:
        line = self.line(ref or self.ref, engine)
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT)

    def copies(self) -> list[Path]:
        return list((self.store / "taken").iterdir())

    def images(self) -> tuple[str, ...]:
        return EvidenceStore(self.store).images()


@pytest.fixture
def machine(domain: tuple[Path, Forge], tmp_path: Path) -> Iterator[Machine]:
    large_image(tmp_path / "image", domain[1], size=SIZE)
    with served(Registry()) as server:
        made = Machine(tmp_path, server)
        copy(parse_location(f"oci:{tmp_path}/image:v1"), parse_location(made.ref))
        server.script = made.stall
        yield made
        made.stall.go_on.set()


ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
def test_ended_while_a_layer_is_copied(machine: Machine, number: int, code: int, word: str) -> None:
    with machine.start() as process:
        assert machine.stall.reached.wait(WAIT)
        assert machine.copies()
        process.send_signal(number)
        _out, said = process.communicate(timeout=WAIT)
    assert process.returncode == code, said
    assert f"{word}; nothing half-written was left" in said
    assert "so far:       this run kept no evidence, and asked no engine" in said
    assert "Traceback" not in said
    assert machine.copies() == []
    assert machine.images() == ()
    assert machine.pull().returncode == 0
    assert len(machine.images()) == 1


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
def test_ended_while_the_engine_unpacks(machine: Machine, number: int, code: int, word: str) -> None:
    machine.stall.reached.set()
    os.mkfifo(machine.folder / "pipe")
    engine = engine_script(
        machine.folder / "engine",
        f'case "$1" in --version) echo podman version 4 ;; pull) echo here > {machine.folder}/pipe; exec sleep 60 ;; esac',
    )
    with machine.start(engine=str(engine)) as process:
        assert (machine.folder / "pipe").read_text(encoding="ascii") == "here\n"
        process.send_signal(number)
        _out, said = process.communicate(timeout=WAIT)
    assert process.returncode == code, said
    (sha256,) = machine.images()
    assert word in said
    assert f"so far:       the evidence of sha256:{sha256} is kept in {machine.store}" in said
    assert "Traceback" not in said
    assert machine.copies() == []
    asked = Path(f"{engine}.asked").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in asked] == ["--version", "pull", "untag"]


def test_what_a_killed_pull_leaves_is_removed_by_the_next(machine: Machine) -> None:
    with machine.start() as process:
        assert machine.stall.reached.wait(WAIT)
        process.kill()
        process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGKILL
    assert len(machine.copies()) == 1
    assert machine.pull().returncode == 0
    assert machine.copies() == []
    assert len(machine.images()) == 1


def test_a_pull_that_began_first_and_ends_last(machine: Machine) -> None:
    """The one that overtakes it neither sweeps its copies away, nor makes its clock look wrong."""
    with machine.start() as slow:
        assert machine.stall.reached.wait(WAIT)
        overtaking = machine.pull()
        assert overtaking.returncode == 0, overtaking.stderr
        assert len(machine.copies()) == 1
        machine.stall.go_on.set()
        out, said = slow.communicate(timeout=WAIT)
    assert slow.returncode == 0, out + said
    assert machine.copies() == []
    (sha256,) = machine.images()
    assert EvidenceStore(machine.store).find(sha256) is not None


def test_pulls_of_one_and_of_several_images_at_the_same_time(
    machine: Machine, domain: tuple[Path, Forge]
) -> None:
    """Into a store that is not there yet."""
    for name in ("one", "two"):
        draft = Draft(layers=[imaging.tar(imaging.Entry(name=name))], platform=this_platform(), target="")
        imaging.layout(machine.folder / name, domain[1].sign, draft)
    started = [machine.start(f"oci:{machine.folder}/{name}:v1") for name in ("one", "one", "two", "two")]
    for process in started:
        with process:
            out, said = process.communicate(timeout=WAIT)
            assert process.returncode == 0, out + said
    store = EvidenceStore(machine.store)
    assert len(store.images()) == 2
    assert all(store.find(sha256) is not None for sha256 in store.images())
    assert machine.copies() == []


def test_podman_takes_two_at_the_same_time(bare: Host, tmp_path: Path) -> None:
    machine = Machine(tmp_path, Registry())
    names = {"example.org/one:1": bare.layout("one"), "example.org/two:1": bare.layout("two")}
    lines = [
        [*machine.line(f"oci:{layout}:v1", shlex.join(bare.engine)), "--name", name]
        for name, layout in names.items()
    ]
    started = [
        subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for line in lines
    ]
    for process in started:
        with process:
            out, said = process.communicate(timeout=WAIT)
            assert process.returncode == 0, out + said
    assert bare.images() == {f"sha256:{sha256}" for sha256 in machine.images()}
    listed = bare.podman("images", "--format", "{{.Repository}}:{{.Tag}}").out.split()
    assert sorted(listed) == sorted(names), "and no name of ours stays"


SMALL_DISK = """
mount -t tmpfs -o size=$1,mode=700 none "$2"
shift
disk=$1
shift
"$@" >/dev/null 2>"$disk.said" && exit 9
code=$?
ls -A "$disk/store/taken" "$disk/store/images" > "$disk.left" 2>/dev/null
mount -o remount,size=64m "$disk"
"$@" >/dev/null || exit 8
ls "$disk/store/images" > "$disk.images"
exit $code
"""


@pytest.mark.parametrize("size", ["64k", "2m", "4156k"])
def test_a_disk_that_is_full_is_said_and_the_next_run_with_room_finishes(
    machine: Machine, tmp_path: Path, size: str
) -> None:
    """A real one: a small file system, mounted in a namespace of its own."""
    machine.stall.reached.set()
    unshare = need_program("unshare")
    if subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode:
        not_run("no mount namespaces")
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    machine.store = disk / "store"
    line = [unshare, "-m", "sh", "-euc", SMALL_DISK, "sh", size, str(disk)]
    done = subprocess.run(
        [*line, *machine.line(machine.ref, "none"), "--json"], capture_output=True, text=True, check=False
    )
    said = Path(f"{disk}.said").read_text(encoding="utf-8")
    assert done.returncode == 14, said + done.stderr
    assert "No space left on device" in said
    assert "free some space" in said
    assert "so far:       this run kept no evidence" in said
    assert not [line for line in Path(f"{disk}.left").read_text().splitlines() if line and "/" not in line]
    assert len(Path(f"{disk}.images").read_text().split()) == 1


def test_the_command_of_other_clients_is_ended_alike(machine: Machine) -> None:
    """SIGTERM is said as such by any command; one that ignores it from its start goes on."""
    line = [sys.executable, "-m", "wheelmark", "copy", machine.ref, f"oci:{machine.folder}/copied"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert machine.stall.reached.wait(WAIT)
        process.terminate()
        machine.stall.go_on.set()
        _out, said = process.communicate(timeout=WAIT)
    assert process.returncode == 143, said
    assert "Traceback" not in said
    assert not (machine.folder / "copied" / "index.json").exists()
    assert command("copy", machine.ref, f"oci:{machine.folder}/copied").returncode == 0
    assert json.loads((machine.folder / "copied" / "index.json").read_bytes())["manifests"]
