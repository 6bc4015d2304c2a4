"""Receipts, and what an audit finds after somebody was there."""

from __future__ import annotations

import dataclasses
import json
import os
import py_compile
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handinstalled import INFO, Installed
from wheelmark import digests
from wheelmark.deploy import audit as audit_module
from wheelmark.deploy.audit import audit_environment, audit_receipt
from wheelmark.deploy.disk import COPY
from wheelmark.deploy.receipt import COPY_SCHEMA, Receipt, Receipts, record_files, stamp
from wheelmark.errors import ConfigError, Exit, InputError

PACKAGE = "demo_kernels"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def receipt(demo: Installed, state: Path) -> Receipt:
    return demo.keep_receipt(state)


def found(receipt: Receipt, demo: Installed) -> dict[str, str]:
    return {item.subject: item.reason for item in audit_receipt(receipt, demo.python)}


def test_nothing_happened(receipt: Receipt, demo: Installed) -> None:
    assert found(receipt, demo) == {}
    assert demo.findings() == {}


def test_a_receipt_is_read_as_it_was_written(receipt: Receipt, demo: Installed, state: Path) -> None:
    receipts = Receipts(demo.site, state=state)
    assert receipts.names() == ("demo-kernels",)
    assert receipts.read("demo-kernels") == receipt
    assert receipts.read("other") is None
    path = receipts.folder / "demo-kernels.json"
    assert [item.stat().st_mode & 0o777 for item in (path, path.parent, state)] == [0o600, 0o700, 0o700]


def test_the_copy_has_what_the_payload_needs_and_goes_with_the_distribution(
    receipt: Receipt, demo: Installed
) -> None:
    copy = json.loads((demo.site / INFO / COPY).read_bytes())
    assert (copy["schema"], copy["wheel"]) == (COPY_SCHEMA, demo.wheel.sha256)
    library = demo.site / PACKAGE / "_native.so"
    assert copy["files"][f"{PACKAGE}/_native.so"] == {
        "sha256": demo.layout.files[library],
        "stamp": stamp(library),
    }
    assert f"{INFO}/{COPY}," in (demo.site / INFO / "RECORD").read_text()
    assert f"{INFO}/RECORD" not in copy["files"]


@pytest.mark.parametrize(
    "name", [f"{PACKAGE}/_native.so", f"{INFO}/METADATA", f"{INFO}/RECORD", f"{INFO}/INSTALLER"]
)
def test_a_changed_file(receipt: Receipt, demo: Installed, name: str) -> None:
    path = demo.site / name
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(receipt, demo) == {name: "installed-changed"}


def test_missing_added_and_started(receipt: Receipt, demo: Installed) -> None:
    (demo.site / PACKAGE / "inner" / "part.py").unlink()
    (demo.site / PACKAGE / "extra.py").write_text("")
    (demo.site / "evil.pth").write_text("import evil\n")
    assert found(receipt, demo) == {
        f"{PACKAGE}/inner/part.py": "installed-missing",
        f"{PACKAGE}/extra.py": "installed-added",
        "evil.pth": "installed-added",
    }


def test_another_installer_was_there(receipt: Receipt, demo: Installed) -> None:
    (demo.site / INFO / COPY).unlink()
    codes = [item.reason for item in audit_receipt(receipt, demo.python)]
    assert codes == ["installed-replaced", "installed-missing"]


def test_another_version_is_there(receipt: Receipt, demo: Installed) -> None:
    (demo.site / INFO).rename(demo.site / "demo_kernels-2.0.dist-info")
    assert found(receipt, demo) == {
        INFO: "installed-missing",
        "demo_kernels-2.0.dist-info": "installed-replaced",
    }


def test_the_package_went_away(receipt: Receipt, demo: Installed) -> None:
    shutil.rmtree(demo.site / PACKAGE)
    assert set(found(receipt, demo).values()) == {"installed-missing"}


def test_a_package_that_is_a_link_now(receipt: Receipt, demo: Installed, tmp_path: Path) -> None:
    shutil.move(demo.site / PACKAGE, tmp_path / "moved")
    (demo.site / PACKAGE).symlink_to(tmp_path / "moved")
    assert found(receipt, demo)[PACKAGE] == "installed-added"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b" ",
        lambda data: data.replace(b"receipt/v1", b"receipt/v9"),
        lambda data: data.replace(b'"name":"demo-kernels"', b'"name":"other"'),
        lambda data: data.replace(b'"channel":""', b'"channel":7'),
        lambda data: data.replace(b'"channel":"",', b""),
        lambda data: data.replace(b'"files":{', b'"files":{"x":1,'),
        lambda _data: b"[]",
    ],
)
def test_a_malformed_receipt(
    receipt: Receipt, demo: Installed, state: Path, change: Callable[[bytes], bytes]
) -> None:
    receipts = Receipts(demo.site, state=state)
    path = receipts.folder / "demo-kernels.json"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError) as caught:
        receipts.read("demo-kernels")
    assert caught.value.reason == "receipt-malformed"


