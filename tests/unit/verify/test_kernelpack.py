"""Kernel packs: the manifest by digest and name, every object beside it, and nothing else in the folder."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from forging import Forge
from imaging import provenance, statement
from releasing import draft, part
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import PROVENANCE, Provenance
from wheelmark.attest.statement import Subject
from wheelmark.errors import ConfigError, Exit, InputError
from wheelmark.verify import kernelpack, verify, verify_kernel_pack
from wheelmark.verify.policy import Kind, Policy, Predicate
from wheelmark.verify.verdict import Report

TARGET = "cuda-sm90"
OBJECT = wheelmaking.variant("sm90").object.file
BUNDLE = "manifest.json.sigstore.json"


@pytest.fixture
def rules(policy: Policy) -> Policy:
    """A policy that asks for provenance of kernel packs."""
    first = next(rule for rule in policy.requirements if rule.kind is Kind.WHEEL)
    pack = dataclasses.replace(
        first, kind=Kind.KERNEL_PACK, targets=("*",), predicates=(Predicate.PROVENANCE,)
    )
    kept = tuple(rule for rule in policy.requirements if rule.kind is not Kind.KERNEL_PACK)
    return dataclasses.replace(policy, requirements=(*kept, pack))


@pytest.fixture(scope="module")
def dist(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = draft(part(), part(TARGET, "sm90"))
    return made.write(tmp_path_factory.mktemp("packs") / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture
def pack(dist: Path, tmp_path: Path) -> Path:
    """A pack on its own, the release's provenance beside its manifest."""
    path = Path(shutil.copytree(dist / "kernels" / TARGET, tmp_path / "anywhere"))
    shutil.copy(dist / "bundles" / "provenance.sigstore.json", path / BUNDLE)
    return path


def reasons(report: Report) -> set[str]:
    assert not report.accepted
    return set(report.reasons())


def test_a_pack_is_accepted_alone_and_in_its_release(
    pack: Path, dist: Path, rules: Policy, now: dt.datetime
) -> None:
    report = verify(pack, rules, now=now)
    assert report.accepted, report.as_table()
    (verdict,) = report.verdicts
    assert verdict.sha256 == digests.sha256_file(pack / "manifest.json")
    assert verify_kernel_pack(dist / "kernels" / TARGET, rules, now=now).accepted
    (pack / BUNDLE).rename(pack.parent / "given.json")
    assert reasons(verify_kernel_pack(pack, rules, now=now)) == {"no-bundle"}
    assert verify_kernel_pack(pack, rules, now=now, bundles=[pack.parent / "given.json"]).accepted


