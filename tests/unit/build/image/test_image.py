"""Small images from end to end: built, put together in one layout, read back by the verifier's reader."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import debmaking
import imagebuilding
from imagebuilding import RECIPE, SITE, Draft, on_base
from wheelmark import digests
from wheelmark.build.image import BuiltImage, build_index, inspect, layers
from wheelmark.build.image.places import entries, put
from wheelmark.build.image.tree import Tree
from wheelmark.config import HostArch
from wheelmark.config.recipe import ImageSettings
from wheelmark.errors import BuildError, InputError, StateError
from wheelmark.oci import types
from wheelmark.oci.layer import read_layer
from wheelmark.oci.layout import Layout, LayoutWriter


def configuration(layout: Path, image: BuiltImage) -> dict[str, Any]:
    data = (layout / "blobs" / "sha256" / image.config_digest.removeprefix("sha256:")).read_bytes()
    found: dict[str, Any] = json.loads(data)
    return found


def names(image: BuiltImage, layer: str) -> list[str]:
    with tarfile.open(image.layer(layer).path, "r:gz") as opened:
        return opened.getnames()


def test_an_image_is_whole_and_says_what_it_is(tmp_path: Path) -> None:
    image = Draft(folder=tmp_path).build()
    layout = Layout(tmp_path / "images")
    layout.check_files()
    found = layout.resolve("cpu-x86_64").descriptor
    assert (found.digest, str(found.platform)) == (image.digest, "linux/amd64")
    manifest = layout.read_manifest(found)
    config = configuration(tmp_path / "images", image)
    assert config["config"] == {
        "User": "65532:65532",
        "WorkingDir": "/home/nonroot",
        "Entrypoint": ["/usr/bin/python3.11"],
        "Cmd": ["-m", "demo"],
        "Env": ["LANG=C.UTF-8", "PATH=/usr/bin"],
        "Healthcheck": {
            "Test": ["CMD", "/usr/bin/python3.11", "-c", "import demo"],
            "Interval": 60_000_000_000,
            "Timeout": 30_000_000_000,
        },
        "Labels": config["config"]["Labels"],
    }
    labels = config["config"]["Labels"]
    assert (labels["dev.wheelmark.target"], labels["dev.wheelmark.releasable"]) == ("cpu-x86_64", "true")
    assert json.loads(labels["dev.wheelmark.healthcheck"]) == list(RECIPE.image.healthcheck)
    assert labels["org.opencontainers.image.version"] == "1.0+cpu"
    assert "org.opencontainers.image.created" not in labels
    assert manifest.annotations["dev.wheelmark.target"] == "cpu-x86_64"
    read = []
    for item in manifest.layers:
        with layout.open_blob(item) as blob:
            read.append(read_layer(blob, item.media_type).diff_id)
            blob.check()
    assert [f"sha256:{diff_id}" for diff_id in read] == config["rootfs"]["diff_ids"]
    assert [layer.diff_id for layer in image.layers] == config["rootfs"]["diff_ids"]
    assert [layer.name for layer in image.layers] == ["system", "dependencies", "payload"]
    assert image.without_dependencies == image.layers[0].size + image.layers[2].size


def test_what_scripts_would_have_done_is_done_and_listed(tmp_path: Path) -> None:
    image = Draft(folder=tmp_path).build()
    with tarfile.open(image.layer("system").path, "r:gz") as opened:
        found = {item.name: item for item in opened}
        bundle = opened.extractfile("etc/ssl/certs/ca-certificates.crt").read()  # type: ignore[union-attr]
        passwd = opened.extractfile("etc/passwd").read().decode()  # type: ignore[union-attr]
    assert bundle == debmaking.CERTIFICATE * 2
    assert "nonroot:x:65532:65532:nonroot:/home/nonroot:/usr/sbin/nologin\n" in passwd
    assert found["usr/bin/python3"].linkname == "python3.11"
    assert found["usr/lib/ssl/cert.pem"].linkname == "/etc/ssl/certs/ca-certificates.crt"
    assert (found["home/nonroot"].uid, found["home/nonroot"].mode) == (65532, 0o700)
    assert {item.uid for name, item in found.items() if name != "home/nonroot"} == {0}
    notes = image.layer("system").notes
    assert [(item["package"], item["name"]) for item in notes["scripts"]] == [("base-files", "postinst")]
    assert {item["instead_of"] for item in notes["steps"]} >= {
        "ca-certificates",
        "openssl",
        "base-passwd",
        "libc-bin",
    }


def test_a_good_image_has_no_findings(tmp_path: Path) -> None:
    image = Draft(folder=tmp_path).build()
    found = inspect(tmp_path / "images", image.digest)
    assert found.findings == ()
    assert [item.name for item in found.packages] == ["base-files", "ca-certificates", "python3.11-minimal"]
    assert [(item.name, item.version) for item in found.distributions] == [
        ("demo_kernels", "1.0+cpu"),
        ("needed", "1"),
    ]
    assert found.writable == ("home/nonroot", "tmp")
    assert found.sboms == (f"{SITE}/{imagebuilding.SBOM}",)
    assert (found.user, found.architecture) == ("65532:65532", "amd64")


def test_a_stand_in_is_marked_with_its_reason(tmp_path: Path) -> None:
    image = Draft(folder=tmp_path, releasable=False, why="torch is not there").build()
    labels = configuration(tmp_path / "images", image)["config"]["Labels"]
    assert labels["dev.wheelmark.releasable"] == "false"
    assert labels["dev.wheelmark.not-releasable-because"] == "torch is not there"
    assert (image.releasable, image.why) == (False, "torch is not there")
    without_words = Draft(folder=tmp_path, releasable=False).build()
    assert without_words.why
    assert len({image.digest, without_words.digest}) == 2


def test_surroundings_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Draft(folder=tmp_path / "one").build()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    other = Draft(folder=tmp_path / "other" / "deeper").build()
    assert one == other
    assert one.digest == other.digest


def test_layers_are_found_by_content(tmp_path: Path) -> None:
    first = Draft(folder=tmp_path).build()
    assert [layer.cached for layer in first.layers] == [False, False, False]
    again = Draft(folder=tmp_path).build()
    assert [layer.cached for layer in again.layers] == [True, True, True]
    assert again.digest == first.digest
    assert again.layer("system").notes == first.layer("system").notes
    changed = Draft(
        folder=tmp_path, payload={imagebuilding.SBOM: b"{}", "demo_kernels/__init__.py": b"x = 2\n"}
    ).build()
    assert [layer.cached for layer in changed.layers] == [True, True, False]
    assert changed.digest != first.digest


def test_a_damaged_layer_of_the_cache_is_made_again(tmp_path: Path) -> None:
    first = Draft(folder=tmp_path).build()
    blob = first.layer("dependencies").path
    blob.unlink()
    blob.write_bytes(b"something else")
    again = Draft(folder=tmp_path).build()
    assert [layer.cached for layer in again.layers] == [True, False, True]
    assert again.digest == first.digest
    Layout(tmp_path / "images").check_files()


@pytest.mark.parametrize("note", [b"", b"{}", b"[1]", b'{"digest": 1}', b'{"digest": "sha256:../../x"}'])
def test_a_malformed_note_of_the_cache_is_not_believed(tmp_path: Path, note: bytes) -> None:
    first = Draft(folder=tmp_path).build()
    for path in (tmp_path / "cache" / "images" / "keys").iterdir():
        path.write_bytes(note)
    again = Draft(folder=tmp_path).build()
    assert [layer.cached for layer in again.layers] == [False, False, False]
    assert again.digest == first.digest


def test_changed_code_finds_no_old_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Draft(folder=tmp_path).build()
    monkeypatch.setattr(layers, "_source", lambda: "other")
    assert not any(layer.cached for layer in Draft(folder=tmp_path).build().layers)


def test_one_layout_holds_all_targets_and_an_index(tmp_path: Path) -> None:
    amd = Draft(folder=tmp_path).build()
    arm = Draft(folder=tmp_path, host=HostArch.AARCH64, releasable=False, why="no torch").build()
    assert amd.layer("dependencies").digest == arm.layer("dependencies").digest
    index = build_index(tmp_path / "images", "cpu", ["cpu-x86_64", "cpu-aarch64"])
    layout = Layout(tmp_path / "images")
    layout.check_files()
    inner = layout.read_index(index)
    assert [(item.digest, str(item.platform)) for item in inner.manifests] == [
        (amd.digest, "linux/amd64"),
        (arm.digest, "linux/arm64"),
    ]
    assert inner.annotations["dev.wheelmark.releasable"] == "false"
    assert inner.annotations["org.opencontainers.image.title"] == "demo-kernels"
    assert [item.annotations[types.REFERENCE] for item in entries(tmp_path / "images")] == [
        "cpu", "cpu-aarch64", "cpu-x86_64",
    ]  # fmt: skip
    assert build_index(tmp_path / "images", "cpu", ["cpu-x86_64", "cpu-aarch64"]) == index


def test_a_new_image_takes_the_old_ones_place(tmp_path: Path) -> None:
    old = Draft(folder=tmp_path).build()
    layout = tmp_path / "images"
    build_index(layout, "cpu", ["cpu-x86_64"])
    writer = LayoutWriter(layout)
    bundle = writer.attach(old.descriptor, b"{}", predicate_type="https://example.invalid/p", created="")
    put(layout, writer.fallback(old.descriptor, [bundle]))
    assert len(entries(layout)) == 3
    new = Draft(folder=tmp_path, payload={imagebuilding.SBOM: b"{ }"}).build()
    assert [item.digest for item in entries(layout)] == [new.digest]
    Layout(layout).check_files()
    held = {path.name for path in (layout / "blobs" / "sha256").iterdir()}
    assert held == {
        item.removeprefix("sha256:")
        for item in (new.digest, new.config_digest, *(layer.digest for layer in new.layers))
    }


def test_what_refers_to_an_image_stays_with_it(tmp_path: Path) -> None:
    old = Draft(folder=tmp_path).build()
    layout = tmp_path / "images"
    writer = LayoutWriter(layout)
    bundle = writer.attach(old.descriptor, b"{}", predicate_type="https://example.invalid/p", created="")
    put(layout, writer.fallback(old.descriptor, [bundle]))
    assert Draft(folder=tmp_path).build().digest == old.digest
    assert len(Layout(layout).referrers([old.digest.removeprefix("sha256:")])) == 1


@pytest.mark.parametrize(
    "targets", [[], ["cpu-x86_64", "cpu-aarch64"], ["cpu-x86_64", "cpu-x86_64"], ["cpu"]]
)
def test_indexes_that_cannot_be(tmp_path: Path, targets: list[str]) -> None:
    Draft(folder=tmp_path).build()
    with pytest.raises(BuildError) as caught:
        build_index(tmp_path / "images", "all", targets)
    assert caught.value.reason == "image-index"


def test_on_a_base_image(tmp_path: Path) -> None:
    below = Draft(folder=tmp_path / "base").build()
    draft = Draft(folder=tmp_path / "top", recipe=on_base(below.digest), base=tmp_path / "base" / "images")
    image = draft.build()
    assert [layer.name for layer in image.layers] == ["base-1", "base-2", "base-3", "dependencies", "payload"]
    assert [layer.digest for layer in image.layers[:3]] == [layer.digest for layer in below.layers]
    config = configuration(tmp_path / "top" / "images", image)
    assert len(config["history"]) == len(config["rootfs"]["diff_ids"]) == 5
    assert config["config"]["Labels"]["org.opencontainers.image.base.digest"] == below.digest
    assert inspect(tmp_path / "top" / "images", image.digest).findings == ()
    assert draft.build().digest == image.digest


def test_base_images_that_do_not_fit(tmp_path: Path) -> None:
    below = Draft(folder=tmp_path / "base").build()
    layout = tmp_path / "base" / "images"
    with pytest.raises(BuildError) as caught:
        Draft(folder=tmp_path, recipe=on_base(below.digest), base=layout, host=HostArch.AARCH64).build()
    assert caught.value.reason == "image-base"
    index = build_index(layout, "cpu", ["cpu-x86_64"])
    with pytest.raises(BuildError) as caught:
        Draft(folder=tmp_path, recipe=on_base(index.digest), base=layout).build()
    assert caught.value.reason == "image-base"
    with pytest.raises(InputError) as refused:
        Draft(folder=tmp_path, recipe=on_base(f"sha256:{'0' * 64}"), base=layout).build()
    assert refused.value.reason == "image-reference"
    blob = layout / "blobs" / "sha256" / below.layers[0].digest.removeprefix("sha256:")
    data = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(data[:-1])
    with pytest.raises(InputError) as refused:
        Draft(folder=tmp_path, recipe=on_base(below.digest), base=layout).build()
    assert refused.value.reason in {"image-layer", "image-blob"}


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    for draft in (
        Draft(folder=tmp_path, recipe=on_base(f"sha256:{'0' * 64}")),
        Draft(folder=tmp_path, base=tmp_path),
    ):
        with pytest.raises(BuildError) as caught:
            draft.build()
        assert caught.value.reason == "image-parts"


def test_no_interpreter_where_the_recipe_says(tmp_path: Path) -> None:
    python = dataclasses.replace(RECIPE.python, executable="/usr/bin/python3.12")
    with pytest.raises(BuildError) as caught:
        Draft(folder=tmp_path, recipe=dataclasses.replace(RECIPE, python=python)).build()
    assert caught.value.reason == "image-python"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(StateError) as caught:
        Draft(folder=tmp_path / "x", cache=file).build()
    assert caught.value.reason == "image-write"


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wheelmark.build.image.compress.compress", full)
    with pytest.raises(StateError, match="No space left") as caught:
        Draft(folder=tmp_path).build()
    assert caught.value.reason == "image-write"
    assert list((tmp_path / "cache" / "images" / "blobs").iterdir()) == []
    monkeypatch.undo()
    Draft(folder=tmp_path).build()


def test_settings_may_be_few(tmp_path: Path) -> None:
    image = Draft(folder=tmp_path, recipe=dataclasses.replace(RECIPE, image=ImageSettings())).build()
    config = configuration(tmp_path / "images", image)["config"]
    assert set(config) == {"User", "WorkingDir", "Labels"}
    assert "home/nonroot" not in names(image, "system")


def test_blobs_are_what_their_names_say(tmp_path: Path) -> None:
    Draft(folder=tmp_path).build()
    for path in (tmp_path / "images" / "blobs" / "sha256").iterdir():
        assert digests.sha256_file(path) == path.name
        assert path.stat().st_mode & 0o777 == 0o644


def test_memory_does_not_grow_with_the_layer(tmp_path: Path) -> None:
    """A file of 256 MiB goes through in pieces: what is held are a few members of the compressor."""
    piece, count = bytes(range(256)) * 4096, 256
    digest = hashlib.sha256()
    for _number in range(count):
        digest.update(piece)

    def fill(tree: Tree) -> dict[str, str]:
        tree.stream(
            "large",
            lambda: itertools.repeat(piece, count),
            size=len(piece) * count,
            sha256=digest.hexdigest(),
        )
        return {}

    tracemalloc.start()
    try:
        layer = layers.make_layer("large", {}, fill, cache=tmp_path)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert layer.uncompressed > len(piece) * count
    assert peak < 100 << 20
