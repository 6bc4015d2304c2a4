"""Parts of ``nox -s bench -- images`` that build in processes of their own: how much memory, and the same bytes everywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import wheelmark

TESTS = Path(__file__).parents[1]
SOURCE = Path(wheelmark.__file__).parents[1]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_MIB = 1 << 20
_AROUND = """
import sys
from pathlib import Path
from imagebuilding import Draft
built = Draft(folder=Path(sys.argv[1]), wheel=Path(sys.argv[2])).build()
# Not ru_maxrss: that begins with what the process that started this one had.
print(built.digest, Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
_REAL = """
import json, sys, time
from pathlib import Path
from wheelmark.build.image import build_image
from wheelmark.build.image.fetch import fetch_wheels
from wheelmark.config import find_declaration, load_declaration
from wheelmark.config.recipe import load_recipe
from wheelmark.lock.debian import fetch_packages, read_debian_lock
from wheelmark.targets import Target
project, work, pools, payload = map(Path, sys.argv[1:5])
declaration = load_declaration(find_declaration(project))
row = declaration.row(Target.parse("cpu-x86_64"))
recipe = load_recipe(project / "containers/cpu-x86_64.toml")
debian = read_debian_lock(project / "lockfiles/debian-amd64.json")
built = build_image(
    recipe,
    row,
    declaration=declaration,
    debian=debian,
    packages=fetch_packages(debian, pool=pools / "debian"),
    dependencies=fetch_wheels(
        project / "lockfiles" / recipe.dependencies.lock,
        pool=pools / "wheels",
        host=row.host,
        python_version=recipe.python.version,
        without=sys.argv[5:],
    ),
    releasable=not sys.argv[5:],
    why="made to be measured",
    payload=payload,
    cache=work / "cache",
    layout=work / "images",
)
print(built.digest)
"""


def _big_wheel(path: Path, size: int) -> None:
    """A wheel with one file of ``size`` bytes that no compressor makes smaller; never in memory as a whole."""
    summed = hashlib.sha256()
    record = "needed-1.dist-info/RECORD"
    lines: list[str] = []

    def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
        archive.writestr(name, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")

    with zipfile.ZipFile(path, "w") as archive:
        add(archive, "needed.py", b"needed = 1\n")
        with archive.open(_sized("needed.bin", size), "w") as stream:
            for _ in range(size // _MIB):
                block = os.urandom(_MIB)
                summed.update(block)
                stream.write(block)
        digest = base64.urlsafe_b64encode(summed.digest()).rstrip(b"=").decode()
        lines.append(f"needed.bin,sha256={digest},{size // _MIB * _MIB}")
        add(archive, "needed-1.dist-info/METADATA", b"Metadata-Version: 2.1\nName: needed\nVersion: 1\n")
        add(
            archive,
            "needed-1.dist-info/WHEEL",
            b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(record, "".join(f"{line}\n" for line in [*lines, f"{record},,"]))


def _sized(name: str, size: int) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.file_size = size
    return found


def memory(folder: Path) -> list[str]:
    """Peaks of two builds."""
    rows = ["| wheel in the image | peak MiB of the process that builds it | aim |", "| --- | --- | --- |"]
    for size in (100 * _MIB, 1024 * _MIB):
        place = folder / f"of-{size // _MIB}"
        place.mkdir(parents=True)
        wheel = place / "needed-1-py3-none-any.whl"
        _big_wheel(wheel, size)
        said = _run([sys.executable, "-c", _AROUND, str(place / "work"), str(wheel)], {})
        rows.append(f"| {size // _MIB:,} MiB | {int(said.split()[1]) / 1024:.0f} | 500 MB |")
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(place)
    return rows


def without_torch(folder: Path, dist: Path, pools: Path) -> Path:
    """The layout of the real CPU image, built without torch."""
    folder.mkdir(parents=True)
    wheel = next((dist / "wheels").glob("*x86_64.whl"))
    command = [sys.executable, "-c", _REAL, TESTS.parent, folder, pools, wheel, "torch"]
    _run(list(map(str, command)), {})
    return folder / "images"


def places(folder: Path, dist: Path, pools: Path) -> list[str]:
    """The real CPU image, built in every surrounding.

    Raises:
        SystemExit: Two digests.
    """
    wheel = next((dist / "wheels").glob("*x86_64.whl"))
    site = folder / "site"
    _readable(site)
    other = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    where: list[tuple[str, Sequence[str], str, Mapping[str, str], str]] = [
        ("root, umask 022", (), sys.executable, {}, "022"),
        ("root, umask 077, TZ Pacific/Auckland", (), sys.executable, {"TZ": "Pacific/Auckland"}, "077"),
        (
            "root, LC_ALL C, another hash seed",
            (),
            sys.executable,
            {"LC_ALL": "C", "PYTHONHASHSEED": "42"},
            "022",
        ),
    ]
    if Path(other).is_file() and os.geteuid() == 0:
        where.append(("nobody, umask 077, the system's Python", NOBODY, other, {}, "077"))
    rows = ["| as | Python | digest |", "| --- | --- | --- |"]
    found: set[str] = set()
    for number, (title, prefix, python, variables, umask) in enumerate(where):
        work = folder / f"in-{number}"
        work.mkdir()
        for name in ("debian", "wheels"):
            shutil.copytree(pools / name, work / "pools" / name)
        payload = Path(shutil.copyfile(wheel, work / wheel.name))
        if prefix:
            for path in (work, *work.rglob("*")):
                os.chown(path, 65534, 65534)
        command = [*prefix, "sh", "-c", f'umask {umask} && exec "$@"', "sh", python, "-c", _REAL]
        command += [str(site / "project"), str(work), str(work / "pools"), str(payload)]
        paths = [site / "src", site / "packages"]
        digest = _run(
            command, {**variables, "PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": str(work)}
        )
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
        rows.append(f"| {title} | {version.split()[1]} | `{digest[:23]}…` |")
        print(rows[-1], file=sys.stderr, flush=True)
        found.add(digest)
        shutil.rmtree(work)
    if len(found) != 1:
        raise SystemExit("\n".join(rows))
    (digest,) = found
    listed = (dist / "images" / "index.json").read_text(encoding="utf-8")
    where_too = ", the one of `wheelmark build`" if digest in listed else ""
    return [*rows, "", f"One digest{where_too}: `{digest}`."]


def _readable(site: Path) -> None:
    """Copies of what another user could not read."""
    root = TESTS.parent
    leave = shutil.ignore_patterns("__pycache__", "torch*", "triton*", "nvidia*", "mypy*", "ruff*")
    shutil.copytree(SOURCE, site / "src", ignore=leave)
    for name in ("wheelmark.toml", "lockfiles", "kernels", "containers"):
        place = site / "project" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, place, ignore=leave)
        else:
            shutil.copyfile(root / name, place)
    for packages in sys.path:
        if packages.endswith("site-packages"):
            shutil.copytree(packages, site / "packages", dirs_exist_ok=True, ignore=leave, symlinks=True)
    for path in (site, *site.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> str:
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(SOURCE)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{json.dumps(list(command)[:6])} ended with {done.returncode}\n{done.stderr}")
    return done.stdout.strip()
