"""The audit gate with the real pip-audit, against folders of advisories and services that lie."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditing import advisory, make_context, write_advisories
from wheelmark.attest.vulns import Scan
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates import audit

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
CONTROL = advisory("T-CONTROL", "known-bad", [], versions=["1.0"])


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(audit.SERVICE_VARIABLE, raising=False)


def ask(tmp_path: Path, service: str, **locked: str) -> Evidence:
    return audit.audit(make_context(tmp_path, locked=locked, service=service), now=NOW)


def test_clean_pins_pass_and_make_a_scan(tmp_path: Path) -> None:
    write_advisories(
        tmp_path / "osv", CONTROL, advisory("T-2", "idna", [{"introduced": "0"}, {"fixed": "3.7"}])
    )
    evidence = ask(tmp_path, "osv", idna="3.20", torch="2.13.0+cpu")
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)
    assert evidence.details["service"] == {
        "kind": "folder",
        "source": "tests",
        "date": "2026-11-01",
        "advisories": 2,
        "coverage": "all",
    }
    scan = Scan.of(evidence)
    assert scan is not None
    assert scan.findings == ()


def test_a_vulnerable_pin_fails_by_its_advisory(tmp_path: Path) -> None:
    write_advisories(
        tmp_path / "osv", CONTROL, advisory("T-2", "idna", [{"introduced": "0"}, {"fixed": "3.7"}])
    )
    evidence = ask(tmp_path, "osv", idna="3.6", torch="2.13.0+cpu")
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.FAILED,
        Level.STATIC,
        "audit-vulnerable",
    )
    assert "T-2 (idna 3.6)" in evidence.summary
    (found,) = evidence.details["vulnerabilities"]
    assert found == {"package": "idna", "version": "3.6", "id": "T-2", "aliases": [], "fixed_in": ["3.7"]}


def test_a_vulnerable_build_of_a_labelled_version_is_found(tmp_path: Path) -> None:
    write_advisories(
        tmp_path / "osv", CONTROL, advisory("T-2", "torch", [{"introduced": "0"}], versions=["2.13.0"])
    )
    assert ask(tmp_path, "osv", torch="2.13.0+cpu").reason == "audit-vulnerable"


def test_a_withdrawn_advisory_counts_for_nothing(tmp_path: Path) -> None:
    item = advisory("T-2", "idna", [{"introduced": "0"}]) | {"withdrawn": "2026-01-01T00:00:00Z"}
    write_advisories(tmp_path / "osv", CONTROL, item)
    assert ask(tmp_path, "osv", idna="3.6").verdict is Verdict.PASSED


def test_advisories_that_do_not_cover_a_pin_leave_it_unchecked(tmp_path: Path) -> None:
    write_advisories(tmp_path / "osv", CONTROL, packages=["idna", "known-bad"])
    evidence = ask(tmp_path, "osv", idna="3.20", torch="2.13.0")
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "audit-coverage")
    assert evidence.details["outside_coverage"] == ["torch"]


def test_an_advisory_that_cannot_be_evaluated_leaves_it_unchecked(tmp_path: Path) -> None:
    write_advisories(tmp_path / "osv", CONTROL, advisory("T-2", "idna", [{"introduced": "r12"}]))
    evidence = ask(tmp_path, "osv", idna="3.20")
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "audit-service")


def test_the_selection_of_pypas_advisories(tmp_path: Path) -> None:
    cases = os.environ.get("WHEELMARK_CASES", "")
    selection = Path(cases) / "osv"
    if not cases or not selection.is_dir():
        pytest.skip("not run: WHEELMARK_CASES names no folder with osv/")
    copy = write_advisories(tmp_path / "osv")
    for path in sorted(selection.rglob("*.json")):
        (copy / path.name).write_bytes(path.read_bytes())
    evidence = ask(tmp_path, "osv", jinja2="2.10", werkzeug="2.2.2", idna="3.20")
    assert evidence.reason == "audit-vulnerable"
    found = {(item["package"], item["id"]) for item in evidence.details["vulnerabilities"]}
    assert ("jinja2", "PYSEC-2019-217") in found
    assert ("werkzeug", "PYSEC-2023-58") in found
    assert "idna" not in {package for package, _id in found}


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A service that gives one answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"{}", "audit-service"),
        (200, b"<html>welcome</html>", "audit-service"),
        (200, b"{}", "audit-control"),
        (200, b'{"vulns": []}', "audit-control"),
        (500, b"", "audit-service"),
    ],
)
def test_a_service_that_lies_is_never_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, reason: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(status, body) as url:
        evidence = ask(tmp_path, url, idna="3.20")
    assert (evidence.verdict, evidence.level, evidence.reason) == (Verdict.UNCHECKED, Level.NONE, reason)


def test_an_online_service_that_cannot_be_reached_is_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    evidence = ask(tmp_path, "online", idna="3.20")
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "audit-service")
