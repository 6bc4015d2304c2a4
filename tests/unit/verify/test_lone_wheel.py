"""One wheel with the bundle beside it; rows 1 to 5, 18 and 19 as an operator meets them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

import pytest

import releasing
from forging import Forge, canonical
from releasing import draft, part
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.sign import embedded
from wheelmark.verify import FactsCache, alone, verify_wheel
from wheelmark.verify.policy import Policy, Predicate
from wheelmark.verify.verdict import Accepted, Report

NAME = releasing.file_name()
BESIDE = f"{NAME}.sigstore.json"


@pytest.fixture(scope="module")
def dist(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = draft(part(), part("cuda-sm90", "sm90"))
    return made.write(tmp_path_factory.mktemp("lone") / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture
def wheel(dist: Path, tmp_path: Path) -> Path:
    for name in (NAME, BESIDE):
        shutil.copy(dist / "wheels" / name, tmp_path / name)
    return tmp_path / NAME


def reasons(report: Report) -> set[str]:
    assert not report.accepted
    return set(report.reasons())


def test_a_wheel_and_its_bundle_verify_alone(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    report = verify_wheel(wheel, policy, now=now)
    assert report.accepted
    (verdict,) = report.verdicts
    assert isinstance(verdict, Accepted)
    assert verdict.predicates == (Predicate.PROVENANCE.uri,)
    assert verdict.evidence == {}


def test_a_gpu_wheel_meets_the_requirement_for_its_target(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    path = dist / "wheels" / releasing.file_name("sm90")
    assert verify_wheel(path, policy, now=now).accepted
    strict = dataclasses.replace(
        policy.requirements[-1], targets=("cuda-sm90",), predicates=(Predicate.VULNERABILITIES,)
    )
    narrower = dataclasses.replace(policy, requirements=(*policy.requirements, strict))
    assert reasons(verify_wheel(path, narrower, now=now)) == {"predicate-missing"}
    assert verify_wheel(dist / "wheels" / NAME, narrower, now=now).accepted


def test_in_its_release_a_wheel_finds_all_statements(dist: Path, policy: Policy, now: dt.datetime) -> None:
    everything = tuple(
        dataclasses.replace(rule, predicates=(Predicate.PROVENANCE, Predicate.SBOM))
        for rule in policy.requirements
        if rule.kind.value == "wheel"
    )
    asking = dataclasses.replace(policy, requirements=everything)
    assert verify_wheel(dist / "wheels" / NAME, asking, now=now).accepted


def test_without_a_bundle_it_is_missing(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    wheel.with_name(BESIDE).unlink()
    report = verify_wheel(wheel, policy, now=now)
    assert reasons(report) == {"no-bundle"}
    assert report.exit_code is Exit.MISSING


def test_bundles_may_be_given(wheel: Path, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    wheel.with_name(BESIDE).rename(elsewhere)
    assert verify_wheel(wheel, policy, now=now, bundles=[elsewhere]).accepted
    report = verify_wheel(wheel, policy, now=now, bundles=[tmp_path / "absent"])
    assert reasons(report) == {"unreadable", "no-bundle"}


# Row 1.
@pytest.mark.parametrize("data", [b"", b"x", b"PK\5\6" + b"\0" * 18])
def test_other_bytes_are_refused(wheel: Path, policy: Policy, now: dt.datetime, data: bytes) -> None:
    wheel.write_bytes(data)
    report = verify_wheel(wheel, policy, now=now)
    assert "subject-digest" in reasons(report)
    assert report.exit_code is Exit.REJECTED


def test_well_formed_other_bytes_are_refused(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    wheel.write_bytes(part(files={"demo_kernels/__init__.py": b"# other\n"}).wheel)
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"subject-digest", "predicate-missing"}


# Row 19.
def test_right_bytes_under_another_name_are_refused(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    for other in (releasing.file_name("sm90"), releasing.file_name(version="0.2.0")):
        shutil.copy(wheel, wheel.with_name(other))
        shutil.copy(wheel.with_name(BESIDE), wheel.with_name(f"{other}.sigstore.json"))
        found = reasons(verify_wheel(wheel.with_name(other), policy, now=now))
        assert found & {"subject-name", "subject-digest"}
        assert "wheel-name" in found


# Row 2.
def test_bare_signature_of_another_artifact_is_refused(
    wheel: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    wheel.with_name(BESIDE).write_bytes(canonical(forge.message(b"another artifact")))
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"message-digest", "no-bundle"}


def test_bare_signature_of_this_wheel_says_too_little(
    wheel: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    wheel.with_name(BESIDE).write_bytes(canonical(forge.message(wheel.read_bytes())))
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"predicate-missing"}


# Row 3.
def test_bundle_of_another_artifact_is_refused(
    wheel: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    other = Statement(
        subjects=(Subject(name="other.whl", sha256="0" * 64),),
        predicate_type=Predicate.PROVENANCE.uri,
        predicate={},
    )
    wheel.with_name(BESIDE).write_bytes(forge.sign(other.as_bytes()))
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"subject-digest", "predicate-missing"}


# Rows 4 and 6.
@pytest.mark.parametrize("suffix", ["2", "/", "/x"])
def test_another_identity_is_refused(
    dist: Path, wheel: Path, forge: Forge, policy: Policy, now: dt.datetime, suffix: str
) -> None:
    statement = (dist / "statements" / "provenance.json").read_bytes()
    signed = forge.sign(statement, embedded.RELEASE_IDENTITY + suffix)
    wheel.with_name(BESIDE).write_bytes(signed)
    assert "signer-identity" in reasons(verify_wheel(wheel, policy, now=now))


# Row 15.
def test_bundle_of_another_instance_is_refused(
    dist: Path, wheel: Path, other_forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    statement = (dist / "statements" / "provenance.json").read_bytes()
    wheel.with_name(BESIDE).write_bytes(other_forge.sign(statement))
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"untrusted-root", "no-bundle"}


# Row 18.
def test_another_predicate_is_missing(dist: Path, wheel: Path, policy: Policy, now: dt.datetime) -> None:
    shutil.copy(dist / "bundles" / f"{NAME}.sbom.sigstore.json", wheel.with_name(BESIDE))
    report = verify_wheel(wheel, policy, now=now)
    assert reasons(report) == {"predicate-missing"}
    assert report.exit_code is Exit.MISSING


# Row 21.
def test_junk_beside_a_wheel_is_an_input_error(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    for data, expected in ((b"[" * 20_000, "json-too-deep"), (b'{"a":1,"a":1}', "json-duplicate-key")):
        wheel.with_name(BESIDE).write_bytes(data)
        report = verify_wheel(wheel, policy, now=now)
        assert reasons(report) == {expected, "no-bundle"}
        assert report.exit_code is Exit.INPUT
    with wheel.with_name(BESIDE).open("wb") as stream:
        stream.truncate(200 << 20)  # 200 MB of zeros, none of which is read beyond the limit
    assert "json-too-large" in reasons(verify_wheel(wheel, policy, now=now))


def test_wheel_that_is_not_there_is_an_input_error(tmp_path: Path, policy: Policy, now: dt.datetime) -> None:
    with pytest.raises(InputError):
        verify_wheel(tmp_path / NAME, policy, now=now)


def test_a_wheel_whose_target_nothing_says_and_no_rule_takes_is_refused_for_its_bytes(
    wheel: Path, policy: Policy, now: dt.datetime
) -> None:
    named = tuple(dataclasses.replace(rule, targets=("cpu-x86_64",)) for rule in policy.requirements)
    narrow = dataclasses.replace(policy, requirements=named)
    wheel.write_bytes(b"junk")
    assert reasons(verify_wheel(wheel, narrow, now=now)) == {"wheel-zip"}
    gpu = dataclasses.replace(
        policy, requirements=tuple(dataclasses.replace(rule, targets=("cuda-sm90",)) for rule in named)
    )
    wheel.write_bytes(part().wheel)
    with pytest.raises(ConfigError) as caught:
        verify_wheel(wheel, gpu, now=now)
    assert caught.value.reason == "policy-no-rule"


def test_a_release_with_more_bundles_than_are_read_is_an_input_error(
    dist: Path, policy: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "MAX_BUNDLES", 2)
    with pytest.raises(InputError) as caught:
        verify_wheel(dist / "wheels" / NAME, policy, now=now)
    assert caught.value.reason == "input-limit"


def test_a_wheel_that_was_looked_into_before_is_judged_anew(
    wheel: Path, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    cache = FactsCache(tmp_path / "cache")
    first = verify_wheel(wheel, policy, now=now, cache=cache)
    assert first.accepted
    assert verify_wheel(wheel, policy, now=now, cache=cache).verdicts == first.verdicts
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    assert "subject-digest" in reasons(verify_wheel(wheel, policy, now=now, cache=cache))


def test_a_link_beside_a_wheel_is_not_followed(wheel: Path, policy: Policy, now: dt.datetime) -> None:
    wheel.with_name(BESIDE).rename(wheel.with_name("elsewhere"))
    wheel.with_name(BESIDE).symlink_to("elsewhere")
    assert reasons(verify_wheel(wheel, policy, now=now)) == {"unreadable", "no-bundle"}
