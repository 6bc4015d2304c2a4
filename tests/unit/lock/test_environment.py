from pathlib import Path

import pytest

from wheelmark.errors import CommandError, InputError, LockError
from wheelmark.lock import Pin, locked_environment
from wheelmark.lock.environment import merge_pins
from wheelmark.packages import installer
from wheelmark.packages.pins import render_pins

A, B, C = "a" * 64, "b" * 64, "c" * 64


def lock(path: Path, *pins: Pin) -> Path:
    path.write_bytes(render_pins(pins))
    return path


def test_locks_that_agree_are_one(tmp_path: Path) -> None:
    one = lock(
        tmp_path / "one.txt",
        Pin(name="x", version="1", hashes=(A, B)),
        Pin(name="y", version="2", hashes=(C,)),
    )
    two = lock(
        tmp_path / "two.txt",
        Pin(name="x", version="1", hashes=(B, C)),
        Pin(name="z", version="1", hashes=(A,), marker='sys_platform == "win32"'),
    )
    assert merge_pins([one, two]) == (
        Pin(name="x", version="1", hashes=(B,)),
        Pin(name="y", version="2", hashes=(C,)),
    )


@pytest.mark.parametrize(
    "other", [Pin(name="x", version="2", hashes=(A,)), Pin(name="x", version="1", hashes=(B,))]
)
def test_locks_that_disagree_are_refused(tmp_path: Path, other: Pin) -> None:
    one = lock(tmp_path / "one.txt", Pin(name="x", version="1", hashes=(A,)))
    with pytest.raises(LockError) as refusal:
        locked_environment([one, lock(tmp_path / "two.txt", other)], cache=tmp_path)
    assert refusal.value.reason == "lock-conflict"
    assert "one.txt" in refusal.value.what
    assert "two.txt" in refusal.value.what
    assert not (tmp_path / "envs").exists()


def test_a_wheel_without_a_wheels_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"")
    with pytest.raises(InputError) as refusal:
        locked_environment([lock(tmp_path / "one.txt")], cache=tmp_path, wheels=[tmp_path / "x.whl"])
    assert refusal.value.reason == "wheel-name"


# What uv 0.13.9 and pip 23.2.1 really print.
UV_MISMATCH = "error: Failed to download `idna==3.20`\n  cause: Hash mismatch for `idna==3.20`\n"
UV_UNHASHED = "error: Failed to download `torch==2.13.0+cpu`\n  cause: Hash-checking is enabled, but no hashes were provided or computed for: torch==2.13.0+cpu\n"
UV_ABSENT = "error: No solution found when resolving dependencies\n  cause: Because there is no version of idna==99 and you require idna==99, we can conclude that your requirements are unsatisfiable.\n"
PIP_MISMATCH = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    idna==3.20 from https://x.invalid/idna:\n"
PIP_ABSENT = "ERROR: Could not find a version that satisfies the requirement idna==99\nERROR: No matching distribution found for idna==99\n"
UNREACHABLE = (
    "error: Failed to fetch: http://x.invalid/simple/idna/\n  cause: Connection refused (os error 111)\n"
)


@pytest.mark.parametrize(
    ("output", "name", "reason"),
    [
        (UV_MISMATCH, "idna", "lock-hash"),
        (UV_UNHASHED, "torch", "lock-hash"),
        (PIP_MISMATCH, "idna", "lock-hash"),
        (UV_ABSENT, "idna", "lock-unavailable"),
        (PIP_ABSENT, "idna", "lock-unavailable"),
        (UNREACHABLE, "", "command"),
    ],
)
def test_what_an_installer_says_names_package_and_lock(output: str, name: str, reason: str) -> None:
    pins = [Pin(name=package, version="1", hashes=(A,)) for package in ("idna", "torch")]
    error = installer.explain(CommandError(["uv"], 1, output), {pin.name for pin in pins}, "runtime-cpu.txt")
    assert error.reason == reason
    if name:
        assert error.what.startswith(f"{name} of runtime-cpu.txt")
