"""What a release says of itself: snapshots, partial releases, what may not be signed, and that a place leaves no trace."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from checkouts import Checkout, Ran, bytes_of

NO_CROSS = {"WHEELMARK_CXX_AARCH64": "no-such-compiler"}


def predicate(checkout: Checkout) -> Any:
    return json.loads((checkout.dist / "statements/provenance.json").read_bytes())["predicate"]


def manifest(checkout: Checkout) -> Any:
    return json.loads((checkout.dist / "release.json").read_bytes())


def table(checkout: Checkout, stage: str, *arguments: str, **variables: str) -> Ran:
    """A stage without ``--json``: what a person sees."""
    command = [item for item in checkout.command(stage, *arguments) if item != "--json"]
    done = subprocess.run(
        command,
        cwd=checkout.root,
        env=checkout.variables(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def strictly(checkout: Checkout, folder: Path, key: str) -> tuple[str, ...]:
    """Reasons under the development policy with one of its permissions taken back."""
    text = checkout.policy.read_text(encoding="utf-8")
    assert f"{key} = true" in text
    policy = folder / "strict.toml"
    policy.write_text(text.replace(f"{key} = true", f"{key} = false"), encoding="utf-8")
    ran = checkout.verify("--policy", str(policy))
    verdicts = ran.document["reports"][0]["verdicts"]
    return tuple(item["reason"] for item in verdicts if item["verdict"] != "accepted")


def test_a_snapshot_is_asked_for_and_marked_everywhere(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    (clone.root / "README.md").write_text("changed\n", encoding="utf-8")
    ran = clone.run("build")
    assert (ran.code, ran.reason) == (14, "uncommitted-changes")
    assert "README.md" in ran.document["what"]
    assert "--snapshot" in ran.document["fix"]
    ran = clone.run("build", "--snapshot", "--release")
    assert (ran.code, ran.reason) == (14, "snapshot-release")
    built = clone.run("build", "--snapshot")
    assert (built.code, built.document["snapshot"]) == (0, True)
    assert "snapshot: built from a tree that no commit describes" in table(clone, "build", "--snapshot").out
    clone.made("test")
    assert "snapshot: built from a tree that no commit describes" in table(clone, "sign").out
    assert manifest(clone)["snapshot"] is True
    assert predicate(clone)["buildDefinition"]["externalParameters"]["snapshot"] is True
    verified = clone.verify()
    assert verified.code == 0
    assert "a snapshot of a tree with uncommitted changes" in verified.out
    assert strictly(clone, tmp_path, "allow_snapshot") == ("snapshot",)
    assert strictly(small, tmp_path, "allow_snapshot") == ()
    assert manifest(small)["snapshot"] is False


def test_a_new_file_is_a_change(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    (clone.root / "kernels/wheelmark_kernels/extra.py").write_text('"""Extra."""\n', encoding="utf-8")
    ran = clone.run("build")
    assert (ran.code, ran.reason) == (14, "uncommitted-changes")
    assert "extra.py" in ran.document["what"]


def test_without_a_commit_it_is_a_snapshot(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    (clone.root / ".git").rename(tmp_path / "git")
    ran = clone.run("build", "--all", "--release")
    assert (ran.code, ran.reason) == (14, "no-revision")
    built = clone.run("build")
    assert (built.code, built.document["snapshot"], built.document["commit"]) == (0, True, "")


@pytest.fixture
def two(small: Checkout, tmp_path: Path) -> Checkout:
    """A clone that declares a wheel for each CPU and nothing else, with gates that only look."""
    clone = small.clone(tmp_path, dist=False)
    clone.gates("abi", "coverage", "size", "audit")
    path = clone.root / "wheelmark.toml"
    head, *rows = path.read_text(encoding="utf-8").split("[[targets]]")
    kept = [row for row in rows if re.search(r'target = "cpu-', row)]
    assert len(kept) == 2
    path.write_text("[[targets]]".join([head, *kept]), encoding="utf-8")
    clone.commit("two targets")
    return clone


def test_what_cannot_be_built_here_is_named(two: Checkout, tmp_path: Path) -> None:
    planned = two.run("plan", "--all", variables=NO_CROSS)
    assert planned.code == 0
    rows = {row["target"]: row for row in planned.document["targets"]}
    assert rows["cpu-x86_64"]["buildable"] is True
    assert rows["cpu-aarch64"]["buildable"] is False
    assert "no-such-compiler" in rows["cpu-aarch64"]["reason"]
    assert rows["cpu-aarch64"]["fix"]
    for stage in ("build", "test", "sign"):
        assert two.run(stage, "--all", variables=NO_CROSS).code == 0
    release = manifest(two)
    assert release["partial"] is True
    assert release["targets"] == ["cpu-x86_64"]
    (missing,) = release["notBuilt"]
    assert missing == {
        "target": "cpu-aarch64",
        "reason": rows["cpu-aarch64"]["reason"],
        "fix": rows["cpu-aarch64"]["fix"],
    }
    shown = table(two, "sign", "--all").out
    assert "cpu-aarch64: not built" in shown
    assert f"partial: cpu-aarch64 ({missing['fix']})" in shown
    assert "cpu-aarch64" in table(two, "build", "--all", **NO_CROSS).out
    assert "partial" in strictly(two, tmp_path, "allow_partial")
    assert "partial" not in strictly(two, tmp_path, "allow_snapshot")


def test_what_was_asked_for_has_to_be_built(two: Checkout) -> None:
    for arguments in (("--all", "--release"), ("--all", "--targets", "cpu-aarch64,cpu-x86_64")):
        ran = two.run("build", *arguments, variables=NO_CROSS)
        assert (ran.code, ran.reason) == (9, "target-not-buildable")
        assert "cpu-aarch64" in ran.document["what"]
        assert ran.document["fix"]
    assert not two.dist.exists()


def test_nothing_to_build_is_an_error(two: Checkout) -> None:
    path = two.root / "wheelmark.toml"
    head, _first, last = path.read_text(encoding="utf-8").split("[[targets]]")
    path.write_text(f"{head}[[targets]]{last}", encoding="utf-8")
    two.commit("one target")
    ran = two.run("build", "--all", variables=NO_CROSS)
    assert (ran.code, ran.reason) == (5, "empty-matrix")


def test_a_target_that_is_not_declared(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    for targets in ("cuda-sm89", "cuda-sm9O", "cpu"):
        ran = clone.run("build", "--all", "--targets", targets)
        assert ran.code == 5, ran.out
        assert targets in ran.document["what"]


def test_a_file_that_nothing_accounts_for(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    clone.made("build", "test", "sign")
    for name in ("extra.txt", "wheels/other.whl", "evidence/other/abi.json", "deep/er/file"):
        path = clone.dist / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
        ran = clone.run("sign")
        assert (ran.code, ran.reason) == (14, "unaccounted-file"), name
        assert name in ran.document["what"]
        verified = clone.verify()
        assert verified.code == 1
        assert "unaccounted-file" in verified.out
        path.unlink()
    clone.made("sign")
    assert clone.verify().code == 0


def test_a_link_in_the_release_directory(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    (wheel,) = clone.dist.glob("wheels/*.whl")
    wheel.rename(tmp_path / wheel.name)
    wheel.symlink_to(tmp_path / wheel.name)
    assert clone.run("sign").reason == "changed-since-build"
    clone.made("build")
    assert not wheel.is_symlink()


def test_two_places_two_commits_the_same_bytes(release: Checkout, tmp_path: Path) -> None:
    """Built from nothing in another place, under another commit, umask, locale, home and clock zone."""
    clone = release.clone(tmp_path, name="quite another place", dist=False).with_cache(tmp_path)
    assert clone.git("rev-parse", "HEAD") != release.git("rev-parse", "HEAD")
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [*clone.command("build"), "--project", str(clone.root)],
        cwd=tmp_path,
        env=clone.variables(
            {"HOME": str(tmp_path / "home"), "TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "9"}
        ),
        capture_output=True,
        text=True,
        check=False,
        umask=0o077,
    )
    assert done.returncode == 0, done.stderr
    first, second = (
        {
            name: sha
            for name, sha in bytes_of(root.dist, "wheels", "kernels", "sbom", "locks").items()
            if "sigstore" not in name
        }
        for root in (release, clone)
    )
    assert len([name for name in first if name.endswith(".whl")]) == len(release.targets)
    assert first == second
    modes = {path.stat().st_mode & 0o777 for path in clone.dist.rglob("*") if path.is_file()}
    assert modes == {0o644}


@pytest.mark.parametrize("stage", ["check", "plan", "doctor"])
def test_json_is_one_document_on_stdout(small: Checkout, stage: str) -> None:
    command = small.command(stage)
    words = command if stage == "plan" else command[: command.index("--json") + 1]
    done = subprocess.run(
        words, cwd=small.root, env=small.variables(), capture_output=True, text=True, check=False
    )
    assert isinstance(json.loads(done.stdout), dict)


def test_a_release_of_some_targets_is_partial(small: Checkout) -> None:
    release = manifest(small)
    assert release["partial"] is True
    declared = {row["target"] for row in small.run("plan", "--all").document["targets"]}
    absent = {item["target"]: item["reason"] for item in release["notBuilt"]}
    assert absent == dict.fromkeys(declared - set(release["targets"]), "not asked for")
    assert "8 targets not asked for" in table(small, "sign").out
