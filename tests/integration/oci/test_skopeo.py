"""Layouts that we write are read by skopeo, and what it writes is read by us. Where it is absent: "not run"."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import imaging
from presence import not_run
from wheelmark.oci import types
from wheelmark.oci.layout import Layout
from wheelmark.verify.imagefacts import examine_image


@pytest.fixture
def skopeo() -> str:
    return shutil.which("skopeo") or not_run("skopeo is not installed")


def test_a_layout_of_ours_is_read_and_copied_whole(skopeo: str, tmp_path: Path) -> None:
    image = imaging.layout(tmp_path / "ours", lambda statement: statement)
    command = [skopeo, "inspect", f"oci:{tmp_path}/ours:v1"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["Digest"] == image.digest
    assert found["Labels"] == {types.TARGET_LABEL: "cpu-x86_64"}
    copy = [skopeo, "--insecure-policy", "copy", "--preserve-digests"]
    subprocess.run(
        [*copy, f"oci:{tmp_path}/ours:v1", f"oci:{tmp_path}/theirs:v2"], capture_output=True, check=True
    )
    layout = Layout(tmp_path / "theirs")
    copied = layout.resolve("v2")
    assert copied.descriptor.sha256 == image.sha256
    assert layout.check_files()
    facts = examine_image(layout, copied)
    assert facts.problems == ()
    assert facts.target == "cpu-x86_64"
