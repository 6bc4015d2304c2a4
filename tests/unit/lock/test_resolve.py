import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from wheelmark.config import Declaration, HostArch, load_declaration
from wheelmark.lock import LockState, Pin, lock_files, read_pins
from wheelmark.lock.plan import LockPlan, Torch
from wheelmark.lock.resolve import merge_hosts, with_torch

ROOT = Path(__file__).parents[3]
A, B = "a" * 64, "b" * 64


@pytest.fixture
def project(tmp_path: Path) -> Declaration:
    """A copy of this repository's declaration and locks."""
    for name in ("wheelmark.toml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "lockfiles", tmp_path / "lockfiles")
    return load_declaration(tmp_path / "wheelmark.toml")


def stale(declaration: Declaration) -> dict[str, str]:
    return {r.name: r.why for r in lock_files(declaration, check=True) if r.state is LockState.STALE}


def test_committed_locks_fit_their_inputs() -> None:
    assert stale(load_declaration(ROOT / "wheelmark.toml")) == {}


def test_committed_locks_hold_no_host_and_no_path() -> None:
    files = sorted((ROOT / "lockfiles").glob("*.txt"))
    assert len(files) >= 7
    for path in files:
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("# "))
        assert not re.search(r"://|/|@|\.(org|com|io)\b|--(?!hash=sha256:)", text), path.name


def test_torch_stands_in_each_lock_as_its_build_asks() -> None:
    def torch(name: str) -> list[Pin]:
        return [pin for pin in read_pins(ROOT / "lockfiles" / name) if pin.name == "torch"]

    declared = load_declaration(ROOT / "wheelmark.toml").locks
    for name in ("build.txt", "runtime-cpu.txt"):
        (pin,) = torch(name)
        assert pin == Pin(name="torch", version=f"{declared.torch}+cpu", hashes=(declared.torch_cpu_sha256,))
    (pin,) = torch("runtime-default.txt")
    assert pin.version == declared.torch
    assert declared.torch_cpu_sha256 not in pin.hashes
    assert torch("runtime-rocm.txt") == []
    accelerated = {
        name: [
            pin.name
            for pin in read_pins(ROOT / "lockfiles" / name)
            if pin.name.startswith(("nvidia-", "cuda-"))
        ]
        for name in ("build.txt", "runtime-cpu.txt", "runtime-rocm.txt", "runtime-default.txt")
    }
    assert accelerated.pop("runtime-default.txt")
    assert not any(accelerated.values())


def test_a_changed_declaration_makes_the_locks_that_hold_it_stale(project: Declaration) -> None:
    locks = dataclasses.replace(project.locks, triton="3.8.0")
    found = stale(dataclasses.replace(project, locks=locks))
    assert set(found) == {"build.txt"}
    assert "inputs changed" in found["build.txt"]


def test_a_hash_changed_by_hand_is_seen(project: Declaration) -> None:
    path = project.root / "lockfiles" / "runtime-cpu.txt"
    text = path.read_text()
    digest = read_pins(path)[0].hashes[0]
    path.write_text(text.replace(digest, "0" * 64))
    assert stale(project) == {"runtime-cpu.txt": "its pins were changed by hand"}


def test_an_absent_and_a_damaged_lock_are_stale(project: Declaration) -> None:
    (project.root / "lockfiles" / "nox.txt").unlink()
    (project.root / "lockfiles" / "build.txt").write_text("torch==2.13.0\n")
    found = stale(project)
    assert set(found) == {"nox.txt", "build.txt"}
    assert "no --hash" in found["build.txt"]


def test_a_pin_that_only_one_host_has_names_it() -> None:
    shared, one, two = (Pin(name=name, version="1", hashes=(A,)) for name in ("s", "x", "y"))
    merged = merge_hosts({HostArch.X86_64: [shared, one], HostArch.AARCH64: [two, shared]})
    assert merged == (
        shared,
        dataclasses.replace(one, marker='platform_machine == "x86_64"'),
        dataclasses.replace(two, marker='platform_machine == "aarch64"'),
    )


def test_two_versions_for_two_hosts_stand_side_by_side() -> None:
    old, new = (Pin(name="x", version=version, hashes=(A,)) for version in ("1", "2"))
    merged = merge_hosts({HostArch.X86_64: [new], HostArch.AARCH64: [old]})
    assert [(pin.version, pin.marker) for pin in merged] == [
        ("1", 'platform_machine == "aarch64"'),
        ("2", 'platform_machine == "x86_64"'),
    ]


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (Torch.CPU, [("numpy", "2", (A,)), ("torch", "2.13.0+cpu", (B,))]),
        (Torch.LEFT_OUT, [("numpy", "2", (A,))]),
    ],
)
def test_the_index_build_of_torch_never_stands_in_for_another(
    torch: Torch, expected: list[tuple[str, str, object]]
) -> None:
    plan = LockPlan(
        name="x.txt",
        about="",
        requirements=("torch==2.13.0",),
        hosts=(HostArch.X86_64,),
        torch=torch,
        torch_version="2.13.0",
        torch_sha256=B,
    )
    pins = [Pin(name="torch", version="2.13.0", hashes=(A,)), Pin(name="numpy", version="2", hashes=(A,))]
    assert [(pin.name, pin.version, pin.hashes) for pin in with_torch(pins, plan)] == expected
