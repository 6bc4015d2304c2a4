"""Wheels laid out: what an installer would write, at the same places, without running anything."""

from __future__ import annotations

import csv
import io
import posixpath
from pathlib import Path

import pytest

import wheelmaking as make
from wheelmark.build.image.tree import EXECUTABLE, PLAIN, Tree
from wheelmark.build.image.wheels import lay_out
from wheelmark.config.recipe import PythonPlace
from wheelmark.errors import BuildError, InputError

PYTHON = PythonPlace(
    version="3.11", executable="/usr/bin/python3.11", site="/usr/local/lib/python3.11/dist-packages"
)
SITE = "usr/local/lib/python3.11/dist-packages"
NAME = "demo-1.0-py3-none-any.whl"
INFO = "demo-1.0.dist-info"


def laid_out(
    folder: Path, files: dict[str, bytes], name: str = NAME, **spoil: bytes
) -> dict[str, tuple[int, bytes]]:
    """Path -> mode and bytes."""
    path = folder / name
    path.write_bytes(make.wheel_bytes(files, name, **spoil))
    with Tree("payload") as tree:
        lay_out([path], PYTHON, tree)
        return {name: (node.mode, b"".join(node.chunks())) for name, node in tree.entries() if node.sha256}


def refusal(folder: Path, files: dict[str, bytes], **spoil: bytes) -> str:
    with pytest.raises((BuildError, InputError)) as caught:
        laid_out(folder, files, NAME, **spoil)
    return caught.value.reason


def test_files_scripts_and_data_go_where_they_belong(tmp_path: Path) -> None:
    found = laid_out(
        tmp_path,
        {
            "demo/__init__.py": b"x = 1\n",
            "demo/__pycache__/__init__.cpython-311.pyc": b"code",
            "demo-1.0.data/purelib/pure.py": b"p",
            "demo-1.0.data/platlib/plat.so": b"s",
            "demo-1.0.data/scripts/run": b"#!python -O\nprint(1)\n",
            "demo-1.0.data/scripts/native": b"\x7fELF",
            "demo-1.0.data/headers/demo.h": b"h",
            "demo-1.0.data/data/share/demo.txt": b"d",
            f"{INFO}/entry_points.txt": b"[console_scripts]\ndemo = demo.cli:main.run [extra]\n[gui_scripts]\nshow = demo:show\n[other]\nx = y\n",
        },
    )
    assert found[f"{SITE}/demo/__init__.py"] == (PLAIN, b"x = 1\n")
    assert not [name for name in found if name.endswith(".pyc")]
    assert found[f"{SITE}/pure.py"][1] + found[f"{SITE}/plat.so"][1] == b"ps"
    assert found["usr/local/bin/run"] == (EXECUTABLE, b"#!/usr/bin/python3.11 -O\nprint(1)\n")
    assert found["usr/local/bin/native"] == (EXECUTABLE, b"\x7fELF")
    assert found["usr/local/include/python3.11/demo/demo.h"] == (PLAIN, b"h")
    assert found["usr/local/share/demo.txt"] == (PLAIN, b"d")
    mode, text = found["usr/local/bin/demo"]
    assert mode == EXECUTABLE
    assert text.startswith(b"#!/usr/bin/python3.11\nimport sys\n")
    assert b"from demo.cli import main\n" in text
    assert b"sys.exit(main.run())" in text
    assert b"from demo import show\n" in found["usr/local/bin/show"][1]


def test_record_lists_what_lies_in_the_image(tmp_path: Path) -> None:
    files = {
        "demo/a,b.py": b"1",
        "demo-1.0.data/scripts/run": b"#!python\n",
        f"{INFO}/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
    }
    found = laid_out(tmp_path, files)
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(found[f"{SITE}/{INFO}/RECORD"][1].decode()))}
    assert rows[f"{INFO}/RECORD"] == ["", ""]
    assert set(rows) == {
        "../../../bin/demo", "../../../bin/run", "demo/a,b.py", f"{INFO}/METADATA", f"{INFO}/WHEEL",
        f"{INFO}/entry_points.txt", f"{INFO}/INSTALLER", f"{INFO}/RECORD",
    }  # fmt: skip
    for path, (digest, size) in rows.items():
        if digest:
            data = found[posixpath.normpath(f"{SITE}/{path}")][1]
            assert make.record_line("x", data).strip() == f"x,{digest},{size}"


def test_the_executable_bit_is_kept(tmp_path: Path) -> None:
    entries = make.wheel_entries({"demo/tool": b"#!"}, NAME)
    entries[0].mode = 0o100755
    path = tmp_path / NAME
    path.write_bytes(make.zip_bytes(entries))
    with Tree("payload") as tree:
        lay_out([path], PYTHON, tree)
    node = tree.get(f"{SITE}/demo/tool")
    assert node is not None
    assert node.mode == EXECUTABLE


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"demo-1.0.data/elsewhere/x": b"1"}, "image-wheel"),
        ({"demo-1.0.data/x": b"1"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\ndemo = os; rm\n"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\n../demo = a:b\n"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\na/b = a:b\n"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\na = a:b\na = c:d\n"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"no section\n"}, "image-wheel"),
        ({f"{INFO}/entry_points.txt": b"\xff"}, "image-wheel"),
        ({"../outside": b"1"}, "wheel-path"),
        ({"demo-1.0.data/data/../../../../etc/passwd": b"1"}, "wheel-path"),
        ({f"{INFO}/INSTALLER": b"pip\n"}, "image-conflict"),
        (
            {
                "demo-1.0.data/scripts/demo": b"1",
                f"{INFO}/entry_points.txt": b"[console_scripts]\ndemo = a:b\n",
            },
            "image-conflict",
        ),
        ({"demo-1.0.data/purelib/demo.py": b"1", "demo.py": b"2"}, "image-conflict"),
    ],
)
def test_wheels_that_cannot_be_laid_out(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    assert refusal(tmp_path, files) == reason


def test_a_wheel_whose_record_is_wrong(tmp_path: Path) -> None:
    record = b"demo.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
    assert refusal(tmp_path, {"demo.py": b"1"}, record=record) == "wheel-record"


@pytest.mark.parametrize("text", ["<3.11", "no range"])
def test_a_wheel_for_another_python(tmp_path: Path, text: str) -> None:
    metadata = f"Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nRequires-Python: {text}\n".encode()
    assert refusal(tmp_path, {"demo.py": b"1"}, metadata=metadata) == "image-wheel"


def test_two_wheels_of_one_project(tmp_path: Path) -> None:
    paths = []
    for name in ("demo-1.0-py3-none-any.whl", "Demo-2.0-py3-none-any.whl"):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(make.wheel_bytes({"x.py": b""}, name))
    with Tree("payload") as tree, pytest.raises(BuildError) as caught:
        lay_out(paths, PYTHON, tree)
    assert caught.value.reason == "image-wheel-twice"


def test_a_wheel_that_changes_while_the_layer_is_written(tmp_path: Path) -> None:
    path = tmp_path / NAME
    data = make.wheel_bytes({"demo.py": b"A" * 5000}, NAME)
    path.write_bytes(data)
    with Tree("payload") as tree:
        lay_out([path], PYTHON, tree)
        entries = make.wheel_entries({"demo.py": b"B" * 5000}, NAME)
        with path.open("r+b") as stream:
            stream.write(make.zip_bytes(entries)[: len(data)])
        node = tree.get(f"{SITE}/demo.py")
        assert node is not None
        with pytest.raises(InputError) as caught:
            b"".join(node.chunks())
    assert caught.value.reason == "wheel-record"
