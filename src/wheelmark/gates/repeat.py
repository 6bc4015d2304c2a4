"""Repeat: the same target built twice, in other surroundings, must give the same bytes.

The second build runs in a copy of the sources at another path, with another umask, locale, time zone, hash
seed, file times and target order, and with empty caches. A differing byte fails the gate and names the member
and, inside an ELF file, the section. Wheels that two different toolchains made are not comparable: UNCHECKED.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.binaries.elf import read_elf
from wheelmark.config import FILE_NAME, Declaration
from wheelmark.config.recipe import project_recipes
from wheelmark.errors import CommandError, InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.context import Context, SecondWheel
from wheelmark.gates.contract import machine
from wheelmark.gates.image.context import SecondImage
from wheelmark.manifest import IMAGES

NAME = "repeat"
_SHOWN = 20
_LATER = 86_400 * 400
"""Seconds by which the copied sources' times differ."""


def run(context: Context) -> Evidence:
    """Build again and compare."""
    second = context.second()
    if second.toolchain != context.toolchain:
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.NONE,
            "the second build used another toolchain; its bytes say nothing about these",
            reason="other-toolchain",
            details={"first": context.toolchain, "second": second.toolchain},
        )
    details = {"toolchain": context.toolchain, "second": digests.sha256_file(second.path)}
    if details["second"] == context.sha256:
        summary = "second build elsewhere is byte-identical"
        return context.evidence(
            NAME, Verdict.PASSED, Level.STATIC, summary, details=details, environment=machine()
        )
    found = differences(context.wheel.read_bytes(), second.path.read_bytes())
    return context.evidence(
        NAME,
        Verdict.FAILED,
        Level.STATIC,
        f"a second build differs: {'; '.join(found[:3])}",
        reason="not-reproducible",
        details={**details, "differences": list(found[:_SHOWN])},
        environment=machine(),
    )


def differences(first: bytes, second: bytes) -> tuple[str, ...]:
    """Where two wheels differ: members, and sections of ELF members; never empty for unequal bytes."""
    with zipfile.ZipFile(io.BytesIO(first)) as one, zipfile.ZipFile(io.BytesIO(second)) as two:
        ours, theirs = set(one.namelist()), set(two.namelist())
        found = [f"{name}: only in the first build" for name in sorted(ours - theirs)]
        found += [f"{name}: only in the second build" for name in sorted(theirs - ours)]
        for name in sorted(ours & theirs):
            a, b = one.read(name), two.read(name)
            if a != b:
                found.append(f"{name}: {_inside(a, b)}")
    if not found and first != second:
        found.append("the zip container itself (order, times, modes or compression)")
    return tuple(found)


def _inside(a: bytes, b: bytes) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    where = (
        f"byte {at:,} of {len(a):,}"
        if len(a) == len(b)
        else f"{len(a):,} and {len(b):,} bytes, from byte {at:,}"
    )
    try:
        elf = read_elf(a)
    except InputError:
        return where
    inside = [s.name for s in elf.sections if s.offset <= at < s.offset + s.size]
    return f"section {inside[0]}, {where}" if inside else f"ELF headers, {where}"


@dataclasses.dataclass(kw_only=True)
class SecondBuild:
    """The second build of all targets, run at most once, on first demand.

    It calls this package's own command line in a process with other surroundings.
    """

    declaration: Declaration
    targets: Sequence[str]
    work: Path
    """Folder of its own; emptied first."""
    environments: Path
    """Cache with the locked environments and fetched packages: inputs, checked by hash, and not built again."""
    images: bool = False
    """Whether images are built too."""
    _report: Mapping[str, Any] | None = None
    _building: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def wheel(self, target: str) -> SecondWheel:
        """The second wheel of one target.

        Raises:
            CommandError: The second build failed.
        """
        found = next(item for item in self._built()["wheels"] if item["target"] == target)
        return SecondWheel(path=self._dist / found["path"], toolchain=found["toolchain"])

    def image(self, target: str) -> SecondImage:
        """The second image of one target.

        Raises:
            CommandError: The second build failed, or made no image of it.
        """
        for item in self._built()["images"]:
            if item["target"] == target:
                return SecondImage(layout=self._dist / IMAGES, sha256=item["sha256"], inputs=item["inputs"])
        raise CommandError(
            ["wheelmark", "build"],
            0,
            "",
            cause=f"the second build made no image of {target}, where the first did",
        )

    @property
    def _dist(self) -> Path:
        return self.work / "dist"

    def _built(self) -> Mapping[str, Any]:
        with self._building:
            if self._report is None:
                self._report = self._build()
            return self._report

    def _build(self) -> Mapping[str, Any]:
        shutil.rmtree(self.work, ignore_errors=True)
        copy = self.work / "elsewhere" / "sources of a second build"
        copy_sources(self.declaration, copy)
        command = [
            *(sys.executable, "-m", "wheelmark", "build", "--json", "--project", str(copy)),
            *("--dist", str(self._dist), "--cache", str(self.work / "cache")),
            *("--environments", str(self.environments), "--snapshot"),
            *("--targets", ",".join(reversed(self.targets))),
            *([] if self.images else ["--no-images"]),
        ]
        surroundings = {
            **os.environ,
            "LC_ALL": "C",
            "LANG": "tr_TR.UTF-8",
            "TZ": "Pacific/Kiritimati",
            "PYTHONHASHSEED": "4242",
            "SOURCE_DATE_EPOCH": "1999999999",
        }
        done = subprocess.run(
            command,
            cwd=self.work,
            env=surroundings,
            capture_output=True,
            text=True,
            check=False,
            umask=0o077,
        )
        if done.returncode:
            raise CommandError(
                command,
                done.returncode,
                done.stderr or done.stdout,
                cause="the second build of the repeat gate failed where the first one did not",
                fix="look for a path, locale or file mode that the build depends on",
            )
        return strictjson.load_object(done.stdout.encode(), what="report of the second build")


def copy_sources(declaration: Declaration, copy: Path) -> None:
    """The declaration, the payload, the locks and the recipes, with other times and modes."""
    copy.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.so", ".*")
    shutil.copyfile(declaration.root / FILE_NAME, copy / FILE_NAME)
    root = declaration.root
    for folder in (declaration.project.source.parts[0], "lockfiles", "sbom"):
        if (root / folder).is_dir():
            shutil.copytree(root / folder, copy / folder, ignore=ignore)
    for recipe in project_recipes(declaration):
        place = copy / recipe.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(recipe, place)
    later = time.time() - _LATER
    for name in digests.tree_files(copy):
        (copy / name).chmod(0o600)
        os.utime(copy / name, (later, later))
