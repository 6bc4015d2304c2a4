"""The document of an image: what it names, by which digests, and that the same image gives the same bytes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import sample_project
import wheelmaking
from wheelmark import digests
from wheelmark.attest.sbom import read_sbom
from wheelmark.config.recipe import Base, Debian, Dependencies, ImageRecipe, PythonPlace
from wheelmark.lock.debian import DebianLock, DebianPackage, SignedIndex
from wheelmark.oci.types import CONFIG, LAYER_GZIP, Descriptor, ImageManifest
from wheelmark.sbom import ImageContents, debian_purl, describe_image, validate
from wheelmark.targets import Target
from wheelmark.verify.imagefacts import ImageFacts
from wheelmark.verify.sbom import check_description

DIGEST = "e" * 64
TORCH = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
NUMPY = "numpy-2.0-cp311-cp311-manylinux_2_28_x86_64.whl"


def package(name: str = "libc6", **changes: Any) -> DebianPackage:
    made = DebianPackage(
        name=name,
        version="1:2.36-9+deb12u9",
        architecture="amd64",
        sha256="c" * 64,
        size=1,
        path="pool/main/g/glibc/libc6.deb",
        source="glibc",
        source_version="2.36-9",
        suite="bookworm",
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def contents(tmp_path: Path) -> ImageContents:
    files = {}
    for name in (TORCH, NUMPY):
        files[name] = tmp_path / name
        files[name].write_bytes(name.encode())
    payload = tmp_path / "demo_kernels-0.1.0+cpu-py3-none-manylinux_2_28_x86_64.whl"
    payload.write_bytes(wheelmaking.wheel_bytes({"demo_kernels/__init__.py": b""}, payload.name))
    document = tmp_path / "payload.cdx.json"
    document.write_text(
        json.dumps({"serialNumber": "urn:uuid:00000000-0000-4000-8000-000000000003"}), encoding="utf-8"
    )
    index = SignedIndex(
        suite="bookworm",
        component="main",
        sha256="d" * 64,
        date="2026-11-28T00:00:00Z",
        valid_until="",
        keys=("0" * 40,),
        packages_sha256="e" * 64,
    )
    return ImageContents(
        sha256=DIGEST,
        manifest=ImageManifest(
            config=Descriptor(media_type=CONFIG, sha256="1" * 64, size=10),
            layers=(
                Descriptor(media_type=LAYER_GZIP, sha256="2" * 64, size=20),
                Descriptor(media_type=LAYER_GZIP, sha256="3" * 64, size=30),
            ),
        ),
        layer_names=("system", "payload"),
        recipe=ImageRecipe(
            path=Path("containers/cpu.toml"),
            python=PythonPlace(version="3.11", executable="/usr/bin/python3.11", site="/usr/lib/site"),
            dependencies=Dependencies(lock="runtime-cpu.txt"),
            debian=Debian(suite="bookworm", packages=("libc6",)),
        ),
        debian=DebianLock(
            architecture="amd64", suite="bookworm", inputs="f" * 64, signed=(index,), packages=(package(),)
        ),
        dependencies=tuple(files.values()),
        payload=payload,
        payload_sbom=document,
        releasable=True,
    )


def described(contents: ImageContents, root: Path) -> Any:
    declaration = sample_project.make_project(root)
    data = describe_image(contents, declaration=declaration, row=declaration.row(Target.parse("cpu-x86_64")))
    validate(data)
    return json.loads(data)


def test_it_is_about_the_image_and_explains_every_blob(contents: ImageContents, tmp_path: Path) -> None:
    value = described(contents, tmp_path / "project")
    image = ImageFacts(path="image", name="", sha256=DIGEST, size=1)
    assert check_description(value, image) == ()
    assert check_description(value, dataclasses.replace(image, sha256="0" * 64))[0].reason == "sbom-subject"
    found = read_sbom(digests.canonical_json(value))
    assert found.files == {f"sha256:{digit * 64}": digit * 64 for digit in "123"}


def test_it_names_packages_wheels_and_the_payloads_own_document(
    contents: ImageContents, tmp_path: Path
) -> None:
    value = described(contents, tmp_path / "project")
    parts = {item["bom-ref"]: item for item in value["components"]}
    libc = parts[debian_purl(package())]
    assert {"name": "wheelmark:license", "value": "unknown"} in libc["properties"]
    assert libc["hashes"] == [{"alg": "SHA-256", "content": "c" * 64}]
    torch = parts["pkg:pypi/torch@2.13.0%2Bcpu"]
    assert torch["hashes"][0]["content"] == digests.sha256_file(contents.dependencies[0])
    (reference,) = parts["payload"]["externalReferences"]
    assert reference["url"] == "urn:cdx:00000000-0000-4000-8000-000000000003/1"
    assert reference["hashes"][0]["content"] == digests.sha256_file(contents.payload_sbom)
    assert value["compositions"][0]["aggregate"] == "complete"
    edges = {item["ref"]: item["dependsOn"] for item in value["dependencies"]}
    assert set(edges["image"]) == set(parts)
    assert edges["payload"] == ["pkg:pypi/torch@2.13.0%2Bcpu"]


def test_package_urls_of_debian() -> None:
    text = "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u9?arch=amd64&distro=bookworm&upstream=glibc%402.36-9"
    assert debian_purl(package()) == text
    same = package("glibc", source="glibc", source_version="1:2.36-9+deb12u9")
    assert "upstream" not in debian_purl(same)


def test_a_base_image_is_known_by_its_digest_alone(contents: ImageContents, tmp_path: Path) -> None:
    base = Base(image=f"registry.example/team/python@sha256:{'9' * 64}")
    recipe = dataclasses.replace(contents.recipe, debian=None, base=base)
    value = described(dataclasses.replace(contents, recipe=recipe, debian=None), tmp_path / "project")
    (found,) = [item for item in value["components"] if item["type"] == "container"]
    assert found["purl"] == f"pkg:oci/python@sha256%3A{'9' * 64}"
    assert value["compositions"][0]["aggregate"] == "incomplete"


def test_the_same_image_gives_the_same_bytes(contents: ImageContents, tmp_path: Path) -> None:
    one, other = (described(contents, tmp_path / name) for name in ("one", "two"))
    assert digests.canonical_json(one) == digests.canonical_json(other)
    marked = described(dataclasses.replace(contents, releasable=False), tmp_path / "three")
    said = {item["name"]: item["value"] for item in marked["metadata"]["component"]["properties"]}
    assert said["wheelmark:releasable"] == "false"
