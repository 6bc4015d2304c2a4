"""What somebody who can write the store or the engine's storage might try, and containers that are of no verified image."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

import hooking
from hooking import GOOD, OTHER, Host, image_in
from wheelmark.errors import Exit


@pytest.mark.parametrize("what", ["record", "bundle", "manifest", "absent", "writable", "facts"])
def test_a_store_that_was_tampered_with(host: Host, what: str) -> None:
    image = image_in(host.folder / "layouts" / "good")
    record = host.store / "images" / image.sha256
    if what == "facts":
        # Facts are cached: torn ones are established again, from the bundle.
        for path in (host.store / "facts").iterdir():
            path.write_bytes(path.read_bytes()[:-1] + b" ")
        assert host.starts(GOOD)
        return
    if what == "writable":
        host.store.chmod(0o777)
    elif what == "absent":
        record.unlink()
    else:
        kept = json.loads(record.read_bytes().partition(b"\n")[2])
        names = {"bundle": kept["bundles"][0], "manifest": image.sha256}
        path = record if what == "record" else host.store / "blobs/sha256" / names[what]
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(data)
    assert not host.starts(GOOD)
    expected = {"absent": "hook-unknown-image", "writable": "store"}.get(what, "store-changed")
    assert host.reasons() == {expected}


def test_forgotten_evidence_starts_nothing(host: Host) -> None:
    digest = image_in(host.folder / "layouts" / "good").digest
    command = [sys.executable, "-m", "wheelmark", "hook", "forget", digest, "--store", str(host.store)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert not host.starts(GOOD)
    assert host.reasons() == {"hook-unknown-image"}
    assert subprocess.run(command, check=False, capture_output=True).returncode == int(Exit.MISSING)


def test_a_root_file_system_without_an_image_does_not_start(host: Host) -> None:
    root = host.folder / "root"
    root.mkdir()
    (root / "hello").write_bytes(host.program)
    (root / "hello").chmod(0o755)
    done = host.podman("--hooks-dir", host.folder / "hooks", "run", "--rm", "--rootfs", root, "/hello")
    assert done.code in hooking.REFUSED
    assert done.out == ""
    assert host.reasons() == {"hook-no-image"}


def test_an_image_that_was_committed_here_does_not_start(host: Host) -> None:
    made = host.podman("create", "--name", "base", GOOD)
    assert made.code == 0, made.err
    assert host.podman("commit", "--quiet", "base", OTHER).code == 0
    assert not host.starts(OTHER)
    assert host.reasons() == {"hook-unknown-image"}


@pytest.mark.parametrize("what", ["image", "manifest", "config", "layer"])
def test_records_of_the_engine_that_contradict_each_other(host: Host, what: str) -> None:
    """Somebody who can write the engine's storage gives a container of other bytes the id of the verified image."""
    unsigned = host.slip_in(host.layout("unsigned", signed=False), OTHER)
    verified = host.podman("image", "inspect", "--format", "{{.Id}}", GOOD).out.strip()
    assert host.podman("create", "--name", "one", OTHER if what == "image" else GOOD).code == 0
    images = host.storage / "vfs-images"
    if what == "image":
        path = host.storage / "vfs-containers" / "containers.json"
        path.write_text(
            path.read_text(encoding="utf-8").replace(f'"image":"{unsigned}"', f'"image":"{verified}"')
        )
    elif what == "layer":
        path = host.storage / "vfs-layers" / "layers.json"
        records = json.loads(path.read_bytes())
        records[0]["diff-digest"] = f"sha256:{'0' * 64}"
        path.write_text(json.dumps(records), encoding="utf-8")
    else:
        key = f"manifest-{image_in(host.folder / 'layouts/good').digest}"
        key = key if what == "manifest" else f"sha256:{verified}"
        path = images / verified / f"={base64.b64encode(key.encode()).decode()}"
        path.write_bytes(path.read_bytes().replace(b"sha256", b"sha265", 1) + b" ")
    done = host.podman("--hooks-dir", host.folder / "hooks", "start", "--attach", "one")
    assert done.code != 0
    assert hooking.SAYS not in done.out
    assert host.reasons() == {"hook-storage"}
