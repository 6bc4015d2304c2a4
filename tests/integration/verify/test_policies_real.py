"""Signer rules of a policy against real certificates of Sigstore's public Fulcio for a GitHub workflow.

The bundles are those of Sigstore's conformance suite; not run where WHEELMARK_CASES names no folder with it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from presence import cases
from wheelmark import digests
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Policy, Signer, load_policy
from wheelmark.verify.signers import judge_signer

ASSETS = (cases() or Path("absent")) / "sigstore-conformance" / "test" / "assets"
NAMES = ("rekor2-happy-path", "rekor2-dsse-happy-path", "rekor2-checkpoint-cosigned")
GITHUB = "https://token.actions.githubusercontent.com"
REPOSITORY = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon"
WORKFLOW = ".github/workflows/extremely-dangerous-oidc-beacon.yml"
REF = "refs/heads/main"


def policy_of(folder: Path, root: Path, **fields: str) -> Policy:
    said = "\n".join(f'{name} = "{value}"' for name, value in fields.items())
    (folder / "policy.toml").write_text(
        f"""
schema = 1
[[root]]
name = "public"
path = "{root}"
sha256 = "{digests.sha256_file(root)}"
issuers = ["{GITHUB}", "https://accounts.google.com"]
level = "in Sigstore's public log"
[[signer]]
name = "release"
root = "public"
{said}
[[require]]
kind = "wheel"
predicates = ["provenance"]
signers = ["release"]
""",
        encoding="utf-8",
    )
    return load_policy(folder / "policy.toml")


def judged(name: str, folder: Path, **fields: str) -> Signer | tuple[str, str]:
    case = ASSETS / "bundle-verify" / name
    policy = policy_of(folder, case / "trusted_root.json", **fields)
    artifact = digests.sha256_file(ASSETS / "bundle-verify" / "a.txt")
    bundle = (case / "bundle.sigstore.json").read_bytes()
    facts = Examiner(policy.roots).examine(bundle, artifact=artifact)
    return judge_signer(facts, policy, ("release",), Circumstances(now=dt.datetime.now(dt.UTC)))


pytestmark = pytest.mark.skipif(
    not (ASSETS / "bundle-verify").is_dir(), reason="not run: WHEELMARK_CASES names no folder with the suite"
)
RIGHT = {"issuer": GITHUB, "repository": REPOSITORY, "workflow": WORKFLOW, "ref": REF}


@pytest.mark.parametrize("name", NAMES)
def test_the_workflow_is_found_in_a_real_certificate(name: str, tmp_path: Path) -> None:
    by_fields = judged(name, tmp_path, **RIGHT)
    assert isinstance(by_fields, Signer)
    by_name = judged(name, tmp_path, issuer=GITHUB, identity=f"{REPOSITORY}/{WORKFLOW}@{REF}")
    assert isinstance(by_name, Signer)
    whole = {**RIGHT, "workflow": f"{REPOSITORY}/{WORKFLOW}@{REF}"}
    assert isinstance(judged(name, tmp_path, **whole), Signer)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repository": f"{REPOSITORY}2"}, "signer-identity"),
        ({"repository": REPOSITORY[:-1]}, "signer-identity"),
        (
            {"repository": "https://github.com/mallory/extremely-dangerous-public-oidc-beacon"},
            "signer-identity",
        ),
        ({"workflow": ".github/workflows/other.yml"}, "signer-identity"),
        ({"ref": "refs/heads/mai"}, "signer-identity"),
        ({"ref": "refs/tags/main"}, "signer-identity"),
        ({"ref": "refs/tags/v{version}"}, "signer-identity"),
        ({"issuer": "https://accounts.google.com"}, "signer-issuer"),
    ],
)
def test_near_miss_of_a_real_certificate(change: dict[str, str], reason: str, tmp_path: Path) -> None:
    answer = judged(NAMES[0], tmp_path, **{**RIGHT, **change})
    assert isinstance(answer, tuple)
    assert answer[0] == reason
