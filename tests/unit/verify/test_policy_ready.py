"""The policies that are shipped to be filled in: refused until they are, then they take what they mean and no near miss."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import releasing
import tuf_state
from forging import Forge, canonical, forging
from keysigning import KeyLog, PrivateKey, pem
from releasing import Draft, Part, draft, evidence_for, part
from wheelmark import digests
from wheelmark.attest.predicates import TEST_RESULT, VULNS, Scan, TestResult
from wheelmark.attest.resource import Resource
from wheelmark.attest.statement import Statement, Subject
from wheelmark.cli import main
from wheelmark.errors import ConfigError, Exit
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.trust import state, updating
from wheelmark.verify import Policy, Report, load_policy, verify

REPOSITORY = Path(__file__).resolve().parents[3]
GITHUB = "https://token.actions.githubusercontent.com"
TAG = "refs/tags/v0.1.0"
RELEASE = ".github/workflows/release.yml"
WHEEL = releasing.file_name()


def claims(
    repository: str = "example/kernels",
    workflow: str = RELEASE,
    ref: str = TAG,
    *,
    at: str = "",
    of: str = "",
) -> dict[str, str]:
    """What GitHub's token says of a run.

    Args:
        repository: That the run is of.
        workflow: Path of the workflow that signs.
        ref: That the run is for.
        at: The workflow's own ref, where it is another.
        of: The workflow's own repository, where it is another (a reusable workflow).
    """
    signs = f"{of or repository}/{workflow}@{at or ref}"
    return {
        "job_workflow_ref": signs,
        "job_workflow_sha": "1" * 40,
        "runner_environment": "github-hosted",
        "repository": repository,
        "repository_id": "7",
        "repository_owner": repository.partition("/")[0],
        "repository_owner_id": "8",
        "repository_visibility": "public",
        "sha": "2" * 40,
        "ref": ref,
        "workflow": "release",
        "workflow_ref": f"{repository}/{workflow}@{ref}",
        "workflow_sha": "3" * 40,
        "event_name": "push",
        "run_id": "99",
        "run_attempt": "2",
    }


def by_workflow(forge: Forge, statement: bytes, said: Mapping[str, str]) -> bytes:
    identity = f"repo:{said['repository']}:ref:{said['ref']}"
    return canonical(forge.dsse(statement, identity=identity, claims=said))


def audited(made: Part, **changes: Any) -> Evidence:
    """An audit that asked for everything and found nothing, with data of today."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    details = {
        "service": {"source": "osv", "date": today},
        "components": [],
        "vulnerabilities": [],
        **changes,
    }
    return evidence_for(
        "audit",
        made.target,
        made.sha256,
        verdict=Verdict.PASSED,
        level=Level.STATIC,
        reason="",
        details=details,
        environment={"pip-audit": "2.9.0", "asked": f"{today}T00:00:00Z"},
    )


def whole(**audit: Any) -> Draft:
    """A release as github-release.toml asks for it; performance was measured on another machine."""
    made = part()
    measured = evidence_for(
        "performance", made.target, made.sha256, verdict=Verdict.PASSED, level=Level.HARDWARE, reason=""
    )
    kept = [item for item in made.evidence if item.gate not in {"audit", "performance"}]
    made.evidence = [*kept, audited(made, **audit), dataclasses.replace(measured, imported=True)]
    planned = draft(made)

    def change(statements: dict[str, Statement]) -> None:
        subject = (Subject(name=made.name, sha256=made.sha256),)
        scan = Scan.of(next(item for item in made.evidence if item.gate == "audit"))
        assert scan is not None
        statements[f"{made.name}.vulnerabilities"] = Statement(
            subjects=subject, predicate_type=VULNS, predicate=scan.as_predicate()
        )
        statements[f"{made.name}.gpu"] = Statement(
            subjects=subject,
            predicate_type=TEST_RESULT,
            predicate=TestResult.of([measured]).as_predicate(),
        )
        provenance = dict(statements["provenance"].predicate)
        git = Resource(uri="git+https://github.com/example/kernels", digest={"gitCommit": "2" * 40})
        provenance["buildDefinition"] = {
            **provenance["buildDefinition"],
            "resolvedDependencies": [git.as_json()],
        }
        provenance["runDetails"] = {"builder": {"id": "https://wheelmark.dev/builder/local/v1"}}
        statements["provenance"] = dataclasses.replace(statements["provenance"], predicate=provenance)

    planned.change_statements = change
    return planned


