"""Rows 31, 33 and 39 with real bundles and the command: channels, memory, audit log; and what is told of a release."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

import releasing
from forging import Forge
from releasing import Draft, draft
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import PROMOTION, VEX, Promotion, Vex
from wheelmark.attest.statement import Statement, Subject
from wheelmark.attest.vex import Status, VexStatement
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.manifest import NAME, NotBuilt
from wheelmark.sign import embedded
from wheelmark.trust import state
from wheelmark.verify import AuditLog, Memory, verify_release
from wheelmark.verify.memory import LAST_SEEN
from wheelmark.verify.policy import load_policy

POLICY = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"
PROMOTER = embedded.runner_identity("promoter")
CHANNEL = f"""
[[signer]]
name = "promoter"
root = "embedded"
issuer = "{embedded.ISSUER}"
identity = "{PROMOTER}"

[[require]]
kind = "release"
channel = "prod"
promoters = ["promoter"]
predicates = ["provenance"]
signers = ["release"]

[[require]]
kind = "wheel"
channel = "prod"
promoters = ["promoter"]
predicates = ["provenance"]
signers = ["release"]
"""


@pytest.fixture
def policy(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.read_text(encoding="utf-8") + CHANNEL, encoding="utf-8")
    return path


def put(dist: Path, name: str, statement: Statement, bundle: bytes) -> Path:
    (dist / f"statements/{name}.json").write_bytes(statement.as_bytes())
    path = dist / f"bundles/{name}.sigstore.json"
    path.write_bytes(bundle)
    return path


def promote(
    forge: Forge, dist: Path, *, channel: str = "prod", sequence: int = 5, days: float = 7, by: str = PROMOTER
) -> Path:
    """Put a promotion of a release into its directory."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    said = Promotion(
        verifier_id="https://example.org/promoter",
        time=now - dt.timedelta(days=10),
        project="demo-kernels",
        channel=channel,
        policy_sha256="c" * 64,
        sequence=sequence,
        expires=now + dt.timedelta(days=days),
    )
    statement = Statement(
        subjects=(Subject(name=NAME, sha256=digests.sha256_file(dist / NAME)),),
        predicate_type=PROMOTION,
        predicate=said.as_predicate(),
    )
    return put(dist, f"{channel}-{sequence}", statement, forge.sign(statement.as_bytes(), by))


def release(forge: Forge, folder: Path, made: Draft | None = None) -> Path:
    return (made or draft()).write(folder, forge.sign, root=forge.root_bytes)


@pytest.fixture
def dist(forge: Forge, policy: Path, tmp_path: Path) -> Path:
    return release(forge, tmp_path / "dist")


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def verify(policy: Path, *arguments: object) -> int:
    return main(["verify", *map(str, arguments), "--policy", str(policy)])


def reasons(capsys: pytest.CaptureFixture[str]) -> set[str]:
    document = json.loads(capsys.readouterr().out)
    return {
        item["reason"] for report in document["reports"] for item in report["verdicts"] if "reason" in item
    }


def test_a_promoted_release_goes_into_the_channel_and_is_remembered(
    forge: Forge, dist: Path, policy: Path, memory: Path
) -> None:
    asked = (dist, "--channel", "prod", "--memory", memory)
    assert verify(policy, *asked) == Exit.MISSING
    assert not memory.exists()
    promote(forge, dist)
    assert verify(policy, *asked) == Exit.OK
    found = Memory(memory).circumstances(dt.datetime.now(dt.UTC))
    assert found.sequences == {"demo-kernels/prod": 5}
    assert found.last_seen is not None
    assert verify(policy, *asked) == Exit.OK
    # Without the channel it is what it was before.
    assert verify(policy, dist) == Exit.OK
    assert verify(policy, dist, "--channel", "staging", "--memory", memory) == Exit.CONFIG


