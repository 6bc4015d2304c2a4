"""Releases prepared by somebody who wants them accepted, or the verifier to fail in another way than it says."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import releasing
from forging import Forge, forging
from releasing import draft, part
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import TEST_RESULT, TestResult
from wheelmark.attest.statement import Statement, Subject
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.evidence import Verdict
from wheelmark.manifest import Kind, NotBuilt
from wheelmark.sign import embedded
from wheelmark.trust import state
from wheelmark.verify import gathering, verify_release
from wheelmark.verify.policy import Policy, load_policy, read_policy
from wheelmark.verify.verdict import Accepted, Report

SHIPPED = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"
HUGE = 1 << 42
"""Bytes of a file of nothing but holes: made in no time, hashed in hours."""


@pytest.fixture(scope="module")
def good(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = (part(), part("cuda-sm90", "sm90"))
    dist = tmp_path_factory.mktemp("attacked") / "dist"
    return draft(*parts).write(dist, forge.sign, root=forge.root_bytes)


@pytest.fixture
def dist(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "dist"))


def answers(report: Report) -> set[tuple[str, str]]:
    assert not report.accepted
    return {(item.subject, item.reason) for item in report.verdicts if not isinstance(item, Accepted)}


def only(dist: Path, pattern: str) -> Path:
    return min(dist.glob(pattern))


# What a terminal shows.
@pytest.mark.parametrize(
    "name",
    [
        "evil\nACCEPTED   release.json",
        "\x1b[2J\x1b[32m",
        "a\rACCEPTED",
        "\u202egnp.exe",
        "\x9b31m",
        "a\u2028b",
    ],
)
def test_names_cannot_write_lines_of_their_own(
    dist: Path, policy: Policy, now: dt.datetime, name: str
) -> None:
    (dist / name).write_bytes(b"x")
    report = verify_release(dist, policy, now=now)
    assert answers(report) == {(name, "unaccounted-file")}
    table = report.as_table()
    assert all(line.isprintable() for line in table.split("\n"))
    assert not any(unicodedata.category(char) in {"Cf", "Zl", "Zp"} for char in table)
    assert json.loads(json.dumps(report.as_json()))["verdicts"][0]["subject"] == name


def test_summaries_of_evidence_cannot_either(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    made = part()
    made.evidence = [
        releasing.evidence_for(e.gate, e.target, e.subject, summary="\x1b[2K\nACCEPTED   everything")
        for e in made.evidence
    ]
    dist = draft(made).write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    report = verify_release(dist, policy, now=now)
    assert report.accepted
    assert all(line.isprintable() for line in report.as_table().split("\n"))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_that_are_no_text_end_in_an_answer(dist: Path, forge: Forge, encoding: str) -> None:
    os.close(os.open(os.fsencode(dist) + b"/bad\xff\xfe", os.O_CREAT | os.O_WRONLY))
    (dist / "é").write_bytes(b"")
    variables = {**os.environ, state.VARIABLE: str(forge.home), "PYTHONIOENCODING": f"{encoding}:strict"}
    command = [sys.executable, "-m", "wheelmark", "verify", str(dist), "--policy", str(SHIPPED)]
    for arguments in (command, [*command, "--json"]):
        ended = subprocess.run(arguments, env=variables, capture_output=True, check=False)
        assert ended.returncode == Exit.REJECTED, ended.stderr
        assert b"unaccounted-file" in ended.stdout
        assert ended.stderr == b""


@pytest.mark.parametrize(("spoiled", "code"), [(False, Exit.INTERNAL), (True, Exit.REJECTED)])
def test_an_answer_that_cannot_be_written_is_no_success(
    dist: Path, forge: Forge, spoiled: bool, code: Exit
) -> None:
    if spoiled:
        (dist / "evil").write_bytes(b"")
    variables = {**os.environ, state.VARIABLE: str(forge.home)}
    command = [sys.executable, "-m", "wheelmark", "verify", str(dist), "--policy", str(SHIPPED)]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, env=variables, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (code, b"")


# What a walk over the directory overlooks.
def descend(folder: Path, name: str, depth: int) -> None:
    """A file at the end of a path that is longer than any that can be opened."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        at, above = os.open(name, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(os.open("evil.pth", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize(("name", "depth"), [("x" * 250, 20), ("x", 1500)])
def test_folders_that_are_nested_without_end(
    dist: Path, policy: Policy, now: dt.datetime, name: str, depth: int
) -> None:
    descend(dist, name, depth)
    try:
        report = verify_release(dist, policy, now=now)
    finally:
        # The cleaning up of pytest would give up on such a tree.
        subprocess.run(["rm", "-rf", str(dist)], check=True)
    assert report.exit_code in {Exit.UNCHECKED, Exit.REJECTED}
    assert set(report.reasons()) <= {"unreadable", "unaccounted-file"}


def test_a_folder_that_cannot_be_read(
    dist: Path, policy: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dist / "closed").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert answers(verify_release(dist, policy, now=now)) == {("release.json", "unreadable")}