@pytest.fixture(scope="module")
def github(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """An instance that takes GitHub's tokens, in place of the public one."""
    with forging(tmp_path_factory.mktemp("github") / "state", issuer=GITHUB) as made:
        yield made


def signed(
    forge: Forge,
    dist: Path,
    said: Mapping[str, str] | None = None,
    *,
    runner: Mapping[str, str] | None = None,
    planned: Draft | None = None,
) -> Path:
    """The release, signed by one workflow, what was measured by another."""

    def sign(statement: bytes) -> bytes:
        # The release's own test result holds what was imported; the runner's does not.
        if TEST_RESULT.encode() in statement and b'"imported":true' not in statement:
            return by_workflow(forge, statement, runner or claims(workflow=".github/workflows/gpu.yml"))
        return by_workflow(forge, statement, said or claims())

    return (planned or whole()).write(dist, sign, root=forge.root_bytes)


def policy_for(
    forge: Forge, folder: Path, monkeypatch: pytest.MonkeyPatch, *, old: str = "", new: str = ""
) -> Path:
    """github-release.toml filled in, with the forge's root where TUF keeps the public one."""
    text = (REPOSITORY / "policies" / "github-release.toml").read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new).replace("<OWNER>/<NAME>", "example/kernels")
    tuf_state.write(folder / "state", "public", forge.root_bytes)
    monkeypatch.setenv(state.VARIABLE, str(folder / "state"))
    path = folder / "policy.toml"
    path.write_text(tuf_state.filled(text, folder), encoding="utf-8")
    path.chmod(0o644)
    return path


@pytest.fixture
def policy(github: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    return load_policy(policy_for(github, tmp_path, monkeypatch), strict=True)


def judged(path: Path, policy: Policy, **options: Any) -> Report:
    return verify(path, policy, now=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5), **options)


