"""Rows 1, 4 to 7, 18, 19, 32, 34, 39 to 41 as pure decisions: facts in, verdict out."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

import releasing
from judging import (
    AT,
    RUNNER,
    TIME,
    all_three,
    audited,
    case,
    facts,
    gates,
    provenance,
    reasons,
    results,
    sbom,
    scan,
    scanned,
    subject,
    under,
    with_runner,
)
from releasing import GATES, Part, evidence_for, part
from rows import row
from wheelmark.attest.predicates import PROVENANCE, SBOM, TEST_RESULT, VULNS
from wheelmark.attest.statement import Statement
from wheelmark.binaries.kernelobjects import Problem
from wheelmark.evidence import Level, Verdict
from wheelmark.sign import embedded
from wheelmark.verify.artifact import WheelFacts
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.evaluate import Attestation, evaluate_artifact, judge_signer
from wheelmark.verify.policy import Policy, Predicate, Requirement
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Unchecked


def test_a_good_wheel_is_accepted_with_all_that_is_known(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    (verdict,) = evaluate_artifact(case(made, wheel, *all_three(made)), rule, policy, AT).verdicts
    assert isinstance(verdict, Accepted)
    assert verdict.level == policy.root("embedded").level
    assert verdict.signer == "release"
    assert verdict.time == TIME
    assert set(verdict.predicates) == {PROVENANCE, SBOM, TEST_RESULT}
    assert verdict.evidence["correctness"] == "PASSED@hardware"
    assert verdict.evidence["audit"] == "UNCHECKED@none"
    assert any("audit" in note for note in verdict.notes)


# Row 1.
@row(1, "subject-digest")
@pytest.mark.parametrize("make", [provenance, sbom, results])
@pytest.mark.parametrize("digest", ["0" * 64, "f" * 64])
def test_other_bytes_under_this_name_are_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, make: Any, digest: str
) -> None:
    spoiled = facts(make(made, sha256=digest))
    assert "subject-digest" in reasons(case(made, wheel, *all_three(made), spoiled), rule, policy)


# Row 19.
@row(19, "subject-name")
@pytest.mark.parametrize("make", [provenance, sbom, results])
@pytest.mark.parametrize("name", ["other.whl", "wheels/{}", "{}.sig", " {}"])
def test_these_bytes_under_another_name_are_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, make: Any, name: str
) -> None:
    spoiled = facts(make(made, name=name.format(made.name)))
    assert "subject-name" in reasons(case(made, wheel, *all_three(made), spoiled), rule, policy)


@row(19, "target")
def test_evidence_for_another_target_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    elsewhere = [evidence_for(gate, "cpu-aarch64", made.sha256) for gate in GATES]
    bundles = [facts(provenance(made)), facts(sbom(made)), facts(results(made, elsewhere))]
    assert "target" in reasons(case(made, wheel, *bundles), rule, policy)


# Rows 4, 5 and 6.
@row(4, "signer-identity")
@row(6, "signer-identity")
@pytest.mark.parametrize(
    "identity",
    [
        "https://embedded.invalid/wheelmark/release2",
        "https://embedded.invalid/wheelmark/releas",
        "x" + embedded.RELEASE_IDENTITY,
        embedded.RELEASE_IDENTITY + "/",
        embedded.RELEASE_IDENTITY.upper(),
        embedded.RELEASE_IDENTITY + "\n",
        "somebody@example.org",
        "",
        RUNNER,
    ],
)
def test_another_identity_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, identity: str
) -> None:
    bundles = [dataclasses.replace(item, identity=identity) for item in all_three(made)]
    assert "signer-identity" in reasons(case(made, wheel, *bundles), rule, policy)


@row(40, "issuer-not-vouched")
@pytest.mark.parametrize(
    "issuer", ["https://other.example", embedded.ISSUER + "/", embedded.ISSUER.upper(), ""]
)
def test_issuer_that_the_root_may_not_vouch_for_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, issuer: str
) -> None:
    bundles = [dataclasses.replace(item, issuer=issuer) for item in all_three(made)]
    assert "issuer-not-vouched" in reasons(case(made, wheel, *bundles), rule, policy)


@row(5, "signer-issuer")
def test_right_identity_from_another_issuer_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    wider = dataclasses.replace(
        policy,
        roots=tuple(
            dataclasses.replace(root, issuers=(*root.issuers, "https://second.example"))
            for root in policy.roots
        ),
    )
    bundles = [dataclasses.replace(item, issuer="https://second.example") for item in all_three(made)]
    assert "signer-issuer" in reasons(case(made, wheel, *bundles), rule, wider)


def test_signer_of_another_root_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    second = dataclasses.replace(policy.roots[0], name="second")
    wider = dataclasses.replace(policy, roots=(*policy.roots, second))
    bundles = [dataclasses.replace(item, root="second") for item in all_three(made)]
    assert "signer-identity" in reasons(case(made, wheel, *bundles), rule, wider)


def test_known_signer_that_the_requirement_does_not_take_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    wider, _ = with_runner(policy, rule)
    extra = facts(provenance(made), identity=RUNNER)
    assert reasons(case(made, wheel, *all_three(made), extra), rule, wider) == {"signer-not-allowed"}


# Row 18.
@row(18, "predicate-missing", "no-bundle")
@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_predicate_that_is_not_there_is_missing(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, left_out: int
) -> None:
    bundles = all_three(made)
    del bundles[left_out]
    verdicts = evaluate_artifact(case(made, wheel, *bundles), rule, policy, AT).verdicts
    assert [type(verdict) for verdict in verdicts] == [Missing]
    assert reasons(case(made, wheel, *bundles), rule, policy) == {"predicate-missing"}
    assert reasons(case(made, wheel), rule, policy) == {"no-bundle"}


@row(18, "predicate-missing")
def test_a_statement_of_another_type_takes_no_place(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    odd = dataclasses.replace(provenance(made), predicate_type="https://slsa.dev/provenance/v0.2")
    bundles = [facts(odd), *all_three(made)[1:]]
    assert reasons(case(made, wheel, *bundles), rule, policy) == {"predicate-missing"}


def test_bare_signature_takes_no_place(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    bare = facts(None, artifact_sha256=made.sha256)
    assert "predicate-missing" in reasons(case(made, wheel, bare), rule, policy)


# Row 32.
@row(32, "sbom-subject")
def test_sbom_of_another_wheel_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    other = part(files={"demo_kernels/other.py": b"x"})
    bundles = [facts(provenance(made)), facts(sbom(made, other.sbom)), facts(results(made))]
    assert reasons(case(made, wheel, *bundles), rule, policy) == {"sbom-subject", "sbom-document"}
    # The same document signed and in the release, of another wheel all the same.
    assert reasons(case(made, wheel, *bundles, documents=(other.sbom,)), rule, policy) == {"sbom-subject"}


@pytest.mark.parametrize("spoil", ["drop", "add", "digest"])
def test_sbom_has_to_explain_every_file(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, spoil: str
) -> None:
    files = dict(wheel.files)
    first = min(files)
    if spoil == "drop":
        del files[first]
    elif spoil == "add":
        files["demo_kernels/ghost.py"] = "0" * 64
    else:
        files[first] = "0" * 64
    document = releasing.sbom_bytes(made.name, made.wheel, files=files)
    bundles = [facts(provenance(made)), facts(sbom(made, document)), facts(results(made))]
    assert reasons(case(made, wheel, *bundles, documents=(document,)), rule, policy) == {"sbom-subject"}


def test_test_result_of_another_wheel_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    other = [evidence_for(gate, made.target, "9" * 64) for gate in GATES]
    bundles = [facts(provenance(made)), facts(sbom(made)), facts(results(made, other))]
    assert {"subject-digest", "evidence-file"} <= reasons(case(made, wheel, *bundles), rule, policy)


@pytest.mark.parametrize("predicate", [{}, {"result": "PASSED"}, {"surprise": 1}])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [(PROVENANCE, "provenance"), (TEST_RESULT, "test-result"), (SBOM, "sbom-format"), (VULNS, "vulns")],
)
def test_malformed_predicate_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, kind: str, expected: str, predicate: Any
) -> None:
    spoiled = facts(Statement(subjects=subject(made), predicate_type=kind, predicate=predicate))
    assert expected in reasons(case(made, wheel, *all_three(made), spoiled), rule, policy)


# Row 34, and the other verdicts of gates.


@row(34, "gate-failed")
@pytest.mark.parametrize("gate", GATES)
def test_failed_gate_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, gate: str
) -> None:
    failing = {gate: {"verdict": Verdict.FAILED, "level": Level.STATIC, "reason": "bad"}}
    changed, bundles = under(made, gates(made, **failing))
    verdicts = evaluate_artifact(case(changed, wheel, *bundles), rule, policy, AT).verdicts
    assert [type(verdict) for verdict in verdicts] == [Rejected]
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"gate-failed"}


def test_failed_gate_that_nobody_asked_for_is_refused_too(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    odd = evidence_for("licences", made.target, made.sha256, verdict=Verdict.FAILED, reason="bad")
    changed, bundles = under(made, [*made.evidence, odd])
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"gate-failed"}
    fine = evidence_for(
        "licences", made.target, made.sha256, verdict=Verdict.UNCHECKED, level=Level.NONE, reason="r"
    )
    changed, bundles = under(made, [*made.evidence, fine])
    assert isinstance(
        evaluate_artifact(case(changed, wheel, *bundles), rule, policy, AT).verdicts[0], Accepted
    )


@row(34, "level-too-low")
@pytest.mark.parametrize(
    ("level", "asked", "good"),
    [
        (Level.STATIC, Level.EMULATED, False),
        (Level.STATIC, Level.HARDWARE, False),
        (Level.EMULATED, Level.HARDWARE, False),
        (Level.EMULATED, Level.EMULATED, True),
        (Level.HARDWARE, Level.EMULATED, True),
    ],
)
def test_level_is_at_least_what_is_asked(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, level: Level, asked: Level, good: bool
) -> None:
    changed, bundles = under(made, gates(made, correctness={"level": level}))
    wanted = dataclasses.replace(rule, levels={"correctness": asked})
    if good:
        assert isinstance(
            evaluate_artifact(case(changed, wheel, *bundles), wanted, policy, AT).verdicts[0], Accepted
        )
    else:
        assert reasons(case(changed, wheel, *bundles), wanted, policy) == {"level-too-low"}


@pytest.mark.parametrize("gate", ["abi", "correctness", "repeat"])
def test_unchecked_gate_passes_only_where_the_policy_says_so(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, gate: str
) -> None:
    skipped = {gate: {"verdict": Verdict.UNCHECKED, "level": Level.NONE, "reason": "not-here"}}
    changed, bundles = under(made, gates(made, **skipped))
    rule = dataclasses.replace(rule, unchecked=tuple(name for name in rule.unchecked if name != gate))
    verdicts = evaluate_artifact(case(changed, wheel, *bundles), rule, policy, AT).verdicts
    assert [type(verdict) for verdict in verdicts] == [Unchecked]
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"gate-unchecked"}
    allowing = dataclasses.replace(rule, unchecked=(*rule.unchecked, gate))
    assert isinstance(
        evaluate_artifact(case(changed, wheel, *bundles), allowing, policy, AT).verdicts[0], Accepted
    )


@pytest.mark.parametrize("gate", GATES)
def test_gate_without_a_result_is_missing(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, gate: str
) -> None:
    changed, bundles = under(made, [item for item in made.evidence if item.gate != gate])
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"gate-missing"}


def test_release_states_what_was_signed(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    whole = case(made, wheel, *all_three(made))
    better = {**(whole.levels or {}), "abi": "PASSED@hardware"}
    assert reasons(dataclasses.replace(whole, levels=better), rule, policy) == {"levels"}
    files = {**(whole.evidence_files or {}), "abi": "0" * 64}
    assert reasons(dataclasses.replace(whole, evidence_files=files), rule, policy) == {"evidence-file"}
    fewer = {gate: digest for gate, digest in files.items() if gate != "abi"}
    assert reasons(dataclasses.replace(whole, evidence_files=fewer), rule, policy) == {"evidence-file"}


# Row 41: evidence of another machine.
@row(41, "level-too-low")
def test_imported_evidence_counts_as_static_unless_its_runner_signed_it(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    wider, asking = with_runner(policy, dataclasses.replace(rule, levels={"correctness": Level.HARDWARE}))
    changed, bundles = under(made, gates(made, correctness={"imported": True}))
    assert reasons(case(changed, wheel, *bundles), asking, wider) == {"level-too-low"}
    own = [item for item in made.evidence if item.gate == "correctness"]
    signed = facts(results(made, own), identity=RUNNER)
    (verdict,) = evaluate_artifact(case(changed, wheel, *bundles, signed), asking, wider, AT).verdicts
    assert isinstance(verdict, Accepted)
    assert verdict.evidence["correctness"] == "PASSED@hardware"
    # Signed by somebody who is no runner, about another result, or about another wheel: static.
    stranger = dataclasses.replace(signed, identity=RUNNER + "2")
    assert "level-too-low" in reasons(case(changed, wheel, *bundles, stranger), asking, wider)
    different = facts(results(made, [dataclasses.replace(own[0], summary="better")]), identity=RUNNER)
    assert reasons(case(changed, wheel, *bundles, different), asking, wider) == {"level-too-low"}
    elsewhere = facts(results(made, own, sha256="9" * 64), identity=RUNNER)
    assert "level-too-low" in reasons(case(changed, wheel, *bundles, elsewhere), asking, wider)
    malformed = facts(
        Statement(subjects=subject(made), predicate_type=TEST_RESULT, predicate={}), identity=RUNNER
    )
    assert "test-result" in reasons(case(changed, wheel, *bundles, malformed), asking, wider)
    failed = dataclasses.replace(own[0], verdict=Verdict.FAILED, reason="wrong")
    against = facts(results(made, [failed]), identity=RUNNER)
    assert "gate-failed" in reasons(case(changed, wheel, *bundles, signed, against), asking, wider)


# Row 39.
@row(39, "clock-behind")
@pytest.mark.parametrize("behind", [dt.timedelta(microseconds=1), dt.timedelta(days=4000)])
def test_clock_behind_a_signed_time_is_refused(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy, behind: dt.timedelta
) -> None:
    whole = case(made, wheel, *all_three(made))
    assert "clock-behind" in reasons(whole, rule, policy, Circumstances(now=TIME - behind))
    assert isinstance(evaluate_artifact(whole, rule, policy, Circumstances(now=TIME)).verdicts[0], Accepted)


# Vulnerabilities.


def test_findings_are_refused_where_scans_are_asked_for(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    asking = dataclasses.replace(rule, predicates=(*rule.predicates, Predicate.VULNERABILITIES))
    assert reasons(case(made, wheel, *all_three(made)), asking, policy) == {"predicate-missing"}
    clean = scan(made)
    changed, bundles = under(made, audited(made))
    whole = case(changed, wheel, *bundles, scanned(made, clean))
    assert isinstance(evaluate_artifact(whole, asking, policy, AT).verdicts[0], Accepted)
    alone = dataclasses.replace(whole, evidence_files=None, levels=None, documents=None)
    bad = facts(
        Statement(subjects=subject(made), predicate_type=VULNS, predicate=scan(made, "CVE-1").as_predicate())
    )
    replaced = tuple(Attestation(path="b", facts=item) for item in [*bundles, bad])
    assert reasons(dataclasses.replace(alone, attestations=replaced), asking, policy) == {
        "vulnerable",
        "scan-incomplete",
    }


def test_scan_that_was_made_cannot_vanish_or_change(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    changed, bundles = under(made, audited(made))
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"predicate-missing"}
    assert reasons(case(changed, wheel, *bundles, scanned(made, scan(made, "CVE-1"))), rule, policy) == {
        "vulns"
    }
    # A statement about a scan that no gate made.
    assert reasons(case(made, wheel, *all_three(made), scanned(made, scan(made))), rule, policy) == {"vulns"}
    broken = gates(
        made,
        audit={
            "verdict": Verdict.PASSED,
            "level": Level.STATIC,
            "reason": "",
            "details": {"vulnerabilities": []},
        },
    )
    changed, bundles = under(made, broken)
    assert reasons(case(changed, wheel, *bundles), rule, policy) == {"vulns"}


def test_wheel_whose_bytes_are_bad_is_refused_whatever_is_signed(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    bad = dataclasses.replace(wheel, problems=(Problem(reason="wheel-path", text="../x"),), files={})
    assert reasons(case(made, bad, *all_three(made)), rule, policy) == {"wheel-path"}


def test_unauthenticated_fields_are_told(
    made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy
) -> None:
    bundles = [
        dataclasses.replace(item, unauthenticated=("tlogEntries.logIndex",)) for item in all_three(made)
    ]
    (verdict,) = evaluate_artifact(case(made, wheel, *bundles), rule, policy, AT).verdicts
    assert isinstance(verdict, Accepted)
    assert any("tlogEntries.logIndex" in note for note in verdict.notes)


def test_judge_signer_gives_the_rule(policy: Policy, made: Part) -> None:
    assert judge_signer(facts(provenance(made)), policy, ["release"], AT) == policy.signers[0]
