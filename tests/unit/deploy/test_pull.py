"""Pulling: one digest from the name to the engine; the engine here is a script that says what a wrong one would."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import imaging
from forging import Forge, forging
from imaging import AMD64, ARM64, CREATED, Draft, provenance
from pulling import several, write_policy
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.deploy.engine import Podman
from wheelmark.deploy.imagechoice import this_platform
from wheelmark.deploy.pull import Pulled, PullRequest, default_engine, pull
from wheelmark.deploy.store import EvidenceStore
from wheelmark.errors import (
    CommandError,
    ConfigError,
    Exit,
    InputError,
    MachineError,
    RejectedError,
    ToolError,
)
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, Layout, LayoutWriter
from wheelmark.oci.reference import parse_location
from wheelmark.oci.types import ImageIndex, Platform
from wheelmark.trust import state
from wheelmark.verify import AuditLog, Policy, load_policy


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    home = tmp_path_factory.mktemp("home") / "state"
    with forging(home) as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(home))
        yield made


@pytest.fixture
def policy(forge: Forge, tmp_path: Path) -> Policy:
    return load_policy(write_policy(tmp_path / "policy.toml"), strict=True)


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore(tmp_path / "store", write=True)


@pytest.fixture
def layout(forge: Forge, tmp_path: Path) -> Path:
    imaging.layout(tmp_path / "image", forge.sign)
    return tmp_path / "image"


def pulled(
    name: str, policy: Policy, store: EvidenceStore, *, engine: Podman | None = None, **changes: Any
) -> Pulled:
    log = changes.pop("audit_log", None)
    request = PullRequest(location=parse_location(name), **changes)
    now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    return pull(request, policy, now=now, store=store, engine=engine, audit_log=log)


def script(folder: Path, *, identity: str, digest: str) -> Podman:
    """An engine that keeps whatever it is given as what it is told to say; it writes down what it was asked."""
    path = folder / "engine"
    path.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {folder}/asked\n'
        f'case "$1" in --version) echo podman version 4 ;; pull) echo {identity} ;; image) echo {identity} {digest} ;; esac\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return Podman([str(path)])


def test_evidence_is_kept_and_is_what_the_layout_holds(
    layout: Path, policy: Policy, store: EvidenceStore
) -> None:
    image = Layout(layout).resolve("v1").descriptor
    done = pulled(f"oci:{layout}:v1", policy, store)
    assert (done.resolved, done.digest, done.name, done.bundles) == (image.digest, image.digest, "", 1)
    kept = store.find(image.sha256)
    assert kept is not None
    assert kept.manifest == (layout / BLOBS / image.sha256).read_bytes()
    assert not list((store.directory / "taken").iterdir())
    assert pulled(f"oci:{layout}", policy, store).digest == image.digest
    assert json.loads(json.dumps(done.as_json()))["digest"] == image.digest


def test_the_engine_gets_one_image_and_gives_it_the_name(
    layout: Path, policy: Policy, store: EvidenceStore, tmp_path: Path
) -> None:
    manifest = json.loads((layout / BLOBS / Layout(layout).resolve("v1").descriptor.sha256).read_bytes())
    identity = manifest["config"]["digest"].removeprefix("sha256:")
    digest = Layout(layout).resolve("v1").descriptor.digest
    engine = script(tmp_path, identity=identity, digest=digest)
    assert pulled(f"oci:{layout}:v1", policy, store, engine=engine).name == "localhost/image:v1"
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in asked] == ["--version", "pull", "image", "tag", "untag"]
    assert asked[3] == f"tag {identity} localhost/image:v1"


@pytest.mark.parametrize("what", ["digest", "identity"])
def test_an_engine_that_keeps_something_else_gives_it_no_name(
    layout: Path, policy: Policy, store: EvidenceStore, tmp_path: Path, what: str
) -> None:
    image = Layout(layout).resolve("v1").descriptor
    config = json.loads((layout / BLOBS / image.sha256).read_bytes())["config"]["digest"]
    said = {"identity": config.removeprefix("sha256:"), "digest": image.digest}
    engine = script(tmp_path, **{**said, what: "0" * 64})
    with pytest.raises(RejectedError) as caught:
        pulled(f"oci:{layout}:v1", policy, store, engine=engine)
    assert caught.value.reason == "engine-digest"
    assert "tag" not in {line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()}


def test_an_engine_that_is_absent_or_fails(layout: Path, policy: Policy, store: EvidenceStore) -> None:
    with pytest.raises(ToolError) as caught:
        pulled(f"oci:{layout}:v1", policy, store, engine=Podman(["/no/such/engine"]))
    assert caught.value.reason == "engine-absent"
    with pytest.raises(CommandError):
        pulled(f"oci:{layout}:v1", policy, store, engine=Podman(["false"]))


@pytest.mark.parametrize("bad", ["unsigned", "layer", "lost"])
def test_what_is_refused_is_not_kept_and_the_engine_is_not_asked(
    layout: Path, policy: Policy, store: EvidenceStore, tmp_path: Path, bad: str
) -> None:
    image = Layout(layout).resolve("v1").descriptor
    manifest = json.loads((layout / BLOBS / image.sha256).read_bytes())
    if bad == "unsigned":
        layout = tmp_path / "unsigned"
        writer = LayoutWriter(layout)
        writer.finish([Draft().write(writer, tag="v1")])
    else:
        path = layout / BLOBS / manifest["layers"][1]["digest"].removeprefix("sha256:")
        data = path.read_bytes()
        path.unlink()
        if bad == "layer":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    engine = script(tmp_path, identity="0" * 64, digest="")
    log = AuditLog(tmp_path / "log")
    done = pulled(f"oci:{layout}:v1", policy, store, engine=engine, audit_log=log)
    expected = {"unsigned": "no-bundle", "layer": "image-blob", "lost": "image-missing"}[bad]
    assert done.report.reasons() == (expected,)
    assert done.report.exit_code in {Exit.REJECTED, Exit.MISSING}
    assert store.images() == ()
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "--version\n"
    assert log.check() == 1
    assert not list((store.directory / "taken").iterdir())


def test_another_target_than_the_one_that_was_asked_for(
    layout: Path, policy: Policy, store: EvidenceStore
) -> None:
    done = pulled(f"oci:{layout}:v1", policy, store, target="cuda-sm90")
    assert done.report.reasons() == ("image-target",)
    assert store.images() == ()


def test_a_tag_is_resolved_once(
    layout: Path, policy: Policy, store: EvidenceStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = Layout(layout).resolve("v1").descriptor
    other = tmp_path / "other"
    writer = LayoutWriter(other)
    writer.finish([Draft(layers=[imaging.tar()]).write(writer, tag="v1")])
    module = importlib.import_module("wheelmark.deploy.pull")
    real = module.verify_image

    def verify(*args: Any, **kwargs: Any) -> Any:
        shutil.rmtree(layout)
        shutil.copytree(other, layout)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "verify_image", verify)
    done = pulled(f"oci:{layout}:v1", policy, store)
    assert done.digest == image.digest
    assert store.images() == (image.sha256,)


@pytest.fixture
def here() -> Platform:
    found = this_platform()
    if found not in {AMD64, ARM64}:
        pytest.skip(f"not run: images for {found} are not known")
    return found


def test_of_an_index_the_image_for_this_machine_is_taken(
    forge: Forge, policy: Policy, store: EvidenceStore, here: Platform, tmp_path: Path
) -> None:
    index, images = several(
        tmp_path / "index",
        forge,
        (Draft(platform=AMD64, target="cpu-x86_64"), AMD64),
        (Draft(platform=ARM64, target="cpu-aarch64"), ARM64),
    )
    mine = images[0 if here == AMD64 else 1]
    for reference in (":v1", f"@{index.digest}", f"@{mine.digest}"):
        done = pulled(f"oci:{tmp_path}/index{reference}", policy, store)
        assert done.report.accepted, done.report.as_table()
        assert done.digest == mine.digest
        kept = store.find(mine.sha256)
        assert kept is not None
        assert list(kept.indexes) == [index.sha256]
    assert store.images() == (mine.sha256,)


def test_of_several_images_for_this_machine_the_target_decides(
    forge: Forge, policy: Policy, store: EvidenceStore, here: Platform, tmp_path: Path
) -> None:
    index, images = several(
        tmp_path / "index",
        forge,
        (Draft(platform=here, target="cuda-sm90"), here),
        (Draft(platform=here, target="rocm-gfx942"), here),
    )
    name = f"oci:{tmp_path}/index:v1"
    with pytest.raises(MachineError) as caught:
        pulled(name, policy, store)
    assert caught.value.reason == "image-choice"
    assert pulled(name, policy, store, target="rocm-gfx942").digest == images[1].digest
    with pytest.raises(MachineError) as caught:
        pulled(name, policy, store, target="cpu-x86_64")
    assert caught.value.reason == "image-choice"
    assert index.is_index


def test_an_index_that_nobody_signed_over_signed_images(
    forge: Forge, policy: Policy, store: EvidenceStore, tmp_path: Path
) -> None:
    """It is somebody's choice among them; the image by its own digest is taken all the same."""
    writer = LayoutWriter(tmp_path / "index")
    mine = this_platform()
    image = Draft(platform=mine, target="").write(writer, platform=mine)
    data = ImageIndex(manifests=(image,)).as_bytes()
    index = writer.add(data, types.INDEX, annotations={types.REFERENCE: "v1"})
    signed = forge.sign(provenance(image.sha256))
    bundle = writer.attach(image, signed, predicate_type=PROVENANCE, created=CREATED)
    writer.finish([index, writer.fallback(image, [bundle])])
    for reference in (":v1", f"@{index.digest}"):
        done = pulled(f"oci:{tmp_path}/index{reference}", policy, store)
        assert done.report.reasons() == ("image-index",)
        assert int(done.report.exit_code) == 3
        assert store.find(image.sha256) is None
    assert pulled(f"oci:{tmp_path}/index@{image.digest}", policy, store).report.accepted


