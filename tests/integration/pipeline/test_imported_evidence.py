"""A GPU runner's result taken into a release: at its level under the runner's own signature, else as ``static``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkouts import Checkout, Ran

RUNNER = """
[[signer]]
name = "card"
root = "embedded"
issuer = "https://embedded.invalid/oidc"
identity = "https://embedded.invalid/wheelmark/runner/card-1"
"""


@pytest.fixture
def checkout(small: Checkout, tmp_path: Path) -> Checkout:
    return small.clone(tmp_path)


@pytest.fixture
def policy(checkout: Checkout, tmp_path: Path) -> Path:
    """The development policy, with one runner that it believes, and the card asked for."""
    text = checkout.policy.read_text(encoding="utf-8")
    text = text.replace(
        'level = "static"\nlevels = { correctness = "emulated" }', 'level = "static"\nrunners = ["card"]', 1
    )
    path = tmp_path / "policy.toml"
    path.write_text(text + RUNNER, encoding="utf-8")
    return path


def wheel_of(checkout: Checkout) -> Path:
    (wheel,) = (checkout.dist / "wheels").glob("*.whl")
    return wheel


def hardware(checkout: Checkout, tmp_path: Path, **changes: Any) -> Path:
    """What ``tests/gpu/run.py`` would write for the release's wheel."""
    own = checkout.dist / "evidence" / wheel_of(checkout).name / "correctness.json"
    record = json.loads(own.read_bytes())
    record |= {"level": "hardware", "summary": "500 cases on a card", "environment": {"device": "card"}}
    path = tmp_path / "hardware.json"
    path.write_text(json.dumps(record | changes), encoding="utf-8")
    return path


def evidence(checkout: Checkout, *arguments: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "wheelmark", "evidence", "--json", *arguments],
        cwd=checkout.root,
        env=checkout.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def signed(checkout: Checkout, record: Path, tmp_path: Path, runner: str = "card-1") -> Path:
    bundle = tmp_path / f"{runner}.sigstore.json"
    wheel = str(wheel_of(checkout))
    ran = evidence(
        checkout, "sign", str(record), "--wheel", wheel, "--runner", runner, "--output", str(bundle)
    )
    assert ran.code == 0, ran.err
    return bundle


def levels(checkout: Checkout) -> dict[str, str]:
    release = json.loads((checkout.dist / "release.json").read_bytes())
    found: dict[str, str] = release["levels"]["cuda-sm90"]
    return found


def judge(checkout: Checkout, policy: Path) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "wheelmark", "verify", "--json", "dist", "--policy", str(policy)],
        cwd=checkout.root,
        env=checkout.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def test_a_signed_result_counts_at_its_level(checkout: Checkout, policy: Path, tmp_path: Path) -> None:
    record = hardware(checkout, tmp_path)
    bundle = signed(checkout, record, tmp_path)
    ran = evidence(checkout, "add", str(record), "--bundle", str(bundle), "--policy", str(policy))
    assert ran.code == 0, ran.err
    assert ran.document["evidence"]["level"] == "hardware"
    assert ran.document["evidence"]["imported"] is True
    checkout.made("test", "sign")
    assert levels(checkout)["correctness"] == "PASSED@hardware"
    demanding = policy.with_name("demanding.toml")
    text = policy.read_text(encoding="utf-8")
    demanding.write_text(
        text.replace('runners = ["card"]', 'runners = ["card"]\nlevels = { correctness = "hardware" }'),
        encoding="utf-8",
    )
    assert judge(checkout, demanding).code == 0
    # Without the runner in the policy the same evidence is only static, which is less than is asked for.
    nobody = policy.with_name("nobody.toml")
    nobody.write_text(
        demanding.read_text(encoding="utf-8").replace('runners = ["card"]\n', ""), encoding="utf-8"
    )
    refused = judge(checkout, nobody)
    assert refused.code == 1
    assert "level-too-low" in refused.out


def test_an_unsigned_result_is_capped_and_marked(checkout: Checkout, tmp_path: Path) -> None:
    ran = evidence(checkout, "add", str(hardware(checkout, tmp_path)))
    assert ran.code == 0, ran.err
    assert (ran.document["evidence"]["level"], ran.document["evidence"]["imported"]) == ("static", True)
    checkout.made("test", "sign")
    assert levels(checkout)["correctness"] == "PASSED@emulated"
    assert levels(checkout)["correctness.imported"] == "PASSED@static"
    assert checkout.verify().code == 0


def test_a_result_signed_by_somebody_else_is_capped(checkout: Checkout, policy: Path, tmp_path: Path) -> None:
    record = hardware(checkout, tmp_path)
    bundle = signed(checkout, record, tmp_path, runner="card-10")
    ran = evidence(checkout, "add", str(record), "--bundle", str(bundle), "--policy", str(policy))
    assert ran.code == 0, ran.err
    assert ran.document["evidence"]["level"] == "static"


def test_a_failure_on_the_card_stops_the_release(checkout: Checkout, tmp_path: Path) -> None:
    record = hardware(checkout, tmp_path, verdict="FAILED", reason="wrong-result")
    assert evidence(checkout, "add", str(record)).code == 0
    checkout.run("test")
    assert checkout.run("sign").code == 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"subject": {"sha256": "0" * 64}}, "evidence-subject"),
        ({"target": "cuda-sm80"}, "evidence-target"),
        ({"gate": "speed"}, "evidence-gate"),
        ({"level": "gpu"}, "evidence"),
        ({"extra": 1}, "evidence"),
    ],
)
def test_a_result_that_is_not_about_this_release_is_refused(
    checkout: Checkout, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    ran = evidence(checkout, "add", str(hardware(checkout, tmp_path, **changes)))
    assert (ran.code, ran.reason) == (6, reason)


def test_a_bundle_of_another_result_is_refused(checkout: Checkout, policy: Path, tmp_path: Path) -> None:
    bundle = signed(checkout, hardware(checkout, tmp_path), tmp_path)
    other = hardware(checkout, tmp_path, summary="another run")
    ran = evidence(checkout, "add", str(other), "--bundle", str(bundle), "--policy", str(policy))
    assert (ran.code, ran.reason) == (14, "evidence-bundle")


def test_a_changed_bundle_is_refused(checkout: Checkout, policy: Path, tmp_path: Path) -> None:
    record = hardware(checkout, tmp_path)
    bundle = signed(checkout, record, tmp_path)
    bundle.write_bytes(bundle.read_bytes().replace(b'"payload":"', b'"payload":"e', 1))
    ran = evidence(checkout, "add", str(record), "--bundle", str(bundle), "--policy", str(policy))
    assert ran.code in {1, 6}
