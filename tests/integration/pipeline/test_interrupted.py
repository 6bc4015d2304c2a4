"""Runs that are killed, and runs that meet: nothing half-written is left, the next run finishes, one works at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from checkouts import Checkout, bytes_of, kill
from watching import watch
from wheelmark.release import ReleaseDirectory


def fresh(small: Checkout, folder: Path) -> Checkout:
    """A clone where evidence is at hand and nothing lies in the release directory."""
    made = small.clone(folder)
    shutil.rmtree(made.dist)
    return made


@pytest.mark.parametrize("kill_at", [1, 2, 5, 28])
def test_build_killed_before_a_file_is_in_place(small: Checkout, tmp_path: Path, kill_at: int) -> None:
    clone = fresh(small, tmp_path)
    whole = bytes_of(small.dist)
    seen = watch(clone, tmp_path / "watch")
    ran = clone.run("build", variables=seen.variables(clone, kill_at=kill_at))
    assert ran.code == -9
    left = bytes_of(clone.dist) if clone.dist.is_dir() else {}
    assert len(left) == kill_at - 1
    assert left.items() <= whole.items()
    assert seen.opened_in_dist == []
    for stage in ("test", "sign"):
        assert clone.run(stage).reason == "changed-since-build"
    clone.made("build", "test", "sign")
    assert clone.verify().code == 0
    assert not list((clone.root / ".dist.state/incoming").iterdir())


def test_build_killed_while_it_compiles(small: Checkout, tmp_path: Path) -> None:
    clone = fresh(small, tmp_path).with_cache(tmp_path, "native")
    process = clone.start("build")
    assert kill(process, lambda: any(path.is_file() for path in clone.cache.glob("kernels/**/*")))
    assert not clone.dist.exists()
    clone.made("build")
    names = {
        name for name in bytes_of(small.dist) if name.startswith(("wheels/", "kernels/", "sbom/", "locks/"))
    }
    whole = {
        name: digest
        for name, digest in bytes_of(small.dist).items()
        if name in names and "sigstore" not in name
    }
    assert bytes_of(clone.dist) == whole


def test_sign_killed_before_a_file_is_in_place(small: Checkout, tmp_path: Path) -> None:
    clone = fresh(small, tmp_path)
    clone.made("build", "test")
    built = bytes_of(clone.dist)
    expected = bytes_of(small.dist).keys()
    kill_at, finished = 0, False
    while not finished:
        kill_at += 1
        seen = watch(clone, tmp_path / f"watch{kill_at}")
        ran = clone.run("sign", variables=seen.variables(clone, kill_at=kill_at))
        finished = ran.code == 0
        assert ran.code in {0, -9}, ran.err
        assert seen.opened_in_dist == []
        left = bytes_of(clone.dist)
        assert built.items() <= left.items()
        signed = left.keys() - built.keys()
        assert len(signed) == kill_at - 1
        for name in signed:
            json.loads((clone.dist / name).read_bytes())
        # Nobody believes the copy of the root, which comes last.
        assert (clone.verify().code == 0) == (expected - left.keys() <= {"trust/trusted_root.json"})
        if not finished:
            for name in signed:
                (clone.dist / name).unlink()
    assert bytes_of(clone.dist).keys() == expected


def test_test_killed_between_two_gates(small: Checkout, tmp_path: Path) -> None:
    clone = fresh(small, tmp_path)
    clone.made("build")
    seen = watch(clone, tmp_path / "watch")
    assert clone.run("test", variables=seen.variables(clone, kill_at=3)).code == -9
    assert clone.run("sign").reason == "not-tested"
    clone.made("test", "sign")
    assert clone.verify().code == 0


def test_a_second_run_is_refused(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    before = bytes_of(clone.dist)
    with ReleaseDirectory(clone.dist).held():
        for stage in ("build", "test", "sign"):
            ran = clone.run(stage)
            assert (ran.code, ran.reason) == (12, "busy")
            assert f"process {os.getpid()}" in ran.document["what"]
            assert ran.document["fix"]
    assert bytes_of(clone.dist) == before
    assert clone.run("build").code == 0


def test_two_builds_at_once(small: Checkout, tmp_path: Path) -> None:
    """The second is refused as long as the first one lives, and not a moment longer."""
    clone = small.clone(tmp_path).with_cache(tmp_path, "native")
    first = clone.start("build")
    lock = clone.root / ".dist.state/lock"
    while first.poll() is None and lock.read_text(encoding="ascii") != str(first.pid):
        pass
    second = clone.run("build")
    assert first.poll() is None
    assert (second.code, second.reason) == (12, "busy")
    assert f"process {first.pid}" in second.document["what"]
    kill(first, lambda: True)
    assert clone.run("build").code == 0


def test_other_directories_are_not_in_the_way(small: Checkout, tmp_path: Path) -> None:
    clone = small.clone(tmp_path)
    with ReleaseDirectory(clone.dist).held():
        ran = clone.run("build", "--dist", str(tmp_path / "other"))
    assert ran.code == 0
    assert bytes_of(tmp_path / "other", "wheels").items() <= bytes_of(clone.dist, "wheels").items()


@pytest.mark.parametrize(("number", "code", "word"), [(2, 130, "interrupted"), (15, 143, "terminated")])
def test_interrupted_or_terminated(
    small: Checkout, tmp_path: Path, number: int, code: int, word: str
) -> None:
    clone = fresh(small, tmp_path).with_cache(tmp_path, "native")
    # Whoever starts these tests in the background has them ignore SIGINT, and what they start too.
    command = ["env", "--default-signal=INT", *clone.command("build")]
    process = subprocess.Popen(
        command, cwd=clone.root, env=clone.variables(), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and not any(path.is_file() for path in clone.cache.glob("kernels/**/*")):
        pass
    process.send_signal(number)
    _out, said = process.communicate(timeout=120)
    assert process.returncode == code
    assert f"{word}; nothing half-written was left" in said
    assert "Traceback" not in said
    assert not clone.dist.exists()
