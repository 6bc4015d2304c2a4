"""Every value that a policy may not have, and every pair of parts that contradict each other, by its reason code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import Forge
from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.verify.policy import Kind, Policy, Severity, read_policy, words
from wheelmark.verify.policy.tables import LONGEST

GITHUB = "https://token.actions.githubusercontent.com"
ROOT = f"""
[[root]]
name = "main"
path = "root.json"
sha256 = "ROOT"
issuers = ["{GITHUB}"]
level = "somebody's word"
"""
SIGNER = f"""
[[signer]]
name = "release"
root = "main"
issuer = "{GITHUB}"
"""
WORKFLOW = """repository = "https://github.com/example/kernels"
workflow = ".github/workflows/release.yml"
ref = "refs/tags/v{version}"
"""
KEY = """
[[signer]]
name = "lab"
root = "main"
key = "lab.pub"
sha256 = "KEY"
"""
REQUIRE = """
[[require]]
kind = "release"
predicates = ["provenance", "test-result", "vulnerabilities"]
signers = ["release"]
gates = ["abi"]
"""
HEAD = "schema = 1\n" + ROOT + SIGNER
WHOLE = HEAD + WORKFLOW + KEY + REQUIRE
EXAMPLE = """
[[example]]
name = "one"
path = "one.whl"
answer = "REJECT"
"""
DENY = f"""
[[deny]]
sha256 = "{"ab" * 32}"
why = "recalled"
"""


def public_pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.fixture
def read(forge: Forge, tmp_path: Path) -> Any:
    (tmp_path / "root.json").write_bytes(forge.root_bytes)
    (tmp_path / "lab.pub").write_bytes(public_pem(ec.generate_private_key(ec.SECP256R1())))

    def read_text(text: str) -> Policy:
        for word, name in (("ROOT", "root.json"), ("KEY", "lab.pub")):
            if f'"{word}"' not in text:
                continue
            text = text.replace(f'"{word}"', f'"{digests.sha256((tmp_path / name).read_bytes())}"')
        return read_policy(text.encode(), source="test.toml", folder=tmp_path)

    return read_text


def refusal(read: Any, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert isinstance(caught.value, ConfigError)
    return caught.value


def replaced(old: str, new: str) -> str:
    assert old in WHOLE, old
    return WHOLE.replace(old, new)


def test_every_key_is_read(read: Any, tmp_path: Path) -> None:
    policy = read(
        replaced('level = "somebody\'s word"', 'level = "a word"\ncanonical = true\nsecond_opinion = true')
        + 'builders = ["https://builder.example/v1"]\nsources = ["https://github.com/example/kernels"]\n'
        + 'runners = ["lab"]\nlevel = "emulated"\nlevels = { abi = "static" }\nunchecked = ["abi"]\n'
        + 'worst = "high"\nadvisory_age = 7\nvex_signers = ["lab"]\ndriver = "570.133.20"\n'
        + 'torch = ["2.10.0", "2.11.0+cu128"]\nallow_partial = true\nallow_snapshot = true\n'
        + 'channel = "prod"\npromoters = ["lab"]\ntargets = ["cuda-sm90", "*"]\n'
        + DENY
        + EXAMPLE
        + 'reason = "file-digest"\nchannel = "prod"\nat = "2026-01-31T12:00:00+01:00"\n'
    )
    (root,) = policy.roots
    assert root.canonical
    assert root.second_opinion
    assert root.vouched is None
    release, lab = policy.signers
    assert (release.repository, release.workflow, release.ref, release.key_id) == (
        "https://github.com/example/kernels",
        ".github/workflows/release.yml",
        "refs/tags/v{version}",
        "",
    )
    (key,) = policy.keys
    assert (key.root, key.key_id) == ("main", lab.key_id)
    assert lab.key == tmp_path / "lab.pub"
    rule = policy.requirement(Kind.RELEASE, "cuda-sm90", channel="prod")
    assert (rule.worst, rule.advisory_age, rule.vex_signers) == (Severity.HIGH, 7, ("lab",))
    assert (rule.driver, rule.torch) == ("570.133.20", ("2.10.0", "2.11.0+cu128"))
    assert (rule.builders, rule.promoters) == (("https://builder.example/v1",), ("lab",))
    with pytest.raises(ConfigError) as caught:
        policy.requirement(Kind.RELEASE, "cuda-sm90")
    assert caught.value.reason == "policy-no-rule"
    (denial,) = policy.denials
    assert denial.why == "recalled"
    (example,) = policy.examples
    assert (example.path, example.reason) == (tmp_path / "one.whl", "file-digest")


def test_what_is_left_out_has_the_strict_default(read: Any) -> None:
    rule = read(WHOLE).requirement(Kind.RELEASE, "")
    assert rule.worst is Severity.NONE
    assert (rule.allow_partial, rule.allow_snapshot, rule.unchecked, rule.vex_signers) == (
        False,
        False,
        (),
        (),
    )
    assert [word.exceeds(Severity.MEDIUM) for word in Severity] == [False, False, False, True, True]


def test_root_without_issuers_is_for_keys_alone(read: Any) -> None:
    keyed = (
        "schema = 1\n"
        + ROOT.replace(f'issuers = ["{GITHUB}"]\n', "")
        + KEY
        + REQUIRE.replace('release"]', 'lab"]')
    )
    assert read(keyed).roots[0].issuers == ()
    assert refusal(read, keyed + SIGNER + WORKFLOW).reason == "policy-empty"
    assert refusal(read, keyed.replace(KEY, KEY.replace('"main"', '"other"'))).reason == "policy-empty"


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('path = "root.json"\n', "", "nothing"),
        ('path = "root.json"', 'path = "root.json"\ntuf = "public"', "path and tuf"),
        ('path = "root.json"', 'tuf = "Public Root"', "a-z"),
        ('path = "root.json"', "path = 3", "not a string"),
        ('sha256 = "ROOT"', "", "sha256"),
        ('sha256 = "ROOT"', 'sha256 = "<sha256>"', "filled in"),
        ('sha256 = "ROOT"', 'sha256 = "abc"', "64 lowercase"),
        (f'issuers = ["{GITHUB}"]', f'issuers = "{GITHUB}"', "not an array"),
        (f'issuers = ["{GITHUB}"]', f'issuers = ["{GITHUB}", "{GITHUB}"]', "twice"),
        (f'issuers = ["{GITHUB}"]', f'issuers = ["{GITHUB}", "somebody"]', "no URL"),
        (f'issuers = ["{GITHUB}"]', f'issuers = ["{GITHUB}", "https://[broken"]', "no URL"),
        (f'issuers = ["{GITHUB}"]', f'issuers = ["{GITHUB}", "https://*.example"]', "pattern"),
        (f'issuers = ["{GITHUB}"]', f'issuers = ["{GITHUB}", "<yours>"]', "filled in"),
        ('level = "somebody\'s word"', 'level = " word"', "to be seen"),
        ('level = "somebody\'s word"', 'level = "a\\u0007word"', "to be seen"),
        ('level = "somebody\'s word"', f'level = "{"x" * (LONGEST + 1)}"', "too long"),
        ('level = "somebody\'s word"', 'level = "w"\ncanonical = 1', "true or false"),
        ('level = "somebody\'s word"', 'level = "w"\ntuf = ""', "empty"),
        ('name = "release"\n', "", "name"),
        (f'\nissuer = "{GITHUB}"', "", "issuer"),
        ('sha256 = "KEY"', "", "both key and sha256"),
        ('sha256 = "KEY"', 'sha256 = "KEYS"', "both key and sha256"),
        ('key = "lab.pub"\n', "", "both key and sha256"),
        ('key = "lab.pub"\nsha256 = "KEY"\n', "", "who by nothing"),
        ('ref = "refs/tags/v{version}"\n', "", "all of repository"),
        ('workflow = ".github/workflows/release.yml"\n', "", "all of repository"),
        ('repository = "https://github.com/example/kernels"\n', "", "all of repository"),
        ('kind = "release"', 'kind = "release"\ntargets = ["cuda-sm1"]', "cuda-sm1"),
        ('kind = "release"', 'kind = "release"\nadvisory_age = 0', "between 1"),
        ('kind = "release"', 'kind = "release"\nadvisory_age = 100000', "between 1"),
        ('kind = "release"', 'kind = "release"\nadvisory_age = true', "whole number"),
        ('kind = "release"', 'kind = "release"\nadvisory_age = "7"', "whole number"),
        ('kind = "release"', 'kind = "release"\nworst = "terrible"', "not one of the words"),
        ('kind = "release"', 'kind = "release"\nlevels = {}', "no table"),
        ('kind = "release"', 'kind = "release"\nlevels = { abi = "gold" }', "not one of the words"),
        ('kind = "release"', 'kind = "release"\ndriver = "570.x"', "driver"),
        ('kind = "release"', 'kind = "release"\ndriver = ">=570"', "driver"),
        ('kind = "release"', 'kind = "release"\ntorch = [">=2.10"]', "no version"),
        ('kind = "release"', 'kind = "release"\nchannel = "Prod!"\npromoters = ["lab"]', "a-z"),
        ('kind = "release"', 'kind = "release"\nbuilders = ["https://builder.example/.*"]', "pattern"),
        ('kind = "release"', 'kind = "release"\nsources = ["^https://github.com/example"]', "pattern"),
    ],
)
def test_value_that_cannot_be(read: Any, old: str, new: str, hint: str) -> None:
    error = refusal(read, replaced(old, new))
    assert error.reason == "policy-value"
    assert hint in str(error)


@pytest.mark.parametrize(
    "value",
    [
        "git+https://github.com/example/kernels",
        "http://github.com/example/kernels",
        "HTTPS://github.com/example/kernels",
        "https://github.com",
        "https://github.com/",
        "https:///example",
        "github.com/example/kernels",
        "https://github.com/example/kernels@refs/heads/main",
        "https://me@github.com/example/kernels",
        "https://github.com/example/kernels?x",
        "https://github.com/example/kernels#x",
        "https://github.com/example/ker nels",
    ],
)
def test_a_source_that_no_provenance_could_name(read: Any, value: str) -> None:
    error = refusal(read, replaced('kind = "release"', f'kind = "release"\nsources = ["{value}"]'))
    assert error.reason == "policy-value"
    assert "is not https://HOST/PATH" in error.what


def test_a_key_of_many_parts_is_refused_before_it_is_parsed(read: Any) -> None:
    error = refusal(read, "a." * 100_000 + "a = 1\n")
    assert error.reason == "policy-syntax"
    assert "more than 16 parts" in error.what


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (
            "repository",
            (
                "https://github.com/example",
                "https://github.com/example/kernels/",
                "https://github.com/example/kernels/tree",
                "https://github.com/example/kernels?x",
                "https://github.com/example/kernels#x",
                "https://github.com/../kernels",
                "https://me@github.com/example/kernels",
                "https:///example/kernels",
                "https://[github/example/kernels",
                "http://github.com/example/kernels",
                "git+https://github.com/example/kernels",
                "HTTPS://github.com/example/kernels",
                "example/kernels",
                "https://github.com/example/*",
                "https://github.com/<OWNER>/<NAME>",
                "https://github.com/example/{version}",
            ),
        ),
        (
            "workflow",
            (
                "release.yml",
                "/.github/workflows/release.yml",
                ".github/workflows/../release.yml",
                ".github/workflows/..yml",
                ".github/workflows/.yml",
                ".github/workflows/nested/release.yml",
                ".github/workflows/release.sh",
                ".github/workflows/release.yml@refs/heads/main",
                ".github/actions/release.yml",
                ".github/workflows/re*.yml",
                ".github\\\\workflows\\\\release.yml",
                "https://github.com/example/shared/.github/workflows/sign.yml",
                "https://github.com/example/shared/.github/workflows/sign.yml@v3",
                "https://github.com/example/shared/sign.yml@refs/tags/v3",
                "https://github.com/example/.github/workflows/sign.yml@refs/tags/v3",
                "https://github.com/example/shared/.github/workflows/sign.yml@refs/tags/v{version}",
            ),
        ),
        (
            "ref",
            (
                "v1.0",
                "main",
                "refs/tags/",
                "refs/tags",
                "refs/pull/7/merge",
                "refs/heads/a..b",
                "refs/heads/a//b",
                "refs/heads/.a",
                "refs/heads/a.lock",
                "refs/heads/a.",
                "refs/heads/a b",
                "refs/heads/@{1}",
                "heads/main",
                "REFS/heads/main",
                "refs/tags/v*",
                "^refs/tags/v1$",
                "refs/tags/v{tag}",
                "refs/tags/{version}{version}",
                "refs/tags/v{version",
                "refs/tags/<TAG>",
            ),
        ),
        (
            "identity",
            ("https://example.org/.*", "^me@example.org$", "me\\\\@example.org", "<yours>", "{version}"),
        ),
    ],
)
def test_who_is_said_literally_or_not_at_all(read: Any, key: str, values: tuple[str, ...]) -> None:
    for value in values:
        if key == "identity":
            text = HEAD + f'identity = "{value}"\n' + KEY + REQUIRE
        else:
            (line,) = [line for line in WORKFLOW.splitlines() if line.startswith(f"{key} =")]
            text = replaced(line, f'{key} = "{value}"')
        error = refusal(read, text)
        assert error.reason == "policy-value", value
        assert f": {key} " in error.what, value


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("repository", ("https://github.com/Example-1/kernels.py", "https://git.example:8443/a/b")),
        (
            "workflow",
            (
                ".github/workflows/release.yaml",
                "https://github.com/example/shared/.github/workflows/sign.yml@refs/tags/v3",
                "https://github.com/example/shared/.github/workflows/sign.yml@" + "a1" * 20,
            ),
        ),
        ("ref", ("refs/heads/main", "refs/heads/release/1.x", "refs/tags/{version}", "refs/tags/v1.2.3")),
    ],
)
def test_who_may_be_said(read: Any, key: str, values: tuple[str, ...]) -> None:
    (line,) = [line for line in WORKFLOW.splitlines() if line.startswith(f"{key} =")]
    for value in values:
        assert getattr(read(replaced(line, f'{key} = "{value}"')).signers[0], key) == value


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (replaced('level = "somebody\'s word"', 'level = "w"\nmax_root_age = 30'), "max_root_age"),
        (WHOLE + ROOT, "two [[root]] of the name 'main'"),
        (WHOLE + KEY, "two [[signer]] of the name 'lab'"),
        (WHOLE + KEY.replace('"lab"', '"lab2"'), "the same as signer 'lab'"),
        (WHOLE + SIGNER.replace('"release"', '"again"') + WORKFLOW, "the same as signer 'release'"),
        (WHOLE + ROOT.replace('"main"', '"twin"'), "the same file"),
        (replaced('key = "lab.pub"', f'key = "lab.pub"\nissuer = "{GITHUB}"'), "issuer"),
        (replaced('key = "lab.pub"', 'key = "lab.pub"\nidentity = "me"'), "identity and by key"),
        (replaced('ref = "refs', 'identity = "me"\nref = "refs'), "identity and by repository"),
        (replaced('root = "main"\nkey', 'root = "other"\nkey'), "not there"),
        (replaced(f'\nissuer = "{GITHUB}"', '\nissuer = "https://other.example"'), "may not vouch"),
        (WHOLE + 'channel = "prod"\n', "channel alone"),
        (WHOLE + 'promoters = ["lab"]\n', "promoters alone"),
        (WHOLE + 'channel = "prod"\npromoters = ["nobody"]\n', "promoters names 'nobody'"),
        (WHOLE + 'vex_signers = ["nobody"]\n', "vex_signers names 'nobody'"),
        (WHOLE + 'runners = ["nobody"]\n', "runners names 'nobody'"),
        (WHOLE + 'driver = "570"\ntargets = ["cpu-x86_64", "cpu-aarch64"]\n', "need none"),
        (WHOLE + 'torch = ["2.10", "2.10.0"]\n', "one torch twice"),
        (WHOLE + REQUIRE, "require[1] and require[0]"),
        (
            WHOLE
            + 'channel = "prod"\npromoters = ["lab"]\n'
            + REQUIRE
            + 'channel = "prod"\npromoters = ["lab"]\n',
            "in channel 'prod'",
        ),
        (WHOLE + DENY + DENY, "two [[deny]]"),
        (WHOLE + EXAMPLE + EXAMPLE, "two [[example]]"),
        (WHOLE + EXAMPLE.replace("REJECT", "ACCEPT") + 'reason = "file-digest"\n', "ACCEPT for a reason"),
        *(
            (
                replaced('"provenance", "test-result", "vulnerabilities"', f'"{kept}"').replace(
                    'gates = ["abi"]\n', lost
                )
                + f"{key} = {value}\n",
                key,
            )
            for kept, lost, key, value in (
                ("sbom", "", "builders", '["https://builder.example/v1"]'),
                ("sbom", "", "sources", '["https://github.com/example/kernels"]'),
                ("sbom", "", "runners", '["lab"]'),
                ("sbom", "", "gates", '["abi"]'),
                ("sbom", "", "level", '"static"'),
                ("sbom", "", "levels", '{ abi = "static" }'),
                ("sbom", "", "unchecked", '["abi"]'),
                ("sbom", "", "worst", '"none"'),
                ("sbom", "", "advisory_age", "7"),
                ("sbom", "", "vex_signers", '["lab"]'),
            )
        ),
        *(
            (
                replaced('kind = "release"', f'kind = "{kind}"') + f"{key} = {value}\n",
                f"{key} says nothing of a {kind}",
            )
            for kind, key, value in (
                ("wheel", "allow_partial", "true"),
                ("image", "allow_partial", "false"),
                ("wheel", "allow_snapshot", "true"),
                ("kernel-pack", "allow_snapshot", "true"),
                ("kernel-pack", "torch", '["2.10.0"]'),
            )
        ),
    ],
)
def test_contradiction(read: Any, text: str, hint: str) -> None:
    error = refusal(read, text)
    assert error.reason == "policy-contradiction"
    assert hint in str(error)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('answer = "REJECT"', 'answer = "NO"', "no answer"),
        ('answer = "REJECT"', 'answer = "REJECT"\nreason = "file-digets"', "did you mean 'file-digest'"),
        ('answer = "REJECT"', 'answer = "REJECT"\nreason = "zzzzzz"', "reason-codes.md"),
        ('answer = "REJECT"', 'answer = "REJECT"\nchannel = "a b"', "channel"),
        ('answer = "REJECT"', 'answer = "REJECT"\nat = "2026-01-31T12:00:00"', "with a zone"),
        ('answer = "REJECT"', 'answer = "REJECT"\nat = "yesterday"', "with a zone"),
        ('answer = "REJECT"', 'answer = "REJECT"\nat = 2026-01-31T12:00:00Z', "not a string"),
        ('answer = "REJECT"\n', "", "answer"),
    ],
)
def test_example_that_cannot_be(read: Any, old: str, new: str, hint: str) -> None:
    error = refusal(read, WHOLE + EXAMPLE.replace(old, new))
    assert error.reason == "policy-value"
    assert hint in str(error)


def test_denial_is_of_a_digest(read: Any) -> None:
    assert refusal(read, WHOLE + DENY.replace("ab" * 32, "demo.whl")).reason == "policy-value"
    assert refusal(read, WHOLE + DENY.replace('why = "recalled"', "")).reason == "policy-value"


@pytest.mark.parametrize("key", ["runners", "builders", "unchecked", "signers", "predicates", "targets"])
def test_empty_array_is_not_any_and_not_none(read: Any, key: str) -> None:
    lines = [line for line in REQUIRE.splitlines() if not line.startswith(f"{key} =")]
    assert (
        refusal(read, HEAD + WORKFLOW + KEY + "\n".join(lines) + f"\n{key} = []\n").reason == "policy-empty"
    )


def test_absent_evidence_is_no_evidence(read: Any) -> None:
    assert refusal(read, replaced('signers = ["release"]\n', "")).reason == "policy-empty"
    assert refusal(read, replaced('gates = ["abi"]\n', "")).reason == "policy-empty"


def test_key_files(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "lab.pub"
    good = path.read_bytes()
    text = WHOLE.replace('"KEY"', f'"{digests.sha256(good)}"')
    path.write_bytes(good + b"\n")
    assert refusal(read, text).reason == "key-digest"
    path.write_bytes(b"no key")
    assert refusal(read, WHOLE).reason == "key-shape"
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - to be refused
    path.write_bytes(public_pem(weak))
    assert refusal(read, WHOLE).reason == "key-shape"
    path.write_bytes(good + b"\n" * (1 << 16))
    assert refusal(read, WHOLE).reason == "key-digest"
    path.unlink()
    assert refusal(read, text).reason == "key-absent"


def test_one_key_in_two_files_is_one_signer(read: Any, tmp_path: Path) -> None:
    copy = (tmp_path / "lab.pub").read_bytes() + b"\n"
    (tmp_path / "copy.pub").write_bytes(copy)
    again = KEY.replace('"lab"', '"lab2"').replace("lab.pub", "copy.pub").replace("KEY", digests.sha256(copy))
    assert refusal(read, WHOLE + again).reason == "policy-contradiction"


def test_too_many_tables(read: Any) -> None:
    assert refusal(read, WHOLE + "[[deny]]\n" * 1001).reason == "policy-syntax"


def test_development_is_true_or_false(read: Any) -> None:
    assert refusal(read, replaced("schema = 1", 'schema = 1\ndevelopment = "yes"')).reason == "policy-value"
    assert refusal(read, replaced("schema = 1", "schema = 1.0")).reason == "policy-version"
    assert refusal(read, replaced("schema = 1", "schema = true")).reason == "policy-version"


def test_this_machine_is_named_alone(read: Any) -> None:
    def own(more: str) -> str:
        text = replaced('path = "root.json"\nsha256 = "ROOT"', f'source = "this-machine"\n{more}')
        return text.replace("schema = 1", "schema = 1\ndevelopment = true")

    assert refusal(read, own('sha256 = "ROOT"')).reason == "policy-value"
    assert refusal(read, own("canonical = false")).reason == "policy-contradiction"
    assert refusal(read, own("").replace("this-machine", "the-internet")).reason == "policy-value"


def test_in_words_what_is_left_out_is_said(read: Any) -> None:
    keyed = "schema = 1\n" + ROOT.replace(f'issuers = ["{GITHUB}"]', "second_opinion = true") + KEY
    said = words.as_table(read(keyed + REQUIRE.replace('"release"]', '"lab"]') + "allow_partial = true\n"))
    for part in (
        "may vouch for keys alone; sigstore-python has to agree",
        "built by any builder, from any source",
        "no known vulnerability\n",
        "advisory data of any age",
        "nobody can set a vulnerability aside",
        "targets may be lacking",
        "from a tree without uncommitted changes",
    ):
        assert part in said, part
    narrow = REQUIRE.replace('"release"]', '"lab"]').replace('gates = ["abi"]\n', "")
    narrow = narrow.replace('["provenance", "test-result", "vulnerabilities"]', '["sbom"]')
    (clause,) = words.clauses(read(keyed + narrow))
    assert clause.asks[0] == "signed statements by lab: sbom"
    assert not any("PASSED" in text or "built by" in text for text in clause.asks)
    whole = "https://github.com/example/shared/.github/workflows/sign.yml@refs/tags/v3"
    (signer, _lab) = read(replaced(".github/workflows/release.yml", whole)).signers
    assert words.who(signer).startswith(
        f"https://github.com/example/kernels at refs/tags/v{{version}} through the workflow {whole}, by the word of"
    )