def test_paths_that_are_too_long(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    for path in ("x" * 5000, "x" * 5000 + ".whl", "x" * 300 + ".whl"):
        assert main(["verify", path, "--policy", str(SHIPPED)]) in {Exit.INPUT, Exit.UNCHECKED}


# A softer answer than the evidence deserves.
@pytest.mark.parametrize("pattern", ["sbom/*", "locks/*", "evidence/*/abi.json", "wheels/*.whl", "bundles/*"])
def test_a_pipe_does_not_hide_bad_evidence(
    dist: Path, policy: Policy, now: dt.datetime, pattern: str
) -> None:
    victim = only(dist, pattern)
    victim.unlink()
    os.mkfifo(victim)
    found = verify_release(dist, policy, now=now)
    assert found.exit_code is Exit.REJECTED
    assert (victim.relative_to(dist).as_posix(), "unaccounted-file") in answers(found)


@pytest.mark.parametrize(
    "pattern", ["sbom/*", "locks/*", "wheels/*.whl", "wheels/*.sigstore.json", "trust/*", "kernels/*/*"]
)
def test_huge_files_are_not_hashed(dist: Path, policy: Policy, now: dt.datetime, pattern: str) -> None:
    victim = only(dist, pattern)
    os.truncate(victim, HUGE)  # hashing would take hours
    assert verify_release(dist, policy, now=now).exit_code is Exit.REJECTED


def test_a_replaced_sbom_is_not_parsed(
    dist: Path, policy: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = only(dist, "sbom/*")
    victim.write_bytes(b"[" * victim.stat().st_size)
    name = victim.relative_to(dist).as_posix()
    seen: list[bytes] = []

    def same(_predicate: object, data: bytes) -> bool:
        seen.append(data)
        return False

    monkeypatch.setattr("wheelmark.verify.sbom.same_document", same)
    assert (name, "file-digest") in answers(verify_release(dist, policy, now=now))
    assert victim.read_bytes() not in seen


# What nothing signs.
def test_a_copy_of_a_bundle_under_another_name(dist: Path, policy: Policy, now: dt.datetime) -> None:
    shutil.copy(dist / "bundles/provenance.sigstore.json", dist / "bundles/again.sigstore.json")
    shutil.copy(dist / "statements/provenance.json", dist / "statements/again.json")
    assert answers(verify_release(dist, policy, now=now)) == {
        ("bundles/provenance.sigstore.json", "unaccounted-file")
    }


def test_bundles_without_end(
    dist: Path, policy: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MAX_BUNDLES", 4)
    assert answers(verify_release(dist, policy, now=now)) == {("release.json", "input-limit")}


def first(value: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(entry for entry in value["entries"] if entry["kind"] == kind)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: first(v, "wheel").update(target=5),
        lambda v: first(v, "wheel").update(target=[]),
        lambda v: first(v, "wheel").update(target=None),
        lambda v: first(v, "wheel").update(size=True),
        lambda v: first(v, "wheel").update(size=1.5),
        lambda v: first(v, "sbom").update(describes=[]),
        lambda v: v.update(partial=True, notBuilt=[{"target": "a", "reason": 1, "fix": ""}]),
        lambda v: v.update(
            partial=True,
            notBuilt=[{"target": "a", "reason": 1, "fix": ""}, {"target": "a", "reason": "b", "fix": ""}],
        ),
    ],
)
def test_fields_of_the_manifest_of_another_type(
    dist: Path, policy: Policy, now: dt.datetime, change: Callable[[dict[str, Any]], None]
) -> None:
    value = json.loads((dist / "release.json").read_bytes())
    change(value)
    (dist / "release.json").write_bytes(digests.canonical_json(value))
    report = verify_release(dist, policy, now=now)
    assert answers(report) == {("release.json", "manifest")}
    assert report.exit_code is Exit.INPUT


# Row 19: a wheel under a target whose requirement is milder.
@row(19, "release-target")
def test_a_wheel_for_another_cpu(tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime) -> None:
    dist = draft(part("cpu-aarch64", "cpu")).write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    assert (f"wheels/{releasing.file_name()}", "release-target") in answers(
        verify_release(dist, policy, now=now)
    )


def test_kernels_in_a_folder_of_another_name(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    made = part("cuda-sm90", "sm90")
    made.kernels = {f"sub/{name}": data for name, data in made.kernels.items()}
    dist = draft(made).write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    assert {reason for _subject, reason in answers(verify_release(dist, policy, now=now))} == {
        "kernel-copy",
        "unaccounted-file",
    }


# Row 34: what a runner found itself.
@row(34, "gate-failed")
@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED])
def test_a_runner_that_says_failed(
    dist: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, now: dt.datetime, verdict: Verdict
) -> None:
    wheel = only(dist, "wheels/*sm90*.whl")
    sha256 = digests.sha256_file(wheel)
    found = releasing.evidence_for("correctness", "cuda-sm90", sha256, verdict=verdict, reason="wrong-sum")
    statement = Statement(
        subjects=(Subject(name=wheel.name, sha256=sha256),),
        predicate_type=TEST_RESULT,
        predicate=TestResult.of([found]).as_predicate(),
    ).as_bytes()
    runner = embedded.runner_identity("gpu")
    (dist / "statements/runner.json").write_bytes(statement)
    (dist / "bundles/runner.sigstore.json").write_bytes(forge.sign(statement, runner))
    rule = (
        f'[[signer]]\nname = "gpu"\nroot = "embedded"\nissuer = "{embedded.ISSUER}"\nidentity = "{runner}"\n'
    )
    text = SHIPPED.read_text(encoding="utf-8").replace("[[require]]", f"{rule}\n[[require]]", 1)
    text = text.replace('signers = ["release"]\ngates', 'signers = ["release"]\nrunners = ["gpu"]\ngates')
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    policy = read_policy(text.encode(), source="test", folder=dist)
    report = verify_release(dist, policy, now=now)
    if verdict is Verdict.PASSED:
        assert report.accepted
    else:
        assert answers(report) == {(f"wheels/{wheel.name}", "gate-failed")}


# What the signer's own manifest may not say.
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("wheels/evil.pth", Kind.LOCK),
        ("install.sh", Kind.LOCK),
        ("locks/sub/x.txt", Kind.LOCK),
        ("evidence/abi.json", Kind.EVIDENCE),
        ("statements/x.txt", Kind.SBOM),
        ("kernels/manifest.json", Kind.KERNEL_MANIFEST),
        ("other/kernels/cuda-sm90/x.cubin", Kind.CODE_OBJECT),
    ],
)
def test_listed_files_that_lie_where_none_belongs(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, path: str, kind: Kind
) -> None:
    made = draft()
    made.extra_entries = {path: (kind, b"x")}
    dist = made.write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    assert (path, "unaccounted-file") in answers(verify_release(dist, policy, now=now))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"levels": {"cuda-sm80": {"abi": "PASSED@hardware"}}}, "levels"),
        ({"not_built": (NotBuilt(target="cpu-x86_64", reason="", fix=""),)}, "release-target"),
    ],
)
def test_what_the_manifest_says_of_other_targets(
    tmp_path: Path, forge: Forge, policy: Policy, now: dt.datetime, changes: dict[str, Any], reason: str
) -> None:
    made = draft()
    made.change_manifest = lambda whole: dataclasses.replace(
        whole,
        **(changes | ({"levels": {**whole.levels, **changes["levels"]}} if "levels" in changes else {})),
    )
    dist = made.write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    assert ("release.json", reason) in answers(verify_release(dist, policy, now=now))


