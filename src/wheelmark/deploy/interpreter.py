"""The environment that is installed into: asked of its own interpreter, by metadata alone.

Nothing of what is installed there is imported; the interpreter starts isolated (``-I``), so that neither the
user's folders nor ``PYTHONPATH`` answer in its place.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from wheelmark.errors import MachineError

SEEDS = frozenset({"pip", "setuptools", "wheel"})
"""What makes an environment puts these into it unasked (``ensurepip``, virtualenv)."""

_TIMEOUT = 60
"""Seconds for an interpreter to start and answer."""
_QUESTION = """
import importlib.metadata, json, os, platform, sys, sysconfig
paths = sysconfig.get_paths()
packages, requires = {}, {}
for found in importlib.metadata.distributions():
    name = found.metadata["Name"]
    if name:
        packages.setdefault(name, found.version)
        requires.setdefault(name, found.metadata.get_all("Requires-Dist") or [])
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (AttributeError, ValueError, OSError):
    libc = ""
info = sys.implementation.version
print(json.dumps({
    "paths": {key: paths[key] for key in ("purelib", "platlib", "scripts", "data")},
    "cache_tag": sys.implementation.cache_tag or "", "prefix": sys.prefix, "base_prefix": sys.base_prefix, "packages": packages, "requires": requires, "libc": libc,
    "machine": sysconfig.get_platform().partition("-")[2],
    "markers": {
        "implementation_name": sys.implementation.name,
        "implementation_version": "%d.%d.%d" % info[:3],
        "os_name": os.name, "platform_machine": platform.machine(), "platform_release": platform.release(),
        "platform_system": platform.system(), "platform_version": platform.version(),
        "platform_python_implementation": platform.python_implementation(),
        "python_full_version": platform.python_version(),
        "python_version": "%d.%d" % sys.version_info[:2], "sys_platform": sys.platform,
    },
}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreter:
    """An interpreter and the environment around it."""

    path: Path
    version: str
    """``3.11.7``."""
    cache_tag: str
    """``cpython-311``: of the compiled modules that it would run."""
    arch: str
    """CPU that it runs on: ``x86_64``, ``aarch64``."""
    glibc: str
    """``2.36``; empty where the C library is another."""
    prefix: Path
    is_virtual: bool
    """Whether it is a virtual environment."""
    purelib: Path
    platlib: Path
    scripts: Path
    data: Path
    packages: Mapping[str, str]
    """Normalized name -> version of everything that is installed there."""
    requires: Mapping[str, tuple[str, ...]]
    """Normalized name -> its ``Requires-Dist``, as it stands in the metadata."""
    markers: Mapping[str, str]
    """Values of environment markers (PEP 508)."""

    @property
    def replaceable(self) -> frozenset[str]:
        """Seeds of a virtual environment that nothing else there requires: nobody chose their versions.

        A requirement of an extra counts, because nothing on disk says which extras were asked for.
        """
        if not self.is_virtual:
            return frozenset()
        others = (texts for name, texts in self.requires.items() if name not in SEEDS)
        return SEEDS - {name for texts in others for name in self._required(texts)}

    def _required(self, texts: Iterable[str]) -> Iterable[str]:
        for text in texts:
            try:
                found = Requirement(text)
                applies = (
                    found.marker is None
                    or "extra" in str(found.marker)
                    or found.marker.evaluate({**self.markers, "extra": ""})
                )
            except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
                # Old metadata, which nobody can read: it may mean any of them.
                yield from SEEDS
            else:
                if applies:
                    yield canonicalize_name(found.name)


def read_interpreter(python: Path) -> Interpreter:
    """Ask an interpreter about its environment.

    Raises:
        MachineError: It does not start or does not answer (``python``).
    """
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _QUESTION],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_TIMEOUT,
        )
        if done.returncode:
            raise MachineError(
                f"{python} ended with {done.returncode}: {done.stderr.strip()[-400:]}",
                fix="name a working interpreter with --python",
                reason="python",
            )
        return _read(python, done.stdout)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError) as error:
        raise MachineError(
            f"{python} does not answer as a Python interpreter: {error}",
            fix="name an interpreter with --python: the bin/python of a virtual environment",
            reason="python",
        ) from error


def _read(python: Path, text: str) -> Interpreter:
    # What a .pth file of the environment prints stands before the answer.
    value = json.loads(text.strip().splitlines()[-1])
    kind, _, version = str(value["libc"]).partition(" ")
    paths = {key: Path(value["paths"][key]) for key in ("purelib", "platlib", "scripts", "data")}
    return Interpreter(
        path=python.absolute(),
        version=value["markers"]["python_full_version"],
        cache_tag=str(value["cache_tag"]),
        arch=value["machine"],
        glibc=version if kind == "glibc" else "",
        prefix=Path(value["prefix"]),
        is_virtual=value["prefix"] != value["base_prefix"],
        packages={canonicalize_name(name): str(version) for name, version in value["packages"].items()},
        requires={
            canonicalize_name(name): tuple(str(text) for text in texts)
            for name, texts in value["requires"].items()
        },
        markers={str(key): str(item) for key, item in value["markers"].items()},
        **paths,
    )
