"""The receipt beside the package: a file that is not the installed one is refused before it is used, cheaply."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Python = Callable[..., subprocess.CompletedProcess[str]]
ASK = "import wheelmark_kernels.variants as v; v.read_code_objects()"


@pytest.fixture
def installed(payload: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, looking at a package with one file in ``tmp_path``."""
    module = importlib.import_module(f"{payload.__name__}.installed")
    package = tmp_path / "wheelmark_kernels"
    package.mkdir()
    (package / "one.bin").write_bytes(b"one")
    monkeypatch.setattr(module, "PACKAGE", package)
    module.read_receipt.cache_clear()
    return module


def write_receipt(site: Path, module: ModuleType, *names: str) -> Path:
    info = site / "wheelmark_kernels-0.1.0.dist-info"
    info.mkdir(exist_ok=True)
    files = {
        name: {
            "sha256": hashlib.sha256((site / name).read_bytes()).hexdigest(),
            "stamp": module.stamp(site / name),
        }
        for name in names
    }
    path = info / module.NAME
    path.write_text(json.dumps({"schema": module.SCHEMA, "wheel": "0" * 64, "files": files}))
    return path


def test_without_a_receipt_there_is_nothing_to_compare_with(installed: ModuleType) -> None:
    assert not installed.check(installed.PACKAGE / "one.bin")
    assert not installed.check(Path("/usr/lib/elsewhere.so"))


def test_while_the_stamp_holds_nothing_is_hashed(
    installed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_receipt(tmp_path, installed, "wheelmark_kernels/one.bin")

    def never(*_: object) -> None:
        raise AssertionError("it was hashed")

    monkeypatch.setattr(hashlib, "sha256", never)
    assert installed.check(installed.PACKAGE / "one.bin")


def test_a_copied_file_is_hashed_and_taken(installed: ModuleType, tmp_path: Path) -> None:
    write_receipt(tmp_path, installed, "wheelmark_kernels/one.bin")
    path = installed.PACKAGE / "one.bin"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    assert installed.check(path)


def test_other_bytes_are_refused_even_with_the_old_time(installed: ModuleType, tmp_path: Path) -> None:
    path = installed.PACKAGE / "one.bin"
    write_receipt(tmp_path, installed, "wheelmark_kernels/one.bin")
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(installed.FileChanged, match=r"one\.bin is not the file that was installed"):
        installed.check(path)


def test_a_file_that_the_receipt_does_not_list_is_refused(installed: ModuleType, tmp_path: Path) -> None:
    write_receipt(tmp_path, installed)
    with pytest.raises(installed.FileChanged, match="was not installed with this package"):
        installed.check(installed.PACKAGE / "one.bin")


def test_a_missing_file_is_refused(installed: ModuleType, tmp_path: Path) -> None:
    write_receipt(tmp_path, installed, "wheelmark_kernels/one.bin")
    (installed.PACKAGE / "one.bin").unlink()
    with pytest.raises(installed.FileChanged, match="cannot be read"):
        installed.check(installed.PACKAGE / "one.bin")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "other", "files": {}}', '{"files": 1}'])
def test_a_receipt_that_cannot_be_understood_is_refused(
    installed: ModuleType, tmp_path: Path, text: str
) -> None:
    write_receipt(tmp_path, installed).write_text(text)
    with pytest.raises(installed.FileChanged, match="cannot be understood"):
        installed.check(installed.PACKAGE / "one.bin")


def test_two_receipts_are_refused(installed: ModuleType, tmp_path: Path) -> None:
    path = write_receipt(tmp_path, installed)
    shutil.copytree(path.parent, tmp_path / "wheelmark_kernels-0.2.0.dist-info")
    with pytest.raises(installed.FileChanged, match="cannot be understood"):
        installed.check(installed.PACKAGE / "one.bin")


@pytest.mark.parametrize("changed", [False, True])
def test_the_library_is_compared_before_it_is_loaded(
    python: Python, package_folder: Path, payload: ModuleType, tmp_path: Path, changed: bool
) -> None:
    shutil.copytree(package_folder / "wheelmark_kernels", tmp_path / "wheelmark_kernels")
    module = importlib.import_module(f"{payload.__name__}.installed")
    write_receipt(tmp_path, module, "wheelmark_kernels/_native.so")
    if changed:
        # Behind the last section: the loader would not mind.
        with (tmp_path / "wheelmark_kernels" / "_native.so").open("ab") as stream:
            stream.write(b"\0")
    done = python(tmp_path, "-c", "import wheelmark_kernels")
    assert done.returncode == int(changed)
    if changed:
        assert (
            "does not load _native.so: wheelmark_kernels/_native.so is not the file that was installed"
            in done.stderr
        )


def test_the_kernel_manifest_is_compared(
    python: Python, package_folder: Path, payload: ModuleType, tmp_path: Path
) -> None:
    shutil.copytree(package_folder / "wheelmark_kernels", tmp_path / "wheelmark_kernels")
    module = importlib.import_module(f"{payload.__name__}.installed")
    manifest = tmp_path / "wheelmark_kernels" / "code_objects" / "manifest.json"
    manifest.parent.mkdir(exist_ok=True)
    text = '{"schema": "https://wheelmark.dev/kernel-manifest/v1", "target": "cuda-sm90", "kernels": []}'
    manifest.write_text(text)
    names = ("wheelmark_kernels/_native.so", "wheelmark_kernels/code_objects/manifest.json")
    write_receipt(tmp_path, module, *names)
    assert python(tmp_path, "-c", ASK).returncode == 0
    manifest.write_text(text.replace("sm90", "sm80"))
    done = python(tmp_path, "-c", ASK)
    assert (
        "[digest] wheelmark_kernels/code_objects/manifest.json is not the file that was installed"
        in done.stderr
    )
