"""A policy that is made weaker says so: its value, its digest, and what `wheelmark policy check` says in words all differ."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import releasing
from forging import Forge
from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.sign import embedded
from wheelmark.verify import verify_release
from wheelmark.verify.policy import Policy, read_policy, words

STRICT = f"""
schema = 1

[[root]]
name = "main"
path = "root.json"
sha256 = "ROOT-SHA256"
issuers = ["{embedded.ISSUER}"]
level = "somebody's word"
canonical = true
second_opinion = true

[[signer]]
name = "release"
root = "main"
issuer = "{embedded.ISSUER}"
identity = "{embedded.RELEASE_IDENTITY}"

[[signer]]
name = "gpu"
root = "main"
issuer = "{embedded.ISSUER}"
identity = "https://embedded.invalid/wheelmark/runner/gpu"

[[require]]
kind = "release"
targets = ["cpu-x86_64", "cuda-sm90"]
predicates = ["provenance", "sbom", "test-result", "vulnerabilities"]
signers = ["release"]
builders = ["https://b.example/1"]
sources = ["https://github.com/example/kernels"]
gates = ["abi", "correctness", "coverage"]
level = "emulated"
levels = {{ correctness = "hardware" }}
worst = "low"
advisory_age = 7
driver = "535.54"
torch = ["2.10.0", "2.13.0"]

[[deny]]
sha256 = "{"7" * 64}"
why = "withdrawn"
"""
MADE = STRICT[STRICT.index("predicates = ") : STRICT.index("gates = ")]
WEAKER: dict[str, tuple[str, str]] = {
    "another form": ("canonical = true\n", ""),
    "no second opinion": ("second_opinion = true\n", ""),
    "another issuer": (
        f'issuers = ["{embedded.ISSUER}"]',
        f'issuers = ["{embedded.ISSUER}", "https://x.example"]',
    ),
    "another identity": (f'identity = "{embedded.RELEASE_IDENTITY}"', 'identity = "https://x.example/me"'),
    "another signer": ('signers = ["release"]', 'signers = ["release", "gpu"]'),
    "no provenance": (MADE, MADE.partition("builders")[0].replace('"provenance", ', "")),
    "no SBOM": ('"sbom", ', ""),
    "any builder": ('builders = ["https://b.example/1"]\n', ""),
    "another builder": ('["https://b.example/1"]', '["https://b.example/1", "https://x.example"]'),
    "any source": ('sources = ["https://github.com/example/kernels"]\n', ""),
    "a gate less": ('"abi", "correctness"', '"correctness"'),
    "a lower level": ('level = "emulated"', 'level = "static"'),
    "a lower level of one gate": ('correctness = "hardware"', 'correctness = "static"'),
    "no level of its own": ('levels = { correctness = "hardware" }\n', ""),
    "a gate that may be unchecked": ('level = "emulated"\n', 'level = "emulated"\nunchecked = ["abi"]\n'),
    "a runner": ('level = "emulated"\n', 'level = "emulated"\nrunners = ["gpu"]\n'),
    "worse vulnerabilities": ('worst = "low"', 'worst = "critical"'),
    "older data": ("advisory_age = 7", "advisory_age = 70"),
    "data of any age": ("advisory_age = 7\n", ""),
    "VEX": ("advisory_age = 7\n", 'advisory_age = 7\nvex_signers = ["gpu"]\n'),
    "newer drivers": ("535.54", "999.99"),
    "any driver": ('driver = "535.54"\n', ""),
    "one torch": ('["2.10.0", "2.13.0"]', '["2.13.0"]'),
    "any torch": ('torch = ["2.10.0", "2.13.0"]\n', ""),
    "partial releases": ("advisory_age = 7\n", "advisory_age = 7\nallow_partial = true\n"),
    "snapshots": ("advisory_age = 7\n", "advisory_age = 7\nallow_snapshot = true\n"),
    "nothing denied": (STRICT[STRICT.index("[[deny]]") :], ""),
    "another target": ('["cpu-x86_64", "cuda-sm90"]', '["*"]'),
}


Written = Callable[[str], Policy]


def said(policy: Policy) -> str:
    """What it means, without its own digest."""
    return words.as_table(dataclasses.replace(policy, sha256=""))


@pytest.mark.parametrize("kind", WEAKER)
def test_each_way_to_weaken_a_policy_is_visible(written: Written, kind: str) -> None:
    strict, (old, new) = written(STRICT), WEAKER[kind]
    assert STRICT.count(old) == 1, "the text is not spoiled where it should be"
    weak = written(STRICT.replace(old, new))
    assert weak.sha256 != strict.sha256
    assert dataclasses.replace(weak, sha256=strict.sha256) != strict
    assert said(weak) != said(strict)


@pytest.fixture(scope="module")
def read(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Policy]:
    folder: Path = tmp_path_factory.mktemp("policies")
    (folder / "root.json").write_bytes(forge.root_bytes)
    digest = digests.sha256(forge.root_bytes)
    return lambda text: read_policy(
        text.replace("ROOT-SHA256", digest).encode(), source="policy.toml", folder=folder
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(st.sampled_from(sorted(WEAKER)), min_size=1, max_size=5, unique=True))
def test_several_at_once_do_not_hide_each_other(read: Callable[[str], Policy], chosen: list[str]) -> None:
    text = STRICT
    done = 0
    for kind in chosen:
        old, new = WEAKER[kind]
        if text.count(old) == 1:
            text, done = text.replace(old, new), done + 1
    assert done
    assert meaning(read, text) != meaning(read, STRICT)


def meaning(read: Callable[[str], Policy], text: str) -> str:
    """What a policy means, or the reason why it is none."""
    try:
        return said(read(text))
    except ConfigError as error:
        return error.reason


def test_a_weaker_policy_never_refuses_what_a_stricter_accepts(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    """And its report's steps say what was asked this time."""

    dist = releasing.draft().write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    before = verify_release(dist, policy, now=now)
    assert before.accepted
    rules = tuple(dataclasses.replace(rule, gates=rule.gates[:1]) for rule in policy.requirements)
    after = verify_release(dist, dataclasses.replace(policy, requirements=rules), now=now)
    assert after.accepted
    assert before.steps != after.steps