def test_an_index_without_an_image_for_this_machine(
    forge: Forge, policy: Policy, store: EvidenceStore, tmp_path: Path
) -> None:
    other = Platform(os="linux", architecture="s390x")
    several(tmp_path / "index", forge, (Draft(platform=other, target=""), other))
    with pytest.raises(MachineError) as caught:
        pulled(f"oci:{tmp_path}/index", policy, store)
    assert caught.value.reason == "image-choice"


def test_bundles_that_are_given_are_kept_too(
    forge: Forge, policy: Policy, store: EvidenceStore, tmp_path: Path
) -> None:
    writer = LayoutWriter(tmp_path / "unsigned")
    image = Draft().write(writer, tag="v1")
    writer.finish([image])
    bundle = tmp_path / "bundle.json"
    bundle.write_bytes(forge.sign(provenance(image.sha256)))
    done = pulled(f"oci:{tmp_path}/unsigned:v1", policy, store, bundles=(bundle,))
    assert done.report.accepted
    kept = store.find(image.sha256)
    assert kept is not None
    assert list(kept.bundles.values()) == [bundle.read_bytes()]


def test_referrers_that_are_no_bundles_are_left_where_they_are(
    forge: Forge, policy: Policy, store: EvidenceStore, tmp_path: Path
) -> None:
    writer = LayoutWriter(tmp_path / "image")
    image = Draft().write(writer, tag="v1")
    bundle = writer.attach(
        image, forge.sign(provenance(image.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    other = types.ImageManifest(
        config=writer.add(b"{}", types.EMPTY),
        layers=(writer.add(b"a readme", "text/plain"),),
        artifact_type="text/plain",
        subject=dataclasses.replace(image, annotations={}),
    )
    more = writer.add(other.as_bytes(), types.MANIFEST, artifact_type="text/plain")
    writer.finish([image, writer.fallback(image, [bundle, more])])
    assert pulled(f"oci:{tmp_path}/image:v1", policy, store).bundles == 1


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("oci:/x/My Images_:v2", "", "localhost/my-images:v2"),
        ("oci:/x/images", "", "localhost/images:latest"),
        ("registry.example/team/app:1.0", "", "registry.example/team/app:1.0"),
        (f"registry.example/app@sha256:{'0' * 64}", "", f"registry.example/app:sha256-{'0' * 64}"),
        ("oci:/x/images", "example.org/app:1", "example.org/app:1"),
    ],
)
def test_names_for_the_engine(name: str, given: str, expected: str) -> None:
    assert PullRequest(location=parse_location(name), name=given).engine_name == expected


def test_a_layout_that_is_none(policy: Policy, store: EvidenceStore, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        pulled(f"oci:{tmp_path}/absent:v1", policy, store)
    assert caught.value.reason == "image-layout"


def test_a_policy_without_a_rule_for_images(layout: Path, policy: Policy, store: EvidenceStore) -> None:
    with pytest.raises(ConfigError) as caught:
        pulled(f"oci:{layout}:v1", dataclasses.replace(policy, requirements=()), store)
    assert caught.value.reason == "policy-no-rule"
    assert store.images() == ()


def test_engines_of_the_command_line() -> None:
    assert default_engine("none") is None
    engine = default_engine("podman --root '/a b'")
    assert engine is not None
    assert engine.command == ("podman", "--root", "/a b")
