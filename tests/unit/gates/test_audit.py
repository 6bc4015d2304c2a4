"""What the audit decides before, and after, any service is asked."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditing import Json, advisory, component, dependency, make_context, write_advisories
from wheelmark.attest.vulns import Scan
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import audit
from wheelmark.gates.advisories import Advisories
from wheelmark.gates.audit import Service, read_answer

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
LOCKED = {"idna": "3.20", "torch": "2.13.0+cpu"}


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(audit.SERVICE_VARIABLE, raising=False)


def test_no_service_is_unchecked_and_every_component_has_its_answer(tmp_path: Path) -> None:
    extra = [
        component("toolchain", "gcc", "12.2", "pkg:generic/gcc@12.2"),
        component("system-library", "glibc"),
        component("kernel", "tbe_forward", "1"),
        component("host-provided", "numpy", "", "pkg:pypi/numpy"),
    ]
    found = [*(dependency(name, version.replace("+", "%2B")) for name, version in LOCKED.items()), *extra]
    evidence = audit.run(make_context(tmp_path, locked=LOCKED, components=found))
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.NONE,
        "audit-no-service",
    )
    answers = {item["component"]: item["answer"] for item in evidence.details["components"]}
    assert answers == {
        "pkg:pypi/wheelmark-kernels@0.1.0%2Bcpu": "first-party",
        "python-package:ours": "first-party",
        "pkg:pypi/idna@3.20": "queried",
        "pkg:pypi/torch@2.13.0%2Bcpu": "queried",
        "pkg:generic/gcc@12.2": "no-service",
        "system-library:glibc": "no-service",
        "kernel:tbe_forward": "first-party",
        "pkg:pypi/numpy": "no-service",
    }
    torch = next(item for item in evidence.details["components"] if item.get("package") == "torch")
    assert torch["version"] == "2.13.0"
    assert Scan.of(evidence) is None


@pytest.mark.parametrize(
    ("components", "reason", "words"),
    [
        ([dependency("torch", "2.13.0")], "audit-dropped", "idna 3.20"),
        ([dependency("torch", "2.13.0"), dependency("idna", "3.19")], "audit-dropped", "idna 3.20"),
        ([component("dependency", "zlib", "1.3")], "audit-unexplained", "no package URL"),
        ([component("dependency", "idna", "", "pkg:pypi/idna")], "audit-unexplained", "no exact version"),
        ([component("dependency", "idna", "1", "pypi/idna@1")], "audit-unexplained", "malformed"),
        ([{"type": "library", "name": "x"}], "audit-sbom", "wheelmark:role"),
    ],
)
def test_a_component_that_is_dropped_or_not_explained_fails(
    tmp_path: Path, components: list[Json], reason: str, words: str
) -> None:
    evidence = audit.run(make_context(tmp_path, locked=LOCKED, components=components))
    assert (evidence.verdict, evidence.level, evidence.reason) == (Verdict.FAILED, Level.STATIC, reason)
    assert words in evidence.summary
    assert Scan.of(evidence) is None


def test_a_file_that_no_component_explains_fails(tmp_path: Path) -> None:
    context = make_context(tmp_path, locked={})
    document = json.loads(context.sbom.read_text())
    document["components"][0]["components"].pop(0)
    context.sbom.write_text(json.dumps(document))
    evidence = audit.run(context)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "audit-unexplained")


def missing(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def stale(folder: Path) -> None:
    write_advisories(folder, date="2026-10-20")


def future(folder: Path) -> None:
    write_advisories(folder, date="2026-12-01")


def broken(folder: Path) -> None:
    (folder / "b.json").write_text("{")


def empty(folder: Path) -> None:
    (folder / "T-1.json").unlink()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (missing, "audit-manifest"),
        (stale, "audit-stale"),
        (future, "audit-date"),
        (broken, "audit-data"),
        (empty, "audit-control"),
    ],
)
def test_advisories_that_cannot_be_used_leave_it_unchecked(
    tmp_path: Path, fault: Callable[[Path], None], reason: str
) -> None:
    fault(write_advisories(tmp_path / "osv", advisory("T-1", "jinja2", [], versions=["2.10"])))
    evidence = audit.audit(make_context(tmp_path, locked=LOCKED, service="osv"), now=NOW)
    assert (evidence.verdict, evidence.level, evidence.reason) == (Verdict.UNCHECKED, Level.NONE, reason)
    assert Scan.of(evidence) is None


def test_a_folder_that_is_not_there_is_unchecked(tmp_path: Path) -> None:
    evidence = audit.audit(make_context(tmp_path, locked=LOCKED, service="osv"), now=NOW)
    assert (evidence.verdict, evidence.reason) == (Verdict.UNCHECKED, "audit-manifest")


def test_the_environment_goes_before_the_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(audit.SERVICE_VARIABLE, "elsewhere")
    evidence = audit.audit(make_context(tmp_path, locked=LOCKED), now=NOW)
    assert evidence.reason == "audit-manifest"


# What pip-audit 2.10.1 really prints where the service has no such endpoint, and where it cannot connect.
STRICT_SKIP = (
    "WARNING:pip_audit._cli:--no-deps is supported, but users are encouraged to fully hash\n"
    "ERROR:pip_audit._cli:idna: Dependency not found on PyPI and could not be audited: idna (3.20)\n"
)


def test_no_json_is_no_answer() -> None:
    with pytest.raises(audit._ServiceFailedError) as failure:
        read_answer(b"", STRICT_SKIP)
    assert failure.value.skipped == "idna"
    assert failure.value.text.startswith("Dependency not found")
    for output in (
        b"",
        b"[]",
        b'{"dependencies": 3}',
        b'{"dependencies": [{}]}',
        b"No known vulnerabilities found",
    ):
        with pytest.raises(audit._ServiceFailedError) as failure:
            read_answer(output, "requests.exceptions.ConnectionError: refused\n")
        assert failure.value.skipped == ""


def judge(answer: dict[str, Any], data: Advisories | None = None) -> tuple[Verdict, str, str, dict[str, Any]]:
    details: dict[str, Any] = {}
    service = Service(arguments=(), control=("x", "1"), about={}, data=data)
    verdict, reason, summary = audit._judge(answer, [("idna", "3.20"), ("torch", "2.13.0")], service, details)
    return verdict, reason, summary, details


def entry(name: str, version: str, *vulnerabilities: Json) -> Json:
    return {"name": name, "version": version, "vulns": list(vulnerabilities)}


def test_every_pin_has_to_be_in_the_answer() -> None:
    clean = {"idna": entry("idna", "3.20"), "torch": entry("torch", "2.13.0")}
    verdict, reason, _summary, details = judge(clean)
    assert (verdict, reason) == (Verdict.PASSED, "")
    assert details == {"vulnerabilities": []}
    for answer in (
        {"idna": clean["idna"]},
        {**clean, "torch": entry("torch", "2.12.0")},
        {**clean, "torch": {"name": "torch", "skip_reason": "not found"}},
    ):
        verdict, reason, summary, details = judge(answer)
        assert (verdict, reason) == (Verdict.FAILED, "audit-skipped")
        assert "torch" in summary
        assert "vulnerabilities" not in details


def test_a_vulnerable_pin_is_named_with_its_advisory() -> None:
    found = {"id": "PYSEC-1", "aliases": ["CVE-2", "CVE-1"], "fix_versions": ["4"]}
    answer = {"idna": entry("idna", "3.20", found), "torch": {"name": "torch", "skip_reason": "not found"}}
    verdict, reason, summary, details = judge(answer)
    assert (verdict, reason) == (Verdict.FAILED, "audit-vulnerable")
    assert "PYSEC-1 (idna 3.20)" in summary
    assert details["vulnerabilities"] == [
        {
            "package": "idna",
            "version": "3.20",
            "id": "PYSEC-1",
            "aliases": ["CVE-1", "CVE-2"],
            "fixed_in": ["4"],
        }
    ]
    # What was not asked stays visible beside what was found.
    assert details["skipped"] == [{"package": "torch", "why": "not found"}]


def test_how_bad_a_finding_is_comes_from_the_advisory_of_its_name_or_alias() -> None:
    score = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
    records: tuple[Json, ...] = (
        {
            "id": "GHSA-1",
            "aliases": ["CVE-1"],
            "severity": [{"type": "CVSS_V3", "score": score}, {"type": 3}],
        },
        {"id": "GHSA-2", "aliases": 4, "severity": "none"},
    )
    data = Advisories(source="t", date=NOW.date(), packages=None, by_package={"idna": records}, count=2)
    known = {"id": "PYSEC-1", "aliases": ["CVE-1"]}
    answer = {"idna": entry("idna", "3.20", known, {"id": "GHSA-2"}), "torch": entry("torch", "2.13.0")}
    _verdict, _reason, _summary, details = judge(answer, data)
    first, second = details["vulnerabilities"]
    assert first["severities"] == [{"method": "CVSS_V3", "score": score}]
    assert "severities" not in second


def test_packages_outside_the_coverage_are_unchecked() -> None:
    data = Advisories(source="t", date=NOW.date(), packages=frozenset({"idna"}), by_package={}, count=0)
    verdict, reason, summary, details = judge(
        {"idna": entry("idna", "3.20"), "torch": entry("torch", "2.13.0")}, data
    )
    assert (verdict, reason) == (Verdict.UNCHECKED, "audit-coverage")
    assert "torch" in summary
    assert details == {"outside_coverage": ["torch"]}
