"""Images through the whole pipeline: built, gated by really running them, signed, attached, verified; and what goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from checkouts import Checkout
from wheelmark import digests
from wheelmark.oci import types
from wheelmark.oci.layout import Layout
from wheelmark.sbom import validate

CPU, GPU = "cpu-x86_64", "cuda-sm90"
RULES = """
[[require]]
kind = "release"
targets = ["*"]
predicates = ["provenance", "sbom", "test-result"]
signers = ["release"]
gates = ["abi", "size", "image-contents", "image-size", "image-repeat", "image-run", "image-audit"]
unchecked = ["image-run", "image-audit"]
allow_partial = true
allow_stand_in = true

[[require]]
kind = "image"
targets = ["*"]
predicates = ["provenance", "sbom", "test-result"]
signers = ["release"]
gates = ["image-contents", "image-size", "image-repeat"]
allow_stand_in = true
"""
"""What the shipped policy asks, of the gates that are run here."""


@pytest.fixture(scope="session")
def imaged(release: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A signed release of two wheels with their images; gates of wheels that take long are left out of it."""
    made = release.clone(tmp_path_factory.mktemp("imaged"), targets=(CPU, GPU), dist=False)
    made.gates("abi", "size")
    made.images(CPU, GPU)
    text = made.policy.read_text(encoding="utf-8")
    made.policy.write_text(text[: text.index("[[require]]")] + RULES, encoding="utf-8")
    made.commit("images")
    ran = made.made("build", "test", "sign")
    evidence = ran["test"].document["evidence"]
    (made.root / ".dist.state" / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")
    return made


def evidence(checkout: Checkout, target: str) -> dict[str, Any]:
    found = json.loads((checkout.root / ".dist.state" / "evidence.json").read_bytes())
    return {item["gate"]: item for item in found if item["target"] == target}


def manifest(checkout: Checkout) -> Any:
    return json.loads((checkout.dist / "release.json").read_bytes())


def listed(checkout: Checkout) -> dict[str, str]:
    """Name -> digest of everything in the layout's list."""
    return {
        item.annotations[types.REFERENCE]: item.digest
        for item in Layout(checkout.dist / "images").index.manifests
    }


def test_an_image_is_held_to_every_gate(imaged: Checkout) -> None:
    for target in (CPU, GPU):
        found = evidence(imaged, target)
        for gate in ("image-contents", "image-size", "image-repeat"):
            assert (found[gate]["verdict"], found[gate]["level"]) == ("PASSED", "static"), found[gate]
        assert found["image-audit"]["verdict"] == "UNCHECKED"
    if shutil.which("podman") is None:
        assert evidence(imaged, CPU)["image-run"]["reason"] == "no-podman"
        return
    ran = evidence(imaged, CPU)["image-run"]
    if ran["reason"] == "podman":  # installed, and not able to run a container on this machine
        assert ran["verdict"] == "UNCHECKED"
        return
    assert (ran["verdict"], ran["level"]) == ("PASSED", "hardware"), ran
    assert ran["details"]["correctness"]["cases"] > 50
    ran = evidence(imaged, GPU)["image-run"]
    assert (ran["verdict"], ran["level"]) == ("PASSED", "emulated"), ran
    assert "finds no card" in ran["details"]["hardware"]


def test_the_release_holds_the_images(imaged: Checkout) -> None:
    release = manifest(imaged)
    entries = {item["path"]: item for item in release["entries"]}
    images = {item["target"]: item for item in entries.values() if item["kind"] == "image"}
    assert set(images) == {CPU, GPU}
    for target, item in images.items():
        assert listed(imaged)[target] == f"sha256:{item['sha256']}"
        assert entries[f"sbom/{target}.image.cdx.json"]["describes"] == item["sha256"]
        assert set(release["levels"][target]) >= {"abi", "image-contents", "image-run"}
        validate((imaged.dist / f"sbom/{target}.image.cdx.json").read_bytes())
    assert entries["locks/debian-amd64.json"]["kind"] == "debian-lock"
    subjects = json.loads((imaged.dist / "statements/provenance.json").read_bytes())["subject"]
    assert {f"images/{CPU}", f"images/{GPU}"} <= {item["name"] for item in subjects}
    shared = [item for item in entries.values() if item["kind"] == "image-part" and not item["target"]]
    assert len(shared) == 2, "the operating system and the dependencies are one layer each"


def test_it_verifies_whole_and_each_image_alone(imaged: Checkout) -> None:
    ran = imaged.verify()
    assert ran.code == 0, ran.out
    assert f"images/{CPU}" in ran.out
    for target, digest in listed(imaged).items():
        if target not in {CPU, GPU}:
            continue
        done = subprocess.run(
            [
                *imaged.command("verify")[:4],
                "dist/images",
                "--json",
                "--policy",
                str(imaged.policy),
                "--reference",
                digest,
            ],
            cwd=imaged.root,
            env=imaged.variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_a_stand_in_says_so_everywhere(imaged: Checkout) -> None:
    layout = Layout(imaged.dist / "images")
    for target, word in ((CPU, "true"), (GPU, "false")):
        found = layout.read_manifest(layout.resolve(target).descriptor)
        assert found.annotations[types.RELEASABLE_LABEL] == word
        sbom = json.loads((imaged.dist / f"sbom/{target}.image.cdx.json").read_bytes())
        said = {item["name"]: item["value"] for item in sbom["metadata"]["component"]["properties"]}
        assert said["wheelmark:releasable"] == word
    planned = {row["target"]: row["image"] for row in imaged.run("plan").document["targets"]}
    assert planned[CPU]["releasable"] is True
    assert planned[GPU]["releasable"] is False
    assert "runtime-cpu.txt stands in" in planned[GPU]["stand_in"]
    policy = imaged.root / "strict.toml"
    text = imaged.policy.read_text(encoding="utf-8").replace(
        "allow_stand_in = true", "allow_stand_in = false"
    )
    policy.write_text(text, encoding="utf-8")
    ran = imaged.verify("--policy", str(policy))
    policy.unlink()
    assert ran.code == 1
    assert "image-stand-in" in ran.out


def test_finished_work_is_kept_and_attached_bundles_with_it(imaged: Checkout, tmp_path: Path) -> None:
    clone = imaged.clone(tmp_path)
    before = listed(clone)
    built = clone.made("build")["build"].document
    assert all(image["resumed"] for image in built["images"])
    assert listed(clone) == before
    clone.made("test", "sign")
    assert clone.verify().code == 0
    # A blob that is not what it was is made again, and nothing else.
    blob = clone.dist / next(image["parts"][0] for image in built["images"] if image["target"] == CPU)
    blob.unlink()
    blob.write_bytes(b"torn")
    again = clone.made("build")["build"].document
    assert {image["target"]: image["sha256"] for image in again["images"]} == {
        image["target"]: image["sha256"] for image in built["images"]
    }
    assert digests.sha256_file(blob) == blob.name


def test_without_a_source_of_packages_the_wheels_are_built_and_the_images_named(
    imaged: Checkout, tmp_path: Path
) -> None:
    """A lock with a package that no place has."""
    clone = imaged.clone(tmp_path, dist=False, targets=(CPU,))
    path = clone.root / "lockfiles" / "debian-amd64.json"
    lock = json.loads(path.read_bytes())
    lock["packages"][0]["sha256"] = "0" * 64
    lock["packages"][0]["path"] = "pool/main/n/nothing/nothing_1_amd64.deb"
    path.write_bytes((json.dumps(lock, indent=1, sort_keys=True) + "\n").encode())
    clone.commit("a package that left the mirrors")
    built = clone.made("build")["build"].document
    assert [item["target"] for item in built["wheels"]] == [CPU]
    assert built["images"] == []
    assert f"images/{CPU}" in {item["target"] for item in built["not_built"]}
    assert not (clone.dist / "images").exists()
    ran = clone.run("build", "--release")
    assert (ran.code, ran.reason) == (8, "debian-stale")
    clone.made("test", "sign")
    release = manifest(clone)
    assert release["partial"] is True
    assert f"images/{CPU}" in {item["target"] for item in release["notBuilt"]}
    assert clone.verify().code == 0


def test_no_images_where_none_are_asked_for(imaged: Checkout, tmp_path: Path) -> None:
    clone = imaged.clone(tmp_path, targets=(CPU,))
    built = clone.run("build", "--no-images").document
    assert built["images"] == []
    assert {item["target"]: item["reason"] for item in built["not_built"]}[f"images/{CPU}"] == "not asked for"
    assert not (clone.dist / "images").exists()


def test_a_full_disk_leaves_what_was_there(imaged: Checkout, tmp_path: Path) -> None:
    """A file-size limit stands for it: the write of a layer ends with an error, as on a full disk."""
    clone = imaged.clone(tmp_path, targets=(CPU,)).with_cache(tmp_path)
    before = listed(clone)
    clone.edit("containers/debian.toml", "PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED=2")
    command = " ".join(clone.command("build"))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 8192; trap '' XFSZ; exec {command}"],
        cwd=clone.root,
        env=clone.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert listed(clone) == before
    Layout(clone.dist / "images").check_files()
    clone.made("build")
    assert listed(clone)[CPU] != before[CPU]