# Links and devices in the place of folders and files.
@pytest.mark.parametrize("folder", ["wheels", "bundles", "statements", "evidence"])
def test_a_folder_turned_into_a_link(
    dist: Path, policy: Policy, now: dt.datetime, tmp_path: Path, folder: str
) -> None:
    (dist / folder).rename(tmp_path / "elsewhere")
    (dist / folder).symlink_to(tmp_path / "elsewhere")
    assert (folder, "unaccounted-file") in answers(verify_release(dist, policy, now=now))


# What was signed before a rotation stays good, and its copy of the root does not hide anything.
def test_a_release_of_an_earlier_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: dt.datetime
) -> None:
    home = tmp_path / "state"
    with forging(home) as forge:
        dist = draft().write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
    embedded.rotate(home)
    monkeypatch.setenv(state.VARIABLE, str(home))
    policy = load_policy(SHIPPED)
    later = now + dt.timedelta(seconds=5)
    assert verify_release(dist, policy, now=later).accepted
    copy = dist / "trust/trusted_root.json"
    good = copy.read_bytes()
    document = json.loads(good)
    spoiled = {
        "another key": good.replace(b'"keyId":"', b'"keyId":"A', 1),
        "another start": good.replace(b'"start":"2', b'"start":"1', 1),
        "an end": digests.canonical_json(
            document
            | {
                "certificateAuthorities": [
                    item | {"validFor": item["validFor"] | {"end": "2999-01-01T00:00:00Z"}}
                    for item in document["certificateAuthorities"]
                ]
            }
        ),
        "one member more": digests.canonical_json(document | {"more": []}),
        "one member less": digests.canonical_json({k: v for k, v in document.items() if k != "ctlogs"}),
        "one log less": digests.canonical_json(document | {"tlogs": []}),
        "no entry": digests.canonical_json(
            {k: [] if isinstance(v, list) else v for k, v in document.items()}
        ),
        "another spelling": good + b"\n",
        "no JSON": b"{",
    }
    for what, data in spoiled.items():
        assert data != good
        copy.write_bytes(data)
        found = answers(verify_release(dist, policy, now=later))
        assert found == {("trust/trusted_root.json", "root-copy")}, what
