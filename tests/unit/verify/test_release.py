"""Rows 19, 32, 40 and 43 on whole releases, and every refusal that a release directory can end in."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import releasing
import wheelmaking
from forging import Forge, canonical, forging
from releasing import Draft, Part, draft, part
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.manifest import Entry, Kind, NotBuilt, ReleaseManifest
from wheelmark.sign import embedded
from wheelmark.verify import FactsCache, gathering, verify_release
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.policy import Policy, read_policy
from wheelmark.verify.release import judge
from wheelmark.verify.verdict import Accepted, Report


@pytest.fixture(scope="module")
def good(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of two wheels, one with a real code object."""
    parts = (part(), part("cuda-sm90", "sm90"))
    dist = tmp_path_factory.mktemp("good") / "dist"
    return draft(*parts).write(dist, forge.sign, root=forge.root_bytes)


@pytest.fixture
def dist(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "dist"))


def refusals(report: Report) -> set[tuple[str, str]]:
    assert not report.accepted
    return {(v.subject, v.reason) for v in report.verdicts if not isinstance(v, Accepted)}


def reasons(path: Path, policy: Policy, now: dt.datetime) -> set[str]:
    return {reason for _subject, reason in refusals(verify_release(path, policy, now=now))}


def written(made: Draft, forge: Forge, folder: Path) -> Path:
    return made.write(folder / "dist", forge.sign, root=forge.root_bytes)


def test_a_good_release_is_accepted(good: Path, policy: Policy, now: dt.datetime) -> None:
    report = verify_release(good, policy, now=now)
    assert report.exit_code is Exit.OK
    assert report.accepted
    assert len(report.verdicts) == 3
    assert {verdict.subject for verdict in report.verdicts} == {
        "release.json",
        f"wheels/{releasing.file_name('cpu')}",
        f"wheels/{releasing.file_name('sm90')}",
    }
    assert report.as_json()["accepted"] is True
    assert report.reasons() == ()
    assert "ACCEPTED" in report.as_table()
    assert policy.roots[0].level in report.as_table()


