"""Somebody who installs small signed releases with real installers, and what is then to be seen in the environment."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import wheelmaking
from checkouts import Ran
from forging import Forge
from releasing import Part, draft, file_name, part, sbom_bytes
from wheelmark import digests
from wheelmark.deploy import Outcome, Request, install
from wheelmark.manifest import Kind
from wheelmark.verify import load_policy

MODULE = b"VALUE = 'right'\n\n\ndef main():\n    print(VALUE)\n"
ENTRY_POINTS = b"[console_scripts]\ndemo-kernels = demo_kernels:main\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shop:
    """Where somebody installs: a state directory, a policy, and releases."""

    home: Path
    policy: Path
    forge: Forge

    def release(self, folder: Path, *parts: Part, **entries: tuple[Kind, bytes]) -> Path:
        """A signed release."""
        made = draft(*parts)
        made.extra_entries |= {f"locks/{name}.txt": entry for name, entry in entries.items()}
        return made.write(folder / "dist", self.forge.sign, root=self.forge.root_bytes)

    def install(self, ref: Path, python: Path, **changes: Any) -> Outcome:
        """Install in this process."""
        options = {"dependencies": False, "program": "uv", **changes}
        request = Request(ref=ref, python=python, **options)
        now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
        return install(request, load_policy(self.policy, strict=True), now=now)

    def run(self, *arguments: object, variables: dict[str, str] | None = None) -> Ran:
        """Run the ``wheelmark`` command."""
        done = subprocess.run(
            [sys.executable, "-m", "wheelmark", *map(str, arguments)],
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def demo(local: str = "cpu", requires: Sequence[str] = (), *, build: str = "", **files: bytes) -> Part:
    """A wheel of a module and a console script; ``files`` are further modules."""
    name = file_name(local)
    info = f"{name.split('-py3')[0]}.dist-info"
    inside = {
        "demo_kernels/__init__.py": MODULE,
        **{f"demo_kernels/{module}.py": data for module, data in files.items()},
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    version = name.split("-")[1]
    metadata = f"Metadata-Version: 2.4\nName: demo_kernels\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    made = part(wheel=wheelmaking.wheel_bytes(inside, name, metadata=metadata.encode()))
    if build:
        document = json.loads(sbom_bytes(made.name, made.wheel))
        document["metadata"]["component"]["properties"].append(
            {"name": "wheelmark:torch-build", "value": build}
        )
        made.sbom = digests.canonical_json(document)
    return made


def site_of(python: Path) -> Path:
    """Its site-packages."""
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    return site


def say(python: Path, code: str) -> str:
    """What a program prints there."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), "-c", code], env=variables, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def swap_after_verification(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change something in the moment when verification has ended and installation has not begun."""
    module = importlib.import_module("wheelmark.deploy.install")
    real = module.verify

    def verify(*args: Any, **kwargs: Any) -> Any:
        report = real(*args, **kwargs)
        change()
        return report

    monkeypatch.setattr(module, "verify", verify)
