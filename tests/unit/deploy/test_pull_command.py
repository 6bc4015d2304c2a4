"""``wheelmark pull`` as a command: what would be in the way is found before anything is written, and is said clearly."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import imaging
from forging import Forge, forging
from imaging import AMD64, ARM64, Draft
from pulling import POLICY, engine_script, several, write_policy
from wheelmark.cli import main
from wheelmark.deploy.imagechoice import this_platform
from wheelmark.deploy.store import EvidenceStore
from wheelmark.errors import Exit
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import ImageIndex, Platform
from wheelmark.trust import state

Pull = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    home = tmp_path_factory.mktemp("home") / "state"
    with forging(home) as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(home))
        yield made


@pytest.fixture
def pull(forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pull:
    """Runs the command on a signed layout of one image; gives the code, the document, and what stderr says."""
    imaging.layout(tmp_path / "image", forge.sign, Draft(platform=this_platform()))
    write_policy(tmp_path / "policy.toml")
    options = {"--policy": f"{tmp_path}/policy.toml", "--store": f"{tmp_path}/store", "--engine": "none"}

    def run(*more: str, ref: str = "", **changes: str) -> tuple[int, dict[str, Any], str]:
        named = options | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
        words = [word for pair in named.items() for word in pair]
        capsys.readouterr()
        code = main(["pull", "--json", ref or f"oci:{tmp_path}/image:v1", *words, *more])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"policy": "/no/such/policy.toml"}, Exit.CONFIG, "policy-absent"),
        ({"policy": "{}/open.toml"}, Exit.CONFIG, "policy-permissions"),
        ({"policy": "{}/wheels.toml"}, Exit.CONFIG, "policy-no-rule"),
        ({"channel": "stable"}, Exit.CONFIG, "policy-no-rule"),
        ({"ref": "no reference"}, Exit.INPUT, "registry-reference"),
        ({"ref": "registry.example/team/app"}, Exit.INPUT, "registry-reference"),
        ({"ref": "oci:{}/absent:v1"}, Exit.INPUT, "image-layout"),
        ({"ref": "oci:{}/image:v2"}, Exit.INPUT, "image-reference"),
        ({"engine": "/no/such/podman"}, Exit.TOOL, "engine-absent"),
        ({"engine": "{}/policy.toml"}, Exit.TOOL, "engine-absent"),
        ({"engine": "echo Docker version 29"}, Exit.TOOL, "engine-absent"),
        ({"engine": "false"}, Exit.COMMAND, "command"),
        ({"bundle": "{}/absent.json"}, Exit.INPUT, "unreadable"),
        ({"audit_log": "{}/absent/log"}, Exit.CONFIG, "audit-log"),
        ({"audit_log": "{}/torn"}, Exit.CONFIG, "audit-log"),
        ({"store": "{}/policy.toml"}, Exit.CONFIG, "store"),
        ({"store": "{}/policy.toml/store"}, Exit.CONFIG, "store"),
        ({"store": "{}"}, Exit.CONFIG, "store"),
        ({"store": "{}/image/store"}, Exit.CONFIG, "store"),
    ],
)
def test_what_is_in_the_way_is_found_before_anything_is_written(
    pull: Pull, tmp_path: Path, changes: dict[str, str], code: Exit, reason: str
) -> None:
    write_policy(tmp_path / "open.toml").chmod(0o620)
    write_policy(tmp_path / "wheels.toml", text=POLICY.replace('kind = "image"', 'kind = "wheel"'))
    (tmp_path / "torn").write_text("half a line")
    (tmp_path / "torn").chmod(0o600)
    before = tree(tmp_path)
    found, document, said = pull(
        **{key: value.replace("{}", str(tmp_path)) for key, value in changes.items()}
    )
    assert (found, document["reason"]) == (code, reason), said
    assert document["so_far"] == []
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            (name, value)
            for name in ("store", "target", "name", "bundle", "engine", "channel")
            for value in ("", " ")
        ),
        ("policy", ""),
        ("audit-log", ""),
        ("engine", "podman --root '/a"),
        ("name", "demo:1"),
        ("name", "example.org/Demo"),
        ("name", f"example.org/demo@sha256:{'0' * 64}"),
        ("name", f"example.org/demo:1@sha256:{'0' * 64}"),
        ("name", "example.org/demo:"),
        ("name", "-x"),
    ],
)
def test_values_that_mean_nothing_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["pull", "oci:x", "--policy", "p.toml", f"--store={tmp_path}/store", f"--{option}={value}"])
    assert caught.value.code == Exit.USAGE
    assert f"--{option}: " in capsys.readouterr().err
    assert not tree(tmp_path)


def test_a_release_directory_names_its_layout(pull: Pull, forge: Forge, tmp_path: Path) -> None:
    imaging.layout(tmp_path / "dist" / "images", forge.sign)
    code, document, _said = pull(ref=f"oci:{tmp_path}/dist:v1")
    assert (code, document["reason"]) == (Exit.INPUT, "image-layout")
    assert f"oci:{tmp_path}/dist/images" in document["fix"]


def test_an_engine_that_fails_leaves_evidence_and_says_so(pull: Pull, tmp_path: Path) -> None:
    body = 'case "$1" in --version) echo podman version 4 ;; *) echo no room; exit 125 ;; esac'
    engine = engine_script(tmp_path / "engine", body)
    code, document, said = pull(engine=str(engine))
    digest = Layout(tmp_path / "image").resolve("v1").descriptor.digest
    assert code == Exit.COMMAND
    (note,) = document["so_far"]
    assert f"the evidence of {digest} is kept in {tmp_path}/store" in note
    assert "run the same command again" in note
    assert f"wheelmark hook forget {digest} --store {tmp_path}/store" in note
    assert f"so far:       {note}" in said
    assert [f"sha256:{sha256}" for sha256 in EvidenceStore(tmp_path / "store").images()] == [digest]
    assert not list((tmp_path / "store" / "taken").iterdir())
    asked = Path(f"{engine}.asked").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in asked] == ["--version", "pull", "untag"]


def test_an_error_before_evidence_is_kept_says_that_none_is(pull: Pull, tmp_path: Path) -> None:
    code, document, _said = pull(target="cuda-sm90")
    assert code == Exit.REJECTED
    other = Draft(platform=Platform(os="linux", architecture="s390x"))
    writer = LayoutWriter(tmp_path / "other")
    writer.finish([other.write(writer, tag="v1")])
    code, document, _said = pull(
        ref=f"oci:{tmp_path}/other:v1",
        engine=str(engine_script(tmp_path / "engine", "echo podman version 4")),
    )
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
    assert document["so_far"] == ["this run kept no evidence, and asked no engine"]
    assert "linux/s390x" in document["what"]
    assert EvidenceStore(tmp_path / "store").images() == ()


def test_an_image_of_another_platform_can_be_kept_alone(pull: Pull, forge: Forge, tmp_path: Path) -> None:
    other = Platform(os="linux", architecture="s390x")
    image = imaging.layout(tmp_path / "other", forge.sign, Draft(platform=other, target=""))
    assert pull(ref=f"oci:{tmp_path}/other:v1")[0] == Exit.OK
    assert EvidenceStore(tmp_path / "store").images() == (image.sha256,)


def test_the_message_lists_the_targets_to_name(pull: Pull, forge: Forge, tmp_path: Path) -> None:
    here = this_platform()
    there = ARM64 if here == AMD64 else AMD64
    _index, images = several(
        tmp_path / "index",
        forge,
        (Draft(platform=here, target="cuda-sm90"), here),
        (Draft(platform=here, target="rocm-gfx942"), here),
        (Draft(platform=there, target="cuda-sm100"), there),
    )
    ref = f"oci:{tmp_path}/index:v1"
    wanted = [f"--target cuda-sm90  {images[0].digest}", f"--target rocm-gfx942  {images[1].digest}"]
    for options in ({}, {"target": "cpu-x86_64"}):
        code, document, _said = pull(ref=ref, engine="echo podman version 4", **options)
        assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
        assert all(line in document["what"] for line in wanted)
        assert "cuda-sm100" not in document["what"]
    assert pull(ref=ref, target="rocm-gfx942")[1]["digest"] == images[1].digest
    code, document, _said = pull(ref=ref, target="cuda-sm100", engine="echo podman version 4")
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
    code, document, _said = pull(ref=ref, target="cuda-sm100")
    assert document["digest"] == images[2].digest, "for the store alone another platform's may be named"


def test_an_index_for_other_machines_lists_what_it_has(pull: Pull, forge: Forge, tmp_path: Path) -> None:
    other = Platform(os="linux", architecture="s390x")
    several(
        tmp_path / "index",
        forge,
        *((Draft(platform=other, target=f"t-{number}"), other) for number in range(25)),
    )
    code, document, _said = pull(ref=f"oci:{tmp_path}/index")
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
    assert "--target t-0 " in document["what"]
    assert "linux/s390x" in document["what"]
    assert "and 5 more" in document["what"]


def test_images_of_an_index_that_are_not_there_are_listed_and_not_taken(
    pull: Pull, forge: Forge, tmp_path: Path
) -> None:
    here = this_platform()
    _index, images = several(
        tmp_path / "index",
        forge,
        (Draft(platform=here, target="cuda-sm90"), here),
        (Draft(platform=here, target="rocm-gfx942"), here),
    )
    layout = Layout(tmp_path / "index")
    config = layout.read_manifest(images[1]).config
    (layout.path / "blobs/sha256" / config.sha256).unlink()
    code, document, _said = pull(ref=f"oci:{tmp_path}/index:v1")
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
    assert f"(of no target)  {images[1].digest}" in document["what"]
    assert pull(ref=f"oci:{tmp_path}/index:v1", target="cuda-sm90")[0] == Exit.OK


@pytest.mark.parametrize("label", ["x\n    --target good", "$(id)", "a b", "-x", "\x1b[2J", "t" * 101])
def test_a_label_that_no_target_has_is_not_given_to_copy(
    pull: Pull, forge: Forge, tmp_path: Path, label: str
) -> None:
    """Nothing of an index was verified when its targets are listed."""
    here = this_platform()
    both = ((Draft(platform=here, target=target), here) for target in (label, "cuda-sm90"))
    _index, images = several(tmp_path / "index", forge, *both)
    code, document, said = pull(ref=f"oci:{tmp_path}/index:v1")
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")
    assert f"    (of no target)  {images[0].digest}" in document["what"]
    assert label not in said


def test_a_tag_that_is_not_there_is_answered_with_those_that_are(
    pull: Pull, forge: Forge, tmp_path: Path
) -> None:
    writer = LayoutWriter(tmp_path / "many")
    tags = [*(f"t{number:02}" for number in range(22)), "no\ntag"]
    held = [Draft(target=tag).write(writer, tag=tag) for tag in tags[:-1]]
    writer.finish([*held, dataclasses.replace(held[0], annotations={types.REFERENCE: tags[-1]})])
    for ref in (":v2", ""):
        code, document, _said = pull(ref=f"oci:{tmp_path}/many{ref}")
        assert (code, document["reason"]) == (Exit.INPUT, "image-reference")
        assert document["what"].endswith("it has " + ", ".join(tags[:20]) + " and 3 more")
        assert "oci:PATH:TAG" in document["fix"]


def test_an_index_of_nothing(pull: Pull, tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "index")
    writer.finish([writer.add(ImageIndex(manifests=()).as_bytes(), types.INDEX)])
    code, document, _said = pull(ref=f"oci:{tmp_path}/index")
    assert (code, document["reason"]) == (Exit.MACHINE, "image-choice")


def test_pulled_twice_is_one_record_and_a_torn_one_is_replaced(pull: Pull, tmp_path: Path) -> None:
    assert pull()[0] == Exit.OK
    store = EvidenceStore(tmp_path / "store")
    before = tree(tmp_path / "store")
    code, _document, said = pull()
    assert code == Exit.OK
    assert "replaced" not in said
    assert tree(tmp_path / "store") == before
    (sha256,) = store.images()
    (tmp_path / "store" / "images" / sha256).write_bytes(b"torn")
    code, _document, said = pull()
    assert code == Exit.OK
    assert f"sha256:{sha256}: replaced in the store: " in said
    assert store.images() == (sha256,)
    assert store.find(sha256) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can give a folder away")
def test_a_store_of_another_user(pull: Pull, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    os.chown(tmp_path / "store", 1234, 1234)
    code, document, _said = pull()
    assert (code, document["reason"]) == (Exit.CONFIG, "store")
    assert "user 1234" in document["what"]
    assert not list((tmp_path / "store").iterdir())