# Row 31.
@row(31, "promotion-rollback")
def test_an_older_release_is_not_taken_after_a_newer(
    forge: Forge, dist: Path, policy: Path, memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = dist
    changed = draft()
    changed.snapshot = False
    changed.extra_entries = {}
    new = release(forge, tmp_path / "new", changed)
    promote(forge, old, sequence=4)
    promote(forge, new, sequence=5)
    assert verify(policy, old, "--channel", "prod", "--memory", memory) == Exit.OK
    assert verify(policy, new, "--channel", "prod", "--memory", memory) == Exit.OK
    capsys.readouterr()
    assert verify(policy, old, "--channel", "prod", "--memory", memory, "--json") == Exit.REJECTED
    assert reasons(capsys) == {"promotion-rollback"}
    assert verify(policy, new, "--channel", "prod", "--memory", memory) == Exit.OK


# Rows 31 and 33.
@pytest.mark.parametrize(
    ("channel", "days", "by", "reason"),
    [
        ("staging", 7, PROMOTER, "promotion-channel"),
        ("prod", -1, PROMOTER, "promotion-expired"),
        ("prod", 7, embedded.RELEASE_IDENTITY, "promotion-signer"),
        ("prod", 7, embedded.runner_identity("stranger"), "promotion-signer"),
    ],
)
def test_a_promotion_that_does_not_count_is_refused(
    forge: Forge,
    dist: Path,
    policy: Path,
    memory: Path,
    capsys: pytest.CaptureFixture[str],
    channel: str,
    days: float,
    by: str,
    reason: str,
) -> None:
    promote(forge, dist, channel=channel, days=days, by=by)
    assert verify(policy, dist, "--channel", "prod", "--memory", memory, "--json") == Exit.REJECTED
    assert reasons(capsys) == {reason}


def test_a_wheel_alone_needs_the_promotion_of_its_release(
    forge: Forge, dist: Path, policy: Path, memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = promote(forge, dist)
    name = releasing.file_name()
    for file in (name, f"{name}.sigstore.json"):
        shutil.copy(dist / "wheels" / file, tmp_path / file)
    asked = (tmp_path / name, "--channel", "prod", "--memory", memory)
    assert verify(policy, *asked) == Exit.MISSING
    assert verify(policy, *asked, "--bundle", bundle) == Exit.OK
    capsys.readouterr()
    # A promotion of another release is not for this wheel.
    changed = draft()
    changed.extra_entries = {}
    other = promote(forge, release(forge, tmp_path / "other", changed))
    assert verify(policy, *asked, "--bundle", other, "--json") == Exit.REJECTED
    assert reasons(capsys) == {"subject-digest", "promotion-missing"}
    assert verify(policy, dist / "wheels" / name, "--channel", "prod", "--memory", memory) == Exit.OK


def test_with_a_channel_this_machine_remembers_in_its_state(forge: Forge, dist: Path, policy: Path) -> None:
    promote(forge, dist)
    try:
        assert verify(policy, dist, "--channel", "prod") == Exit.OK
        found = Memory.of_this_machine().circumstances(dt.datetime.now(dt.UTC))
        assert found.sequences == {"demo-kernels/prod": 5}
    finally:
        shutil.rmtree(forge.home / "memory", ignore_errors=True)


# Row 39.
@row(39, "clock-behind")
def test_a_clock_that_was_set_back_is_refused(
    dist: Path, policy: Path, memory: Path, now: dt.datetime
) -> None:
    loaded = load_policy(policy)
    later = now + dt.timedelta(days=1)
    assert verify_release(dist, loaded, now=later, memory=Memory(memory)).accepted
    back = verify_release(dist, loaded, now=now, memory=Memory(memory))
    assert set(back.reasons()) == {"clock-behind"}
    assert verify_release(dist, loaded, now=later, memory=Memory(memory)).accepted
    (memory / LAST_SEEN).unlink()
    assert verify_release(dist, loaded, now=now, memory=Memory(memory)).accepted


def test_every_verdict_goes_to_the_audit_log(dist: Path, policy: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    assert verify(policy, dist, tmp_path / "nothing", "--audit-log", log) == Exit.INPUT
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["verdict"] for line in lines] == ["accepted", "accepted", "rejected"]
    assert {line["policySha256"] for line in lines} == {digests.sha256_file(policy)}
    assert lines[0]["sha256"] == digests.sha256_file(dist / NAME)
    assert lines[2]["reason"] == "not-a-release"
    assert AuditLog(log).check() == 3


def test_without_its_audit_log_nothing_is_accepted_nor_remembered(
    dist: Path, policy: Path, memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_bytes(b"torn")
    log.chmod(0o600)
    assert verify(policy, dist, "--audit-log", log, "--memory", memory) == Exit.CONFIG
    assert "ACCEPTED" not in capsys.readouterr().out
    assert not memory.exists()


# Others' words about a release.
def test_vex_and_promotions_by_strangers_change_nothing(
    forge: Forge, dist: Path, policy: Path, now: dt.datetime
) -> None:
    promote(forge, dist, by=embedded.runner_identity("stranger"))
    wheel = dist / "wheels" / releasing.file_name()
    said = Vex(
        id="https://example.org/vex/1",
        author="x",
        time=now,
        statements=(VexStatement(vulnerability="CVE-1", status=Status.FIXED, time=now),),
    )
    statement = Statement(
        subjects=(Subject(name=wheel.name, sha256=digests.sha256_file(wheel)),),
        predicate_type=VEX,
        predicate=said.as_predicate(),
    )
    stranger = embedded.runner_identity("stranger")
    put(dist, "vex", statement, forge.sign(statement.as_bytes(), stranger))
    report = verify_release(dist, load_policy(policy), now=now)
    assert report.accepted
    notes = [note for verdict in report.verdicts for note in getattr(verdict, "notes", ())]
    assert any("VEX that counts for nothing here" in note for note in notes)
    assert any("1 promotions lie there" in note for note in notes)
    # Any other statement by them is refused as ever.
    other = Statement(
        subjects=statement.subjects, predicate_type="https://example.org/claim/v1", predicate={}
    )
    put(dist, "claim", other, forge.sign(other.as_bytes(), stranger))
    assert "signer-identity" in verify_release(dist, load_policy(policy), now=now).reasons()


# Row 42, for a whole release.
@row(42, "denied")
@pytest.mark.parametrize("denied", [NAME, "locks/runtime-cpu.txt", "wheel"])
def test_a_denied_release_or_file_of_it_is_refused(
    dist: Path, policy: Path, now: dt.datetime, denied: str
) -> None:
    path = dist / ("wheels/" + releasing.file_name() if denied == "wheel" else denied)
    text = policy.read_text(encoding="utf-8")
    text += f'\n[[deny]]\nsha256 = "{digests.sha256_file(path)}"\nwhy = "leaks"\n'
    policy.write_text(text, encoding="utf-8")
    report = verify_release(dist, load_policy(policy), now=now)
    assert set(report.reasons()) == {"denied"}
    assert any(step.rule == "deny[0]" and not step.holds for step in report.steps)


@pytest.mark.parametrize("member", ["project", "version", "targets", "snapshot"])
def test_a_provenance_of_other_parameters_is_refused(
    forge: Forge, policy: Path, tmp_path: Path, now: dt.datetime, member: str
) -> None:
    made = draft()

    def change(statements: dict[str, Statement]) -> None:
        statements["provenance"].predicate["buildDefinition"]["externalParameters"][member] = "other"

    made.change_statements = change
    report = verify_release(release(forge, tmp_path / "odd", made), load_policy(policy), now=now)
    assert set(report.reasons()) == {"provenance-release"}


@pytest.mark.parametrize("allowed", [True, False])
def test_a_partial_snapshot_leaves_a_step_either_way(
    forge: Forge, policy: Path, tmp_path: Path, now: dt.datetime, *, allowed: bool
) -> None:
    made = draft()
    made.snapshot = True
    made.not_built = (NotBuilt(target="cuda-sm90", reason="r", fix="f"),)
    if not allowed:
        text = (
            policy.read_text(encoding="utf-8")
            .replace("allow_partial = true", "")
            .replace("allow_snapshot = true", "")
        )
        policy.write_text(text, encoding="utf-8")
    report = verify_release(release(forge, tmp_path / "part", made), load_policy(policy), now=now)
    steps = {step.condition: step.holds for step in report.steps if step.condition.startswith("allow_")}
    assert steps == {"allow_partial": allowed, "allow_snapshot": allowed}
    assert set(report.reasons()) == (set() if allowed else {"partial", "snapshot"})
