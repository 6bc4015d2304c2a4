from __future__ import annotations

import dataclasses
import email.parser
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from sample_project import SampleKernels, kernels, make_project, native_library
from wheelmark.binaries.wheel import read_wheel
from wheelmark.build.wheel import assemble_wheel, metadata, package_files, wheel_name, wheel_version
from wheelmark.config import Declaration, HostArch, TargetRow
from wheelmark.errors import BuildError, ConfigError
from wheelmark.targets import Target

CPU, SM90, GFX942 = (Target.parse(name) for name in ("cpu-x86_64", "cuda-sm90", "rocm-gfx942"))
INFO = "demo_kernels-0.1.0+cpu.dist-info"


@pytest.fixture
def declaration(tmp_path: Path) -> Declaration:
    return make_project(tmp_path / "project")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def assemble(
    declaration: Declaration, row: TargetRow, output: Path, parts: SampleKernels | None = None
) -> Path:
    return assemble_wheel(
        declaration,
        row,
        native=native_library(row.host),
        kernels=parts,
        output=output,
        sbom=lambda files: b'{"files":%d}' % len(files),
    )


def package(declaration: Declaration) -> Path:
    return declaration.root / "payload" / "demo_kernels"


def test_wheel_agrees_with_itself(declaration: Declaration, tmp_path: Path) -> None:
    path = assemble(declaration, declaration.row(CPU), tmp_path)
    assert path.name == "demo_kernels-0.1.0+cpu-py3-none-manylinux_2_28_x86_64.whl"
    wheel = read_wheel(path)
    name, version, _, tags = parse_wheel_filename(path.name)
    assert (wheel.name, wheel.version, wheel.tags) == (name, version, tags)
    assert wheel.dist_info == INFO
    assert not wheel.pure
    assert list(wheel.files) == [
        "demo_kernels/__init__.py",
        "demo_kernels/_native.so",
        "demo_kernels/py.typed",
        "demo_kernels/tuning/table.json",
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/licenses/LICENSE",
        f"{INFO}/licenses/licences/NOTICE",
        f"{INFO}/sboms/demo_kernels.cdx.json",
        f"{INFO}/RECORD",
    ]
    modes = {name: file.mode & 0o777 for name, file in wheel.files.items()}
    assert modes.pop("demo_kernels/_native.so") == 0o755
    assert set(modes.values()) == {0o644}


def test_every_member_is_stored_and_has_the_fixed_time(declaration: Declaration, tmp_path: Path) -> None:
    data = assemble(declaration, declaration.row(CPU), tmp_path).read_bytes()
    offset = members = 0
    while data[offset : offset + 4] == b"PK\x03\x04":
        _, flags, method, clock, date, _, size, _, length, extra = struct.unpack_from(
            "<HHHHHIIIHH", data, offset + 4
        )
        assert (flags, method, clock, date, extra) == (0, 0, 0, 1 << 5 | 1, 0)
        offset += 30 + length + size
        members += 1
    assert members == 10
    assert data[offset : offset + 4] == b"PK\x01\x02"


def test_code_objects_stand_beside_their_manifest(declaration: Declaration, tmp_path: Path) -> None:
    parts = kernels("cuda-sm90")
    wheel = read_wheel(assemble(declaration, declaration.row(SM90), tmp_path, parts))
    assert wheel.read("demo_kernels/code_objects/manifest.json") == parts.manifest.as_bytes()
    for name, data in parts.objects.items():
        assert wheel.read(f"demo_kernels/code_objects/{name}") == data


def test_same_bytes_in_other_surroundings(
    declaration: Declaration, tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = assemble(declaration, declaration.row(SM90), tmp_path / "a", kernels())
    for variable, value in {"TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1700000000", "USER": "other"}.items():
        monkeypatch.setenv(variable, value)
    time.tzset()
    other = make_project(tmp_path / "a-longer-place" / "project")
    monkeypatch.chdir(other.root)
    for path in other.root.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o755)
        os.utime(path, (1, 1))
    walk = os.walk

    def shuffled(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, files in walk(top):
            random.Random(7).shuffle(folders)
            yield folder, folders, files[::-1]

    monkeypatch.setattr("wheelmark.digests.os.walk", shuffled)
    second = assemble(other, other.row(SM90), tmp_path / "b", kernels())
    assert first.read_bytes() == second.read_bytes()
    monkeypatch.undo()
    time.tzset()


def test_metadata_says_what_the_declaration_says(declaration: Declaration) -> None:
    read = Metadata.from_email(metadata(declaration, declaration.row(CPU)))
    assert read.metadata_version == "2.4"
    assert read.name == "Demo.Kernels"
    assert read.version == Version("0.1.0+cpu")
    assert read.license_expression == "Apache-2.0"
    assert read.license_files == ["LICENSE", "licences/NOTICE"]
    assert read.description == "# Demo\n\nKernels.\n"
    assert {str(item) for item in read.requires_dist or []} == {
        "torch<2.15,>=2.10",
        "typing_extensions>=4",
    }
    assert str(read.requires_python) == ">=3.10"


def test_rocm_does_not_pull_the_index_torch(declaration: Declaration) -> None:
    read = Metadata.from_email(metadata(declaration, declaration.row(GFX942)))
    torch = next(item for item in read.requires_dist or [] if item.name == "torch")
    assert torch == Requirement('torch<2.15,>=2.10; extra == "torch"')
    assert not (torch.marker and torch.marker.evaluate({"extra": ""}))
    assert read.provides_extra == ["torch"]


def test_without_readme_there_is_no_description(declaration: Declaration) -> None:
    (declaration.root / "payload/README.md").unlink()
    message = email.parser.BytesParser().parsebytes(metadata(declaration, declaration.row(CPU)))
    assert message.get_payload() == ""
    assert "Description-Content-Type" not in message


def test_caches_and_compiled_files_stay_out(declaration: Declaration) -> None:
    before = package_files(declaration)
    for name in ("__pycache__/a.cpython-311.pyc", "_native.so", ".DS_Store", "a.o", ".idea/x.xml"):
        path = package(declaration) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"junk")
    assert package_files(declaration) == before


