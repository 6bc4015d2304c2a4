import hashlib
import importlib.metadata
import os
import shlex
import tarfile
import tomllib
from pathlib import Path

import pytest

import wheelmark
from sample_project import make_project
from wheelmark import backend
from wheelmark.errors import Exit

ROOT = Path(__file__).parents[3]
PYPROJECT = '[build-system]\nrequires = ["wheelmark[build]"]\nbuild-backend = "wheelmark.backend"\n'


def pin(name: str, version: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{'a' * 64}\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source folder of a project, as the working directory of a frontend."""
    root = tmp_path / "project"
    make_project(root)
    (root / "payload" / "pyproject.toml").write_text(PYPROJECT)
    (root / "lockfiles").mkdir()
    lock = "".join(pin(*item) for item in (("numpy", "2.4.6"), ("torch", "9.9+cpu"), ("triton", "3.7.1")))
    (root / "lockfiles" / "build.txt").write_text(lock)
    monkeypatch.chdir(root / "payload")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return root / "payload"


def refused(
    capsys: pytest.CaptureFixture[str], error: pytest.ExceptionInfo[SystemExit]
) -> tuple[object, str]:
    return error.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, ["torch==9.9+cpu"]),
        ({"target": "cpu-aarch64"}, ["torch==9.9+cpu"]),
        ({"target": "cuda-sm90", "cache": "/somewhere"}, ["torch==9.9+cpu", "triton==3.7.1"]),
    ],
)
def test_a_frontend_is_told_what_the_lock_holds(
    source: Path, settings: dict[str, str] | None, expected: list[str]
) -> None:
    assert backend.get_requires_for_build_wheel(settings) == expected
    assert backend.get_requires_for_build_sdist(settings) == []


@pytest.mark.parametrize(
    "settings", [{"traget": "cuda-sm90"}, {"target": ["cuda-sm90", "cuda-sm80"]}, {"--build-option": "x"}]
)
def test_a_setting_that_is_none_is_refused(
    source: Path, settings: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    for hook in (backend.get_requires_for_build_wheel, backend.build_wheel, backend.build_sdist):
        arguments = [settings] if hook is backend.get_requires_for_build_wheel else [str(source), settings]
        with pytest.raises(SystemExit) as error:
            hook(*arguments)
        code, text = refused(capsys, error)
        assert code == Exit.CONFIG
        assert "is no setting of this backend" in text
        assert getattr(error.value.__cause__, "reason", "") == "backend-setting"


def test_a_target_outside_the_table_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        backend.get_requires_for_build_wheel({"target": "cuda-sm80"})
    assert refused(capsys, error)[0] == Exit.CONFIG


def test_a_cpu_without_a_row_has_to_be_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SystemExit) as error:
        backend.get_requires_for_build_wheel()
    code, text = refused(capsys, error)
    assert (code, getattr(error.value.__cause__, "reason", "")) == (Exit.CONFIG, "backend-setting")
    assert "-C target=cpu-x86_64" in text


@pytest.mark.parametrize("held", ["2.13.0+cpu", None], ids=["another", "none"])
def test_a_build_environment_that_is_not_the_locked_one_builds_nothing(
    source: Path,
    tmp_path: Path,
    held: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def version(name: str) -> str:
        if held is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return held

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(SystemExit) as error:
        backend.build_wheel(str(tmp_path / "out"))
    code, text = refused(capsys, error)
    assert (code, getattr(error.value.__cause__, "reason", "")) == (Exit.BUILD, "backend-environment")
    assert f"holds torch {held or 'none'}; build.txt locks 9.9+cpu" in text
    assert "-r lockfiles/build.txt" in text
    assert not (tmp_path / "out").exists()


def test_outside_of_a_project_the_refusal_has_words_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        backend.build_sdist(str(tmp_path))
    code, text = refused(capsys, error)
    assert code == Exit.CONFIG
    assert text.startswith("wheelmark.backend: no wheelmark.toml")


def test_an_archive_holds_what_a_wheel_is_built_from_and_unpacks_to_a_project(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "demo_kernels" / "__pycache__").mkdir()
    for name in ("demo_kernels/__pycache__/one.pyc", "demo_kernels/left.so", ".hidden"):
        (source / name).write_bytes(b"x")
    name = backend.build_sdist(str(tmp_path / "out"))
    assert name == "demo_kernels-0.1.0.tar.gz"
    with tarfile.open(tmp_path / "out" / name) as archive:
        members = archive.getmembers()
        archive.extractall(tmp_path / "unpacked", filter="data")
    inside = {member.name.removeprefix("demo_kernels-0.1.0/") for member in members}
    assert inside >= {
        "PKG-INFO",
        "pyproject.toml",
        "wheelmark.toml",
        "lockfiles/build.txt",
        "payload/csrc/one.cpp",
    }
    assert not {item for item in inside if item.endswith((".pyc", ".so")) or "/." in f"/{item}"}
    assert {(member.uid, member.gid, member.mtime, member.mode) for member in members} == {
        (0, 0, 315_532_800, 0o644)
    }
    root = tmp_path / "unpacked" / "demo_kernels-0.1.0"
    info = (root / "PKG-INFO").read_text().splitlines()
    # From 2.2 on, a version that the wheels do not have would be a lie: theirs has a label.
    assert {"Metadata-Version: 2.1", "Version: 0.1.0", "Name: Demo.Kernels"} <= set(info)
    assert not [line for line in info if line.startswith("Requires-Dist")]
    monkeypatch.chdir(root)
    assert backend.get_requires_for_build_wheel() == ["torch==9.9+cpu"]


def test_an_archive_is_the_same_bytes_whatever_modes_times_and_places(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (tmp_path / "one" / backend.build_sdist(str(tmp_path / "one"))).read_bytes()
    moved = tmp_path / "elsewhere"
    source.parent.rename(moved)
    for path in moved.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (1e9, 1e9))
    monkeypatch.chdir(moved / "payload")
    second = (tmp_path / "two" / backend.build_sdist(str(tmp_path / "two"))).read_bytes()
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()


def test_this_repositorys_payload_names_this_version_and_installs_nothing_without_a_hash() -> None:
    document = tomllib.loads((ROOT / "kernels" / "pyproject.toml").read_text())
    assert document["build-system"]["requires"] == [f"wheelmark[build]=={wheelmark.__version__}"]
    settings = document["tool"]["cibuildwheel"]
    assert (settings["audit-command"], settings["repair-wheel-command"]) == ("", "")
    *locked, own = settings["before-build"]
    assert [line.rpartition("/")[2] for line in locked] == ["nox.txt", "tools.txt", "build.txt"]
    assert all("--require-hashes --no-deps" in line for line in locked)
    assert own.endswith("--no-deps --no-build-isolation {package}/..")


def test_the_workflow_builds_every_row_that_this_route_has() -> None:
    rows = tomllib.loads((ROOT / "wheelmark.toml").read_text())["targets"]
    (line,) = [
        line
        for line in (ROOT / ".github" / "workflows" / "wheels.yml").read_text().splitlines()
        if line.strip().startswith("target: [")
    ]
    named = line.partition("[")[2].rstrip("]").split(", ")
    assert named == [row["target"] for row in rows if row["host"] == "x86_64"]


def test_no_page_gives_pip_a_folder_that_it_takes_for_a_name_of_the_index() -> None:
    """``pip wheel kernels`` fetches the project of that name; a folder is one to pip only with a ``/`` in it, or as ``.``."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "kernels").glob("*.md")]
    lines = [
        line.removeprefix("$ ")
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith(("$ python3 -m pip ", "$ pip "))
    ]
    assert any("pip wheel ./kernels" in line for line in lines)
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    for line in lines:
        assert not folders & set(shlex.split(line, comments=True)), line
