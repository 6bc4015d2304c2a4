"""``wheelmark facts``: each step of the plan in words, or the reason of the refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from forging import Forge, canonical
from keysigning import KeyLog, managed, pem
from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.sign import embedded
from wheelmark.sign.embedded import claims as token_claims
from wheelmark.trust import state
from wheelmark.verify.facts import Facts

POLICY = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"


@pytest.fixture
def root(forge: Forge, tmp_path: Path) -> Path:
    path = tmp_path / "root.json"
    path.write_bytes(forge.root_bytes)
    return path


@pytest.fixture
def signed(forge: Forge, statement: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "signed.sigstore.json"
    path.write_bytes(forge.sign(statement))
    return path


def facts(*arguments: object) -> int:
    return main(["facts", *map(str, arguments)])


def numbers(text: str) -> list[str]:
    return [line.split(".")[0].strip() for line in text.splitlines() if line[2:3].isdigit()]


def test_every_step_is_told(signed: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(signed, "--root", root) == Exit.OK
    out = capsys.readouterr().out
    assert numbers(out) == [str(number) for number in range(1, 9)]
    for part in (
        embedded.RELEASE_IDENTITY,
        embedded.ISSUER,
        "https://example.org/claim/v1",
        "demo.bin",
        "ab" * 32,
    ):
        assert part in out
    assert "not authenticated: nothing" in out


def test_under_a_policy(
    signed: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    assert facts(signed, "--policy", POLICY) == Exit.OK
    assert "in the one form that Wheelmark writes" in capsys.readouterr().out
    assert facts(signed, "--policy", POLICY, "--key", signed) == Exit.CONFIG


def test_machines_get_facts_that_can_be_read_again(
    signed: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts(signed, "--root", root, "--json") == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert Facts.from_json(found["facts"]).identity == embedded.RELEASE_IDENTITY
    assert list(found["steps"]) == [str(number) for number in range(1, 9)]


def test_a_signature_over_an_artifact(
    forge: Forge, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, artifact = tmp_path / "bundle", tmp_path / "artifact"
    bundle.write_bytes(canonical(forge.message(b"artifact")))
    artifact.write_bytes(b"artifact")
    digest = digests.sha256(b"artifact")
    for named in (artifact, f"sha256:{digest}"):
        assert facts(bundle, "--root", root, "--artifact", named) == Exit.OK
        assert f"the artifact {digest}" in capsys.readouterr().out
    assert facts(bundle, "--root", root) == Exit.REJECTED
    assert "refused (statement-expected)" in capsys.readouterr().err
    assert facts(bundle, "--root", root, "--artifact", "sha256:" + "0" * 64) == Exit.REJECTED
    assert facts(bundle, "--root", root, "--artifact", "sha256:0") == Exit.INPUT


def test_of_many_subjects_the_one_that_was_asked_for_is_told(
    forge: Forge, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, asked = tmp_path / "bundle", f"{7:064x}"
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f"file-{n}", "digest": {"sha256": f"{n:064x}"}} for n in range(1, 262)],
        "predicateType": "https://example.org/v1",
        "predicate": {},
    }
    bundle.write_bytes(forge.sign_payload(digests.canonical_json(statement)))
    assert facts(bundle, "--root", root, "--artifact", f"sha256:{asked}") == Exit.OK
    out = capsys.readouterr().out
    assert f"{asked}  file-7\n       and 260 more\n" in out
    assert "file-8" not in out
    assert facts(bundle, "--root", root, "--artifact", f"sha256:{'f' * 64}", "--json") == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert found["steps"]["7"][1:] == [f"261 other artifacts, and not {'f' * 64}"]
    whole = Facts.from_json(found["facts"]).statement
    assert whole is not None
    assert len(whole.subjects) == 261  # the facts themselves are never shortened
    assert facts(bundle, "--root", root) == Exit.OK
    assert capsys.readouterr().out.count("file-") == 261


def test_a_key(forge: Forge, statement: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, log = ec.generate_private_key(ec.SECP256R1()), KeyLog(forge, 1)
    bundle, root, public = tmp_path / "bundle", tmp_path / "root", tmp_path / "key.pub"
    bundle.write_bytes(canonical(log.statement(key, statement)))
    root.write_bytes(log.root().data)
    public.write_bytes(pem(key))
    assert facts(bundle, "--root", root, "--key", public) == Exit.OK
    assert f"key {managed(key).key_id}" in capsys.readouterr().out
    assert facts(bundle, "--root", root) == Exit.REJECTED
    assert facts(bundle, "--root", root, "--key", tmp_path / "absent") == Exit.CONFIG
    assert facts(bundle, "--root", tmp_path / "absent") == Exit.CONFIG


def test_the_worst_of_several_counts(
    signed: Path,
    other_forge: Forge,
    statement: bytes,
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    foreign, junk = tmp_path / "foreign", tmp_path / "junk"
    foreign.write_bytes(other_forge.sign(statement))
    junk.write_bytes(b"[")
    assert facts(signed, junk, "--root", root) == Exit.INPUT
    assert facts(signed, tmp_path / "absent", "--root", root) == Exit.INPUT
    capsys.readouterr()
    assert facts(signed, junk, foreign, "--root", root, "--json") == Exit.REJECTED
    found = json.loads(capsys.readouterr().out)
    assert [item.get("reason", "") for item in found] == ["", "json-syntax", "untrusted-root"]


def test_what_a_terminal_would_obey_is_spelled_out(
    forge: Forge, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    name = "x\x1b[2Jy\nACCEPTED"
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": "ab" * 32}}],
        "predicateType": "https://example.org/v1",
        "predicate": {},
    }
    bundle.write_bytes(forge.sign_payload(digests.canonical_json(statement)))
    assert facts(bundle, "--root", root) == Exit.OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "x\\x1b[2Jy\\nACCEPTED" in out


def test_further_claims_of_a_certificate_are_shown(
    forge: Forge, statement: bytes, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workflow = "o/r/.github/workflows/release.yml@refs/tags/v1"
    names = (*token_claims._RAW.values(), *token_claims._TEXT.values(), *token_claims._URI.values())
    claims = {
        **dict.fromkeys((*names, "run_id", "run_attempt"), "x"),
        "job_workflow_ref": workflow,
        "workflow_ref": workflow,
        "repository": "o/r",
        "ref": "refs/tags/v1",
        "sub": f"repo:{workflow}",
    }
    bundle = tmp_path / "bundle"
    bundle.write_bytes(canonical(forge.dsse(statement, identity=f"repo:{workflow}", claims=claims)))
    assert facts(bundle, "--root", root) == Exit.OK
    assert ".14 refs/tags/v1" in capsys.readouterr().out
