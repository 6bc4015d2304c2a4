"""What lies on disk against the wheel: each kind of difference, planted, has its reason."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import py_compile
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from handinstalled import FILES, INFO, Installed, spread
from wheelmark.binaries.wheel import read_wheel
from wheelmark.deploy.audit import audit_receipt, strange_startup_files
from wheelmark.deploy.disk import layout_of, startup_files
from wheelmark.deploy.interpreter import Interpreter
from wheelmark.errors import InputError

PACKAGE = "demo_kernels"


def test_what_an_installer_leaves_is_explained(demo: Installed) -> None:
    assert demo.findings() == {}
    assert [demo.layout.short(folder) for folder in demo.layout.owned] == [PACKAGE, INFO]


@pytest.mark.parametrize("name", [*FILES, f"{INFO}/METADATA", f"{INFO}/WHEEL"])
def test_one_byte_of_any_file_counts(demo: Installed, name: str) -> None:
    path = demo.site / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert demo.findings() == {name: "installed-changed"}


@pytest.mark.parametrize("name", [*FILES, f"{INFO}/METADATA"])
def test_a_file_that_is_missing(demo: Installed, name: str) -> None:
    (demo.site / name).unlink()
    assert demo.findings() == {name: "installed-missing"}


def test_a_link_to_the_right_bytes_is_a_change(demo: Installed, tmp_path: Path) -> None:
    path = demo.site / PACKAGE / "_native.so"
    shutil.move(path, tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    assert demo.findings() == {f"{PACKAGE}/_native.so": "installed-changed"}


@pytest.mark.parametrize(
    "name",
    [
        f"{PACKAGE}/extra.py",
        f"{PACKAGE}/__init__.cpython-311-x86_64-linux-gnu.so",
        f"{PACKAGE}/deep/er/extra.txt",
        f"{INFO}/extra",
        f"{INFO}/RECORD.jws",
        f"{PACKAGE}/__pycache__/gone.cpython-311.pyc",
        f"{PACKAGE}/__pycache__/note.txt",
    ],
)
def test_an_extra_file_is_refused(demo: Installed, name: str) -> None:
    path = demo.site / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    assert demo.findings() == {name: "installed-added"}


def test_a_folder_in_the_package_that_is_a_link_is_refused(demo: Installed, tmp_path: Path) -> None:
    (demo.site / PACKAGE / "more").symlink_to(tmp_path)
    assert demo.findings() == {f"{PACKAGE}/more": "installed-added"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INSTALLER", "conda\n"),
        ("REQUESTED", "x"),
        ("direct_url.json", "{}"),
        ("direct_url.json", "nonsense"),
        ("direct_url.json", json.dumps({"archive_info": {"hashes": {"sha256": "0" * 64}}})),
        ("uv_cache.json", "[]"),
        ("uv_cache.json", "{"),
    ],
)
def test_what_an_installer_adds_is_looked_at(demo: Installed, name: str, text: str) -> None:
    (demo.site / INFO / name).write_text(text)
    record = demo.site / INFO / "RECORD"
    record.write_text(record.read_text() + f"{INFO}/uv_cache.json,,\n" * (name == "uv_cache.json"))
    assert demo.findings() == {f"{INFO}/{name}": "installed-added"}


def test_a_console_script_loads_what_the_wheel_says(demo: Installed) -> None:
    script = demo.python.scripts / "demo"
    script.write_text("#!/usr/bin/python\nimport evil\n")
    assert demo.findings() == {demo.layout.short(script): "installed-added"}


def test_record_may_not_list_what_is_not_ours(demo: Installed) -> None:
    record = demo.site / INFO / "RECORD"
    record.write_text(record.read_text() + "../../../somebody-elses,,\n")
    assert demo.findings() == {f"{INFO}/RECORD": "installed-added"}


def test_record_has_to_list_what_is_ours(demo: Installed) -> None:
    record = demo.site / INFO / "RECORD"
    record.write_text("".join(line for line in record.read_text().splitlines(True) if "part.py" not in line))
    assert demo.findings() == {f"{INFO}/RECORD": "installed-changed"}


def test_a_second_installation_is_seen(demo: Installed) -> None:
    (demo.site / "Demo.Kernels-0.9.dist-info").mkdir()
    assert demo.findings() == {"Demo.Kernels-0.9.dist-info": "installed-replaced"}


def compiled(demo: Installed, name: str, optimize: int = -1) -> Path:
    made = py_compile.compile(str(demo.site / PACKAGE / name), doraise=True, optimize=optimize)
    assert made is not None
    return Path(made)


@pytest.mark.parametrize("optimize", [0, 1, 2])
@pytest.mark.parametrize("name", ["__init__.py", "inner/part.py"])
def test_what_the_interpreter_compiles_is_explained(demo: Installed, name: str, optimize: int) -> None:
    assert compiled(demo, name, optimize=optimize).exists()
    assert demo.findings() == {}


@pytest.mark.parametrize(
    "other",
    [
        b"VALUE = (1, 1.0, 1, {2, 3})\n\n\ndef run():\n    return lambda: VALUE\n",
        b"VALUE = (1, 1.0, True, {2, 3})\n\n\ndef run():\n    return lambda: EVIL\n",
        b"import os; VALUE = (1, 1.0, True, {2, 3})\n\n\ndef run():\n    return lambda: VALUE\n",
    ],
)
def test_a_compiled_module_that_says_something_else_is_a_change(demo: Installed, other: bytes) -> None:
    source = demo.site / PACKAGE / "__init__.py"
    right = source.read_bytes()
    source.write_bytes(other)
    path = compiled(demo, "__init__.py")
    head = compiled_header(source, right)
    path.write_bytes(head + path.read_bytes()[16:])  # the interpreter would take it
    assert demo.findings() == {demo.layout.short(path): "installed-changed"}


def compiled_header(source: Path, data: bytes) -> bytes:
    """Put the source back, and give the header that fits it."""
    source.write_bytes(data)
    path = Path(str(py_compile.compile(str(source), cfile=str(source) + "c", doraise=True)))
    head = path.read_bytes()[:16]
    path.unlink()
    return head


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:20], lambda data: data[:16] + b"\x00" * 40, lambda _data: b""]
)
def test_a_broken_compiled_module_is_a_change(demo: Installed, spoil: Callable[[bytes], bytes]) -> None:
    path = compiled(demo, "__init__.py")
    path.write_bytes(spoil(path.read_bytes()))
    assert demo.findings() == {demo.layout.short(path): "installed-changed"}


def strange(demo: Installed, known: dict[str, str], *brought: str) -> dict[str, str]:
    found = strange_startup_files(demo.site, demo.python, known, brought=brought)
    return {item.subject: item.reason for item in found}


def test_startup_files_that_were_not_there_or_said_something_else(demo: Installed) -> None:
    (demo.site / "there.pth").write_text("import there\n")
    before = startup_files(demo.site, demo.python)
    assert list(before) == ["there.pth"]
    assert strange(demo, before) == {}
    (demo.site / "evil.pth").write_text("import evil\n")
    (demo.site / "sitecustomize.py").write_text("import evil\n")
    (demo.site / "usercustomize").mkdir()
    (demo.site / "usercustomize" / "__init__.py").write_text("import evil\n")
    (demo.site / "there.pth").write_text("import evil\n")
    assert strange(demo, before) == {
        "evil.pth": "installed-added",
        "sitecustomize.py": "installed-added",
        "usercustomize/__init__.py": "installed-added",
        "there.pth": "installed-changed",
    }
    assert strange(demo, startup_files(demo.site, demo.python)) == {}


def test_startup_files_of_both_site_folders_count(demo: Installed, tmp_path: Path) -> None:
    pure = tmp_path / "pure"
    pure.mkdir()
    both = dataclasses.replace(demo, python=dataclasses.replace(demo.python, purelib=pure))
    before = startup_files(both.site, both.python)
    (pure / "evil.pth").write_text("import evil\n")
    assert strange(both, before) == {os.path.relpath(pure / "evil.pth", both.site): "installed-added"}


def test_a_pipe_as_a_startup_file_is_not_waited_for(demo: Installed) -> None:
    os.mkfifo(demo.site / "wait.pth")
    assert strange(demo, {}) == {"wait.pth": "installed-added"}


def test_a_startup_file_is_vouched_for_by_what_was_just_installed_alone(
    demo: Installed, tmp_path: Path
) -> None:
    receipt = demo.keep_receipt(tmp_path / "state")
    text = b"import setup\n"
    (demo.site / "own.pth").write_bytes(text)
    info = demo.site / "other-1.dist-info"
    info.mkdir()
    said = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"own.pth,sha256={said},{len(text)}\n")
    assert strange(demo, {}, "demo-kernels", "other") == {}
    assert strange(demo, {}, "demo-kernels") == {"own.pth": "installed-added"}
    audited = {item.subject: item.reason for item in audit_receipt(receipt, demo.python)}
    assert audited == {"own.pth": "installed-added"}
    (demo.site / "own.pth").write_bytes(b"import evil\n")
    assert strange(demo, {}, "other") == {"own.pth": "installed-added"}


def test_data_schemes_go_where_they_belong(environment: Interpreter) -> None:
    files = {
        "demo_kernels-1.0+cpu.data/purelib/pure.py": b"pure",
        "demo_kernels-1.0+cpu.data/data/share/demo/table": b"table",
        "demo_kernels-1.0+cpu.data/scripts/plain": b"#!/bin/sh\n",
        "demo_kernels-1.0+cpu.data/scripts/rewritten": b"#!python\n",
    }
    wheel = read_wheel(wheelmaking.wheel_bytes(files), name=wheelmaking.NAME)
    layout = layout_of(wheel, environment)
    places = {
        os.path.relpath(path, environment.prefix): bool(sha256) for path, sha256 in layout.files.items()
    }
    assert places["site/pure.py"]
    assert places["share/demo/table"]
    assert places["bin/plain"]
    assert not places["bin/rewritten"]
    assert [layout.short(folder) for folder in layout.owned] == [INFO]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"demo_kernels-1.0+cpu.data/headers/demo.h": b""}, "wheel-layout"),
        ({"demo_kernels-1.0+cpu.data/other/demo": b""}, "wheel-layout"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\nno value\n"}, "wheel-metadata"),
        ({f"{INFO}/entry_points.txt": b"\xff"}, "wheel-metadata"),
        ({f"{INFO}/entry_points.txt": b"[console_scripts]\n../evil = a:b\n"}, "wheel-path"),
    ],
)
def test_a_layout_that_cannot_be_installed_is_refused(
    environment: Interpreter, files: dict[str, bytes], reason: str
) -> None:
    wheel = read_wheel(wheelmaking.wheel_bytes(files), name=wheelmaking.NAME)
    with pytest.raises(InputError) as caught:
        layout_of(wheel, environment)
    assert caught.value.reason == reason


TOP = {**FILES, "demo_top.py": b"VALUE = 'right'\n", "demo_bare/part.py": b"VALUE = 1\n"}


@pytest.mark.parametrize(
    "name",
    [
        "demo_top/__init__.py",
        "demo_top.abi3.so",
        "demo_top.cpython-311-x86_64-linux-gnu.so",
        "demo_top.pyc",
        "demo_bare.py",
        "demo_bare.abi3.so",
        "__pycache__/demo_top.note.pyc",
    ],
)
def test_what_would_be_imported_in_place_of_a_module_is_refused(
    environment: Interpreter, tmp_path: Path, name: str
) -> None:
    """A module at the wheel's root, and a folder without ``__init__.py``, are found behind others of their names."""
    installed = spread(environment, TOP)
    assert installed.findings() == {}
    receipt = installed.keep_receipt(tmp_path)
    path = installed.site / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"VALUE = 'wrong'\n")
    assert installed.findings() == {name: "installed-added"}
    assert {item.subject: item.reason for item in audit_receipt(receipt, environment)} == {
        name: "installed-added"
    }


