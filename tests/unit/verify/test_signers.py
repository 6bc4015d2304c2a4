"""Rows 4 to 7, 16, 36, 39 and 40: who signed, compared literally, in each of the three ways to say who."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

from judging import AT, NOW, RUNNER, TIME, Bench, facts, provenance
from rows import row
from wheelmark.sign import embedded
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Policy, Signer
from wheelmark.verify.signers import judge_signer

REPOSITORY = "https://github.com/example/kernels"
WORKFLOW = ".github/workflows/release.yml"
TAG = "refs/tags/v0.1.0"
SAN = f"{REPOSITORY}/{WORKFLOW}@{TAG}"
REUSED = "https://github.com/shared/flows/.github/workflows/sign.yml@refs/tags/v3"
KEY = "ab" * 32


def signer(**changes: Any) -> Signer:
    made = Signer(
        name="github",
        root="embedded",
        issuer=embedded.ISSUER,
        repository=REPOSITORY,
        workflow=WORKFLOW,
        ref="refs/tags/v{version}",
    )
    return dataclasses.replace(made, **changes)


def run(bench: Bench, identity: str = SAN, **claims: str) -> Facts:
    said = {"9": identity, "12": REPOSITORY, "14": TAG}
    said |= {f"{name[1:]}": value for name, value in claims.items()}
    found = {number: text for number, text in said.items() if text}
    return facts(provenance(bench.made), identity=identity, claims=found)


def judged(
    policy: Policy, found: Facts, *allowed: str, at: Circumstances = AT, version: str = "0.1.0"
) -> str:
    """Name of the signer rule, or the reason of a refusal."""
    answer = judge_signer(found, policy, allowed or ("github",), at, version=version)
    return answer.name if isinstance(answer, Signer) else answer[0]


def test_a_workflow_is_known_by_repository_path_and_ref(bench: Bench) -> None:
    policy = bench.naming(signer()).policy
    assert judged(policy, run(bench)) == "github"
    # A wheel's version may have a local label; a tag has none.
    assert judged(policy, run(bench), version="0.1.0+cu128") == "github"


@row(6, "signer-identity")
@row(7, "signer-identity")
@pytest.mark.parametrize(
    ("identity", "claims"),
    [
        # Row 7: another ref, another repository; each in one place, and in all.
        (f"{REPOSITORY}/{WORKFLOW}@refs/heads/main", {}),
        (f"{REPOSITORY}/{WORKFLOW}@refs/heads/main", {"_14": "refs/heads/main"}),
        (SAN, {"_14": "refs/heads/main"}),
        (SAN, {"_14": f"{TAG}.1"}),
        (SAN, {"_14": f"x{TAG}"}),
        (SAN, {"_14": ""}),
        (SAN, {"_12": f"{REPOSITORY}2"}),
        (SAN, {"_12": f"{REPOSITORY}/"}),
        (SAN, {"_12": REPOSITORY.upper()}),
        (SAN, {"_12": "https://github.com/evil/kernels"}),
        (SAN, {"_12": ""}),
        (SAN, {"_9": REUSED}),
        (SAN, {"_9": ""}),
        # Row 6: begins with, ends with, contains.
        (f"{SAN}2", {}),
        (f"{SAN}\n", {}),
        (f"https://evil.example/{SAN}", {}),
        (f"https://github.com/evil/x/.github/workflows/{SAN}", {}),
        (SAN.replace("release.yml", "release_yml"), {}),
        (SAN.replace("example", "Example"), {}),
        (SAN.replace(TAG, "refs/tags/v0.1.0-rc1"), {"_14": "refs/tags/v0.1.0-rc1"}),
    ],
)
def test_a_workflow_that_differs_anywhere_is_somebody_else(
    bench: Bench, identity: str, claims: dict[str, str]
) -> None:
    assert judged(bench.naming(signer()).policy, run(bench, identity, **claims)) == "signer-identity"


def test_the_refusal_says_what_differs(bench: Bench) -> None:
    found = run(bench, _12="https://github.com/evil/kernels")
    answer = judge_signer(found, bench.naming(signer()).policy, ["github"], AT, version="0.1.0")
    assert isinstance(answer, tuple)
    assert "for signer 'github' it has repository 'https://github.com/evil/kernels'" in answer[1]


def test_a_ref_that_names_the_version_needs_one(bench: Bench) -> None:
    policy = bench.naming(signer()).policy
    assert judged(policy, run(bench), version="") == "signer-identity"
    assert judged(policy, run(bench), version="0.2.0") == "signer-identity"
    bare = run(bench, f"{REPOSITORY}/{WORKFLOW}@", _14="")
    assert judged(policy, bare, version="") == "signer-identity"
    fixed = bench.naming(signer(ref=TAG)).policy
    assert judged(fixed, run(bench), version="") == "github"


def test_a_reusable_workflow_is_named_by_its_whole_url(bench: Bench) -> None:
    policy = bench.naming(signer(workflow=REUSED)).policy
    assert judged(policy, run(bench, REUSED)) == "github"
    assert judged(policy, run(bench)) == "signer-identity"
    assert judged(policy, run(bench, REUSED, _12="https://github.com/evil/kernels")) == "signer-identity"
    assert (
        judged(policy, run(bench, REUSED.replace("@refs/tags/v3", "@refs/heads/main"))) == "signer-identity"
    )


def test_a_workflow_from_another_issuer_is_refused(bench: Bench) -> None:
    roots = tuple(
        dataclasses.replace(root, issuers=(*root.issuers, "https://b.example")) for root in bench.policy.roots
    )
    policy = bench.naming(signer()).under(roots=roots).policy
    found = dataclasses.replace(run(bench), issuer="https://b.example")
    assert judged(policy, found) == "signer-issuer"
    assert judged(policy, dataclasses.replace(found, issuer="https://c.example")) == "issuer-not-vouched"


def test_a_signer_that_names_nobody_matches_nobody(bench: Bench) -> None:
    nobody = Signer(name="nobody", root="embedded", issuer=embedded.ISSUER)
    policy = bench.naming(nobody).policy
    assert judged(policy, facts(provenance(bench.made), identity=""), "nobody") == "signer-identity"


def key_signer(**changes: Any) -> Signer:
    return dataclasses.replace(Signer(name="key", root="embedded", key_id=KEY), **changes)


def by_key(bench: Bench, key_id: str = KEY) -> Facts:
    return facts(provenance(bench.made), identity="", issuer="", key_id=key_id)


# Row 16.
def test_a_key_counts_where_the_policy_names_it(bench: Bench) -> None:
    policy = bench.naming(key_signer()).policy
    assert judged(policy, by_key(bench), "key") == "key"
    assert judged(policy, by_key(bench, "cd" * 32), "key") == "key-unknown"
    assert judged(policy, by_key(bench, KEY.upper()), "key") == "key-unknown"
    assert judged(policy, by_key(bench), "release") == "signer-not-allowed"
    elsewhere = bench.naming(key_signer(root="other")).policy
    assert judged(elsewhere, by_key(bench), "key") == "key-unknown"


def test_a_certificate_where_a_key_is_asked_for_is_refused(bench: Bench) -> None:
    policy = bench.naming(key_signer()).policy
    stranger = facts(provenance(bench.made), identity="somebody@example.org")
    assert judged(policy, stranger, "key") == "key-expected"
    assert judged(policy, stranger, "key", "release") == "signer-identity"
    known = facts(provenance(bench.made))
    assert judged(policy, known, "key") == "signer-not-allowed"


def test_an_acceptance_by_key_names_the_key(bench: Bench) -> None:
    keyed = bench.naming(key_signer()).asking(signers=("key",))
    found = [dataclasses.replace(item, identity="", issuer="", key_id=KEY) for item in bench.good()]
    verdict = keyed.accepts(found)
    assert (verdict.signer, verdict.identity, verdict.issuer) == ("key", KEY, "")
    assert keyed.refuses(bench.good()) == {"signer-not-allowed", "predicate-missing"}


def test_nobody_is_allowed_where_nobody_is_named(bench: Bench) -> None:
    answer = judge_signer(facts(provenance(bench.made)), bench.policy, [], AT)
    assert answer == ("signer-not-allowed", "signer 'release' is not one of those that count here: nobody")


# A root that is kept fresh through TUF.
@pytest.mark.parametrize(
    ("vouched", "age", "good"),
    [
        (NOW, 1, True),
        (NOW - dt.timedelta(days=3), 3, True),
        (NOW - dt.timedelta(days=3, microseconds=1), 3, False),
        (None, 3, False),
        (NOW - dt.timedelta(days=4000), None, True),
    ],
)
def test_a_root_that_tuf_did_not_vouch_for_lately_is_not_used(
    bench: Bench, vouched: dt.datetime | None, age: int | None, good: bool
) -> None:
    limit = None if age is None else dt.timedelta(days=age)
    roots = tuple(dataclasses.replace(root, vouched=vouched, max_age=limit) for root in bench.policy.roots)
    changed = bench.under(roots=roots)
    if good:
        changed.accepts()
    else:
        assert "root-age" in changed.refuses()


# Row 39, and that nothing of an artifact's own counts before its signer does.
def test_a_clock_behind_the_signature_is_refused(bench: Bench) -> None:
    before = Circumstances(now=TIME - dt.timedelta(seconds=1))
    assert judged(bench.policy, facts(provenance(bench.made)), "release", at=before) == "clock-behind"
    assert (
        judged(bench.policy, facts(provenance(bench.made)), "release", at=Circumstances(now=TIME))
        == "release"
    )


def test_a_runner_is_no_signer(bench: Bench) -> None:
    runner = Signer(name="gpu-a", root="embedded", issuer=embedded.ISSUER, identity=RUNNER)
    found = facts(provenance(bench.made), identity=RUNNER)
    assert judged(bench.naming(runner).policy, found, "release") == "signer-not-allowed"
