"""Row 36 and the rest of what makes a policy unusable: a configuration error that says which part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forging import Forge
from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.evidence import Level
from wheelmark.trust import state
from wheelmark.verify import policy as model
from wheelmark.verify.policy import Kind, Policy, Predicate, load_policy, read_policy
from wheelmark.verify.policy.tables import keys_of

REPOSITORY = Path(__file__).resolve().parents[3]
ISSUER = "https://issuer.example"

ROOT = f"""
[[root]]
name = "main"
path = "root.json"
sha256 = "SHA256"
issuers = ["{ISSUER}"]
level = "somebody else's word"
"""
SIGNER = f"""
[[signer]]
name = "release"
root = "main"
issuer = "{ISSUER}"
identity = "https://example.org/release"
"""
REQUIRE = """
[[require]]
kind = "wheel"
predicates = ["provenance"]
signers = ["release"]
"""
WHOLE = "schema = 1\n" + ROOT + SIGNER + REQUIRE


@pytest.fixture
def read(forge: Forge, tmp_path: Path) -> Any:
    (tmp_path / "root.json").write_bytes(forge.root_bytes)
    digest = digests.sha256(forge.root_bytes)

    def read_text(text: str) -> Policy:
        return read_policy(text.replace("SHA256", digest).encode(), source="test.toml", folder=tmp_path)

    return read_text


def reason(read: Any, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "test.toml" in str(caught.value) or "trust root" in str(caught.value)
    return caught.value.reason


def test_values_of_a_policy(read: Any, forge: Forge) -> None:
    policy = read(WHOLE)
    assert policy.roots[0].sha256 == digests.sha256(forge.root_bytes)
    assert policy.roots[0].issuers == (ISSUER,)
    assert policy.root("main").level == "somebody else's word"
    assert policy.signers[0].identity == "https://example.org/release"
    rule = policy.requirement(Kind.WHEEL, "cuda-sm90")
    assert rule.predicates == (Predicate.PROVENANCE,)
    assert rule.targets == ("*",)
    assert not policy.development
    assert not rule.allow_partial
    assert not rule.allow_snapshot


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1",
        "schema = 1\n" + SIGNER + REQUIRE,
        "schema = 1\n" + ROOT + REQUIRE,
        "schema = 1\n" + ROOT + SIGNER,
        WHOLE.replace('predicates = ["provenance"]', "predicates = []"),
        WHOLE.replace('signers = ["release"]', "signers = []"),
        WHOLE.replace(f'issuers = ["{ISSUER}"]', "issuers = []"),
        WHOLE.replace('predicates = ["provenance"]', 'predicates = ["test-result"]'),
        WHOLE + "targets = []\n",
    ],
)
def test_policy_that_asks_for_nothing_is_refused(read: Any, text: str) -> None:
    assert reason(read, text) == "policy-empty"


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("schema = 1", "schema = 1\ndevelopement = true", "development"),
        ("issuers =", "issuer = 'x'\nissuers =", "issuers"),
        ("identity =", "indentity = 'x'\nidentity =", "identity"),
        ("predicates =", "predicate = []\npredicates =", "predicates"),
        ("[[require]]", "[[requires]]\n[[require]]", "require"),
        ("signers =", "zzz = 1\nsigners =", "known keys"),
    ],
)
def test_unknown_key_is_refused_with_a_suggestion(read: Any, old: str, new: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(WHOLE.replace(old, new, 1))
    assert caught.value.reason == "policy-key"
    assert hint in caught.value.fix


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('kind = "wheel"', 'kind = "disk"'),
        ('kind = "wheel"', "kind = 1"),
        ('kind = "wheel"', ""),
        ('predicates = ["provenance"]', 'predicates = ["promise"]'),
        ('predicates = ["provenance"]', 'predicates = "provenance"'),
        ('predicates = ["provenance"]', 'predicates = ["provenance", "provenance"]'),
        ('kind = "wheel"', 'kind = "wheel"\ntargets = ["cuda-sm999"]'),
        ('kind = "wheel"', 'kind = "wheel"\nlevel = "gold"'),
        ('kind = "wheel"', 'kind = "wheel"\nlevels = ["x"]'),
        ('kind = "wheel"', 'kind = "wheel"\nallow_partial = "yes"'),
        ('path = "root.json"', ""),
        ("SHA256", "abc"),
        ("SHA256", "A" * 64),
        ('path = "root.json"', 'path = "root.json"\nsource = "this-machine"'),
        ('path = "root.json"', 'path = "root.json"\nsource = "the-internet"'),
        ('level = "somebody else\'s word"', 'level = ""'),
        ('identity = "https://example.org/release"', 'identity = ""'),
    ],
)
def test_value_that_cannot_be_is_refused(read: Any, old: str, new: str) -> None:
    assert old in WHOLE
    assert reason(read, WHOLE.replace(old, new)) == "policy-value"


def test_tables_have_to_be_tables(read: Any) -> None:
    assert reason(read, "schema = 1\nroot = 3") == "policy-value"


@pytest.mark.parametrize(
    "text",
    [
        WHOLE + ROOT,
        WHOLE + SIGNER,
        WHOLE + REQUIRE,
        WHOLE.replace('root = "main"', 'root = "another"'),
        WHOLE.replace(f'issuer = "{ISSUER}"', 'issuer = "https://other.example"'),
        WHOLE.replace('signers = ["release"]', 'signers = ["nobody"]'),
        WHOLE + 'runners = ["release"]\n',
        WHOLE + 'gates = ["abi"]\n',
        WHOLE.replace('["provenance"]', '["test-result"]') + 'gates = ["abi"]\nrunners = ["nobody"]\n',
        WHOLE.replace('["provenance"]', '["test-result"]') + 'gates = ["abi"]\nunchecked = ["audit"]\n',
        WHOLE.replace('["provenance"]', '["test-result"]')
        + 'gates = ["abi"]\nlevels = { size = "static" }\n',
        WHOLE + 'targets = ["cuda-sm90"]\n' + REQUIRE + 'targets = ["cuda-sm90"]\n',
    ],
)
def test_parts_that_contradict_each_other_are_refused(read: Any, text: str) -> None:
    assert reason(read, text) == "policy-contradiction"


def test_what_is_no_policy_at_all(read: Any, tmp_path: Path) -> None:
    assert reason(read, "schema = ") == "policy-syntax"
    assert reason(read, "# " + "x" * (1 << 20)) == "policy-syntax"
    assert reason(read, "") == "policy-version"
    assert reason(read, WHOLE.replace("schema = 1", "schema = 2")) == "policy-version"
    with pytest.raises(ConfigError) as caught:
        read_policy(b"\xff", source="test.toml", folder=tmp_path)
    assert caught.value.reason == "policy-syntax"
    with pytest.raises(ConfigError) as caught:
        load_policy(tmp_path / "absent.toml")
    assert caught.value.reason == "policy-absent"


def test_root_is_named_with_its_digest(read: Any, tmp_path: Path) -> None:
    (tmp_path / "root.json").write_bytes((tmp_path / "root.json").read_bytes() + b"\n")
    assert reason(read, WHOLE) == "root-digest"
    (tmp_path / "root.json").unlink()
    assert reason(read, WHOLE) == "root-absent"


def test_requirement_that_names_the_target_goes_first(read: Any) -> None:
    narrow = (
        REQUIRE.replace('["provenance"]', '["provenance", "sbom"]') + 'targets = ["cuda-sm90", "cuda-sm80"]\n'
    )
    policy = read(WHOLE + narrow)
    assert len(policy.requirement(Kind.WHEEL, "cuda-sm90").predicates) == 2
    assert len(policy.requirement(Kind.WHEEL, "cpu-x86_64").predicates) == 1
    assert len(policy.requirement(Kind.WHEEL, "").predicates) == 1


def test_what_a_policy_does_not_speak_of_is_not_accepted(read: Any) -> None:
    policy = read(WHOLE + 'targets = ["cuda-sm90"]\n')
    for kind, target in ((Kind.RELEASE, "cuda-sm90"), (Kind.WHEEL, "cpu-x86_64"), (Kind.WHEEL, "")):
        with pytest.raises(ConfigError) as caught:
            policy.requirement(kind, target)
        assert caught.value.reason == "policy-no-rule"


def test_this_machine_is_for_development_only(
    read: Any, forge: Forge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    own = WHOLE.replace('path = "root.json"\nsha256 = "SHA256"', 'source = "this-machine"')
    assert reason(read, own) == "policy-development"
    policy = read(own.replace("schema = 1", "schema = 1\ndevelopment = true"))
    assert policy.roots[0].data == forge.root_bytes
    assert policy.roots[0].canonical
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "nothing"))
    assert reason(read, own.replace("schema = 1", "schema = 1\ndevelopment = true")) == "root-absent"


def test_the_shipped_policy_for_development(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    policy = load_policy(REPOSITORY / "policies" / "embedded-dev.toml")
    assert policy.development
    rule = policy.requirement(Kind.RELEASE, "cuda-sm90")
    assert rule.lowest("correctness") is Level.EMULATED
    assert rule.lowest("abi") is Level.STATIC
    assert rule.unchecked == ("audit", "performance", "image-run", "image-audit")
    # What may be UNCHECKED on a machine that cannot run a path is not thereby let through when only inspected.
    host = policy.requirement(Kind.RELEASE, "cpu-x86_64")
    assert host.lowest("correctness") is Level.EMULATED
    assert host.unchecked == ("audit", "performance", "correctness", "image-run", "image-audit")
    assert policy.requirement(Kind.WHEEL, "").predicates == (Predicate.PROVENANCE,)
    # One requirement speaks of the wheels and the images of a release; of an image alone its own speaks.
    of_images = tuple(gate for gate in rule.gates if gate.startswith("image-"))
    assert rule.gates_of(image=True) == of_images
    assert rule.gates_of(image=False) == rule.gates[: -len(of_images)]
    assert policy.requirement(Kind.IMAGE, "cuda-sm90").gates_of(image=True) == of_images


def test_reference_page_names_every_key() -> None:
    page = (REPOSITORY / "docs" / "reference" / "policy.md").read_text(encoding="utf-8")
    for table in (model.RootRule, model.Signer, model.Requirement, model.Denial, model.Example):
        for name in keys_of(table):
            assert f"`{name}`" in page, f"{table.__name__}.{name}"
    for words in (Kind, Predicate, Level, model.Severity):
        for word in words:
            assert f"`{word.value}`" in page, word