@pytest.mark.parametrize(
    "name",
    [
        "ns/__init__.py",
        "ns/__init__.abi3.so",
        "ns/__init__.pyc",
        "ns.py",
        "ns.abi3.so",
        "ns/sub.py",
        "ns/sub.so",
    ],
)
def test_what_a_namespace_above_the_wheels_folder_would_run_is_refused(
    environment: Interpreter, tmp_path: Path, name: str
) -> None:
    installed = spread(environment, {**FILES, "ns/sub/mod.py": b"VALUE = 'right'\n"})
    other = installed.site / "ns" / "other"  # another distribution's share of the namespace
    other.mkdir()
    (other / "__init__.py").write_bytes(b"")
    (installed.site / "ns" / "loose.py").write_bytes(b"")
    assert installed.findings() == {}
    receipt = installed.keep_receipt(tmp_path)
    (installed.site / name).write_bytes(b"VALUE = 'wrong'\n")
    assert installed.findings() == {name: "installed-added"}
    assert {item.subject: item.reason for item in audit_receipt(receipt, environment)} == {
        name: "installed-added"
    }


def test_a_module_at_the_root_may_be_compiled_to_what_it_says(environment: Interpreter) -> None:
    installed = spread(environment, TOP)
    source = installed.site / "demo_top.py"
    cache = Path(py_compile.compile(str(source), doraise=True) or "")
    assert installed.findings() == {}
    other = installed.site.parent / "other.py"
    other.write_bytes(b"VALUE = 'wrong'\n")
    py_compile.compile(str(other), cfile=str(cache), doraise=True)
    assert installed.findings() == {installed.layout.short(cache): "installed-changed"}


def test_of_a_script_the_installer_writes_the_first_line_alone(environment: Interpreter) -> None:
    body = b"print('right')\n"
    installed = spread(
        environment, {**FILES, "demo_kernels-1.0+cpu.data/scripts/run-demo": b"#!python\n" + body}
    )
    script = environment.scripts / "run-demo"
    script.parent.mkdir(exist_ok=True)
    start = f"#!{environment.scripts}/python\n".encode()
    long = f"#!/bin/sh\n'''exec' \"{environment.scripts}/python\" \"$0\" \"$@\"\n' '''\n".encode()
    name = installed.layout.short(script)
    for data in (start + body, long + body):
        script.write_bytes(data)
        assert name not in installed.findings()
    for data in (start + b"print('wrong')\n", b"#!/tmp/python\n" + body, start + b"import os\n" + body, body):
        script.write_bytes(data)
        assert installed.findings()[name] == "installed-changed"
