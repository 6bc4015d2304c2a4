from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from wheelmark.errors import BusyError, StateError
from wheelmark.manifest import Entry, Kind
from wheelmark.release import ReleaseDirectory, Step, Steps, check_accounted, close_release, entry_for


def test_a_second_run_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    program = textwrap.dedent(
        f"""
        import os, pathlib, sys
        from wheelmark.release import ReleaseDirectory
        directory = ReleaseDirectory(pathlib.Path({str(tmp_path / "dist")!r}))
        with directory.held():
            print("held", flush=True)
            sys.stdin.readline()
            os._exit(9)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BusyError) as caught, directory.held():
            pass
        assert str(other.pid) in str(caught.value)
        other.stdin.write("\n")
    with directory.held():
        assert directory.write("wheels/a.whl", b"x").read_bytes() == b"x"


def test_files_have_fixed_modes_and_nothing_partial_is_left(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    before = os.umask(0o077)
    try:
        path = directory.write("wheels/a.whl", b"x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in (tmp_path / "dist").rglob("*") if p.is_file()] == ["a.whl"]


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    outside = tmp_path / "outside"
    outside.write_bytes(b"same")
    (tmp_path / "dist" / "wheels").mkdir(parents=True)
    (tmp_path / "dist" / "wheels" / "a.whl").symlink_to(outside)
    path = directory.write("wheels/a.whl", b"same")
    assert not path.is_symlink()


def test_what_an_earlier_build_left_is_removed(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    for name in ("kernels/a/1.cubin", "kernels/b/2.cubin"):
        directory.write(name, b"x")
    directory.remove_except("kernels", {"kernels/b/2.cubin"})
    assert not (directory / "kernels/a").exists()
    directory.remove_except("kernels", set())
    assert not (directory / "kernels").exists()


def test_a_step_is_skipped_only_for_equal_inputs_and_unchanged_outputs(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    steps = Steps(directory.state / "steps", directory.root)
    step = Step(name="gate/abi", inputs={"wheel": "1"})
    assert steps.finished(step) is None
    output = directory.write("evidence/a.json", b"{}")
    steps.record(step, [output], 1.5)
    record = steps.finished(step)
    assert record is not None
    assert record.result == 1.5
    os.utime(output, (0, 0))
    assert steps.finished(step) is not None, "times are not looked at"
    assert steps.finished(Step(name="gate/abi", inputs={"wheel": "2"})) is None
    output.write_bytes(b"{ }")
    assert steps.finished(step) is None
    output.unlink()
    assert steps.finished(step) is None


def test_a_torn_record_is_no_record(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps", tmp_path)
    step = Step(name="s", inputs={})
    steps.record(step, [])
    (record,) = (tmp_path / "steps").iterdir()
    record.write_bytes(record.read_bytes()[:10])
    assert steps.finished(step) is None


@pytest.mark.parametrize(
    "name", ["wheels/other.whl", "notes.txt", "wheels/a.whl.sigstore.json.bak", ".hidden", "sbom/x.json"]
)
def test_a_file_that_nothing_accounts_for_is_refused(tmp_path: Path, name: str) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    directory.write("wheels/a.whl", b"x")
    entry = entry_for(directory, "wheels/a.whl", Kind.WHEEL, target="cpu-x86_64")
    check_accounted(directory.root, [entry])
    directory.write(name, b"y")
    with pytest.raises(StateError) as caught:
        check_accounted(directory.root, [entry])
    assert caught.value.reason == "unaccounted-file"


def test_a_link_is_never_accounted_for(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    directory.write("wheels/a.whl", b"x")
    entry = entry_for(directory, "wheels/a.whl", Kind.WHEEL)
    (directory / "trust").mkdir()
    (directory / "trust" / "root").symlink_to("/etc/hostname")
    with pytest.raises(StateError):
        check_accounted(directory.root, [entry])


def test_closing_writes_a_manifest_that_reads_back(tmp_path: Path) -> None:
    directory = ReleaseDirectory(tmp_path / "dist")
    directory.write("wheels/a.whl", b"x")
    with pytest.raises(StateError) as caught:
        directory.read_manifest()
    assert caught.value.reason == "not-closed"
    entry: Entry = entry_for(directory, "wheels/a.whl", Kind.WHEEL, target="cpu-x86_64")
    closed = close_release(
        directory,
        project="p",
        version="1",
        targets=["cpu-x86_64"],
        not_built=[],
        snapshot=True,
        entries=[entry],
        levels={},
    )
    assert directory.read_manifest() == closed
