"""Which images a machine builds, which not and why: stand-ins, sources of packages, and what was not asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sample_project
from wheelmark.cli import main
from wheelmark.config.recipe import load_recipe
from wheelmark.errors import ConfigError, LockError, ToolError
from wheelmark.lock.debian import Machine, read_debian_lock
from wheelmark.lock.debian.resolve import debian_inputs
from wheelmark.manifest import NotBuilt
from wheelmark.pipeline import NOT_ASKED, Workspace, imageplan, make_plan, next_steps, open_workspace
from wheelmark.pipeline.imageplan import debian_source, plan_image
from wheelmark.targets import Target

RECIPE = """
schema = 1
[debian]
suite = "bookworm"
packages = ["libc6"]
[python]
version = "3.11"
executable = "/usr/bin/python3.11"
site = "/usr/lib/site"
[dependencies]
lock = "{lock}"
{more}
"""
TORCH = "torch==2.13.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
OTHER = "numpy==2.0 \\\n    --hash=sha256:" + "1" * 64 + "\n"
LOCK = {
    "schema": "https://wheelmark.dev/debian-lock/v1", "architecture": "amd64", "suite": "bookworm", "inputs": "f" * 64,
    "signed": [{"suite": "bookworm", "component": "main", "sha256": "d" * 64, "date": "2026-11-28T00:00:00Z",
                "valid_until": "", "keys": ["0" * 40], "packages_sha256": "e" * 64}],
    "packages": [{"name": "libc6", "version": "2.36-9", "architecture": "amd64", "sha256": "c" * 64, "size": 1,
                  "path": "pool/main/g/glibc/libc6_2.36-9_amd64.deb", "source": "glibc", "source_version": "2.36-9",
                  "suite": "bookworm"}],
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three targets with an image, on a machine whose apt has nothing."""
    root = tmp_path / "project"
    sample_project.make_project(root)
    path = root / "wheelmark.toml"
    text = path.read_text(encoding="utf-8")
    for target in ("cpu-x86_64", "cuda-sm90", "rocm-gfx942"):
        text = text.replace(
            f'target = "{target}"', f'target = "{target}"\nimage = "containers/{target}.toml"'
        )
    path.write_text(text, encoding="utf-8")
    stand_in = 'stand_in = "runtime-cpu.txt"'
    for name, lock, more in (
        ("cpu-x86_64", "runtime-cpu.txt", ""),
        ("cuda-sm90", "runtime-default.txt", stand_in),
        ("rocm-gfx942", "runtime-rocm.txt", stand_in),
    ):
        (root / "containers").mkdir(exist_ok=True)
        (root / f"containers/{name}.toml").write_text(RECIPE.format(lock=lock, more=more), encoding="utf-8")
    (root / "lockfiles").mkdir()
    for name, locked in (("cpu", TORCH), ("default", TORCH), ("rocm", OTHER)):
        (root / f"lockfiles/runtime-{name}.txt").write_text(locked, encoding="utf-8")
    debian = load_recipe(root / "containers/cpu-x86_64.toml").debian
    assert debian is not None
    fitting = {**LOCK, "inputs": debian_inputs(debian, "amd64")}
    data = (json.dumps(fitting, indent=1, sort_keys=True) + "\n").encode()
    (root / "lockfiles/debian-amd64.json").write_bytes(data)
    monkeypatch.setattr(imageplan, "_machine", lambda: Machine(sources=(), keyring=Path("/none")))
    monkeypatch.delenv("WHEELMARK_DEBIAN_POOL", raising=False)
    monkeypatch.delenv("WHEELMARK_DEBIAN_SNAPSHOT", raising=False)
    return root


def workspace(root: Path, *, release: bool = False, images: bool = True) -> Workspace:
    return open_workspace(project=root, targets=["cpu-x86_64"], release=release, images=images)


def planned(found: Workspace, target: str) -> imageplan.PlannedImage:
    made = plan_image(found, found.declaration.row(Target.parse(target)))
    assert made is not None
    return made


def filled(found: Workspace) -> Workspace:
    """With every locked package in the pool."""
    found.debian_pool.mkdir(parents=True)
    (found.debian_pool / f"{'c' * 64}.deb").write_bytes(b"x")
    return found


def test_a_row_without_a_recipe_has_no_image(project: Path) -> None:
    found = workspace(project)
    assert plan_image(found, found.declaration.row(Target.parse("cpu-aarch64"))) is None


def test_where_packages_come_from_nowhere(project: Path) -> None:
    found = planned(workspace(project), "cpu-x86_64")
    assert found.missing is not None
    assert found.missing.target == "images/cpu-x86_64"
    assert "bookworm" in found.missing.reason
    assert "WHEELMARK_DEBIAN_SNAPSHOT" in found.missing.fix
    assert planned(filled(workspace(project)), "cpu-x86_64").missing is None