@pytest.mark.parametrize("name", ["github-release", "air-gapped"])
def test_shipped_policy_is_refused_until_it_is_filled_in(
    name: str,
    github: Forge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(github.home))
    path = REPOSITORY / "policies" / f"{name}.toml"
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert caught.value.reason == "policy-value"
    assert main(["verify", str(tmp_path), "--policy", str(path)]) == Exit.CONFIG
    # In whatever order an operator goes through it: one thing left is enough.
    text = path.read_text(encoding="utf-8")
    for word in sorted(
        {item.partition(">")[0] for item in text.split('"')[1::2] for item in item.split("<")[1:]}
    ):
        filled = text
        for other in sorted({item.partition(">")[0] for item in text.split("<")[1:]} - {word}):
            filled = filled.replace(f"<{other}>", "https://login.example.org" if "issuer" in other else "x")
        (tmp_path / "policy.toml").write_text(filled, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_policy(tmp_path / "policy.toml")
        assert caught.value.reason == "policy-value", word
    capsys.readouterr()


def test_digest_of_the_public_root_is_the_published_one() -> None:
    assert digests.sha256(updating.public_root()) == tuf_state.PUBLIC


def test_release_of_the_workflow_is_taken(github: Forge, policy: Policy, tmp_path: Path) -> None:
    report = judged(signed(github, tmp_path / "dist"), policy)
    assert report.reasons() == ()
    assert report.accepted
    (verdict,) = [item for item in report.verdicts if item.subject.startswith("wheels/")]
    assert getattr(verdict, "identity", "") == f"https://github.com/example/kernels/{RELEASE}@{TAG}"
    assert getattr(verdict, "evidence", {})["performance"] == "PASSED@hardware"


NEAR = {
    "another repository": claims("example/other"),
    "a fork": claims("mallory/kernels"),
    "a fork that calls the workflow": claims("mallory/kernels", of="example/kernels"),
    "the workflow of a fork": claims(of="mallory/kernels"),
    "another workflow": claims(workflow=".github/workflows/ci.yml"),
    "another version's tag": claims(ref="refs/tags/v0.1.1"),
    "a branch": claims(ref="refs/heads/main"),
    "a branch called like the tag": claims(ref="refs/heads/v0.1.0"),
    "a branch called like the tag's full name": claims(ref="refs/heads/refs/tags/v0.1.0"),
    "the workflow at the tag, run for a branch": claims(ref="refs/heads/main", at=TAG),
    "the workflow of a branch, run for the tag": claims(at="refs/heads/main"),
    "a pull request": claims(ref="refs/pull/7/merge"),
    "a repository that begins with it": claims("example/kernels2"),
    "a repository that ends with it": claims("anexample/kernels"),
    "another case": claims("Example/Kernels"),
    "a workflow that begins with it": claims(workflow=f"{RELEASE}.yml"),
    "a workflow that ends with it": claims(workflow=f"x/{RELEASE}"),
    "a tag that begins with it": claims(ref="refs/tags/v0.1.0-rc1"),
    "a tag that is its beginning": claims(ref="refs/tags/v0.1"),
    "a tag with the local label": claims(ref="refs/tags/v0.1.0+cpu"),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_miss_of_the_workflow_is_refused(
    name: str, github: Forge, policy: Policy, tmp_path: Path
) -> None:
    report = judged(signed(github, tmp_path / "dist", NEAR[name]), policy)
    assert report.exit_code is Exit.REJECTED
    assert "signer-identity" in report.reasons()


def test_name_alone_without_githubs_word_for_it(github: Forge, policy: Policy, tmp_path: Path) -> None:
    """A token with the workflow's address as its subject: the right name, in a certificate without the rest."""

    def sign(statement: bytes) -> bytes:
        return canonical(
            github.dsse(statement, identity=f"https://github.com/example/kernels/{RELEASE}@{TAG}")
        )

    report = judged(whole().write(tmp_path / "dist", sign, root=github.root_bytes), policy)
    assert "signer-identity" in report.reasons()


def test_another_issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 40: an instance of somebody's own, which says of its certificates what GitHub's say."""
    with forging(tmp_path / "evil", issuer="https://token.actions.example") as evil:
        policy = load_policy(policy_for(evil, tmp_path, monkeypatch))
        report = judged(signed(evil, tmp_path / "dist"), policy)
    assert report.exit_code is Exit.REJECTED
    assert "issuer-not-vouched" in report.reasons()


def test_another_instance(policy: Policy, tmp_path: Path) -> None:
    with forging(tmp_path / "evil", issuer=GITHUB) as evil:
        report = judged(signed(evil, tmp_path / "dist"), policy)
    assert report.exit_code is Exit.REJECTED
    assert "untrusted-root" in report.reasons()


@pytest.mark.parametrize("name", ["a fork", "another workflow", "a branch called like the tag"])
def test_what_another_machine_measured_counts_by_its_own_signature(
    name: str, github: Forge, policy: Policy, tmp_path: Path
) -> None:
    said = {**NEAR[name]}
    report = judged(signed(github, tmp_path / "dist", runner=said), policy)
    assert "level-too-low" in report.reasons()
    assert "signer-identity" in report.reasons()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            'builders = ["https://wheelmark.dev/builder/local/v1"]',
            'builders = ["https://other.example"]',
            "builder",
        ),
        (
            'sources = ["https://github.com/<OWNER>/<NAME>"]',
            'sources = ["https://github.com/example/kernel"]',
            "source",
        ),
        ('correctness = "hardware"', 'correctness = "hardware", abi = "emulated"', "level-too-low"),
        ("max_root_age = 30", "max_root_age = 1", "root-age"),
    ],
)
def test_each_condition_is_asked(
    github: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, reason: str
) -> None:
    policy = load_policy(policy_for(github, tmp_path, monkeypatch, old=old, new=new))
    dist = signed(github, tmp_path / "dist")
    later = dt.timedelta(days=2) if reason == "root-age" else dt.timedelta(seconds=5)
    report = verify(dist, policy, now=dt.datetime.now(dt.UTC) + later)
    assert reason in report.reasons()


def test_advisory_data_of_the_release_grows_old(github: Forge, policy: Policy, tmp_path: Path) -> None:
    dist = signed(github, tmp_path / "dist")
    report = verify(dist, policy, now=dt.datetime.now(dt.UTC) + dt.timedelta(days=15))
    assert "advisory-age" in report.reasons()


def test_known_vulnerability_above_the_limit(github: Forge, policy: Policy, tmp_path: Path) -> None:
    found = {"package": "x", "version": "1", "id": "GHSA-1", "aliases": []}
    dist = signed(github, tmp_path / "dist", planned=whole(vulnerabilities=[found]))
    assert "vulnerable" in judged(dist, policy).reasons()


def test_wheel_alone_with_its_bundles(github: Forge, policy: Policy, tmp_path: Path) -> None:
    dist = signed(github, tmp_path / "dist")
    lone = tmp_path / "lone" / WHEEL
    lone.parent.mkdir()
    shutil.copy(dist / "wheels" / WHEEL, lone)
    bundles = sorted((dist / "bundles").iterdir())
    assert judged(lone, policy, bundles=bundles).accepted
    assert judged(lone, policy, bundles=bundles[:1]).reasons()


# A private root by its digest, and a key.
ISSUER = "https://login.example.org"
WHO = "release@example.org"


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("private") / "state", issuer=ISSUER) as made:
        yield made


@pytest.fixture(scope="module")
def log(private: Forge) -> KeyLog:
    return KeyLog(private, 1)


KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def gapped(log: KeyLog, tmp_path: Path) -> Policy:
    """air-gapped.toml filled in."""
    (tmp_path / "trusted_root.json").write_bytes(log.root().data)
    (tmp_path / "release.pub").write_bytes(pem(KEY))
    text = (REPOSITORY / "policies" / "air-gapped.toml").read_text(encoding="utf-8")
    text = text.replace("<OIDC issuer of your instance, https://…>", ISSUER)
    text = text.replace("<subject alternative name of whoever releases>", WHO)
    path = tmp_path / "policy.toml"
    path.write_text(tuf_state.filled(text, tmp_path), encoding="utf-8")
    for name in ("trusted_root.json", "release.pub", "policy.toml"):
        (tmp_path / name).chmod(0o644)
    return load_policy(path, strict=True)


def by_person(forge: Forge, statement: bytes, who: str) -> bytes:
    said = {"email": who, "email_verified": True} if "@" in who and ":" not in who else {}
    return canonical(forge.dsse(statement, identity=who, claims=said))


def test_release_of_a_person_and_of_a_key_are_taken(
    private: Forge, log: KeyLog, gapped: Policy, tmp_path: Path
) -> None:
    root = gapped.roots[0].data
    one = draft().write(tmp_path / "one", lambda data: by_person(private, data, WHO), root=root)
    assert judged(one, gapped).accepted
    two = draft().write(tmp_path / "two", lambda data: canonical(log.statement(KEY, data)), root=root)
    report = judged(two, gapped)
    assert report.accepted
    assert {getattr(item, "signer", "") for item in report.verdicts} == {"release-key"}
    # Each statement by whoever may sign: a key signs as well as a person.
    both = iter(range(100))
    mixed = draft().write(
        tmp_path / "mixed",
        lambda data: by_person(private, data, WHO) if next(both) % 2 else canonical(log.statement(KEY, data)),
        root=root,
    )
    assert judged(mixed, gapped).accepted


@pytest.mark.parametrize(
    "who",
    [
        "prerelease@example.org",
        "release@example.org.evil.example",
        "release@example.or",
        "Release@example.org",
        "mailto:release@example.org",
        "https://evil.example/release@example.org",
        "mallory@example.org",
    ],
)
def test_near_miss_of_a_person_is_refused(who: str, private: Forge, gapped: Policy, tmp_path: Path) -> None:
    dist = draft().write(
        tmp_path / "dist", lambda data: by_person(private, data, who), root=gapped.roots[0].data
    )
    report = judged(dist, gapped)
    assert report.exit_code is Exit.REJECTED
    assert "signer-identity" in report.reasons()


def test_same_person_by_the_word_of_another_instance(
    gapped: Policy, tmp_path: Path, other_forge: Forge
) -> None:
    dist = draft().write(
        tmp_path / "dist", lambda data: by_person(other_forge, data, WHO), root=gapped.roots[0].data
    )
    assert "untrusted-root" in judged(dist, gapped).reasons()


def test_same_person_by_another_issuer_of_the_root(private: Forge, gapped: Policy, tmp_path: Path) -> None:
    text = (tmp_path / "policy.toml").read_text(encoding="utf-8")
    wider = text.replace(f'issuers = ["{ISSUER}"]', f'issuers = ["{ISSUER}", "https://other.example"]')
    (tmp_path / "policy.toml").write_text(
        wider.replace(f'issuer = "{ISSUER}"', 'issuer = "https://other.example"'), encoding="utf-8"
    )
    policy = load_policy(tmp_path / "policy.toml")
    assert policy.signers[0].issuer != gapped.signers[0].issuer
    dist = draft().write(
        tmp_path / "dist", lambda data: by_person(private, data, WHO), root=policy.roots[0].data
    )
    assert "signer-issuer" in judged(dist, policy).reasons()


def test_another_key(log: KeyLog, gapped: Policy, tmp_path: Path) -> None:
    stranger: PrivateKey = ec.generate_private_key(ec.SECP256R1())
    dist = draft().write(
        tmp_path / "dist", lambda data: canonical(log.statement(stranger, data)), root=gapped.roots[0].data
    )
    assert judged(dist, gapped).exit_code is Exit.REJECTED
    assert "key-unknown" in judged(dist, gapped).reasons()


def test_key_where_only_a_person_counts_and_the_reverse(
    private: Forge, log: KeyLog, gapped: Policy, tmp_path: Path
) -> None:
    """Row 16."""
    text = (tmp_path / "policy.toml").read_text(encoding="utf-8")
    for counts, sign, reason in (
        ("release", lambda data: canonical(log.statement(KEY, data)), "signer-not-allowed"),
        ("release-key", lambda data: by_person(private, data, WHO), "signer-not-allowed"),
    ):
        changed = text.replace('["release", "release-key"]', f'["{counts}"]')
        (tmp_path / "policy.toml").write_text(changed, encoding="utf-8")
        dist = draft().write(tmp_path / counts, sign, root=gapped.roots[0].data)
        assert reason in judged(dist, load_policy(tmp_path / "policy.toml")).reasons()
