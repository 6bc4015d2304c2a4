"""Releases signed by the ordinary client through ``wheelmark.sign``, verified as an operator does."""

from __future__ import annotations

import base64
import collections
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import releasing
from releasing import draft, part
from wheelmark import digests
from wheelmark.errors import Exit
from wheelmark.sign import Domain, embedded, open_signer
from wheelmark.trust import state
from wheelmark.verify import load_policy, verify_release, verify_wheel
from wheelmark.verify.policy import Policy

REPOSITORY = Path(__file__).resolve().parents[3]
POLICY = REPOSITORY / "policies" / "embedded-dev.toml"
FEW = 5
"""Places of a file at which one byte is turned."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("home") / "state"
        patch.setenv(state.VARIABLE, str(path))
        yield path


@pytest.fixture(scope="module")
def good(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = (part(), part("rocm-gfx942", "gfx942"))
    with open_signer(Domain.EMBEDDED) as signer:
        return draft(*parts).write(
            tmp_path_factory.mktemp("good") / "dist", signer.sign, root=signer.trusted_root
        )


@pytest.fixture(scope="module")
def policy(good: Path) -> Policy:
    return load_policy(POLICY)


@pytest.fixture
def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)


def test_what_the_signer_writes_is_accepted(good: Path, policy: Policy, now: dt.datetime) -> None:
    report = verify_release(good, policy, now=now)
    assert report.reasons() == ()
    assert report.accepted
    for path in sorted((good / "wheels").glob("*.whl")):
        assert verify_wheel(path, policy, now=now).accepted


def test_one_byte_in_any_region_of_any_file_is_refused(
    good: Path, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    dist = Path(shutil.copytree(good, tmp_path / "dist"))
    told: dict[str, set[str]] = collections.defaultdict(set)
    for name in digests.tree_files(dist):
        path = dist / name
        data = path.read_bytes()
        for step in range(FEW):
            index = step * (len(data) - 1) // (FEW - 1)
            path.write_bytes(data[:index] + bytes([data[index] ^ 0x04]) + data[index + 1 :])
            report = verify_release(dist, policy, now=now)
            assert report.exit_code in {Exit.REJECTED, Exit.INPUT}, (name, index)
            told[name.partition("/")[0]] |= set(report.reasons())
        path.write_bytes(data)
    assert verify_release(dist, policy, now=now).accepted
    assert not any("library" in reasons or "second-opinion" in reasons for reasons in told.values()), told
    for folder in ("wheels", "sbom", "evidence", "kernels", "locks"):
        assert "file-digest" in told[folder], told
    assert "root-copy" in told["trust"]
    assert "statement-bytes" in told["statements"]


def test_bundles_of_two_domains_do_not_mix(
    good: Path, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    with open_signer(Domain.EMBEDDED, state=tmp_path / "other") as signer:
        theirs = draft().write(tmp_path / "dist", signer.sign, root=signer.trusted_root)
    report = verify_release(theirs, policy, now=now)
    assert {"untrusted-root", "root-copy"} <= set(report.reasons())
    assert report.exit_code is Exit.REJECTED


def test_after_a_rotation_old_and_new_bundles_verify(tmp_path: Path, now: dt.datetime) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(tmp_path / "state"))
        with open_signer(Domain.EMBEDDED) as signer:
            old = draft().write(tmp_path / "old", signer.sign)
        embedded.rotate()
        with open_signer(Domain.EMBEDDED) as signer:
            new = draft().write(tmp_path / "new", signer.sign)
        policy = load_policy(POLICY)
    later = now + dt.timedelta(seconds=5)
    assert verify_release(old, policy, now=later).reasons() == ()
    assert verify_release(new, policy, now=later).reasons() == ()


def run(*arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, state.VARIABLE: str(home), "PYTHONPATH": str(REPOSITORY / "src")}
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "wheelmark",
            "verify",
            *map(str, arguments),
            "--policy",
            str(POLICY),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_as_a_process(good: Path, home: Path, tmp_path: Path) -> None:
    done = run(good, "--json", home=home)
    assert done.returncode == Exit.OK, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
    dist = Path(shutil.copytree(good, tmp_path / "dist"))
    bundle = dist / "bundles" / f"{releasing.file_name()}.test-result.sigstore.json"
    value = json.loads(bundle.read_bytes())
    payload = base64.b64decode(value["dsseEnvelope"]["payload"]).replace(b"PASSED", b"FAILED")
    value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    bundle.write_bytes(digests.canonical_json(value))
    done = run(dist, home=home)
    assert done.returncode == Exit.REJECTED
    assert "signature" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


CUT_OFF = """
import socket, sys
def refuse(*_a, **_k):
    raise AssertionError("the network was asked")
class Cut(socket.socket):
    __init__ = refuse
socket.socket = Cut
socket.getaddrinfo = socket.create_connection = refuse
from wheelmark.cli import main
code = main(sys.argv[1:])
loaded = [name for name in ("wheelmark.config", "wheelmark.sign", "wheelmark.build", "torch", "asn1crypto", "cyclonedx")
          if name in sys.modules]
assert not loaded, loaded
sys.exit(code)
"""


def test_nothing_is_asked_of_the_network_and_nothing_that_builds_is_loaded(good: Path, home: Path) -> None:
    arguments = ["verify", str(good), "--policy", str(POLICY)]
    environment = {**os.environ, state.VARIABLE: str(home)}
    done = subprocess.run(
        [sys.executable, "-c", CUT_OFF, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_verifier_does_not_import_the_client() -> None:
    code = (
        "import sys, wheelmark.verify; sys.exit(any(m.partition('.')[0] == 'sigstore' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
