"""cibuildwheel for real: podman, an image from locked packages, no network; its wheel, gated and compared with the pipeline's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkouts import copy_repository
from presence import ROOT, build_environment, environments, need_program, not_run
from rewheeling import rewheeled
from wheelmaking import swapped
from wheelmark.binaries.wheel import read_wheel
from wheelmark.build.native import build_native
from wheelmark.build.wheel import assemble_wheel
from wheelmark.config import HostArch, load_declaration
from wheelmark.errors import Exit, LockError, ToolError
from wheelmark.lock.environment import locked_environment
from wheelmark.sbom import embedded_document
from wheelmark.targets import Target

TARGET = "cpu-x86_64"
NAME = "wheelmark_kernels-0.1.0+cpu-py3-none-manylinux_2_28_x86_64.whl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What one run of ``containers.manylinux.wheels`` left."""

    root: Path
    """A copy of the repository: nobody works in it meanwhile."""
    output: Path
    printed: str
    pipeline: Path
    """The pipeline's own wheel of the same sources."""

    @property
    def wheel(self) -> Path:
        return self.output / TARGET / NAME

    def evidence(self, gate: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / TARGET / "evidence" / f"{gate}.json").read_bytes())
        return found


def run(command: Sequence[str], *, root: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(root / "src"), str(root)])
    return subprocess.run(
        command,
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "WHEELMARK_CACHE": str(environments().resolve()),
            **variables,
        },
        capture_output=True,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
    )


def pipelines_wheel(root: Path, folder: Path) -> Path:
    """The same wheel as ``wheelmark build`` makes it."""
    declaration = load_declaration(root / "wheelmark.toml")
    row = declaration.row(Target.parse(TARGET))
    include = build_environment().site_packages / "torch" / "include"
    try:
        native = build_native(declaration, HostArch.X86_64, torch_include=include, cache=environments())
    except ToolError as error:
        not_run(error.what)
    return assemble_wheel(
        declaration,
        row,
        native=native,
        kernels=None,
        output=folder,
        sbom=lambda files: embedded_document(files, declaration=declaration, row=row, native=native),
    )


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter with the tools and cibuildwheel, both by hash."""
    for program in ("podman", "setarch"):
        need_program(program)
    try:
        locks = [ROOT / "lockfiles" / name for name in ("tools.txt", "cibuildwheel.txt")]
        return str(locked_environment(locks, cache=environments()).python)
    except LockError as error:
        if error.reason != "lock-unavailable":
            raise
        not_run(error.what.splitlines()[0])


@pytest.fixture(scope="module")
def made(python: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("cibuildwheel")
    root = folder / "repository"
    copy_repository(root)
    pipeline = pipelines_wheel(root, folder / "pipeline")
    output = folder / "output"
    done = run(
        [
            *(python, "-m", "containers.manylinux.wheels", "--targets", TARGET),
            *("--output", str(output), "--against", str(pipeline.parent)),
        ],
        root=root,
    )
    if done.returncode == 8 and "debian" in done.stderr:  # Exit.LOCK: the mirror, and no fault of ours
        not_run(done.stderr[-500:])
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return Made(root=root, output=output, printed=done.stdout, pipeline=pipeline)


def test_the_wheel_passes_the_same_gates_and_evidence_names_the_route(made: Made) -> None:
    digest = read_wheel(made.wheel).sha256
    for gate in ("abi", "coverage", "size", "repeat"):
        found = made.evidence(gate)
        assert (found["verdict"], found["level"], found["subject"]) == (
            "PASSED",
            "static",
            {"sha256": digest},
        ), found
        assert found["environment"]["route"] == "cibuildwheel 4.3.5"
        assert found["environment"]["image"].startswith("sha256:")
    found = made.evidence("correctness")
    # Dispatch paths that this machine's CPU has not are UNCHECKED, never more.
    assert found["verdict"] in {"PASSED", "UNCHECKED"}, found
    assert found["level"] == "hardware"


def test_two_runs_in_one_image_are_the_same_bytes(made: Made) -> None:
    again = made.output / TARGET / "again" / NAME
    assert again.read_bytes() == made.wheel.read_bytes()
    assert made.evidence("repeat")["details"]["second"] == read_wheel(again).sha256


def test_the_routes_are_compared(made: Made) -> None:
    document = json.loads((made.output / TARGET / "comparison.json").read_bytes())
    ours, theirs = read_wheel(made.pipeline), read_wheel(made.wheel)
    assert (document["first"], document["second"]) == (ours.sha256, theirs.sha256)
    # Whatever compiler is here, sources, metadata, tags and licences are the same.
    places = {item["where"] for item in document["differences"]}
    assert places <= {"wheelmark_kernels/_native.so", f"{ours.dist_info}/sboms/wheelmark_kernels.cdx.json"}
    assert document["identical"] is (ours.sha256 == theirs.sha256)
    word = "identical" if document["identical"] else "facts differ"
    assert word in made.printed


def test_a_planted_fault_fails_the_gate_and_the_command(made: Made, python: str, tmp_path: Path) -> None:
    gate = (python, "-m", "wheelmark", "gate", "--target", TARGET, "--route", "route=by hand")
    data = made.wheel.read_bytes()
    # The library asks for one that no manylinux system has to have.
    changes = {"wheelmark_kernels/_native.so": lambda library: swapped(library, b"libdl.so.2", b"libzz.so.2")}
    spoiled = rewheeled(made.wheel, tmp_path, changes)
    done = run(
        [*gate, str(spoiled), "--gates", "abi,size", "--evidence", str(tmp_path / "evidence")], root=made.root
    )
    assert done.returncode == Exit.GATE, done.stdout + done.stderr
    found = json.loads((tmp_path / "evidence" / "abi.json").read_bytes())
    assert (found["verdict"], found["reason"]) == ("FAILED", "library-not-granted")
    assert found["environment"]["route"] == "by hand"
    broken = tmp_path / "broken" / NAME
    broken.parent.mkdir()
    broken.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    assert run([*gate, str(broken)], root=made.root).returncode == Exit.INPUT


def test_an_archive_of_the_sources_builds_the_same_wheel(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wheelmark import backend  # noqa: PLC0415 - what a frontend would import

    monkeypatch.chdir(made.root / "kernels")
    name = backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, filter="data")
    wheel = pipelines_wheel(tmp_path / name.removesuffix(".tar.gz"), tmp_path / "out")
    assert wheel.read_bytes() == made.pipeline.read_bytes()


def test_a_target_for_another_cpu_is_refused_with_the_command_that_builds_it(python: str) -> None:
    done = run([python, "-m", "containers.manylinux.wheels", "--targets", "cpu-aarch64"])
    assert done.returncode == 5
    assert "nox -s build -- --targets cpu-aarch64" in done.stderr


def test_without_an_engine_the_refusal_names_the_package(python: str, tmp_path: Path) -> None:
    done = run([python, "-m", "containers.manylinux.wheels", "--targets", TARGET], PATH=str(tmp_path))
    assert done.returncode == 9
    assert "apt-get install podman" in done.stderr


def test_the_locked_cibuildwheel_pins_the_manylinux_image_by_digest(python: str) -> None:
    done = run([python, "-c", "from containers.manylinux.wheels import pinned_image; print(pinned_image())"])
    name, _, digest = done.stdout.strip().partition("@sha256:")
    assert name.endswith("/pypa/manylinux_2_28_x86_64")
    assert len(digest) == 64
