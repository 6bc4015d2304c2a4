"""``wheelmark policy``: what a policy means, what decided, its own examples, its schema."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import keysigning
import releasing
import tuf_state
from forging import Forge
from releasing import draft
from wheelmark import digests
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.trust import state
from wheelmark.verify.policy import Predicate, read_policy, words
from wheelmark.verify.policy.schema import json_schema, tables

REPOSITORY = Path(__file__).resolve().parents[3]
SHIPPED = REPOSITORY / "policies" / "embedded-dev.toml"
WHEEL = releasing.file_name()
MORE = """
[[root]]
name = "other"
source = "this-machine"
issuers = ["https://embedded.invalid/oidc"]
level = "x"
"""


@pytest.fixture
def dist(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    return draft().write(tmp_path / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture
def policy(dist: Path, tmp_path: Path) -> Path:
    """The shipped policy with examples: a release, a lone wheel without evidence, a broken one, and nothing."""
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.copy(dist / "wheels" / WHEEL, lone / WHEEL)
    (lone / "broken").mkdir()
    (lone / "broken" / WHEEL).write_bytes(b"no wheel")
    path = tmp_path / "policy.toml"
    examples = [
        ("accepted", "dist", "ACCEPT", ""),
        ("a wheel without evidence", f"lone/{WHEEL}", "MISSING", 'reason = "no-bundle"'),
        ("a file that is no wheel", f"lone/broken/{WHEEL}", "REJECT", 'reason = "wheel-zip"'),
        ("nothing there", "lone", "INPUT", 'reason = "not-a-release"'),
        ("a clock behind", "dist", "REJECT", 'reason = "clock-behind"\nat = "2001-01-01T00:00:00Z"'),
        ("a channel that nobody speaks of", "dist", "CONFIG", 'reason = "policy-no-rule"\nchannel = "prod"'),
    ]
    text = SHIPPED.read_text(encoding="utf-8")
    for name, where, answer, more in examples:
        text += f'[[example]]\nname = "{name}"\npath = "{where}"\nanswer = "{answer}"\n{more}\n'
    path.write_text(text, encoding="utf-8")
    return path


def run(*arguments: object) -> int:
    return main(["policy", *map(str, arguments)])


def test_examples_that_hold(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("test", policy) == Exit.OK
    out = capsys.readouterr().out
    assert "6 of 6 examples hold" in out
    assert "ok    nothing there: expected INPUT not-a-release, found INPUT not-a-release" in out


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('answer = "ACCEPT"', 'answer = "REJECT"', "FAIL  accepted: expected REJECT, found ACCEPT"),
        ('"no-bundle"', '"predicate-missing"', "found MISSING no-bundle"),
        ('answer = "CONFIG"', 'answer = "REJECT"', "found CONFIG policy-no-rule"),
        ('answer = "INPUT"', 'answer = "MISSING"', "found INPUT not-a-release"),
    ],
)
def test_example_that_is_answered_otherwise(
    policy: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, found: str
) -> None:
    text = policy.read_text(encoding="utf-8")
    assert old in text
    policy.write_text(text.replace(old, new), encoding="utf-8")
    assert run("test", policy) == Exit.REJECTED
    out = capsys.readouterr().out
    assert found in out
    assert "5 of 6 examples hold" in out
    assert run("test", policy, "--json") == Exit.REJECTED
    document = json.loads(capsys.readouterr().out)
    assert not document["passed"]
    assert [item["holds"] for item in document["examples"]].count(False) == 1


def test_policy_without_examples(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dist.is_dir()
    assert run("test", SHIPPED, "--json") == Exit.CONFIG
    assert json.loads(capsys.readouterr().out)["reason"] == "policy-empty"


def test_explain_what_is_accepted(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", dist, "--policy", SHIPPED) == Exit.OK
    out = capsys.readouterr().out
    assert "holds  require[1] gates.abi: gate abi PASSED at level static" in out
    assert "holds  signer 'release' signers:" in out
    assert "FAILS" not in out
    assert "decided by" not in out
    assert out.rstrip().endswith(f"{dist}: ACCEPTED under {SHIPPED}")


def test_explain_what_is_refused(dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strict = tmp_path / "strict.toml"
    text = SHIPPED.read_text(encoding="utf-8")
    strict.write_text(
        text.replace('unchecked = ["audit", "performance", "correctness", "image-run", "image-audit"]\n', ""),
        encoding="utf-8",
    )
    assert run("explain", dist, "--policy", strict) == Exit.UNCHECKED
    out = capsys.readouterr().out
    assert "FAILS  require[1] gates.audit: gate audit is UNCHECKED" in out
    assert "decided by: require[1] gates.audit, require[1] gates.performance" in out
    assert run("explain", dist, "--policy", strict, "--json") == Exit.UNCHECKED
    document = json.loads(capsys.readouterr().out)
    assert not document["accepted"]
    failed = [step for step in document["steps"] if not step["holds"]]
    assert {step["condition"] for step in failed} == {"gates.audit", "gates.performance"}
    assert {step["rule"] for step in failed} == {"require[1]"}


def test_explain_takes_bundles_and_says_what_is_no_artifact(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lone = tmp_path / WHEEL
    shutil.copy(dist / "wheels" / WHEEL, lone)
    assert run("explain", lone, "--policy", SHIPPED) == Exit.MISSING
    assert "no provenance statement" in capsys.readouterr().out
    bundle = dist / "bundles" / "provenance.sigstore.json"
    assert run("explain", lone, "--policy", SHIPPED, "--bundle", bundle) == Exit.OK
    assert run("explain", tmp_path, "--policy", SHIPPED) == Exit.INPUT
    assert "not-a-release" in capsys.readouterr().out
    assert run("explain", dist, "--policy", SHIPPED, "--channel", "prod") == Exit.CONFIG


def test_check_says_what_it_means(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", policy) == Exit.OK
    out = capsys.readouterr().out
    assert (
        "require[2]: a release as a whole, its wheels and its images, for cpu-aarch64, in no channel" in out
    )
    assert "signer release, under root embedded: https://embedded.invalid/wheelmark/release" in out
    assert "PASSED at level static or above, or UNCHECKED: performance, audit, image-run, image-audit" in out
    assert "for development" in out
    assert "note:" not in out
    assert run("check", policy, "--json") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["rule"] for item in document["requirements"]] == [f"require[{index}]" for index in range(5)]
    assert document["examples"][0] == "accepted"
    assert document["notes"] == []
    policy.chmod(0o666)
    assert run("check", policy) == Exit.OK
    assert run("check", policy, "--strict", "--json") == Exit.CONFIG
    assert '"policy-permissions"' in capsys.readouterr().out


def test_check_says_what_was_hardly_meant(
    dist: Path, tmp_path: Path, other_forge: Forge, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dist.is_dir()
    root = tmp_path / "root.json"
    root.write_bytes(other_forge.root_bytes)
    digest = digests.sha256(other_forge.root_bytes)
    more = MORE.replace('source = "this-machine"', f'path = "root.json"\nsha256 = "{digest}"')
    signer = 'name = "spare"\nroot = "embedded"\nissuer = "https://embedded.invalid/oidc"\nidentity = "me"\n'
    path = tmp_path / "policy.toml"
    text = SHIPPED.read_text(encoding="utf-8")
    path.write_text(f"{text}{more}[[signer]]\n{signer}", encoding="utf-8")
    assert run("check", path) == Exit.OK
    out = capsys.readouterr().out
    assert "note: no requirement names signer 'spare'" in out
    assert "note: no signer is under root 'other'" in out
    assert "note: there are no examples" in out


def test_every_part_of_the_example_in_the_docs_is_put_in_words(
    forge: Forge, other_forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "reference" / "policy.md").read_text(encoding="utf-8")
    text = page.split("```toml\n")[1].split("```")[0]
    tuf_state.write(tmp_path / "state", "public", forge.root_bytes)
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "state"))
    (tmp_path / "site_root.json").write_bytes(other_forge.root_bytes)
    (tmp_path / "gpu-lab.pub").write_bytes(keysigning.pem(ec.generate_private_key(ec.SECP256R1())))
    text = tuf_state.filled(text, tmp_path)
    policy = read_policy(text.encode(), source="page.toml", folder=tmp_path)
    assert set(Predicate) == set(policy.requirements[0].predicates)
    said = words.as_table(policy)
    for part in (
        "root sigstore: signed by a GitHub workflow, in Sigstore's public log",
        "last vouched for by TUF",
        "refused 30 days later",
        "https://github.com/example/kernels at refs/tags/v{version} through the workflow .github/workflows/release.yml",
        "whoever holds the key",
        "operations@example.org, by the word of https://login.example.org",
        "built by https://wheelmark.dev/builder/local/v1, from https://github.com/example/kernels",
        "PASSED at level hardware: correctness",
        "tests on other machines count where gpu-lab signed them",
        "no known vulnerability worse than medium",
        "advisory data at most 14 days old",
        "OpenVEX of operations sets a vulnerability aside",
        "a wheel, for cuda-sm90, in channel prod",
        "a promotion to prod, in force, by operations",
        "no kernel that needs a newer driver than 570.26",
        "made for torch 2.10.0",
        "every target of its declaration",
        "denied ",
    ):
        assert part in said, part


def test_schema_knows_what_the_reader_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == Exit.OK
    schema = json.loads(capsys.readouterr().out)
    assert schema == json_schema()
    committed = REPOSITORY / "docs" / "reference" / "policy.schema.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == schema
    validator = jsonschema_rs.validator_for(schema)
    page = (REPOSITORY / "docs" / "reference" / "policy.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "policies").glob("*.toml"))]
    texts.append(page.split("```toml\n")[1].split("```")[0])
    for text in texts:
        document = tomllib.loads(text)
        for table in (*document["root"], *document["signer"], *document.get("deny", ())):
            if not digests.is_sha256(table.get("sha256", "ab" * 32)):
                table["sha256"] = "ab" * 32  # to be filled in
        validator.validate(document)
    policy = tomllib.loads(texts[-1])
    changes: tuple[dict[str, Any], ...] = (
        {"schema": 2},
        {"surprise": 1},
        {"root": []},
        {"require": [{**policy["require"][0], "worst": "terrible"}]},
        {"require": [{**policy["require"][0], "targets": ["cuda-sm1"]}]},
        {"require": [{**policy["require"][0], "advisory_age": 0}]},
        {"signer": [{**policy["signer"][0], "key_id": "ab" * 32}]},
    )
    for change in changes:
        assert not validator.is_valid({**policy, **change}), change


def test_tables_of_the_page_come_from_the_model() -> None:
    found = tables()
    assert set(found) == {
        "[[root]]",
        "[[signer]]",
        "[[require]]",
        "[[deny]]",
        "[[example]]",
        "kinds",
        "levels",
    }
    assert "`key_id`" not in found["[[signer]]"]
    assert '| `targets` | array of target id | `["*"]` |' in found["[[require]]"]
    assert (
        "| `levels` | table of one of `none`, `static`, `emulated`, `hardware` | none |"
        in found["[[require]]"]
    )
    assert "| `level` | one of `none`, `static`, `emulated`, `hardware` | `static` |" in found["[[require]]"]
    assert "| `key` | path | none |" in found["[[signer]]"]
    assert "| `sha256` | sha256 | required |" in found["[[deny]]"]
    assert "| `allow_partial` | boolean | `false` |" in found["[[require]]"]
