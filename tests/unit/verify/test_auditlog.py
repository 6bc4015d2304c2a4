"""The audit log: a line a verdict, each after the one before, or no acceptance."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import wheelmark
from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import ConfigError, Exit
from wheelmark.verify.auditlog import AuditLog
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Report, Unchecked

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
GOOD = Accepted(
    subject="w.whl",
    sha256="a" * 64,
    level="l",
    root="r",
    signer="s",
    identity="i",
    issuer="o",
    time=NOW,
    predicates=("p",),
    promotion="demo/prod",
    sequence=5,
)
BAD = Rejected(subject="x\nACCEPTED \x1b[2K\udc80", reason="signature", text="t" * 10_000, sha256="b" * 64)
REPORT = Report(path="dist", policy="p.toml", verdicts=(GOOD, BAD), policy_sha256="c" * 64)


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def refused(path: Path, report: Report = REPORT) -> str:
    with pytest.raises(ConfigError) as caught:
        AuditLog(path).append(report, now=NOW)
    assert caught.value.reason == "audit-log"
    return caught.value.what


def test_each_verdict_has_a_line_with_all_that_was_decided(path: Path) -> None:
    AuditLog(path).append(REPORT, now=NOW)
    good, bad = entries(path)
    assert good == {
        "schema": "https://wheelmark.dev/audit-log/v1",
        "time": "2026-06-01T12:00:00+00:00",
        "wheelmark": wheelmark.__version__,
        "path": "dist",
        "policy": "p.toml",
        "policySha256": "c" * 64,
        "accepted": False,
        "subject": "w.whl",
        "sha256": "a" * 64,
        "verdict": "accepted",
        "previous": "",
        "root": "r",
        "signer": "s",
        "identity": "i",
        "signed": "2026-06-01T12:00:00+00:00",
        "promotion": "demo/prod",
        "sequence": 5,
    }
    assert (bad["verdict"], bad["reason"], bad["sha256"]) == ("rejected", "signature", "b" * 64)
    assert bad["subject"] == r"x\nACCEPTED \x1b[2K\udc80"
    assert len(bad["text"]) == 4000
    assert bad["previous"] == digests.sha256(path.read_bytes().split(b"\n")[0])
    assert path.stat().st_mode & 0o777 == 0o600
    assert AuditLog(path).check() == 2


def test_lines_follow_each_other_over_many_reports(path: Path) -> None:
    missing, unchecked = (
        Missing(subject="m", reason="no-bundle", text="t"),
        Unchecked(subject="u", reason="r", text="t"),
    )
    AuditLog(path).append(REPORT, now=NOW)
    AuditLog(path).append(dataclasses.replace(REPORT, verdicts=()), now=NOW)
    AuditLog(path).append(dataclasses.replace(REPORT, verdicts=(missing, unchecked)))
    assert [item["verdict"] for item in entries(path)] == [
        "accepted",
        "rejected",
        "none",
        "missing",
        "unchecked",
    ]
    lines = path.read_bytes().splitlines()
    assert [item["previous"] for item in entries(path)[1:]] == [digests.sha256(line) for line in lines[:-1]]
    assert AuditLog(path).check() == 5


@pytest.mark.parametrize("spoil", ["change", "drop", "swap", "add", "spell", "cut", "schema"])
def test_a_line_that_was_changed_shows(path: Path, spoil: str) -> None:
    for _ in range(3):
        AuditLog(path).append(dataclasses.replace(REPORT, verdicts=(GOOD,)), now=NOW)
    lines = path.read_bytes().splitlines(keepends=True)
    if spoil == "change":
        lines[1] = lines[1].replace(b'"signer":"s"', b'"signer":"z"')
    elif spoil == "drop":
        del lines[1]
    elif spoil == "swap":
        lines[0], lines[1] = lines[1], lines[0]
    elif spoil == "add":
        lines.insert(1, lines[0])
    elif spoil == "spell":
        lines[2] = lines[2].replace(b'":"', b'": "', 1)
    elif spoil == "cut":
        lines[2] = lines[2][:-5]
    else:
        lines[0] = lines[0].replace(b"audit-log/v1", b"audit-log/v2")
    path.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError) as caught:
        AuditLog(path).check()
    assert caught.value.reason == "audit-log"


def test_the_command_says_how_far_the_chain_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        AuditLog(path).append(dataclasses.replace(REPORT, verdicts=(GOOD,)), now=NOW)
    lines = path.read_bytes().splitlines(keepends=True)
    last = digests.sha256(lines[-1][:-1])
    assert main(["audit-log", str(path)]) == Exit.OK
    assert capsys.readouterr().out == f"{path}: 3 lines, unbroken\n  last line: sha256 {last}\n"
    assert main(["audit-log", str(path), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "exit_code": 0,
        "log": str(path),
        "lines": 3,
        "last_sha256": last,
        "bad_line": None,
        "problem": "",
    }
    path.write_bytes(lines[0] + lines[2])
    assert main(["audit-log", str(path), "--json"]) == Exit.REJECTED
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["bad_line"], found["exit_code"]) == (1, 2, 1)
    assert "does not follow" in found["problem"]
    path.write_bytes(lines[0] + lines[1] + b"{\n")
    assert main(["audit-log", str(path)]) == Exit.REJECTED
    out = capsys.readouterr().out
    assert f"{path}: BROKEN at line 3: is none of ours" in out
    assert "next step:" in out
    assert main(["audit-log", str(path.with_name("absent"))]) == Exit.CONFIG


def test_an_empty_log_is_whole(path: Path) -> None:
    path.touch(mode=0o600)
    assert AuditLog(path).check() == 0
    AuditLog(path).append(REPORT, now=NOW)
    assert AuditLog(path).check() == 2


def test_a_log_that_ends_within_a_line_is_not_written_to(path: Path) -> None:
    AuditLog(path).append(REPORT, now=NOW)
    torn = path.read_bytes()[:-1]
    path.write_bytes(torn)
    assert "ends within a line" in refused(path)
    assert path.read_bytes() == torn
    path.write_bytes(b"x" * (2 << 20) + b"\n")
    assert "ends within a line" in refused(path)


def test_only_a_private_plain_file_is_a_log(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch(mode=0o600)
    link, pipe, wide, folder = (tmp_path / name for name in ("link", "pipe", "wide", "folder"))
    link.symlink_to(target)
    os.mkfifo(pipe, 0o600)
    wide.touch()
    wide.chmod(0o640)
    folder.mkdir(mode=0o700)
    for odd in (link, pipe, wide, folder, tmp_path / "absent" / "log"):
        refused(odd)
    assert target.read_bytes() == b""


@pytest.mark.parametrize("failing", ["write", "short", "fsync"])
def test_a_disk_that_fails_leaves_what_was_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    AuditLog(path).append(REPORT, now=NOW)
    before = path.read_bytes()
    real = os.write

    def fail(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if failing == "short":
            patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:10]))
        else:
            patch.setattr(os, failing, fail)
        assert "cannot be written" in refused(path)
    assert path.read_bytes() == before
    AuditLog(path).append(REPORT, now=NOW)
    assert AuditLog(path).check() == 4


def test_an_interrupt_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the answer, so that nothing was answered."""
    AuditLog(path).append(REPORT, now=NOW)
    before = path.read_bytes()

    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            AuditLog(path).append(REPORT, now=NOW)
    assert path.read_bytes() == before


def test_many_at_once_make_one_chain(path: Path) -> None:
    def write() -> None:
        for _ in range(3):
            AuditLog(path).append(REPORT, now=NOW)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AuditLog(path).check() == 36
