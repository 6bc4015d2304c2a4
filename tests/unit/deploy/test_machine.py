"""What a machine says of itself, from made-up trees; what does not answer is a note."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wheelmark.deploy.interpreter import Interpreter, read_interpreter
from wheelmark.deploy.machine import Places, detect
from wheelmark.errors import MachineError

CPUINFO = "processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f\n"


def places(root: Path, **changes: str) -> Places:
    return Places(
        cuda=changes.get("cuda", str(root / "libcuda.so.1")),
        nvml=changes.get("nvml", str(root / "libnvidia-ml.so.1")),
        proc=root / "proc",
        sys=root / "sys",
    )


def node(root: Path, number: int, properties: str, name: str = "") -> None:
    folder = root / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
    folder.mkdir(parents=True)
    (folder / "properties").write_text(properties)
    (folder / "name").write_text(name)


def test_a_machine_with_nothing_has_notes_and_no_error(this_python: Interpreter, tmp_path: Path) -> None:
    found = detect(this_python, places(tmp_path))
    assert found.cards == ()
    assert found.features == ()
    assert any("libcuda.so.1" in note for note in found.notes)
    assert any("libnvidia-ml.so.1" in note for note in found.notes)
    assert found.notes[-1] == "no card of NVIDIA or AMD answers"
    assert (found.arch, found.glibc) == (this_python.arch, this_python.glibc)
    assert found.as_json()["cards"] == []


@pytest.mark.parametrize(
    ("version", "arch"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (100300, "gfx1030"), (110001, "gfx1101")],
)
def test_amd_cards_come_from_the_topology(
    this_python: Interpreter, tmp_path: Path, version: int, arch: str
) -> None:
    node(tmp_path, 0, "cpu_cores_count 64\ngfx_target_version 0\n")
    node(tmp_path, 1, f"simd_count 304\ngfx_target_version {version}\n", "aqua_vanjaram\n")
    module = tmp_path / "sys" / "module" / "amdgpu"
    module.mkdir(parents=True)
    (module / "version").write_text("6.12.12\n")
    (card,) = detect(this_python, places(tmp_path)).cards
    assert (card.arch, card.name, card.driver) == (arch, "aqua_vanjaram", "6.12.12")
    assert str(card) == f"{arch} (aqua_vanjaram), driver 6.12.12"


@pytest.mark.parametrize(
    "properties", ["", "gfx_target_version\n", "gfx_target_version -1\n", "gfx_target_version 9" + "0" * 30]
)
def test_a_node_that_says_nothing_is_a_note(
    this_python: Interpreter, tmp_path: Path, properties: str
) -> None:
    node(tmp_path, 3, properties)
    found = detect(this_python, places(tmp_path))
    assert found.cards == ()
    assert "AMD: node 3 does not say what it is" in found.notes


def test_the_topology_may_be_no_folder(this_python: Interpreter, tmp_path: Path) -> None:
    nodes = tmp_path / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes"
    nodes.parent.mkdir(parents=True)
    nodes.write_text("")
    assert any("Not a directory" in note for note in detect(this_python, places(tmp_path)).notes)


def test_what_is_no_library_is_a_note(this_python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    found = detect(this_python, places(tmp_path))
    assert any(note.startswith("NVIDIA: ") and "libcuda" in note for note in found.notes)


def test_a_library_without_the_functions_is_a_note(this_python: Interpreter, tmp_path: Path) -> None:
    found = detect(this_python, places(tmp_path, cuda="libc.so.6", nvml="libc.so.6"))
    assert any("cuDriverGetVersion" in note for note in found.notes)
    assert any("nvmlInit_v2" in note for note in found.notes)


def test_features_of_the_cpu(this_python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(CPUINFO)
    assert detect(this_python, places(tmp_path)).features == ("avx2", "avx512f")


def test_the_interpreter_is_asked_itself() -> None:
    found = read_interpreter(Path(sys.executable))
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.packages["pytest"] == pytest.__version__
    assert found.markers["sys_platform"] == sys.platform


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho nonsense\n", "#!/bin/sh\necho '{}'\n", ""]
)
def test_what_is_no_interpreter_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "python"
    path.write_text(text)
    path.chmod(0o755)
    with pytest.raises(MachineError) as caught:
        read_interpreter(path)
    assert caught.value.reason == "python"
    with pytest.raises(MachineError):
        read_interpreter(tmp_path / "absent")
