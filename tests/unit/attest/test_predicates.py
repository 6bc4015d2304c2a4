"""Predicates: built from evidence, read back strictly, contradictions refused."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from wheelmark import digests
from wheelmark.attest.predicates import (
    Finding,
    Provenance,
    Result,
    Scan,
    TestResult,
    read_provenance,
    read_sbom,
    read_test_result,
    read_vulns,
    sbom_predicate,
)
from wheelmark.attest.resource import Resource
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence, Level, Verdict

SUBJECT = "a" * 64
MOMENT = dt.datetime(2026, 10, 1, 12, 0, 0, tzinfo=dt.UTC)


def evidence(
    gate: str, verdict: Verdict = Verdict.PASSED, level: Level = Level.STATIC, **fields: Any
) -> Evidence:
    return Evidence(
        gate=gate,
        target=fields.pop("target", "cuda-sm90"),
        subject=fields.pop("subject", SUBJECT),
        verdict=verdict,
        level=level,
        summary="what was found",
        reason="" if verdict is Verdict.PASSED else "why",
        **fields,
    )


def provenance() -> Provenance:
    return Provenance(
        external_parameters={"targets": ["cuda-sm90"], "options": {}, "snapshot": False},
        internal_parameters={"workers": 2},
        resolved_dependencies=(
            Resource(uri="git+https://example.org/project", digest={"gitCommit": "c" * 40}),
            Resource(name="wheelmark.toml", digest={"sha256": "b" * 64}, annotations={"bytes": 3}),
        ),
        builder_id="https://wheelmark.dev/builder/local/v1",
        builder_version={"wheelmark": "0.1.0"},
        invocation_id="run-1",
        started_on=MOMENT,
        finished_on=MOMENT + dt.timedelta(seconds=5),
        byproducts=(Resource(name="log", digest={"sha256": "d" * 64}),),
    )


class TestProvenance:
    def test_round_trip(self) -> None:
        made = provenance()
        found = read_provenance(json.loads(digests.canonical_json(made.as_predicate())))
        assert found.as_predicate() == made.as_predicate()
        assert found.git_commit == "c" * 40
        assert found.finished_on == MOMENT + dt.timedelta(seconds=5)

    def test_the_order_in_which_inputs_were_found_does_not_show(self) -> None:
        one = provenance()
        two = Provenance(
            external_parameters=one.external_parameters,
            builder_id=one.builder_id,
            resolved_dependencies=one.resolved_dependencies[::-1],
        )
        assert (
            two.as_predicate()["buildDefinition"]["resolvedDependencies"]
            == one.as_predicate()["buildDefinition"]["resolvedDependencies"]
        )

    def test_optional_parts_are_left_out(self) -> None:
        made = Provenance(external_parameters={}, resolved_dependencies=(), builder_id="a:b")
        assert made.as_predicate()["runDetails"] == {"builder": {"id": "a:b"}}
        assert read_provenance(made.as_predicate()) == made
        assert made.git_commit == ""

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda p: p.pop("runDetails"), "provenance"),
            (lambda p: p.update(extra=1), "provenance"),
            (lambda p: p["buildDefinition"].pop("buildType"), "provenance"),
            (lambda p: p["buildDefinition"].update(resolvedDependencies={}), "provenance"),
            (lambda p: p["buildDefinition"].update(resolvedDependencies=[{}]), "statement-resource"),
            (lambda p: p["buildDefinition"].update(resolvedDependencies=[{"name": 1}]), "statement-resource"),
            (
                lambda p: p["buildDefinition"].update(
                    resolvedDependencies=[{"name": "x", "content": "AA=="}]
                ),
                "statement-resource",
            ),
            (
                lambda p: p["buildDefinition"].update(resolvedDependencies=[{"digest": {"sha256": "x"}}]),
                "statement-digest",
            ),
            (lambda p: p["runDetails"]["builder"].update(id=""), "provenance"),
            (lambda p: p["runDetails"]["builder"].update(version={"wheelmark": 1}), "provenance"),
            (lambda p: p["runDetails"]["metadata"].update(startedOn="2026-10-01 12:00:00Z"), "provenance"),
            (lambda p: p["runDetails"]["metadata"].update(startedOn="2026-13-01T12:00:00Z"), "provenance"),
            (lambda p: p["runDetails"]["metadata"].update(finishedOn=3), "provenance"),
        ],
    )
    def test_refusals(self, change: Callable[[dict[str, Any]], Any], reason: str) -> None:
        predicate = copy.deepcopy(provenance().as_predicate())
        change(predicate)
        with pytest.raises(InputError) as caught:
            read_provenance(predicate)
        assert caught.value.reason == reason


def results() -> TestResult:
    return TestResult.of(
        [
            evidence("size"),
            evidence("audit", Verdict.UNCHECKED, Level.NONE),
            evidence("correctness", level=Level.EMULATED, details={"cases": 3}, environment={"cpu": "x"}),
        ]
    )


class TestTestResult:
    def test_round_trip_keeps_verdict_level_and_figures(self) -> None:
        made = results()
        found = read_test_result(json.loads(digests.canonical_json(made.as_predicate())))
        assert found == made
        assert found.subject == SUBJECT
        correctness = found.gate("correctness")
        assert correctness is not None
        assert (correctness.level, correctness.details) == (Level.EMULATED, {"cases": 3})
        assert found.gate("performance") is None

    def test_unchecked_is_a_warning_and_never_a_pass(self) -> None:
        predicate = results().as_predicate()
        assert predicate["result"] == "WARNED"
        assert predicate["warnedTests"] == ["audit"]
        assert predicate["passedTests"] == ["correctness", "size"]

    @pytest.mark.parametrize(
        ("verdicts", "result"),
        [
            ((Verdict.PASSED, Verdict.PASSED), Result.PASSED),
            ((Verdict.PASSED, Verdict.UNCHECKED), Result.WARNED),
            ((Verdict.FAILED, Verdict.UNCHECKED), Result.FAILED),
            ((Verdict.FAILED, Verdict.PASSED), Result.FAILED),
        ],
    )
    def test_one_word(self, verdicts: tuple[Verdict, ...], result: Result) -> None:
        made = TestResult.of(evidence(f"g{index}", verdict) for index, verdict in enumerate(verdicts))
        assert made.result is result

    def test_the_digest_is_that_of_the_evidence_file(self) -> None:
        made = results()
        digest = made.as_predicate()["configuration"][0]["digest"]["sha256"]
        assert digest == digests.sha256(digests.canonical_json(made.evidence[0].as_json()))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda p: p.update(result="PASSED"), "test-result"),
            (lambda p: p.update(result="FAILED"), "test-result"),
            (lambda p: p.update(passedTests=["audit", "correctness", "size"], warnedTests=[]), "test-result"),
            (lambda p: p.update(passedTests=["correctness", "size", "extra"]), "test-result"),
            (lambda p: p.update(passedTests=["correctness", "correctness"]), "test-result"),
            (lambda p: p.update(passedTests=[["correctness"]]), "test-result"),
            (lambda p: p.update(warnedTests=None), "test-result"),
            (lambda p: p.update(url="https://example.org"), "test-result"),
            (lambda p: p.update(configuration=[]), "test-result"),
            (lambda p: p["configuration"].pop(), "test-result"),
            (lambda p: p["configuration"].append(p["configuration"][0]), "test-result"),
            (lambda p: p["configuration"][0].update(name="other"), "test-result"),
            (lambda p: p["configuration"][0].update(mediaType="text/plain"), "test-result"),
            (lambda p: p["configuration"][0]["digest"].update(sha256="e" * 64), "test-result"),
            (lambda p: p["configuration"][0]["annotations"].update(more=1), "test-result"),
            (
                lambda p: p["configuration"][1]["annotations"]["evidence"].update(level="hardware"),
                "test-result",
            ),
            (lambda p: p["configuration"][1]["annotations"]["evidence"].update(level="none"), "evidence"),
            (lambda p: p["configuration"][1]["annotations"]["evidence"].update(extra=1), "evidence"),
            (lambda p: p["configuration"][1]["annotations"].update(evidence=3), "evidence"),
        ],
    )
    def test_refusals(self, change: Callable[[dict[str, Any]], Any], reason: str) -> None:
        predicate = copy.deepcopy(results().as_predicate())
        change(predicate)
        with pytest.raises(InputError) as caught:
            read_test_result(predicate)
        assert caught.value.reason == reason

    @pytest.mark.parametrize(
        "items",
        [
            [],
            [evidence("size"), evidence("size")],
            [evidence("size"), evidence("abi", subject="b" * 64)],
            [evidence("size"), evidence("abi", target="cuda-sm80")],
        ],
    )
    def test_evidence_that_does_not_belong_together(self, items: list[Evidence]) -> None:
        with pytest.raises(InputError) as caught:
            TestResult.of(items)
        assert caught.value.reason == "test-result"


def scan() -> Scan:
    return Scan(
        scanner_uri="pkg:pypi/pip-audit@2.9.0",
        scanner_version="2.9.0",
        database_uri="https://wheelmark.dev/advisories/osv",
        database_version="2026-09-30",
        database_updated=MOMENT - dt.timedelta(days=1),
        findings=(
            Finding(
                id="PYSEC-1",
                purl="pkg:pypi/x@1",
                aliases=("CVE-1",),
                severities=(("CVSS_V3", "9.8"),),
            ),
            Finding(id="GHSA-2"),
        ),
        started=MOMENT,
        finished=MOMENT,
    )


def audit(verdict: Verdict = Verdict.PASSED, **details: Any) -> Evidence:
    service = {"kind": "folder", "source": "pypa/advisory database", "date": "2026-09-30"}
    return evidence(
        "audit",
        verdict,
        details={"service": service, "vulnerabilities": [], **details},
        environment={"pip-audit": "2.9.0", "asked": "2026-10-01T12:00:00+00:00"},
    )


class TestVulns:
    def test_round_trip(self) -> None:
        found = read_vulns(json.loads(digests.canonical_json(scan().as_predicate())))
        assert found.as_predicate() == scan().as_predicate()
        assert sorted(found.findings) == sorted(scan().findings)

    def test_what_the_audit_gate_found(self) -> None:
        vulnerability = {
            "package": "jinja2",
            "version": "2.10",
            "id": "PYSEC-2019-217",
            "aliases": ["GHSA-462w-v97r-4m45", "CVE-2019-10906"],
            "fixed_in": ["2.10.1"],
        }
        found = Scan.of(audit(Verdict.FAILED, vulnerabilities=[vulnerability]))
        assert found is not None
        assert found.findings == (
            Finding(
                id="PYSEC-2019-217",
                purl="pkg:pypi/jinja2@2.10",
                aliases=("CVE-2019-10906", "GHSA-462w-v97r-4m45"),
            ),
        )
        assert found.database_uri == "https://wheelmark.dev/advisories/pypa/advisory%20database"
        assert found.database_updated == dt.datetime(2026, 9, 30, tzinfo=dt.UTC)
        assert found.started == MOMENT
        assert read_vulns(found.as_predicate()) == found

    def test_an_audit_that_did_not_look_at_all_makes_no_scan(self) -> None:
        assert Scan.of(audit(Verdict.UNCHECKED)) is None
        assert Scan.of(evidence("audit", Verdict.FAILED)) is None

    @pytest.mark.parametrize(
        "details",
        [
            {"service": {}},
            {"service": {"source": "x", "date": "yesterday"}},
            {"service": []},
            {"vulnerabilities": [{"id": "X"}]},
            {"vulnerabilities": {}},
        ],
    )
    def test_malformed_evidence(self, details: dict[str, Any]) -> None:
        with pytest.raises(InputError) as caught:
            Scan.of(audit(**details))
        assert caught.value.reason == "vulns"

    @pytest.mark.parametrize(
        "change",
        [
            lambda p: p.pop("metadata"),
            lambda p: p.update(invocation={}),
            lambda p: p["scanner"].pop("result"),
            lambda p: p["scanner"].pop("db"),
            lambda p: p["scanner"]["db"].pop("lastUpdate"),
            lambda p: p["scanner"]["db"].update(lastUpdate="2026-10-01"),
            lambda p: p["scanner"].update(result=None),
            lambda p: p["scanner"].update(result=[{"severity": []}]),
            lambda p: p["scanner"].update(result=[{"id": "X", "severity": [{"method": "m"}]}]),
            lambda p: p["scanner"].update(result=[{"id": "X", "vulnerability": {}}]),
            lambda p: p["metadata"].update(scanFinishedOn=""),
        ],
    )
    def test_refusals(self, change: Callable[[dict[str, Any]], Any]) -> None:
        predicate = copy.deepcopy(scan().as_predicate())
        change(predicate)
        with pytest.raises(InputError) as caught:
            read_vulns(predicate)
        assert caught.value.reason == "vulns"


class TestSbom:
    def test_the_predicate_is_the_document(self) -> None:
        document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": []}
        predicate = sbom_predicate(json.dumps(document).encode())
        assert predicate == document
        assert read_sbom(predicate) == "1.6"

    @pytest.mark.parametrize("value", [{}, {"bomFormat": "SPDX"}, {"bomFormat": "CycloneDX"}])
    def test_other_documents_are_refused(self, value: dict[str, Any]) -> None:
        with pytest.raises(InputError) as caught:
            sbom_predicate(json.dumps(value).encode())
        assert caught.value.reason == "sbom-predicate"