@pytest.mark.parametrize("name", ["notes.txt", "tbe.py.orig", "model.bin", "kernel.cu"])
def test_a_file_of_another_kind_is_refused(declaration: Declaration, name: str) -> None:
    (package(declaration) / name).write_bytes(b"x")
    with pytest.raises(BuildError, match=name) as caught:
        package_files(declaration)
    assert caught.value.reason == "wheel-source"


def test_links_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("KEY = 1\n")
    (package(declaration) / "linked.py").symlink_to(secret)
    with pytest.raises(BuildError) as caught:
        package_files(declaration)
    assert caught.value.reason == "wheel-source"


def test_linked_folders_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (package(declaration) / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BuildError) as caught:
        package_files(declaration)
    assert caught.value.reason == "wheel-source"


def test_two_inputs_for_one_path_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    folder = package(declaration) / "code_objects"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(BuildError, match="manifest") as caught:
        assemble(declaration, declaration.row(SM90), tmp_path, kernels())
    assert caught.value.reason == "wheel-conflict"


def test_paths_that_differ_in_case_only_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    (package(declaration) / "Table.py").write_text("")
    (package(declaration) / "table.py").write_text("")
    with pytest.raises(BuildError) as caught:
        assemble(declaration, declaration.row(CPU), tmp_path)
    assert caught.value.reason == "wheel-conflict"


def test_names_that_are_not_ascii_are_refused(declaration: Declaration, tmp_path: Path) -> None:
    (package(declaration) / "naïve.py").write_text("")
    with pytest.raises(BuildError) as caught:
        assemble(declaration, declaration.row(CPU), tmp_path)
    assert caught.value.reason == "wheel-source"


@pytest.mark.parametrize(
    ("target", "host", "parts"),
    [
        ("cpu-x86_64", HostArch.AARCH64, None),
        ("cuda-sm90", HostArch.X86_64, None),
        ("cuda-sm90", HostArch.X86_64, "rocm-gfx942"),
        ("cpu-x86_64", HostArch.X86_64, "cuda-sm90"),
    ],
)
def test_parts_of_two_targets_are_refused(
    declaration: Declaration, tmp_path: Path, target: str, host: HostArch, parts: str | None
) -> None:
    with pytest.raises(BuildError) as caught:
        assemble_wheel(
            declaration,
            declaration.row(Target.parse(target)),
            native=native_library(host),
            kernels=kernels(parts) if parts else None,
            output=tmp_path,
            sbom=lambda _files: b"{}",
        )
    assert caught.value.reason == "wheel-parts"
    assert not list(tmp_path.glob("*.whl"))


def test_missing_package_and_licence_are_named(declaration: Declaration, tmp_path: Path) -> None:
    (declaration.root / "payload/licences/NOTICE").unlink()
    with pytest.raises(ConfigError, match="NOTICE") as caught:
        assemble(declaration, declaration.row(CPU), tmp_path)
    assert caught.value.reason == "wheel-license"
    (package(declaration) / "__init__.py").unlink()
    with pytest.raises(ConfigError) as caught:
        package_files(declaration)
    assert caught.value.reason == "wheel-package"


def test_a_range_that_admits_an_older_torch_is_refused(declaration: Declaration) -> None:
    row = dataclasses.replace(declaration.row(CPU), torch=">=2.9,<2.15")
    with pytest.raises(ConfigError, match=r"2\.9") as caught:
        metadata(declaration, row)
    assert caught.value.reason == "wheel-torch-range"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dependencies": ("not a requirement!",)}, "wheel-requirement"),
        ({"requires_python": "three"}, "wheel-requirement"),
        ({"summary": "one\nLicense-Expression: MIT"}, "wheel-requirement"),
        ({"version": "0.1.0+mine"}, "wheel-version"),
        ({"version": "next"}, "wheel-version"),
    ],
)
def test_malformed_metadata_is_refused(
    declaration: Declaration, changes: dict[str, object], reason: str
) -> None:
    project = dataclasses.replace(declaration.project, **changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        metadata(dataclasses.replace(declaration, project=project), declaration.row(CPU))
    assert caught.value.reason == reason


def test_local_labels_are_compared_as_versions(declaration: Declaration) -> None:
    row = dataclasses.replace(declaration.row(CPU), local="x86_64")
    assert wheel_version(declaration, row) == Version("0.1.0+x86_64")
    assert wheel_name(declaration, row).startswith("demo_kernels-0.1.0+x86.64-py3-none-")
