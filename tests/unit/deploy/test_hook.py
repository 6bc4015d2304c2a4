"""The hook's configuration and state, and the engine's storage as a folder of records; real containers are in the integration tests."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import imaging
from wheelmark import digests
from wheelmark.deploy.hook import image_facts, main, read_state
from wheelmark.deploy.hookconfig import HookConfig, load_hook_config, read_hook_config
from wheelmark.deploy.hookoutput import check_output
from wheelmark.deploy.hooksetup import (
    FILE,
    SYSTEM_HOOKS,
    Setup,
    Standing,
    check_parts,
    standing,
    system_setup,
    uninstall,
)
from wheelmark.deploy.storage import image_of_container
from wheelmark.deploy.store import ImageEvidence
from wheelmark.errors import ConfigError, InputError, RejectedError, StateError, WheelmarkError
from wheelmark.oci.layout import BLOBS, LayoutWriter
from wheelmark.oci.types import ImageIndex

CONTAINER, LAYER, LOWER, UPPER = "c" * 64, "1" * 64, "2" * 64, "3" * 64
BASE = 'schema = 1\npolicy = "/etc/p.toml"\nstore = "/var/s"\nlog = "/var/l"\n'


@dataclasses.dataclass(kw_only=True)
class Engine:
    """containers-storage with one container of one image."""

    root: Path
    image: ImageEvidence
    driver: str = "overlay"

    @property
    def bundle(self) -> Path:
        return self.root / f"{self.driver}-containers" / CONTAINER / "userdata"

    @property
    def image_id(self) -> str:
        return digests.sha256(self.image.config)

    def path(self, kind: str) -> Path:
        return self.root / f"{self.driver}-{kind}" / f"{kind}.json"

    def big(self, key: str) -> Path:
        name = f"={base64.b64encode(key.encode()).decode()}"
        return self.root / f"{self.driver}-images" / self.image_id / name

    def write(self) -> None:
        diff_ids = json.loads(self.image.config)["rootfs"]["diff_ids"]
        manifest = f"manifest-sha256:{self.image.sha256}"
        records: dict[str, list[dict[str, Any]]] = {
            "containers": [{"id": CONTAINER, "image": self.image_id, "layer": LAYER}],
            "images": [
                {
                    "id": self.image_id,
                    "digest": f"sha256:{self.image.sha256}",
                    "names": ["example.org/demo:1"],
                    "layer": UPPER,
                    "big-data-names": [f"sha256:{self.image_id}", manifest, "manifest"],
                }
            ],
            "layers": [
                {"id": LOWER, "diff-digest": diff_ids[0]},
                {"id": UPPER, "parent": LOWER, "diff-digest": diff_ids[1]},
                {"id": LAYER, "parent": UPPER},
            ],
        }
        for kind, value in records.items():
            self.path(kind).parent.mkdir(parents=True, exist_ok=True)
            self.path(kind).write_text(json.dumps(value), encoding="utf-8")
        self.bundle.mkdir(parents=True, exist_ok=True)
        spec = {"root": {"path": f"{self.root}/{self.driver}/{LAYER}/merged"}}
        (self.bundle / "config.json").write_text(json.dumps(spec), encoding="utf-8")
        self.big(manifest).parent.mkdir(parents=True, exist_ok=True)
        self.big(manifest).write_bytes(self.image.manifest)
        (self.big(manifest).parent / "manifest").write_bytes(self.image.manifest)
        self.big(f"sha256:{self.image_id}").write_bytes(self.image.config)

    def change(self, kind: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
        records = json.loads(self.path(kind).read_bytes())
        change(records)
        self.path(kind).write_text(json.dumps(records), encoding="utf-8")

    def spec(self, change: Callable[[dict[str, Any]], object]) -> None:
        path = self.bundle / "config.json"
        value = json.loads(path.read_bytes())
        change(value)
        path.write_text(json.dumps(value), encoding="utf-8")

    def refused(self, container: str = CONTAINER, **options: Any) -> str:
        with pytest.raises(WheelmarkError) as caught:
            image_of_container(container, options.pop("bundle", self.bundle), **options)
        return caught.value.reason


@pytest.fixture
def image(tmp_path: Path) -> ImageEvidence:
    writer = LayoutWriter(tmp_path / "image")
    made = imaging.Draft().write(writer)
    manifest = (tmp_path / "image" / BLOBS / made.sha256).read_bytes()
    config = json.loads(manifest)["config"]["digest"].removeprefix("sha256:")
    return ImageEvidence(
        sha256=made.sha256,
        manifest=manifest,
        config=(tmp_path / "image" / BLOBS / config).read_bytes(),
        bundles={},
    )


@pytest.fixture
def engine(image: ImageEvidence, tmp_path: Path) -> Engine:
    made = Engine(root=tmp_path / "storage", image=image)
    made.write()
    return made


@pytest.mark.parametrize("driver", ["overlay", "vfs"])
def test_the_image_of_a_container_is_found_by_digests(
    image: ImageEvidence, tmp_path: Path, driver: str
) -> None:
    engine = Engine(root=tmp_path / "storage", image=image, driver=driver)
    engine.write()
    found = image_of_container(CONTAINER, engine.bundle)
    assert found.manifests == {image.sha256: image.manifest}
    assert (found.image_id, found.config) == (engine.image_id, image.config)
    assert found.label == "example.org/demo:1"


def test_a_container_that_is_removed_at_its_end_stands_in_another_file(engine: Engine) -> None:
    engine.path("containers").rename(engine.path("containers").with_name("volatile-containers.json"))
    assert image_of_container(CONTAINER, engine.bundle).image_id == engine.image_id


def test_storage_roots_that_are_named_are_the_only_ones(engine: Engine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "run" / "overlay-containers" / CONTAINER / "userdata"
    elsewhere.mkdir(parents=True)
    (elsewhere / "config.json").write_bytes((engine.bundle / "config.json").read_bytes())
    assert engine.refused(bundle=elsewhere) == "hook-no-image"
    found = image_of_container(CONTAINER, elsewhere, storage=[engine.root])  # as CRI-O has it
    assert found.image_id == engine.image_id
    assert engine.refused(storage=[tmp_path / "other"]) == "hook-no-image"


@pytest.mark.parametrize("container", ["", "x", "../" + "c" * 61, "d" * 64])
def test_a_container_that_the_storage_does_not_know(engine: Engine, container: str) -> None:
    assert engine.refused(container) == "hook-no-image"


@pytest.mark.parametrize("bundle", ["/", "/x", "/x/y/z", "relative/overlay-containers/c/userdata"])
def test_a_bundle_outside_of_any_storage(engine: Engine, bundle: str) -> None:
    assert engine.refused(bundle=Path(bundle)) == "hook-no-image"


def _no_image(records: list[dict[str, Any]]) -> None:
    records[0]["image"] = ""


def _other_image(records: list[dict[str, Any]]) -> None:
    records[0]["image"] = "9" * 64


def _other_layer(records: list[dict[str, Any]]) -> None:
    records[0]["layer"] = UPPER


def _no_layer(records: list[dict[str, Any]]) -> None:
    del records[0]["layer"]


def _other_digest(records: list[dict[str, Any]]) -> None:
    records[0]["digest"] = f"sha256:{'4' * 64}"


def _lower_only(records: list[dict[str, Any]]) -> None:
    records[2]["parent"] = LOWER


def _another_on_top(records: list[dict[str, Any]]) -> None:
    records.append({"id": "5" * 64, "parent": UPPER, "diff-digest": f"sha256:{'5' * 64}"})
    records[2]["parent"] = "5" * 64


def _swapped(records: list[dict[str, Any]]) -> None:
    records[0]["diff-digest"], records[1]["diff-digest"] = (
        records[1]["diff-digest"],
        records[0]["diff-digest"],
    )


def _circle(records: list[dict[str, Any]]) -> None:
    records[0]["parent"] = UPPER


def _no_digest(records: list[dict[str, Any]]) -> None:
    del records[1]["diff-digest"]


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("containers", _no_image, "hook-no-image"),
        ("containers", _other_image, "hook-storage"),
        ("containers", _other_layer, "hook-storage"),
        ("containers", _no_layer, "hook-storage"),
        ("images", _other_digest, "hook-storage"),
        ("layers", _lower_only, "hook-storage"),
        ("layers", _another_on_top, "hook-storage"),
        ("layers", _swapped, "hook-storage"),
        ("layers", _circle, "hook-storage"),
        ("layers", _no_digest, "hook-storage"),
    ],
)
def test_records_that_contradict_each_other(
    engine: Engine, kind: str, change: Callable[[list[dict[str, Any]]], None], reason: str
) -> None:
    engine.change(kind, change)
    assert engine.refused() == reason


@pytest.mark.parametrize("kind", ["containers", "images", "layers"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"{", "json-syntax"), (b"{}", "hook-storage"), (b"[1]", "hook-storage"), (b"[" * 99, "json-too-deep")],
)
def test_records_that_are_none(engine: Engine, kind: str, data: bytes, reason: str) -> None:
    engine.path(kind).write_bytes(data)
    assert engine.refused() == reason


def test_bytes_that_are_not_what_the_records_say(engine: Engine) -> None:
    for key in (f"manifest-sha256:{engine.image.sha256}", f"sha256:{engine.image_id}"):
        engine.write()
        engine.big(key).write_bytes(engine.big(key).read_bytes() + b" ")
        assert engine.refused() == "hook-storage"
        engine.big(key).unlink()
        assert engine.refused() == "unreadable"


@pytest.mark.parametrize("root", ["/", "/etc", f"/x/{UPPER}/merged", f"/x{LAYER}", None, 7])
def test_a_bundle_that_names_another_root(engine: Engine, root: object) -> None:
    (engine.bundle / "config.json").write_text(json.dumps({"root": {"path": root}}), encoding="utf-8")
    assert engine.refused() == "hook-storage"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "json-syntax"),
        (b"[]", "json-type"),
        (b"{}", "hook-state"),
        (b'{"id": "a", "bundle": 1}', "hook-state"),
        (b'{"id": "a", "bundle": "relative"}', "hook-state"),
        (b'{"id": "", "bundle": "/x"}', "hook-state"),
        (b'{"id": "a", "id": "b", "bundle": "/x"}', "json-duplicate-key"),
        (b"[" * 5000, "json-too-deep"),
        (b" " * (5 << 20), "json-too-large"),
    ],
)
def test_a_state_that_is_none(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_state(data)
    assert caught.value.reason == reason


def test_what_an_annotation_says_is_not_looked_at() -> None:
    said = {"id": "a", "bundle": "/x", "annotations": {"dev.wheelmark.skip": "true"}}
    found = read_state(json.dumps(said).encode())
    assert (found.id, found.bundle) == ("a", Path("/x"))
    check_output(found.annotations)


@pytest.mark.parametrize("name", ["run.oci.hooks.stdout", "run.oci.hooks.stderr", "run.oci.hooks.later"])
def test_an_annotation_that_leads_the_output_of_hooks_elsewhere(engine: Engine, name: str) -> None:
    with pytest.raises(RejectedError) as caught:
        check_output({"some": "", name: "/etc/cron.d/x"})
    assert caught.value.reason == "hook-output"
    engine.spec(lambda spec: spec.update(annotations={name: "/x"}))
    assert engine.refused() == "hook-output"


@pytest.mark.parametrize("place", ["/", "//", "/.", "/x/..", "", ".", "x/../..", 7, None])
def test_a_mount_that_would_hide_the_image(engine: Engine, place: object) -> None:
    engine.spec(lambda spec: spec.update(mounts=[{"destination": "/proc"}, {"destination": place}]))
    assert engine.refused() == "hook-storage"


def test_mounts_below_the_root_are_the_operator_s(engine: Engine) -> None:
    engine.spec(lambda spec: spec.update(mounts=[{"destination": "/proc"}, {"destination": "/data/../x"}]))
    assert image_of_container(CONTAINER, engine.bundle).image_id == engine.image_id


@pytest.mark.parametrize("key", ["mounts", "annotations"])
def test_a_bundle_whose_parts_are_of_another_kind(engine: Engine, key: str) -> None:
    engine.spec(lambda spec: spec.update({key: "x"}))
    assert engine.refused() == "hook-storage"


@pytest.mark.parametrize(
    "root", ["/elsewhere/{layer}/merged", "{root}/overlay/x/../{layer}/merged", "{root}/{layer}"]
)
def test_a_root_that_only_looks_like_the_layer_s(engine: Engine, root: str) -> None:
    path = root.format(layer=LAYER, root=engine.root)
    engine.spec(lambda spec: spec.update(root={"path": path}))
    assert engine.refused() == "hook-storage"


def test_the_bundle_of_another_container(engine: Engine) -> None:
    other = engine.bundle.parents[1] / ("d" * 64) / "userdata"
    other.mkdir(parents=True)
    (other / "config.json").write_bytes((engine.bundle / "config.json").read_bytes())
    assert engine.refused(bundle=other) == "hook-no-image"


def test_a_configuration_is_read_back_as_it_was_written() -> None:
    made = HookConfig(
        policy=Path("/etc/p.toml"),
        store=Path("/var/s"),
        log=Path('/var/a "log"'),
        targets=("cuda-sm90",),
        channel="prod",
        storage=(Path("/var/lib/containers/storage"),),
        allow={"0" * 64: "pause"},
    )
    assert read_hook_config(made.as_toml().encode(), source="x") == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "schema = 2",
        BASE.replace("1", "true"),
        BASE + "polcy = 1",
        BASE + 'targets = "cuda-sm90"',
        BASE + 'targets = ["cuda-sm1"]',
        BASE + 'storage = ["relative"]',
        BASE + 'channel = "a\\nb"',
        BASE.replace("/etc/p.toml", "p.toml"),
        BASE.replace("/etc/p.toml", "/etc/../p.toml"),
        BASE.replace('log = "/var/l"\n', ""),
        BASE + '[[allow]]\ndigest = "sha256:00"\nwhy = "x"',
        BASE + f'[[allow]]\ndigest = "sha256:{"0" * 64}"',
        BASE + f'[[allow]]\ndigest = "sha256:{"0" * 64}"\nwhy = ""',
        BASE + "allow = 1",
        "schema = " + "[" * 5000,
        "#" * (1 << 19),
    ],
)
def test_a_configuration_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_hook_config(text.encode(), source="hook.toml")
    assert caught.value.reason == "hook-config"


def test_a_configuration_that_others_can_write(tmp_path: Path) -> None:
    path = tmp_path / "hook.toml"
    path.write_text(BASE, encoding="utf-8")
    path.chmod(0o622)
    with pytest.raises(ConfigError) as caught:
        load_hook_config(path)
    assert caught.value.reason == "policy-permissions"


def test_facts_of_what_is_kept(image: ImageEvidence) -> None:
    inner = ImageIndex(manifests=(imaging_descriptor(image.manifest),)).as_bytes()
    outer = ImageIndex(manifests=(imaging_descriptor(inner, index=True),)).as_bytes()
    both = {digests.sha256(data): data for data in (outer, inner)}
    facts = image_facts(dataclasses.replace(image, indexes=both), path="x")
    assert facts.target == "cpu-x86_64"
    assert set(facts.linked_from) == set(both)
    for indexes in ({digests.sha256(outer): outer}, {"0" * 64: ImageIndex(manifests=()).as_bytes()}):
        with pytest.raises(RejectedError) as caught:
            image_facts(dataclasses.replace(image, indexes=indexes), path="x")
        assert caught.value.reason == "store-changed"
    with pytest.raises(RejectedError) as caught:
        image_facts(dataclasses.replace(image, config=image.config + b" "), path="x")
    assert caught.value.reason == "store-changed"


def imaging_descriptor(data: bytes, *, index: bool = False) -> Any:
    from wheelmark.oci import types  # noqa: PLC0415 - next to its use

    return types.descriptor_of(data, types.INDEX if index else types.MANIFEST)


def test_whatever_fails_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(tmp_path / "absent.toml")]) != 0
    assert "hook-config" in capsys.readouterr().err

    def fail(_path: Path) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("wheelmark.deploy.hook.load_hook_config", fail)
    assert main(["--config", "/x"]) == 1
    assert "library: MemoryError" in capsys.readouterr().err


def test_a_rootless_hook_outside_of_a_user_namespace_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(tmp_path / "hook.toml"), "--rootless"]) != 0
    assert "hook-config" in capsys.readouterr().err


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    config = HookConfig(policy=tmp_path / "policy.toml", store=tmp_path / "store", log=tmp_path / "log")
    return Setup(hooks=tmp_path / "hooks", config_path=tmp_path / "hook.toml", config=config)


def test_the_engine_is_told_to_run_it_for_every_container(setup: Setup) -> None:
    value = json.loads(setup.hook_json())
    assert value["when"] == {"always": True}
    assert value["stages"] == ["createRuntime"]
    assert value["hook"]["path"].startswith("/")
    assert value["hook"]["args"] == ["/bin/sh", "-c", '. "$0"; exit 1', str(setup.launcher_path)]
    assert " -I " in setup.launcher()
    assert list(setup.files()) == [setup.config_path, setup.launcher_path, setup.hook_path]


def test_an_installation_without_a_policy_is_refused_before_anything_is_written(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ConfigError) as caught:
        check_parts(setup)
    assert caught.value.reason == "policy-absent"
    with pytest.raises(ConfigError) as caught:
        check_parts(dataclasses.replace(setup, rootless=True))
    assert caught.value.reason == "hook-config"
    assert not setup.hooks.exists()


def test_a_file_of_somebody_else_is_not_removed(setup: Setup) -> None:
    setup.hooks.mkdir()
    setup.hook_path.write_text("{}", encoding="utf-8")
    assert standing(setup.hook_path, setup.hook_json()) is Standing.OTHER
    with pytest.raises(StateError) as caught:
        uninstall(setup)
    assert caught.value.reason == "hook-write"
    setup.hook_path.write_text(setup.hook_json(), encoding="utf-8")
    assert standing(setup.hook_path, setup.hook_json()) is Standing.SAME
    assert uninstall(setup) == (setup.hook_path,)
    assert uninstall(setup) == ()


def test_the_example_is_what_an_installation_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[3] / "containers" / "hooks"
    monkeypatch.setenv("WHEELMARK_STATE", "/var/lib/wheelmark/state")
    config = read_hook_config((folder / "hook.toml").read_bytes(), source="hook.toml")
    made = system_setup(config)
    made = dataclasses.replace(made, python=Path("/opt/wheelmark/bin/python"))
    assert (folder / FILE).read_text(encoding="utf-8") == made.hook_json()
    assert (folder / "hook.toml").read_text(encoding="utf-8") == config.as_toml()
    assert (folder / "hook.sh").read_text(encoding="utf-8") == made.launcher()
    assert list(made.files()) == [
        Path("/etc/wheelmark/hook.toml"),
        Path("/etc/wheelmark/hook.sh"),
        SYSTEM_HOOKS / FILE,
    ]
