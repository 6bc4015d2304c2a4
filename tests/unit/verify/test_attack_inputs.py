"""Lone wheels, policies and roots that are made to be misread, or to end the verifier."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import releasing
import wheelmaking
from forging import Forge
from releasing import draft, part
from wheelmark.binaries.wheel import Wheel
from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.trust import state
from wheelmark.trust.roots import read_root
from wheelmark.verify import verify_wheel
from wheelmark.verify.artifact import examine_wheel
from wheelmark.verify.policy import Kind, Policy, read_policy
from wheelmark.verify.verdict import Accepted

SHIPPED = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"
LONE = 'kind = "wheel"\ntargets = ["*"]\npredicates = ["provenance"]'
STRICTER = (
    'kind = "wheel"\ntargets = ["{target}"]\npredicates = ["provenance", "sbom"]\nsigners = ["release"]\n\n'
    "[[require]]\n" + LONE
)


@pytest.fixture
def lone(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    dist = draft(part(), part("cuda-sm90", "sm90")).write(tmp_path / "dist", forge.sign)
    return Path(shutil.copytree(dist / "wheels", tmp_path / "a" / "b" / "lone"))


def policy_of(old: str, new: str) -> Policy:
    text = SHIPPED.read_text(encoding="utf-8")
    assert old in text
    return read_policy(text.replace(old, new).encode(), source="test", folder=SHIPPED.parent)


def reasons(path: Path, policy: Policy, now: dt.datetime) -> tuple[Exit, set[str]]:
    report = verify_wheel(path, policy, now=now)
    return report.exit_code, {item.reason for item in report.verdicts if not isinstance(item, Accepted)}


@pytest.mark.parametrize(("local", "target"), [("cpu", "cpu-x86_64"), ("sm90", "cuda-sm90")])
def test_a_lone_wheel_meets_the_requirement_that_names_its_target(
    lone: Path, now: dt.datetime, local: str, target: str
) -> None:
    wheel = lone / releasing.file_name(local)
    stricter = policy_of(LONE, STRICTER.format(target=target))
    assert reasons(wheel, stricter, now) == (Exit.MISSING, {"predicate-missing"})
    other = policy_of(LONE, STRICTER.format(target="cpu-aarch64"))
    assert reasons(wheel, other, now) == (Exit.OK, set())
    named = policy_of(LONE, LONE.replace("*", target))
    assert reasons(wheel, named, now) == (Exit.OK, set())


def test_spoiled_bytes_are_not_the_policys_fault(lone: Path, now: dt.datetime) -> None:
    named = policy_of(LONE, LONE.replace("*", "cpu-x86_64"))
    wheel = lone / releasing.file_name()
    wheel.write_bytes(wheel.read_bytes()[:-1])
    assert reasons(wheel, named, now) == (Exit.REJECTED, {"wheel-zip"})


def test_a_huge_lone_wheel_is_not_hashed(lone: Path, now: dt.datetime, policy: Policy) -> None:
    wheel = lone / releasing.file_name()
    os.truncate(wheel, 1 << 42)
    with pytest.raises(InputError) as caught:
        verify_wheel(wheel, policy, now=now)
    assert caught.value.reason == "wheel-limit"


@pytest.mark.parametrize("name", ["manifest.json", "one.cubin"])
def test_kernels_that_fill_the_memory(tmp_path: Path, name: str) -> None:
    # Small when compressed, and under the ratio that is refused as a bomb.
    bomb = os.urandom(1 << 20) + bytes(200 << 20)
    files = wheelmaking.gpu_files("sm90") | {f"{wheelmaking.FOLDER}/{name}": bomb}
    path = tmp_path / wheelmaking.NAME
    path.write_bytes(wheelmaking.wheel_bytes(files))
    script = (
        "import resource, sys; from pathlib import Path; from wheelmark.verify.artifact import examine_wheel\n"
        "found = examine_wheel(Path(sys.argv[1]), subject='x')\n"
        "print([p.reason for p in found.problems], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))

    ended = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
    )
    assert ended.stdout.startswith("['wheel-limit']")


def test_objects_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = wheelmaking.gpu_files("sm90") | {f"{wheelmaking.FOLDER}/unlisted.cubin": b"x"}
    path = tmp_path / wheelmaking.NAME
    path.write_bytes(wheelmaking.wheel_bytes(files))
    read: list[str] = []
    real = Wheel.read

    def noted(wheel: Wheel, name: str) -> bytes:
        read.append(name)
        return real(wheel, name)

    monkeypatch.setattr(Wheel, "read", noted)
    assert {item.reason for item in examine_wheel(path, subject="x").problems} == {"object-unlisted"}
    assert f"{wheelmaking.FOLDER}/unlisted.cubin" not in read


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            'source = "this-machine"',
            'path = "a\\u0000b"\nsha256 = "' + "0" * 64 + '"',
            "policy-value",
        ),
        ("schema = 1", "schema = " + "1" * 5000, "policy-syntax"),
        ("schema = 1", "schema = true", "policy-version"),
        ("schema = 1", "schema = " + "[" * 100_000, "policy-syntax"),
    ],
)
def test_policies_that_would_end_the_verifier(
    forge: Forge, monkeypatch: pytest.MonkeyPatch, old: str, new: str, reason: str
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    with pytest.raises(ConfigError) as caught:
        policy_of(old, new)
    assert caught.value.reason == reason


def test_a_target_cannot_write_lines_of_its_own(policy: Policy) -> None:
    rules = tuple(rule for rule in policy.requirements if rule.kind is Kind.RELEASE)
    named = dataclasses.replace(policy, requirements=rules)
    with pytest.raises(ConfigError) as caught:
        named.requirement(Kind.WHEEL, "\x1b[2J\nACCEPTED")
    assert caught.value.what.isprintable()


def test_a_root_with_a_certificate_of_no_known_version(forge: Forge) -> None:
    document = json.loads(forge.root_bytes)
    holder = document["certificateAuthorities"][0]["certChain"]["certificates"][0]
    data = base64.b64decode(holder["rawBytes"])
    version = bytes.fromhex("a003020102")
    assert version in data
    holder["rawBytes"] = base64.b64encode(data.replace(version, b"\xa0\x03\x02\x01\x05", 1)).decode()
    with pytest.raises(ConfigError) as caught:
        read_root(json.dumps(document).encode(), name="x", issuers=("i",), level="", canonical=False)
    assert caught.value.reason == "root-shape"
