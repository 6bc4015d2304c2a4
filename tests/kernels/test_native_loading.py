"""What happens when the package is imported: the range of torch, and a library that is missing or for another machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from wheelmark.config import load_declaration

ROOT = Path(__file__).parents[2]
Python = Callable[..., subprocess.CompletedProcess[str]]


def test_the_range_is_that_of_the_declaration(payload: ModuleType) -> None:
    declaration = load_declaration(ROOT / "wheelmark.toml")
    native = payload.native
    dotted = [".".join(map(str, version)) for version in (native.TORCH_AT_LEAST, native.TORCH_BELOW)]
    assert declaration.native.torch_target == dotted[0]
    assert {str(row.torch).replace(" ", "") for row in declaration.targets} == {f">={dotted[0]},<{dotted[1]}"}


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.14.1", "2.14.0a0+git123"])
def test_torch_in_range(payload: ModuleType, version: str) -> None:
    payload.native.check_torch(version)


@pytest.mark.parametrize("version", ["2.9.1", "2.15.0", "3.0.0", "1.13", "2", "junk"])
def test_torch_out_of_range(payload: ModuleType, version: str) -> None:
    with pytest.raises(ImportError, match=r"needs torch >=2\.10,<2\.15"):
        payload.native.check_torch(version)


def _copy(package_folder: Path, to: Path) -> Path:
    shutil.copytree(package_folder / "wheelmark_kernels", to / "wheelmark_kernels")
    return to


def test_a_missing_library_is_an_import_error(python: Python, package_folder: Path, tmp_path: Path) -> None:
    folder = _copy(package_folder, tmp_path)
    (folder / "wheelmark_kernels" / "_native.so").unlink()
    done = python(folder, "-c", "import wheelmark_kernels")
    assert done.returncode == 1
    assert "ImportError: wheelmark_kernels has no compiled library" in done.stderr


def test_a_library_that_does_not_load_is_an_import_error(
    python: Python, package_folder: Path, tmp_path: Path
) -> None:
    folder = _copy(package_folder, tmp_path)
    (folder / "wheelmark_kernels" / "_native.so").write_bytes(b"\x7fELF" + bytes(60))
    done = python(folder, "-c", "import wheelmark_kernels")
    assert done.returncode == 1
    assert "ImportError: wheelmark_kernels cannot load _native.so here" in done.stderr
