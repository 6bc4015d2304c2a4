"""Published is what a policy accepts, and pulled to another place it is accepted still; anything else stays here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from forging import Forge
from imaging import Draft
from publishing import Images, command
from registry import Registry, served
from wheelmark.errors import Exit
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter

POLICY = """
schema = 1
development = true

[[root]]
name = "embedded"
source = "this-machine"
issuers = ["https://embedded.invalid/oidc"]
level = "a test's own"

[[signer]]
name = "release"
root = "embedded"
issuer = "https://embedded.invalid/oidc"
identity = "https://embedded.invalid/wheelmark/release"

[[require]]
kind = "image"
targets = ["*"]
predicates = ["provenance"]
signers = ["release"]
"""


@pytest.fixture
def server() -> Iterator[Registry]:
    with served(Registry()) as registry:
        yield registry


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def test_what_is_accepted_is_published_and_accepted_where_it_arrives(
    server: Registry, images: Images, forge: Forge, policy: Path, tmp_path: Path
) -> None:
    environment = {"WHEELMARK_STATE": str(forge.home)}
    push = ("publish", f"{server.host}/team/app:1.0", "--from", str(images.path), "--policy", str(policy))
    done = command(*push, "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert [report["accepted"] for report in value["reports"]] == [True, True, True]
    assert set(value["carried"]["tags"]) == {"1.0", "1.0-cpu-x86_64", "1.0-cpu-aarch64"}
    out = tmp_path / "arrived"
    assert command("copy", f"{server.host}/team/app:1.0", f"oci:{out}").returncode == 0
    verify = ("verify", str(out), "--policy", str(policy), "--reference")
    for reference in ("1.0", f"1.0@{images.index.digest}"):
        assert command(*verify, reference, environment=environment).returncode == 0
    other = command(*verify, f"1.0@{images.images[0].digest}", environment=environment)
    assert other.returncode == Exit.INPUT
    assert all(digest in other.stdout for digest in (images.index.digest, images.images[0].digest))


def test_the_name_of_an_image_in_a_registry_is_not_verified_but_said_where_it_goes(
    server: Registry, forge: Forge, policy: Path
) -> None:
    name = f"{server.host}/team/app:1.0"
    done = command("verify", name, "--policy", str(policy), environment={"WHEELMARK_STATE": str(forge.home)})
    assert done.returncode == Exit.INPUT
    said = " ".join(done.stdout.split())
    assert f"wheelmark pull {name} --engine none" in said
    assert f"wheelmark copy {name} oci:DIR" in said


def test_what_is_refused_is_not_published(
    server: Registry, images: Images, forge: Forge, policy: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(images.path, tmp_path / "images"))
    layout = Layout(path)
    for item in images.all:
        for _, manifest in layout.referrers([item.sha256]):
            if manifest.annotations["dev.sigstore.bundle.predicateType"].startswith("https://slsa.dev/"):
                blob = path / "blobs" / "sha256" / manifest.layers[0].sha256
                blob.write_bytes(
                    blob.read_bytes().replace(b"MEUCIQ", b"MEUCIA").replace(b'"sig":"', b'"sig":"A')
                )
    environment = {"WHEELMARK_STATE": str(forge.home)}
    push = ("publish", f"{server.host}/team/app:1.0", "--from", str(path), "--policy", str(policy))
    done = command(*push, environment=environment)
    assert done.returncode == 1, done.stderr
    assert "NOT ACCEPTED" in done.stdout
    assert server.log == []


def test_a_snapshot_label_stops_it_unless_it_is_said(server: Registry, tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "images")
    writer.finish([Draft(labels={types.RELEASABLE_LABEL: "false"}).write(writer, tag="cpu-x86_64")])
    push = ("publish", f"{server.host}/team/app:1.0", "--from", str(tmp_path / "images"))
    assert command(*push).returncode == 14
    assert server.log == []
    assert command(*push, "--snapshot", "--unsigned").returncode == 0
    assert ("team/app", "1.0") in server.tags