def test_a_receipt_of_another_environment_is_malformed(demo: Installed, state: Path) -> None:
    demo.keep_receipt(state, site="/elsewhere")
    with pytest.raises(InputError) as caught:
        Receipts(demo.site, state=state).read("demo-kernels")
    assert caught.value.reason == "receipt-malformed"


def test_a_receipt_that_others_can_replace_is_not_used(demo: Installed, state: Path) -> None:
    demo.keep_receipt(state)
    state.chmod(0o777)
    with pytest.raises(ConfigError) as caught:
        Receipts(demo.site, state=state).write(demo.keep_receipt(state))
    assert caught.value.reason == "state-permissions"


def test_without_a_receipt_the_audit_says_so(state: Path) -> None:
    (audit,) = audit_environment(Path(sys.executable), name="No.Such", state=state)
    assert [item.reason for item in audit.findings] == ["receipt-absent"]
    assert audit.exit_code is Exit.MISSING
    assert audit.as_json()["findings"][0]["reason"] == "receipt-absent"


@pytest.fixture
def asked(demo: Installed, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that answers for the environment of ``demo``."""
    monkeypatch.setattr(audit_module, "read_interpreter", lambda _path: demo.python)
    return Path("python")


def test_an_audit_of_everything_in_an_environment(
    asked: Path, receipt: Receipt, demo: Installed, state: Path
) -> None:
    (audit,) = audit_environment(asked, state=state)
    assert (audit.exit_code, audit.receipt, audit.findings) == (Exit.OK, receipt, ())
    assert audit.as_json()["files"] == len(receipt.files)
    (demo.site / PACKAGE / "extra.py").write_text("")
    (audit,) = audit_environment(asked, name="Demo_Kernels", state=state)
    assert audit.exit_code is Exit.REJECTED
    (Receipts(demo.site, state=state).folder / "demo-kernels.json").write_text("{}")
    (audit,) = audit_environment(asked, state=state)
    assert [item.reason for item in audit.findings] == ["receipt-malformed"]
    assert audit.exit_code is Exit.REJECTED
    assert audit.as_json()["wheel"] == ""


def test_a_compiled_module_of_a_changed_source_explains_nothing(receipt: Receipt, demo: Installed) -> None:
    source = demo.site / PACKAGE / "__init__.py"
    source.write_text("VALUE = 'evil'\n")
    made = Path(str(py_compile.compile(str(source), doraise=True)))
    assert found(receipt, demo) == {
        f"{PACKAGE}/__init__.py": "installed-changed",
        demo.layout.short(made): "installed-added",
    }


def test_an_interpreter_that_ends_over_a_compiled_module_explains_none(
    receipt: Receipt, demo: Installed
) -> None:
    made = Path(str(py_compile.compile(str(demo.site / PACKAGE / "__init__.py"), doraise=True)))
    broken = dataclasses.replace(demo.python, path=Path("/bin/false"))
    assert [(item.subject, item.reason) for item in audit_receipt(receipt, broken)] == [
        (demo.layout.short(made), "installed-changed")
    ]


def test_a_file_that_changes_while_it_is_read_gets_no_receipt(
    demo: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = digests.sha256_file

    def touched(path: Path) -> str:
        answer = real(path)
        path.write_bytes(b"later")
        return answer

    monkeypatch.setattr(digests, "sha256_file", touched)
    with pytest.raises(InputError) as caught:
        record_files([demo.site / PACKAGE / "__init__.py"], demo.layout)
    assert caught.value.reason == "unreadable"
    with pytest.raises(InputError) as gone:
        record_files([demo.site / "absent"], demo.layout)
    assert gone.value.reason == "unreadable"


def test_a_receipt_is_whole_or_not_there(
    demo: Installed, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = Receipts(demo.site, state=state)
    kept = demo.keep_receipt(state)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        receipts.write(dataclasses.replace(kept, version="2"))
    assert receipts.read("demo-kernels") == kept
    assert sorted(path.name for path in receipts.folder.iterdir()) == ["demo-kernels.json"]
