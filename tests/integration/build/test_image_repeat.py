"""One digest wherever an image is built: directory, user, umask, zone, locale, hash seed, another interpreter.

Each build is a process of its own that packs real tar, gzip and wheels; only the packages are small.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import wheelmark
from presence import not_run

TESTS = Path(__file__).parents[2]
SOURCE = Path(wheelmark.__file__).parents[1]
BUILD = """
import sys
from pathlib import Path
from imagebuilding import Draft
from wheelmark.config import HostArch
host = HostArch(sys.argv[2])
payload = {"demo_kernels/x%d.py" % number: bytes([number]) * 3000 for number in range(200)}
from imagebuilding import SBOM
print(Draft(folder=Path(sys.argv[1]), host=host, payload={**payload, SBOM: b"{}"}).build().digest)
"""


def build(
    folder: Path,
    *,
    host: str = "x86_64",
    python: str = sys.executable,
    prefix: tuple[str, ...] = (),
    umask: str = "022",
    paths: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> str:
    script = f'umask {umask} && exec "$@"'
    command = [*prefix, "sh", "-c", script, "sh", python, "-c", BUILD, str(folder), host]
    done = subprocess.run(
        command,
        env={
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(SOURCE), *paths]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder.parent),
            **(variables or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("first") / "build")


@pytest.mark.parametrize(
    ("umask", "variables"),
    [
        ("077", {}),
        ("000", {"TZ": "Pacific/Auckland"}),
        ("022", {"LC_ALL": "C", "PYTHONUTF8": "0"}),
        ("022", {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
        ("022", {"PYTHONHASHSEED": "4242", "SOURCE_DATE_EPOCH": "1"}),
    ],
)
def test_surroundings_do_not_count(
    tmp_path: Path, digest: str, umask: str, variables: dict[str, str]
) -> None:
    assert build(tmp_path / "elsewhere" / "and deeper", umask=umask, variables=variables) == digest


def test_another_cpu_is_another_image_and_the_same_everywhere(tmp_path: Path, digest: str) -> None:
    one, other = (build(tmp_path / name, host="aarch64") for name in ("one", "other"))
    assert one == other != digest


def test_one_cpu_or_many(tmp_path: Path, digest: str) -> None:
    taskset = shutil.which("taskset")
    if taskset is None:
        not_run("taskset is not installed (util-linux)")
    assert build(tmp_path / "build", prefix=(taskset, "-c", str(min(os.sched_getaffinity(0))))) == digest


def test_as_nobody(digest: str) -> None:
    """With a copy of what nobody could not read, and in a folder of nobody's own."""
    if os.geteuid() != 0:
        not_run("only root can become nobody")
    home = Path("/tmp") / f"wheelmark-nobody-{os.getpid()}"  # noqa: S108 - a folder that nobody may enter
    home.mkdir(mode=0o755)
    try:
        site = home / "site"
        for place in (TESTS, SOURCE):
            shutil.copytree(
                place,
                site / place.name,
                ignore=shutil.ignore_patterns("__pycache__", "integration", "goldens.bak", ".*"),
            )
        for packages in sys.path:
            if packages.endswith("site-packages"):
                shutil.copytree(
                    packages, site / "packages", dirs_exist_ok=True, ignore=_unneeded, symlinks=True
                )
        work = home / "work"
        work.mkdir()
        shutil.chown(work, "nobody", "nogroup")
        prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        found = build(
            work / "build",
            prefix=prefix,
            python=_system_python(),
            paths=(str(site / "packages"),),
            umask="077",
            variables={
                "PYTHONPATH": os.pathsep.join(
                    str(site / name) for name in ("tests", SOURCE.name, "packages")
                ),
                "HOME": str(work),
            },
        )
        assert found == digest
    finally:
        shutil.rmtree(home)


def _unneeded(_folder: str, names: list[str]) -> set[str]:
    return {
        name
        for name in names
        if name.startswith(("mypy", "ruff", "torch", "triton", "nvidia")) or name == "__pycache__"
    }


def _system_python() -> str:
    """The system's interpreter of this minor version: another build and patch version than this one, where it is there."""
    found = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return found if Path(found).is_file() else sys.executable


@pytest.mark.skipif(
    _system_python() == sys.executable, reason="not run: no second interpreter of this version"
)
def test_another_patch_version_of_python(tmp_path: Path, digest: str) -> None:
    versions = {
        subprocess.run(
            [python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True
        ).stdout
        for python in (sys.executable, _system_python())
    }
    assert len(versions) == 2
    packages = tuple(place for place in sys.path if place.endswith("site-packages"))
    assert build(tmp_path / "build", python=_system_python(), paths=packages) == digest