def test_another_name_and_other_bytes_are_refused(
    pack: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    manifest = digests.sha256_file(pack / "manifest.json")
    (pack / BUNDLE).write_bytes(forge.sign(provenance(manifest, name="kernels/cuda-sm80/manifest.json")))
    assert "subject-name" in reasons(verify_kernel_pack(pack, rules, now=now))
    (pack / BUNDLE).write_bytes(forge.sign(provenance("0" * 64, name=f"kernels/{TARGET}/manifest.json")))
    report = verify_kernel_pack(pack, rules, now=now)
    assert "subject-digest" in reasons(report)
    assert report.exit_code is Exit.REJECTED
    (pack / BUNDLE).write_bytes(forge.sign(provenance("0" * 64, name="elsewhere")))
    assert "subject-digest" in reasons(verify_kernel_pack(pack, rules, now=now))


def test_a_statement_has_to_be_right_about_each_object_that_it_names(
    pack: Path, forge: Forge, rules: Policy, now: dt.datetime
) -> None:
    def signed(sha256: str) -> Report:
        subjects = [
            Subject(
                name=f"kernels/{TARGET}/manifest.json", sha256=digests.sha256_file(pack / "manifest.json")
            ),
            Subject(name=f"kernels/{TARGET}/{OBJECT}", sha256=sha256),
        ]
        predicate = Provenance(
            external_parameters={},
            resolved_dependencies=(),
            builder_id="https://wheelmark.dev/builder/tests/v1",
        ).as_predicate()
        (pack / BUNDLE).write_bytes(forge.sign(statement(subjects, PROVENANCE, predicate)))
        return verify_kernel_pack(pack, rules, now=now)

    assert signed(digests.sha256_file(pack / OBJECT)).accepted
    assert reasons(signed("0" * 64)) == {"subject-digest"}


def test_a_bare_signature_says_too_little(pack: Path, forge: Forge, rules: Policy, now: dt.datetime) -> None:
    message = forge.message((pack / "manifest.json").read_bytes())
    (pack / BUNDLE).write_bytes(digests.canonical_json(message))
    assert reasons(verify_kernel_pack(pack, rules, now=now)) == {"predicate-missing"}


def link(path: Path) -> None:
    path.rename(path.parent.parent / "object")
    path.symlink_to(path.parent.parent / "object")


def replace(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@row(30, "object-unlisted", "object-missing")
@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (OBJECT, Path.unlink, {"object-missing"}),
        (OBJECT, replace(b""), {"object-empty"}),
        (OBJECT, link, {"unaccounted-file", "object-missing"}),
        ("evil.cubin", replace(b"x"), {"object-unlisted"}),
        ("evil.pth", replace(b"x"), {"object-unlisted"}),
        ("folder", Path.mkdir, {"unaccounted-file"}),
        ("pipe", os.mkfifo, {"unaccounted-file"}),
    ],
)
def test_what_does_not_agree_with_the_manifest_is_refused(
    pack: Path,
    rules: Policy,
    now: dt.datetime,
    name: str,
    change: Callable[[Path], object],
    expected: set[str],
) -> None:
    change(pack / name)
    # An object of other bytes is not the one that the provenance names, either.
    assert reasons(verify_kernel_pack(pack, rules, now=now)) - {"subject-digest"} == expected


def test_a_turned_byte_of_an_object_is_refused(pack: Path, rules: Policy, now: dt.datetime) -> None:
    data = (pack / OBJECT).read_bytes()
    (pack / OBJECT).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "object-digest" in reasons(verify_kernel_pack(pack, rules, now=now))


def test_a_malformed_manifest_is_refused(pack: Path, rules: Policy, now: dt.datetime) -> None:
    (pack / "manifest.json").write_bytes(b"{}")
    assert "kernel-manifest" in reasons(verify_kernel_pack(pack, rules, now=now))


def test_objects_are_read_within_bounds(
    pack: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernelpack, "LARGEST_OBJECT", (pack / "manifest.json").stat().st_size)
    assert "input-limit" in reasons(verify_kernel_pack(pack, rules, now=now))
    monkeypatch.setattr(kernelpack, "LARGEST_OBJECT", 10)
    with pytest.raises(InputError) as caught:
        verify_kernel_pack(pack, rules, now=now)
    assert caught.value.reason == "json-too-large"


def test_a_folder_with_too_many_files_or_none_is_an_input_error(
    pack: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as caught:
        verify_kernel_pack(pack / "absent", rules, now=now)
    assert caught.value.reason == "unreadable"
    monkeypatch.setattr(kernelpack, "_MAX_FILES", 2)
    with pytest.raises(InputError) as caught:
        verify_kernel_pack(pack, rules, now=now)
    assert caught.value.reason == "input-limit"


# Row 44.
@row(44, "library")
def test_whatever_a_reader_raises_is_a_refusal(
    pack: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(kernelpack, "check_objects", fail)
    assert "library" in reasons(verify_kernel_pack(pack, rules, now=now))


def test_an_interrupt_is_no_refusal(
    pack: Path, rules: Policy, now: dt.datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernelpack, "check_objects", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify_kernel_pack(pack, rules, now=now)


def test_a_policy_without_kernel_packs_is_a_configuration_error(
    pack: Path, policy: Policy, now: dt.datetime
) -> None:
    kept = tuple(rule for rule in policy.requirements if rule.kind is not Kind.KERNEL_PACK)
    with pytest.raises(ConfigError) as caught:
        verify_kernel_pack(pack, dataclasses.replace(policy, requirements=kept), now=now)
    assert caught.value.reason == "policy-no-rule"