def test_a_folder_of_packages_is_a_source(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELMARK_DEBIAN_POOL", str(tmp_path / "kept"))
    assert planned(workspace(project), "cpu-x86_64").missing is not None
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / f"{'c' * 64}.deb").write_bytes(b"x")
    assert planned(workspace(project), "cpu-x86_64").missing is None


def test_a_lock_that_cannot_be_read_is_a_reason(project: Path) -> None:
    (project / "lockfiles/debian-amd64.json").unlink()
    missing = planned(workspace(project), "cpu-x86_64").missing
    assert missing is not None
    assert missing.fix == "nox -s lock"


def test_stand_ins(project: Path) -> None:
    found = workspace(project)
    assert planned(found, "cpu-x86_64").is_releasable
    cuda, rocm = planned(found, "cuda-sm90"), planned(found, "rocm-gfx942")
    assert (cuda.lock.name, cuda.is_releasable) == ("runtime-cpu.txt", False)
    assert "--release" in cuda.stand_in
    assert (rocm.lock.name, rocm.is_releasable) == ("runtime-cpu.txt", False)
    whole = workspace(project, release=True)
    assert (planned(whole, "cuda-sm90").lock.name, planned(whole, "cuda-sm90").stand_in) == (
        "runtime-default.txt",
        "",
    )
    assert planned(whole, "rocm-gfx942").stand_in, "what no lock has stands in for even then"


def test_a_stand_in_of_the_same_lock_leaves_packages_out(project: Path) -> None:
    more = 'stand_in = "runtime-cpu.txt"\nstand_in_without = ["torch"]'
    (project / "containers/cpu-x86_64.toml").write_text(
        RECIPE.format(lock="runtime-cpu.txt", more=more), encoding="utf-8"
    )
    for release in (False, True):
        found = planned(workspace(project, release=release), "cpu-x86_64")
        assert (found.without, found.is_releasable) == (("torch",), False)


def test_images_that_were_not_asked_for(project: Path) -> None:
    found = workspace(project, images=False)
    missing = planned(found, "cpu-x86_64").missing
    assert missing is not None
    assert missing.reason == NOT_ASKED
    plan = make_plan(found)
    assert [item.target for item in plan.no_images] == ["images/cpu-x86_64"]
    assert set(plan.no_images) <= set(plan.absent)


def test_a_release_needs_its_images(project: Path) -> None:
    make_plan(workspace(project))
    with pytest.raises(ToolError) as caught:
        make_plan(workspace(project, release=True))
    assert caught.value.reason == "target-not-buildable"


def test_patterns_that_are_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found before anything is built or fetched."""
    recipe = project / "containers/cpu-x86_64.toml"
    text = recipe.read_text(encoding="utf-8").replace('["libc6"]', '["libc6"]\ndrop = ["/usr/**"]')
    recipe.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        planned(workspace(project), "cpu-x86_64")
    assert caught.value.reason == "recipe-pattern"
    assert main(["check", str(project)]) == 5
    assert "/usr/**" in capsys.readouterr().err


def test_locks_of_another_declaration(project: Path) -> None:
    """A recipe or a requirement that changed after its lock was written; without images, Debian's does not count."""
    recipe = project / "containers/cpu-x86_64.toml"
    recipe.write_text(
        recipe.read_text(encoding="utf-8").replace('["libc6"]', '["libc6", "zlib1g"]'), encoding="utf-8"
    )
    for name in ("cuda-sm90", "rocm-gfx942"):
        (project / f"containers/{name}.toml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(LockError) as caught:
        make_plan(workspace(project))
    assert (caught.value.reason, "debian-amd64.json" in caught.value.what) == ("lock-stale", True)
    make_plan(workspace(project, images=False))
    path = project / "lockfiles/runtime-cpu.txt"
    path.write_text(f"# inputs: sha256:{'0' * 64}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    with pytest.raises(LockError) as caught:
        make_plan(workspace(project, images=False))
    assert (caught.value.reason, "runtime-cpu.txt" in caught.value.what) == ("lock-stale", True)
    assert main(["check", str(project)]) == 8


def test_the_lock_of_a_pool_that_lacks_one(project: Path) -> None:
    found = workspace(project)
    path = planned(found, "cpu-x86_64").debian_lock
    assert path is not None
    assert debian_source(read_debian_lock(path), found.debian_pool) == ""


def test_each_next_step_is_said_once() -> None:
    items = [NotBuilt(target=name, reason="no", fix="do it") for name in ("a", "b", "b")]
    items.append(NotBuilt(target="c", reason=NOT_ASKED, fix="ask"))
    assert next_steps(items) == ["a, b: do it"]
