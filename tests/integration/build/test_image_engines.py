"""Engines read what is built here: gzip of several members, our tar, our documents."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from imagebuilding import SBOM, SITE, Draft
from presence import not_run
from wheelmark import digests
from wheelmark.build.image import BuiltImage, compress

PAYLOAD = {f"demo_kernels/{'long' * 30}/x{number}.py": bytes([number % 251]) * 40_000 for number in range(40)}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltImage:
    """An image whose payload's layer has many members."""
    monkeypatch.setattr(compress, "MEMBER", 100_000)
    image = Draft(folder=tmp_path, payload={**PAYLOAD, SBOM: b"{}"}).build()
    assert image.layer("payload").path.read_bytes().count(b"\x1f\x8b\x08\0\0\0\0\0\0\xff") > 10
    return image


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        not_run(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_skopeo_decompresses_every_member(tmp_path: Path, built: BuiltImage) -> None:
    source = f"oci:{tmp_path / 'images'}:cpu-x86_64"
    run("skopeo", "copy", "--dest-decompress", source, f"dir:{tmp_path / 'plain'}")
    manifest = json.loads((tmp_path / "plain" / "manifest.json").read_bytes())
    found = [item["digest"] for item in manifest["layers"]]
    assert found == [layer.diff_id for layer in built.layers]
    for digest in found:
        name = digest.removeprefix("sha256:")
        assert digests.sha256_file(tmp_path / "plain" / name) == name


def test_skopeo_keeps_the_digest(tmp_path: Path, built: BuiltImage) -> None:
    source = f"oci:{tmp_path / 'images'}:cpu-x86_64"
    seen = json.loads(run("skopeo", "inspect", source))
    assert seen["Digest"] == built.digest
    assert seen["Labels"]["dev.wheelmark.target"] == "cpu-x86_64"


def test_podman_takes_the_image_and_its_files_are_ours(tmp_path: Path, built: BuiltImage) -> None:
    # podman takes no run root of more than 50 characters; with vfs nothing of it is mounted.
    with tempfile.TemporaryDirectory(prefix="wm-", dir="/tmp") as short:
        root = Path(short) / "root"
        storage = ("--root", str(root), "--runroot", f"{short}/run", "--storage-driver", "vfs")
        identity = run("podman", *storage, "pull", "-q", f"oci:{tmp_path / 'images'}:cpu-x86_64").strip()
        seen = json.loads(run("podman", *storage, "image", "inspect", identity))[0]
        assert f"sha256:{identity}" == built.config_digest
        assert seen["RootFS"]["Layers"] == [layer.diff_id for layer in built.layers]
        assert (seen["User"], seen["Config"]["WorkingDir"]) == ("65532:65532", "/home/nonroot")
        folders = (root / "vfs" / "dir").iterdir()
        (top,) = (path for path in folders if (path / SITE / "demo_kernels").is_dir())
        for name, data in PAYLOAD.items():
            assert (top / SITE / name).read_bytes() == data
        home = (top / "home" / "nonroot").stat()
        assert (home.st_uid, home.st_gid, home.st_mode & 0o777) == (65532, 65532, 0o700)
