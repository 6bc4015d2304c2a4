"""The payload under test: the one that is installed, else this tree's, built once and kept by pytest's cache."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from wheelmark.build.native import build_native
from wheelmark.config import HostArch, load_declaration

ROOT = Path(__file__).parents[2]


def build_package(folder: Path, cache: Path, edits: Sequence[tuple[str, str, str]] = ()) -> Path:
    """Build this tree's package into ``folder``, with edits of its C++ sources where a test plants a fault.

    Args:
        folder: Empty; becomes a copy of the payload.
        cache: Of built libraries.
        edits: File in ``csrc``, text that it holds once, text to put in its place.

    Returns:
        The folder that goes on ``sys.path``.
    """
    source = folder / "kernels"
    shutil.copy(ROOT / "wheelmark.toml", folder)
    shutil.copytree(ROOT / "kernels", source, ignore=shutil.ignore_patterns("__pycache__", "_native.so"))
    for name, old, new in edits:
        file = source / "csrc" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} no longer holds {old!r} once: correct the planted fault"
        file.write_text(text.replace(old, new), encoding="utf-8")
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    library = build_native(
        load_declaration(folder / "wheelmark.toml"),
        HostArch(platform.machine()),
        torch_include=Path(torch.origin).parent / "include",
        cache=cache,
    )
    (source / library.path).write_bytes(library.data)
    return source


@pytest.fixture(scope="session")
def package_folder(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The folder that holds the package under test."""
    found = importlib.util.find_spec("wheelmark_kernels")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        if (folder / "_native.so").is_file():  # a source tree on the path has none
            return folder.parent
    return build_package(tmp_path_factory.mktemp("payload"), pytestconfig.cache.mkdir("payload"))


@pytest.fixture(scope="session")
def payload(package_folder: Path) -> ModuleType:
    """``wheelmark_kernels`` with its operators loaded."""
    if str(package_folder) not in sys.path:
        sys.path.insert(0, str(package_folder))
    return importlib.import_module("wheelmark_kernels")


@pytest.fixture(scope="session")
def planted(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[Sequence[tuple[str, str, str]]], Path]:
    """Builds the package with edited C++ sources and returns its folder."""

    def build(edits: Sequence[tuple[str, str, str]]) -> Path:
        return build_package(tmp_path_factory.mktemp("planted"), pytestconfig.cache.mkdir("payload"), edits)

    return build


def run_python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter that sees the package in ``folder``."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "2", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python`` for tests."""
    return run_python