# Row 43 and 3: every file counts.
def test_a_byte_turned_in_any_file_is_refused(dist: Path, policy: Policy, now: dt.datetime) -> None:
    for name in digests.tree_files(dist):
        path = dist / name
        data = path.read_bytes()
        index = len(data) // 2
        path.write_bytes(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        assert verify_release(dist, policy, now=now).exit_code in {Exit.REJECTED, Exit.INPUT}, name
        path.write_bytes(data)
    assert verify_release(dist, policy, now=now).accepted


def test_a_file_taken_away_is_refused(dist: Path, policy: Policy, now: dt.datetime) -> None:
    for name in digests.tree_files(dist):
        if name in {"trust/trusted_root.json", "release.json"} or "evidence/" in name:
            continue  # derived and never believed; what makes it a release at all; many of one kind
        data = (dist / name).read_bytes()
        (dist / name).unlink()
        assert not verify_release(dist, policy, now=now).accepted, name
        (dist / name).write_bytes(data)


def test_the_copy_of_the_root_is_not_needed(dist: Path, policy: Policy, now: dt.datetime) -> None:
    shutil.rmtree(dist / "trust")
    assert verify_release(dist, policy, now=now).accepted


@row(43, "unaccounted-file")
@pytest.mark.parametrize(
    "name",
    [
        "evil.py",
        "wheels/evil.pth",
        "wheels/other-1.0-py3-none-any.whl",
        "wheels/other.whl.sigstore.json",
        "sbom/extra.cdx.json",
        "evidence/extra.json",
        "statements/sub/x.json",
        "statements/x.txt",
        "bundles/x.json",
        "bundles/sub/x.sigstore.json",
        "trust/other.json",
        "report/index.html",
        ".hidden",
        "release.json.sigstore.json",
    ],
)
def test_file_that_nothing_accounts_for_is_refused(
    dist: Path, policy: Policy, now: dt.datetime, name: str
) -> None:
    (dist / name).parent.mkdir(parents=True, exist_ok=True)
    (dist / name).write_bytes(b"x")
    assert refusals(verify_release(dist, policy, now=now)) == {(name, "unaccounted-file")}


def test_links_and_pipes_are_refused(dist: Path, policy: Policy, now: dt.datetime, tmp_path: Path) -> None:
    name = f"wheels/{releasing.file_name('cpu')}"
    (tmp_path / "elsewhere").write_bytes((dist / name).read_bytes())
    (dist / name).unlink()
    (dist / name).symlink_to(tmp_path / "elsewhere")
    assert (name, "unaccounted-file") in refusals(verify_release(dist, policy, now=now))
    (dist / name).unlink()
    os.mkfifo(dist / name)
    assert (name, "unaccounted-file") in refusals(verify_release(dist, policy, now=now))
    (dist / name).unlink()
    shutil.copy(tmp_path / "elsewhere", dist / name)
    shutil.move(dist / "sbom", tmp_path / "sbom")
    (dist / "sbom").symlink_to(tmp_path / "sbom")
    assert ("sbom", "unaccounted-file") in refusals(verify_release(dist, policy, now=now))


@row(43, "statement-bytes")
def test_statement_files_are_what_was_signed(dist: Path, policy: Policy, now: dt.datetime) -> None:
    statement = dist / "statements" / "provenance.json"
    data = statement.read_bytes()
    for spoiled in (data + b"\n", b" " + data, json.dumps(json.loads(data)).encode(), b""):
        statement.write_bytes(spoiled)
        assert refusals(verify_release(dist, policy, now=now)) == {
            ("statements/provenance.json", "statement-bytes")
        }
    statement.unlink()
    assert refusals(verify_release(dist, policy, now=now)) == {
        ("statements/provenance.json", "statement-file")
    }
    statement.write_bytes(data)
    (dist / "statements" / "more.json").write_bytes(data)
    assert refusals(verify_release(dist, policy, now=now)) == {("statements/more.json", "statement-bytes")}


def test_two_statements_swapped_are_refused(dist: Path, policy: Policy, now: dt.datetime) -> None:
    one, two = sorted((dist / "statements").iterdir())[:2]
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert reasons(dist, policy, now) == {"statement-bytes"}


def test_one_fault_in_the_provenance_bundle_is_not_blamed_on_its_copies(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    bundle = dist / "bundles" / "provenance.sigstore.json"
    document = json.loads(bundle.read_bytes())
    signature = bytearray(base64.b64decode(document["dsseEnvelope"]["signatures"][0]["sig"]))
    signature[-1] ^= 1
    document["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    bundle.write_bytes(digests.canonical_json(document))
    report = verify_release(dist, policy, now=now)
    found = [
        item
        for item in report.verdicts
        if not isinstance(item, Accepted) and item.reason in {"signature", "sibling-bundle"}
    ]
    assert [(item.subject, item.reason) for item in found] == [
        ("bundles/provenance.sigstore.json", "signature"),
        ("wheels", "sibling-bundle"),
    ]
    assert "could be compared with" in found[1].text
    assert report.exit_code is Exit.REJECTED


def test_bundle_beside_a_wheel_is_the_copy(dist: Path, policy: Policy, now: dt.datetime) -> None:
    wheel = f"wheels/{releasing.file_name('cpu')}"
    beside = dist / f"{wheel}.sigstore.json"
    beside.write_bytes((dist / "bundles" / f"{releasing.file_name('cpu')}.sbom.sigstore.json").read_bytes())
    assert refusals(verify_release(dist, policy, now=now)) == {(f"{wheel}.sigstore.json", "sibling-bundle")}
    beside.unlink()
    report = verify_release(dist, policy, now=now)
    assert refusals(report) == {(wheel, "no-bundle")}
    assert report.exit_code is Exit.MISSING


def test_root_beside_the_artefacts_is_never_believed(
    forge: Forge, other_forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    theirs = draft().write(tmp_path / "dist", other_forge.sign, root=other_forge.root_bytes)
    found = reasons(theirs, policy, now)
    assert {"untrusted-root", "root-copy", "predicate-missing"} <= found
    ours = draft().write(tmp_path / "ours", forge.sign, root=other_forge.root_bytes)
    assert reasons(ours, policy, now) == {"root-copy"}


# The manifest.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "json-syntax"),
        (b"{}", "manifest-version"),
        (b'{"schemaVersion": 99}', "manifest-version"),
        (b'{"schemaVersion": 1}', "manifest"),
        (b"[" * 20000, "json-too-deep"),
        (b'{"a": 1, "a": 2}', "json-duplicate-key"),
    ],
)
def test_manifest_that_cannot_be_read_is_an_input_error(
    dist: Path, policy: Policy, now: dt.datetime, data: bytes, expected: str
) -> None:
    (dist / "release.json").write_bytes(data)
    report = verify_release(dist, policy, now=now)
    assert refusals(report) == {("release.json", expected)}
    assert report.exit_code is Exit.INPUT


def test_what_is_no_release_is_an_input_error(tmp_path: Path, policy: Policy, now: dt.datetime) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError) as caught:
            verify_release(path, policy, now=now)
        assert caught.value.reason == "not-a-release"


def test_too_many_files_are_refused(
    good: Path, policy: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MAX_FILES", 10)
    report = verify_release(good, policy, now=now)
    assert refusals(report) == {("release.json", "input-limit")}


def test_manifest_changed_and_signed_for_again_by_nobody_is_refused(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    made = ReleaseManifest.from_bytes((dist / "release.json").read_bytes())
    (dist / "release.json").write_bytes(dataclasses.replace(made, version="0.1.1").as_bytes())
    assert "subject-digest" in reasons(dist, policy, now)


def spoiled(forge: Forge, folder: Path, change: Callable[[ReleaseManifest], ReleaseManifest]) -> Path:
    made = draft()
    made.change_manifest = change
    return written(made, forge, folder)


def test_manifest_that_contradicts_what_it_lists(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    ghost = Entry(path="locks/ghost.txt", kind=Kind.LOCK, sha256=digests.sha256(b""), size=0)
    cases: list[tuple[Callable[[ReleaseManifest], ReleaseManifest], str]] = [
        (lambda m: dataclasses.replace(m, targets=("cuda-sm90",)), "release-target"),
        (lambda m: dataclasses.replace(m, levels={}), "levels"),
        (lambda m: dataclasses.replace(m, project="other"), "wheel-name"),
        (lambda m: dataclasses.replace(m, version="0.2.0"), "wheel-name"),
        (lambda m: dataclasses.replace(m, version="not a version"), "wheel-name"),
        (
            lambda m: dataclasses.replace(m, entries=(*m.entries, dataclasses.replace(ghost, size=7))),
            "file-digest",
        ),
    ]
    for number, (change, expected) in enumerate(cases):
        assert expected in reasons(spoiled(forge, tmp_path / str(number), change), policy, now)


def test_listed_file_that_is_absent_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    path = written(draft(), forge, tmp_path)
    (path / "locks" / "runtime-cpu.txt").unlink()
    assert refusals(verify_release(path, policy, now=now)) == {("locks/runtime-cpu.txt", "file-missing")}


def test_release_without_wheels_is_missing_everything(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    empty = Draft(parts=[])
    report = verify_release(written(empty, forge, tmp_path), policy, now=now)
    assert refusals(report) == {("release.json", "wheel-absent")}
    assert report.exit_code is Exit.MISSING


def test_partial_and_snapshot_releases(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = draft()
    made.snapshot = True
    made.not_built = (NotBuilt(target="cpu-aarch64", reason="no cross compiler", fix="install it"),)
    path = written(made, forge, tmp_path)
    report = verify_release(path, policy, now=now)
    assert report.accepted
    assert "snapshot" in report.as_table()
    assert "lacks cpu-aarch64" in report.as_table()
    strict = dataclasses.replace(
        policy,
        requirements=tuple(
            dataclasses.replace(rule, allow_partial=False, allow_snapshot=False)
            for rule in policy.requirements
        ),
    )
    assert refusals(verify_release(path, strict, now=now)) == {
        ("release.json", "partial"),
        ("release.json", "snapshot"),
    }


def test_policy_without_a_requirement_for_the_target_is_an_error(
    good: Path, policy: Policy, now: dt.datetime
) -> None:
    narrow = dataclasses.replace(
        policy,
        requirements=tuple(
            dataclasses.replace(rule, targets=("cpu-x86_64",)) for rule in policy.requirements[:1]
        ),
    )
    with pytest.raises(ConfigError) as caught:
        verify_release(good, narrow, now=now)
    assert caught.value.reason == "policy-no-rule"


# Statements.
def test_provenance_is_about_every_file_and_no_other(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    def change(
        edit: Callable[[tuple[Subject, ...]], tuple[Subject, ...]],
    ) -> Callable[[dict[str, Statement]], None]:
        def apply(statements: dict[str, Statement]) -> None:
            made = statements["provenance"]
            statements["provenance"] = dataclasses.replace(made, subjects=edit(made.subjects))

        return apply

    sbom = f"sbom/{releasing.file_name()}.cdx.json"
    cases = [
        (lambda s: (*s, Subject(name="ghost", sha256="0" * 64)), "subject-extra"),
        (lambda s: (*s, Subject(name="copy", sha256=s[0].sha256)), "subject-name"),
        (lambda s: tuple(x for x in s if x.name != sbom), "subject-lacking"),
        (lambda s: tuple(x for x in s if x.name != "release.json"), "subject-lacking"),
        (
            lambda s: tuple(dataclasses.replace(x, sha256="0" * 64) if x.name == sbom else x for x in s),
            "subject-digest",
        ),
        (
            lambda s: tuple(
                dataclasses.replace(x, name=f"wheels/{x.name}") if x.name.endswith(".whl") else x for x in s
            ),
            "subject-name",
        ),
    ]
    for number, (edit, expected) in enumerate(cases):
        made = draft()
        made.change_statements = change(edit)
        assert expected in reasons(written(made, forge, tmp_path / str(number)), policy, now), number


def test_two_provenances_both_have_to_hold(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    def more(statements: dict[str, Statement]) -> None:
        made = statements["provenance"]
        statements["another"] = dataclasses.replace(made, subjects=made.subjects[:1])

    made = draft()
    made.change_statements = more
    assert reasons(written(made, forge, tmp_path), policy, now) == {"subject-lacking"}


def test_provenance_by_somebody_who_does_not_count_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    made = draft()
    path = made.write(
        tmp_path / "dist",
        lambda data: forge.sign(
            data,
            embedded.runner_identity("gpu-a") if PROVENANCE.encode() in data else embedded.RELEASE_IDENTITY,
        ),
        root=forge.root_bytes,
    )
    assert {"signer-identity", "predicate-missing"} <= reasons(path, policy, now)


# Row 40.
@row(40, "issuer-not-vouched")
@pytest.mark.parametrize(
    "issuer", ["https://token.actions.githubusercontent.com", "https://accounts.example"]
)
def test_embedded_authority_that_names_a_public_issuer_is_refused(
    now: dt.datetime, tmp_path: Path, issuer: str, policy: Policy
) -> None:
    with forging(tmp_path / "state", issuer=issuer) as forge:
        path = draft().write(tmp_path / "dist", forge.sign, root=forge.root_bytes)
        own = dataclasses.replace(policy, roots=(forge.root(),))
        assert "issuer-not-vouched" in reasons(path, own, now)


# Row 15, embedded evidence under a policy of another root.
@row(15, "untrusted-root")
def test_embedded_release_under_another_root_is_refused(
    good: Path, other_forge: Forge, now: dt.datetime, tmp_path: Path
) -> None:
    (tmp_path / "root.json").write_bytes(other_forge.root_bytes)
    text = f"""
schema = 1
[[root]]
name = "theirs"
path = "root.json"
sha256 = "{digests.sha256(other_forge.root_bytes)}"
issuers = ["{embedded.ISSUER}"]
level = "theirs"
[[signer]]
name = "release"
root = "theirs"
issuer = "{embedded.ISSUER}"
identity = "{embedded.RELEASE_IDENTITY}"
[[require]]
kind = "release"
predicates = ["provenance"]
signers = ["release"]
"""
    policy = read_policy(text.encode(), source="t", folder=tmp_path)
    assert {"untrusted-root", "root-copy", "predicate-missing", "no-bundle"} <= reasons(good, policy, now)


# Row 39.
def test_clock_behind_the_evidence_is_refused(good: Path, policy: Policy, now: dt.datetime) -> None:
    assert "clock-behind" in reasons(good, policy, now - dt.timedelta(days=1))


# Row 32 as a release: parts of two releases put together.
@pytest.mark.parametrize("kind", ["sbom", "test-result"])
def test_statement_of_another_release_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path, kind: str
) -> None:
    here = written(draft(), forge, tmp_path / "a")
    other = part(files={"demo_kernels/__init__.py": b"# another\n"})
    there = written(draft(other), forge, tmp_path / "b")
    name = f"{releasing.file_name()}.{kind}"
    for path in (f"statements/{name}.json", f"bundles/{name}.sigstore.json"):
        shutil.copy(there / path, here / path)
    assert {"subject-digest", "predicate-missing"} <= reasons(here, policy, now)


def test_files_of_another_release_are_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    other = part(files={"demo_kernels/__init__.py": b"# another\n"})
    there = written(draft(other), forge, tmp_path / "b")
    for folder in ("wheels", "sbom", "evidence", "bundles", "statements"):
        here = written(draft(), forge, tmp_path / folder)
        shutil.rmtree(here / folder)
        shutil.copytree(there / folder, here / folder)
        assert not verify_release(here, policy, now=now).accepted


# Row 19: the right wheel in the place of another target.
def test_wheel_of_another_target_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    gpu = part("cuda-sm90", "sm90")
    for number, (target, expected) in enumerate(
        [("cuda-sm80", "kernel-manifest-target"), ("cpu-x86_64", "kernel-manifest-target")]
    ):
        wrong = dataclasses.replace(
            gpu,
            target=target,
            evidence=[releasing.evidence_for(gate, target, gpu.sha256) for gate in releasing.GATES],
        )
        assert expected in reasons(written(draft(wrong), forge, tmp_path / str(number)), policy, now)
    bare = part("cpu-x86_64", "sm90")
    wrong = dataclasses.replace(
        bare,
        target="cuda-sm90",
        evidence=[releasing.evidence_for(gate, "cuda-sm90", bare.sha256) for gate in releasing.GATES],
    )
    assert "kernel-manifest-missing" in reasons(written(draft(wrong), forge, tmp_path / "bare"), policy, now)


# Row 30 on a signed release, and the copies of code objects.
def test_kernels_beside_the_wheel_are_its_own(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    gpu = part("cuda-sm90", "sm90")
    for number, kernels in enumerate(
        [{}, {**gpu.kernels, "extra.cubin": b"x"}, {**gpu.kernels, "manifest.json": b"{}"}]
    ):
        wrong = dataclasses.replace(gpu, kernels=kernels)
        found = reasons(written(draft(wrong), forge, tmp_path / str(number)), policy, now)
        assert found == {"kernel-copy"}


def test_signed_wheel_with_bad_bytes_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    name = releasing.file_name()
    entries = wheelmaking.wheel_entries({"demo_kernels/__init__.py": b""}, name)
    unlisted = wheelmaking.zip_bytes([*entries, wheelmaking.Entry(name="evil.pth", data=b"import os\n")])
    files = wheelmaking.gpu_files("sm90")
    files[f"{wheelmaking.FOLDER}/extra.cubin"] = wheelmaking.code_object("sm90")
    gpu = part("cuda-sm90", "sm90", files)
    cases: list[tuple[Part, str]] = [(part(wheel=unlisted), "wheel-unlisted"), (gpu, "object-unlisted")]
    for number, (made, expected) in enumerate(cases):
        assert expected in reasons(written(draft(made), forge, tmp_path / str(number)), policy, now)


def test_bundle_that_cannot_be_read_is_told_with_its_name(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    name = f"bundles/{releasing.file_name()}.sbom.sigstore.json"
    for data, expected in ((b"{", "json-syntax"), (b"[" * 20_000, "json-too-deep"), (b"{}", "bundle-shape")):
        (dist / name).write_bytes(data)
        assert (name, expected) in refusals(verify_release(dist, policy, now=now))


def test_bare_signature_has_no_place_in_a_release(
    dist: Path, forge: Forge, policy: Policy, now: dt.datetime
) -> None:
    wheel = (dist / "wheels" / releasing.file_name()).read_bytes()
    (dist / "bundles" / "bare.sigstore.json").write_bytes(canonical(forge.message(wheel)))
    assert ("bundles/bare.sigstore.json", "statement-expected") in refusals(
        verify_release(dist, policy, now=now)
    )


def test_a_listed_file_that_would_be_hashed_for_hours_is_refused_unread(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    name, huge = f"wheels/{releasing.file_name('cpu')}", 17 << 30

    def saying(path: str) -> Callable[[ReleaseManifest], ReleaseManifest]:
        def say_so(made: ReleaseManifest) -> ReleaseManifest:
            entries = tuple(
                dataclasses.replace(item, size=huge) if item.path == path else item for item in made.entries
            )
            return dataclasses.replace(made, entries=entries)

        return say_so

    made = draft()
    made.change_manifest = saying(name)
    dist = written(made, forge, tmp_path)
    os.truncate(dist / name, huge)  # nothing but holes behind the wheel
    assert (name, "wheel-limit") in refusals(verify_release(dist, policy, now=now))
    made.change_manifest = saying("locks/runtime-cpu.txt")
    dist = written(made, forge, tmp_path)
    os.truncate(dist / "locks" / "runtime-cpu.txt", huge)
    assert ("locks/runtime-cpu.txt", "input-limit") in refusals(verify_release(dist, policy, now=now))


def test_a_statement_file_over_the_limit_is_refused_unread(
    dist: Path, policy: Policy, now: dt.datetime
) -> None:
    os.truncate(dist / "statements" / "provenance.json", 65 << 20)
    assert refusals(verify_release(dist, policy, now=now)) == {
        ("statements/provenance.json", "json-too-large")
    }


def test_a_file_too_deep_to_be_opened_is_refused(dist: Path, policy: Policy, now: dt.datetime) -> None:
    names = []
    folder = os.open(dist, os.O_RDONLY)
    room = 4094 - len(str(dist))
    while room > 0:
        names.append("d" * min(200, max(1, room - 1)))
        room -= len(names[-1]) + 1
        os.mkdir(names[-1], dir_fd=folder)
        inner = os.open(names[-1], os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("f" * 100, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    found = refusals(verify_release(dist, policy, now=now))
    assert {reason for _, reason in found} == {"unaccounted-file"}


def test_a_provenance_that_says_nothing_is_refused(
    forge: Forge, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    def spoil(statements: dict[str, Statement]) -> None:
        statements["provenance"] = dataclasses.replace(statements["provenance"], predicate={})

    made = draft()
    made.change_statements = spoil
    dist = written(made, forge, tmp_path)
    assert "provenance" in reasons(dist, policy, now)


def test_a_bare_signature_has_no_place_in_a_release(good: Path, policy: Policy, now: dt.datetime) -> None:
    # None gets this far today: without an artifact such a bundle is not even examined.
    found = gathering.gather(good, policy)
    bare = dataclasses.replace(
        found.attestations[0], facts=dataclasses.replace(found.attestations[0].facts, statement=None)
    )
    spoiled = dataclasses.replace(found, attestations=(bare, *found.attestations[1:]))
    judged = judge(spoiled, policy, Circumstances(now=now))
    assert "statement-expected" in {item.reason for item in judged.verdicts if not isinstance(item, Accepted)}


def test_wheels_that_were_looked_into_before_are_only_hashed(
    dist: Path, policy: Policy, now: dt.datetime, tmp_path: Path
) -> None:
    cache = FactsCache(tmp_path / "cache")
    first = verify_release(dist, policy, now=now, cache=cache)
    assert first.accepted
    assert verify_release(dist, policy, now=now, cache=cache).verdicts == first.verdicts
    wheel = dist / "wheels" / releasing.file_name("cpu")
    data = wheel.read_bytes()
    wheel.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = verify_release(dist, policy, now=now, cache=cache)
    assert (f"wheels/{wheel.name}", "file-digest") in refusals(found)
