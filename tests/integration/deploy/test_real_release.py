"""The release of this repository, installed from its lock by real installers, and its operator called."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from checkouts import Checkout, Ran
from deploying import site_of
from wheelmark.errors import Exit

CALL = """
import torch, wheelmark_kernels
out = wheelmark_kernels.tbe_forward(
    torch.ones(5, 128), torch.tensor([0, 3, 5]), torch.tensor([0, 2, 1, 1, 0]), torch.tensor([0, 2, 2, 4, 5])
)
print(tuple(out.shape), float(out.sum()))
"""


def command(release: Checkout, *arguments: object) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "wheelmark", *map(str, arguments)],
        env=release.variables(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def call(python: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(python), "-c", CALL], env=variables, capture_output=True, text=True, check=False, timeout=120
    )


def test_it_is_installed_from_its_lock_and_runs(
    release: Checkout, new_python: Callable[[], Path], tmp_path: Path
) -> None:
    python = new_python()
    policy = tmp_path / "policy.toml"
    shutil.copyfile(release.policy, policy)
    policy.chmod(0o600)
    common = (
        "install",
        release.dist,
        "--policy",
        policy,
        "--python",
        python,
        "--target",
        "cpu-x86_64",
        "--json",
    )
    done = command(release, *common, "--installer", "uv")
    assert done.code == 0, done.err
    assert any(line.startswith("install torch ") for line in done.document["plan"])
    ran = call(python)
    assert (ran.returncode, ran.stdout) == (0, "(2, 256) 640.0\n"), ran.stderr
    assert command(release, "audit-installed", "--python", python).code == 0
    # Behind the last section, where the loader would not look.
    library = site_of(python) / "wheelmark_kernels" / "_native.so"
    with library.open("ab") as stream:
        stream.write(b"\0")
    ran = call(python)
    assert "wheelmark_kernels/_native.so is not the file that was installed" in ran.stderr
    audit = command(release, "audit-installed", "--python", python, "--json")
    assert audit.code == int(Exit.REJECTED)
    assert "installed-changed" in json.dumps(audit.document)
    damaged = command(release, *common)
    assert (damaged.code, damaged.reason) == (int(Exit.STATE), "installed-damaged")
    mended = command(release, *common, "--replace", "--installer", "pip")
    assert (mended.code, mended.document["installed"]) == (0, True)
    assert not any("torch" in line for line in mended.document["plan"])
    assert call(python).returncode == 0
    assert command(release, "audit-installed", "--python", python).code == 0


def test_what_would_be_installed_for_a_card(
    release: Checkout, new_python: Callable[[], Path], tmp_path: Path
) -> None:
    python = new_python()
    policy = tmp_path / "policy.toml"
    shutil.copyfile(release.policy, policy)
    policy.chmod(0o600)
    arguments = ("install", release.dist, "--policy", policy, "--python", python, "--json", "--dry-run")
    done = command(release, *arguments, "--target", "cuda-sm90", "--without-card")
    assert done.code == 0, done.err
    assert any(line.startswith("install nvidia-") for line in done.document["plan"])
    # The lock leaves torch for ROCm to the machine.
    rocm = command(release, *arguments, "--target", "rocm-gfx942", "--without-card")
    assert (rocm.code, rocm.reason) == (int(Exit.LOCK), "lock-open")
