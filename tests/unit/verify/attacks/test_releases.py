"""Rows 19, 32, 34, 35 and 41 to 43 on whole releases: evidence that is put together, failed, old, or too weak."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import releasing
from asking import SHIPPED, Asked, Expect, ask, command
from forging import Forge
from releasing import Draft, Part, draft, evidence_for, part
from rows import report, row
from wheelmark import digests
from wheelmark.attest.predicates import TEST_RESULT, VULNS, Scan, TestResult
from wheelmark.attest.statement import Statement, Subject
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.manifest import NAME
from wheelmark.sign import embedded
from wheelmark.verify import verify_release
from wheelmark.verify.policy import Denial, Policy, Predicate, Requirement, Signer

RUNNER = embedded.runner_identity("gpu")
WHEEL = f"wheels/{releasing.file_name()}"


@pytest.fixture(scope="module")
def good(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = draft(part(), part("cuda-sm90", "sm90"))
    return made.write(tmp_path_factory.mktemp("releases") / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture
def dist(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "dist"))


@pytest.fixture(scope="module")
def later(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another release under the same names."""
    parts = (part(files={"demo_kernels/__init__.py": b"NEW = 1\n"}), part("cuda-sm90", "sm90"))
    made = draft(*parts)
    return made.write(tmp_path_factory.mktemp("later") / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture
def asked(dist: Path, policy: Policy, now: dt.datetime, expect: Expect) -> Callable[[], Asked]:
    def again() -> Asked:
        return ask(lambda: verify_release(dist, policy, now=now))

    expect.accepted(again())
    return again


def written(forge: Forge, folder: Path, made: Draft) -> Path:
    return made.write(folder / "made", forge.sign, root=forge.root_bytes)


def changed(policy: Policy, **changes: Any) -> Policy:
    """Every requirement for releases, changed."""
    rules: list[Requirement] = [
        dataclasses.replace(rule, **changes) if rule.kind.value == "release" else rule
        for rule in policy.requirements
    ]
    return dataclasses.replace(policy, requirements=tuple(rules))


# Row 43.
@row(43, "unaccounted-file")
@pytest.mark.parametrize(
    "name",
    [
        "evil.pth",
        "wheels/evil.pth",
        "wheels/extra-1.0-py3-none-any.whl",
        "kernels/cuda-sm90/extra.cubin",
        ".hidden",
        "locks/.swp",
        "bundles/notes.txt",
        "sub/folder/file",
        "trust/other_root.json",
        "README",
        "statements/x.txt",
    ],
)
def test_a_file_that_nothing_accounts_for(
    dist: Path, asked: Callable[[], Asked], expect: Expect, name: str
) -> None:
    (dist / name).parent.mkdir(parents=True, exist_ok=True)
    (dist / name).write_bytes(b"x")
    expect(asked(), "unaccounted-file")


@row(43, "unaccounted-file")
def test_the_command_names_it(forge: Forge, dist: Path, expect: Expect) -> None:
    (dist / "evil.pth").write_bytes(b"import os\n")
    expect(command(forge, "verify", dist, "--policy", SHIPPED), "unaccounted-file")


@row(43, "statement-bytes")
@pytest.mark.parametrize("change", ["space", "order", "value", "no bundle", "cut"])
def test_a_statement_file_that_is_not_what_was_signed(
    dist: Path, asked: Callable[[], Asked], expect: Expect, change: str
) -> None:
    path = min((dist / "statements").glob("*.test-result.json"))
    data = path.read_bytes()
    value = json.loads(data)
    match change:
        case "space":
            path.write_bytes(data + b"\n")
        case "order":
            path.write_text(json.dumps(dict(reversed(value.items())), separators=(",", ":")))
        case "value":
            path.write_bytes(data.replace(b"PASSED", b"FAILED", 1))
        case "cut":
            path.write_bytes(data[:-1])
        case _:
            path.with_name("extra.json").write_bytes(data)
    expect(asked(), "statement-bytes")


# Row 32.
@row(32, "subject-digest", "statement-bytes", "file-digest")
@pytest.mark.parametrize(
    ("pattern", "codes"),
    [
        ("bundles/*+cpu*.sbom.sigstore.json", ("subject-digest", "statement-bytes")),
        ("bundles/*+cpu*.test-result.sigstore.json", ("subject-digest", "statement-bytes")),
        ("sbom/*+cpu*", ("file-digest",)),
        ("evidence/*+cpu*/abi.json", ("file-digest",)),
        ("wheels/*+cpu*.whl", ("file-digest",)),
    ],
)
def test_evidence_of_another_release(
    dist: Path, later: Path, asked: Callable[[], Asked], expect: Expect, pattern: str, codes: tuple[str, ...]
) -> None:
    (theirs,) = later.glob(pattern)
    shutil.copyfile(theirs, dist / theirs.relative_to(later))
    consequences = (
        *("subject-digest", "predicate-missing", "gate-missing", "sbom-document", "sbom-subject"),
        *("evidence-file", "kernel-copy", "wheel-record"),
    )
    expect(asked(), *codes, also=consequences)


@row(32, "subject-digest")
@pytest.mark.parametrize("kind", ["sbom", "test-result"])
def test_evidence_of_another_release_with_its_statement(
    dist: Path, later: Path, asked: Callable[[], Asked], expect: Expect, kind: str
) -> None:
    for folder, end in (("bundles", ".sigstore.json"), ("statements", ".json")):
        (theirs,) = (later / folder).glob(f"*+cpu*.{kind}{end}")
        shutil.copyfile(theirs, dist / folder / theirs.name)
    expect(asked(), "subject-digest", also=("predicate-missing", "gate-missing"))


@row(32, "sbom-subject", "subject-digest")
@pytest.mark.parametrize("what", ["sbom", "evidence"])
def test_evidence_of_another_wheel_signed_for_this_one(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, what: str
) -> None:
    own, other = part(), part(files={"demo_kernels/other.py": b"x"})
    made = dataclasses.replace(own, **{what: getattr(other, what)})
    dist = written(forge, tmp_path, draft(made))
    code = "sbom-subject" if what == "sbom" else "subject-digest"
    expect(ask(lambda: verify_release(dist, policy, now=now)), code)


# Row 34.
@row(34, "gate-failed")
@pytest.mark.parametrize("gate", releasing.GATES)
def test_a_gate_that_failed(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, gate: str
) -> None:
    made = part()
    made.evidence = [
        dataclasses.replace(item, verdict=Verdict.FAILED, level=Level.STATIC, reason="wrong")
        if item.gate == gate
        else item
        for item in made.evidence
    ]
    dist = written(forge, tmp_path, draft(made))
    expect(ask(lambda: verify_release(dist, policy, now=now)), "gate-failed")


@row(34, "level-too-low")
@pytest.mark.parametrize(
    ("has", "asks"),
    [
        (Level.STATIC, Level.EMULATED),
        (Level.STATIC, Level.HARDWARE),
        (Level.EMULATED, Level.HARDWARE),
    ],
)
def test_a_lower_level_than_is_asked_for(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, has: Level, asks: Level
) -> None:
    made = part()
    made.evidence = [
        dataclasses.replace(item, level=has) if item.gate == "correctness" else item for item in made.evidence
    ]
    dist = written(forge, tmp_path, draft(made))
    strict = changed(policy, levels={"correctness": asks})
    expect(ask(lambda: verify_release(dist, strict, now=now)), "level-too-low")
    expect.accepted(ask(lambda: verify_release(dist, changed(policy, levels={"correctness": has}), now=now)))


# Row 35.
def scanned(date: str = "2026-05-01", **details: Any) -> Part:
    made = part()
    component = {"component": "pkg:pypi/x@1", "answer": "queried", "package": "x", "version": "1"}
    details = {
        "service": {"source": "osv", "date": date},
        "components": [component],
        "vulnerabilities": [],
        **details,
    }
    found: dict[str, Any] = {
        "verdict": Verdict.PASSED,
        "level": Level.STATIC,
        "reason": "",
        "details": details,
        "environment": {"pip-audit": "2.9.0", "asked": "2026-05-02T00:00:00Z"},
    }
    made.evidence = [
        dataclasses.replace(item, **found) if item.gate == "audit" else item for item in made.evidence
    ]
    return made


def with_scan(made: Part) -> Draft:
    (audit,) = (item for item in made.evidence if item.gate == "audit")
    scan = Scan.of(audit)
    assert scan is not None
    drafted = draft(made)

    def add(statements: dict[str, Statement]) -> None:
        statements[f"{made.name}.vulnerabilities"] = Statement(
            subjects=(Subject(name=made.name, sha256=made.sha256),),
            predicate_type=VULNS,
            predicate=scan.as_predicate(),
        )

    drafted.change_statements = add
    return drafted


def asking_for_scans(policy: Policy, **changes: Any) -> Policy:
    wanted = (Predicate.PROVENANCE, Predicate.SBOM, Predicate.TEST_RESULT, Predicate.VULNERABILITIES)
    return changed(policy, predicates=wanted, **changes)


@row(35, "advisory-age")
@pytest.mark.parametrize(("age", "limit"), [(8, 7), (400, 7), (2, 1), (4000, 365)])
def test_old_advisory_data(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, age: int, limit: int
) -> None:
    date = (now - dt.timedelta(days=age + 1)).date().isoformat()
    dist = written(forge, tmp_path, with_scan(scanned(date)))
    strict = asking_for_scans(policy, advisory_age=limit)
    expect(ask(lambda: verify_release(dist, strict, now=now)), "advisory-age")
    lenient = asking_for_scans(policy, advisory_age=age + 3)
    expect.accepted(ask(lambda: verify_release(dist, lenient, now=now)))


@row(35, "scan-incomplete")
@pytest.mark.parametrize("purl", ["pkg:pypi/y@2", "pkg:pypi/x@2", "pkg:pypi/x@later", "pkg:pypi/Y.y@1.0"])
def test_a_component_that_was_not_asked_about(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, purl: str
) -> None:
    made = scanned()
    document = json.loads(made.sbom)
    component = {"type": "library", "bom-ref": purl, "name": "y", "version": "2", "purl": purl}
    document["components"].append(
        {**component, "properties": [{"name": "wheelmark:role", "value": "dependency"}]}
    )
    made.sbom = digests.canonical_json(document)
    dist = written(forge, tmp_path, with_scan(made))
    expect(ask(lambda: verify_release(dist, asking_for_scans(policy), now=now)), "scan-incomplete")


@row(35, "scan-incomplete")
def test_a_component_that_was_left_out(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect
) -> None:
    dist = written(forge, tmp_path, with_scan(scanned(skipped=[{"package": "z 1", "why": "not found"}])))
    expect(ask(lambda: verify_release(dist, asking_for_scans(policy), now=now)), "scan-incomplete")


# Row 41.
@row(41, "level-too-low")
@pytest.mark.parametrize("signer", ["nobody", "another runner", "somebody"])
def test_evidence_from_a_card_by_somebody_else(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, signer: str
) -> None:
    made = part("cuda-sm90", "sm90")
    imported = {"level": Level.HARDWARE, "imported": True}
    made.evidence = [
        dataclasses.replace(item, **imported) if item.gate == "correctness" else item  # type: ignore[arg-type]
        for item in made.evidence
    ]
    own = [dataclasses.replace(item, imported=False) for item in made.evidence if item.gate == "correctness"]
    runner = Signer(name="gpu", root="embedded", issuer=embedded.ISSUER, identity=RUNNER)
    others = [
        Signer(name=f"s{number}", root="embedded", issuer=embedded.ISSUER, identity=identity)
        for number, identity in enumerate((embedded.runner_identity("other"), "https://embedded.invalid/x"))
    ]
    named = dataclasses.replace(
        changed(policy, runners=("gpu",), levels={"correctness": Level.HARDWARE}),
        signers=(*policy.signers, runner, *others),
    )
    named = dataclasses.replace(
        named,
        requirements=tuple(
            dataclasses.replace(rule, runners=("gpu",), levels={"correctness": Level.HARDWARE})
            for rule in named.requirements
        ),
    )
    dist = written(forge, tmp_path, draft(made))
    who = {
        "another runner": others[0].identity,
        "somebody": others[1].identity,
    }
    if signer in who:
        _confirm(forge, dist, made, own, who[signer])
    answer = ask(lambda: verify_release(dist, named, now=now))
    expect(answer, "level-too-low", also=("signer-not-allowed", "gate-missing", "evidence-file", "levels"))
    if signer == "nobody":
        _confirm(forge, dist, made, own, RUNNER)
        expect.accepted(ask(lambda: verify_release(dist, named, now=now)))


def _confirm(forge: Forge, dist: Path, made: Part, evidence: list[Evidence], identity: str) -> None:
    """Somebody's own statement of what a card answered."""
    statement = Statement(
        subjects=(Subject(name=made.name, sha256=made.sha256),),
        predicate_type=TEST_RESULT,
        predicate=TestResult.of(evidence).as_predicate(),
    ).as_bytes()
    (dist / "statements/runner.json").write_bytes(statement)
    (dist / "bundles/runner.sigstore.json").write_bytes(forge.sign(statement, identity))


# Row 42.
@row(42, "denied")
@pytest.mark.parametrize(
    "pattern",
    ["wheels/*+cpu*.whl", "wheels/*sm90*.whl", NAME, "kernels/*/*.cubin", "kernels/*/manifest.json"],
)
def test_what_is_on_the_deny_list(
    dist: Path, policy: Policy, now: dt.datetime, expect: Expect, pattern: str
) -> None:
    (path,) = dist.glob(pattern)
    denial = Denial(sha256=digests.sha256_file(path), why="withdrawn")
    denied = dataclasses.replace(policy, denials=(denial,))
    expect(ask(lambda: verify_release(dist, denied, now=now)), "denied")
    other = dataclasses.replace(policy, denials=(Denial(sha256="0" * 64, why="another"),))
    expect.accepted(ask(lambda: verify_release(dist, other, now=now)))


@row(42, "denied")
def test_the_command_says_why(forge: Forge, dist: Path, tmp_path: Path, expect: Expect) -> None:
    path = tmp_path / "policy.toml"
    denial = f'\n[[deny]]\nsha256 = "{digests.sha256_file(dist / WHEEL)}"\nwhy = "withdrawn"\n'
    path.write_text(SHIPPED.read_text(encoding="utf-8") + denial, encoding="utf-8")
    expect(command(forge, "verify", dist, "--policy", path), "denied")


# Row 19.
@row(19, "target", "release-target")
@pytest.mark.parametrize("target", ["cpu-aarch64", "cuda-sm80"])
def test_evidence_for_another_target(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, expect: Expect, target: str
) -> None:
    made = part()
    made.evidence = [evidence_for(gate, target, made.sha256) for gate in releasing.GATES]
    dist = written(forge, tmp_path, draft(made))
    expect(ask(lambda: verify_release(dist, policy, now=now)), "target")
    elsewhere = part("cpu-aarch64", "cpu")
    under = written(forge, tmp_path / "2", draft(elsewhere))
    answer = ask(lambda: verify_release(under, policy, now=now))
    expect(answer, "release-target")


@report("trailofbits/pypi-attestations#130", "file-digest")
def test_a_file_replaced_after_it_was_signed(
    dist: Path, later: Path, asked: Callable[[], Asked], expect: Expect
) -> None:
    shutil.copyfile(later / WHEEL, dist / WHEEL)
    consequences = ("subject-digest", "predicate-missing", "sbom-subject", "gate-missing")
    expect(asked(), "file-digest", also=consequences)
