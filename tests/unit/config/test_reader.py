from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema
import pytest
from packaging.version import Version

from wheelmark.config import TorchBuild, find_declaration, load_declaration, parse_declaration
from wheelmark.config.document import json_schema, reference
from wheelmark.config.reader import GATES
from wheelmark.errors import ConfigError
from wheelmark.targets import Target, known_ids

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "wheelmark.toml").read_text(encoding="utf-8")


def test_this_repository_declares_every_known_target() -> None:
    declaration = load_declaration(ROOT / "wheelmark.toml")
    assert tuple(str(row.target) for row in declaration.targets) == known_ids()
    assert all(row.gates == GATES for row in declaration.targets)
    assert declaration.row(Target.parse("rocm-gfx942")).torch_build is TorchBuild.ROCM


def test_labels_survive_pep_440() -> None:
    declaration = load_declaration(ROOT / "wheelmark.toml")
    for row in declaration.targets:
        assert Version(f"{declaration.project.version}+{row.local}").local == row.local


CHANGES = [
    ("schema = 1", "schema = 2", "schema-version", "schema = 1"),
    ("schema = 1", "", "schema-version", ""),
    ("[project]\n", '[project]\nlicence = "x"\n', "unknown-key", "'license'"),
    ("[kernels]", "[kernel]", "unknown-key", "'kernels'"),
    ('local = "sm90"', 'locl = "sm90"', "unknown-key", "'local'"),
    ("[gates.audit]", "[gates.trust]", "unknown-key", ""),
    ('version = "0.1.0"', "", "missing-key", "version"),
    ('version = "0.1.0"', 'version = "0.1.0+cpu"', "pep440", ""),
    ('version = "0.1.0"', 'version = "0.01.0"', "pep440", "0.1.0"),
    ('version = "0.1.0"', "version = 1", "wrong-type", "str"),
    ("size_budget = 8_000_000", "size_budget = true", "wrong-type", "int"),
    ("size_budget = 8_000_000", 'size_budget = "8 MB"', "wrong-type", "int"),
    ("max_ratio = 1.1", 'max_ratio = "1.1"', "wrong-type", "float"),
    ('license_files = ["LICENSE"]', 'license_files = ["../LICENSE"]', "unsafe-path", ""),
    ('source = "kernels"', 'source = "/kernels"', "unsafe-path", ""),
    ('target = "cuda-sm90"', 'target = "cuda-sm91"', "unknown-target", "cuda-sm90"),
    ('target = "cuda-sm90"', 'target = "cuda-sm80"', "duplicate-target", ""),
    ('local = "sm90"', 'local = "sm80"', "duplicate-label", ""),
    ('local = "sm90"', 'local = "sm_90!"', "pep440", ""),
    ('host = "aarch64"', 'host = "x86_64"', "host-mismatch", ""),
    ('host = "aarch64"', 'host = "arm64"', "unknown-choice", "aarch64"),
    ('torch = ">=2.10,<2.15"', 'torch = "2.10 or so"', "pep440", ""),
    ('"audit"]', '"audits"]', "unknown-gate", "audit"),
    ('torch_cpu_sha256 = "6', 'torch_cpu_sha256 = "g', "digest", ""),
    ('import_name = "wheelmark_kernels"', 'import_name = "wheelmark-kernels"', "import-name", ""),
    ("[project]", "[project", "toml-syntax", ""),
]


@pytest.mark.parametrize(
    ("old", "new", "reason", "said"), CHANGES, ids=[f"{i}-{c[2]}" for i, c in enumerate(CHANGES)]
)
def test_refused_with_reason_and_suggestion(old: str, new: str, reason: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError) as caught:
        parse_declaration(TEXT.replace(old, new, 1).encode(), root=ROOT)
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_an_empty_targets_table_is_an_error() -> None:
    head = TEXT[: TEXT.index("[[targets]]")].replace("schema = 1", "schema = 1\ntargets = []")
    with pytest.raises(ConfigError) as caught:
        parse_declaration(head.encode(), root=ROOT)
    assert caught.value.reason == "empty-matrix"


def test_no_gates_is_an_error() -> None:
    start = TEXT.index("gates = [", TEXT.index("[[targets]]"))
    end = TEXT.index("]", start)
    with pytest.raises(ConfigError) as caught:
        parse_declaration((TEXT[:start] + "gates = [" + TEXT[end:]).encode(), root=ROOT)
    assert caught.value.reason == "unknown-gate"


def test_every_missing_key_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_declaration(TEXT[: TEXT.index("[kernels]")].encode(), root=ROOT)
    assert caught.value.reason == "missing-key"
    assert "'targets', 'kernels', 'native', 'locks', 'gates' are missing" in caught.value.what


def test_not_utf8() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_declaration(b"\xff", root=ROOT)
    assert caught.value.reason == "toml-syntax"


def test_found_from_below_and_missed_outside(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "wheelmark.toml").write_text(TEXT, encoding="utf-8")
    assert find_declaration(below) == tmp_path.resolve() / "wheelmark.toml"
    (tmp_path / "wheelmark.toml").unlink()
    with pytest.raises(ConfigError) as caught:
        find_declaration(below)
    assert caught.value.reason == "no-declaration"


def test_the_schema_accepts_what_the_reader_accepts_and_refuses_unknown_keys() -> None:
    schema = json_schema()
    jsonschema.validate(tomllib.loads(TEXT), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(TEXT.replace("[kernels]", "[kernel]", 1)), schema)


def test_the_reference_page_explains_every_key() -> None:
    page = reference()
    for key in ("torch_cpu_sha256", "dispatch_variable", "max_age_days", "torch_target"):
        assert f"| `{key}` |" in page
