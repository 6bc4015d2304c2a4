"""Matrix, overrides, the grammar of arguments, generic variants: what a declaration makes for a target."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from wheelmark.build.kernels.declaration import load_kernel_declaration
from wheelmark.build.kernels.variants import Argument, DeclaredVariant, declared_variants, expand, load_all
from wheelmark.errors import ConfigError
from wheelmark.targets import Target

SM90, GFX942 = Target("cuda-sm90"), Target("rocm-gfx942")
HEAD = 'schema = 1\n[[kernel]]\nname = "k"\nmodule = "m"\nattribute = "f"\n'
REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "kernel-declarations.md"


def expanded(folder: Path, body: str, target: Target = SM90) -> dict[str, DeclaredVariant]:
    path = folder / "kernels.toml"
    path.write_text(HEAD + body)
    (kernel,) = load_kernel_declaration(path).kernels
    return {variant.name: variant for variant in expand(kernel, target)}


def argument(folder: Path, text: str, target: Target = SM90) -> Argument:
    return expanded(folder, f"[kernel.arguments]\nx = {text}\n", target)["default"].arguments["x"]


def refusal(folder: Path, body: str, target: Target = SM90) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        expanded(folder, body, target)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"*fp16"', Argument(kind="pointer", dtype="fp16", divisible=True)),
        ('"*fp16 unaligned"', Argument(kind="pointer", dtype="fp16")),
        ('"i32"', Argument(kind="scalar", dtype="i32")),
        ('"i64 div16"', Argument(kind="scalar", dtype="i64", divisible=True)),
        ('"none"', Argument(kind="none")),
        ("4096", Argument(kind="scalar", dtype="i32", value=4096, divisible=True)),
        ("4097", Argument(kind="scalar", dtype="i32", value=4097)),
        ("0", Argument(kind="scalar", dtype="i32", value=0, divisible=True)),
        ("1", Argument(kind="scalar", dtype="i32", value=1)),
        ("3000000000", Argument(kind="scalar", dtype="i64", value=3000000000, divisible=True)),
        ("9223372036854775809.0", Argument(kind="scalar", dtype="fp32", value=9223372036854775809.0)),
        ("true", Argument(kind="scalar", dtype="u1", value=True)),
        ("{ value = 1, equal = true }", Argument(kind="scalar", dtype="i32", value=1, equal=True)),
        ("{ value = 32, assume = false }", Argument(kind="scalar", dtype="i32", value=32)),
        ('{ value = 32, type = "i64" }', Argument(kind="scalar", dtype="i64", value=32, divisible=True)),
    ],
)
def test_argument_grammar(tmp_path: Path, text: str, expected: Argument) -> None:
    assert argument(tmp_path, text) == expected


def test_only_rocm_assumes_less_than_two_gib_behind_a_pointer(tmp_path: Path) -> None:
    assert not argument(tmp_path, '"*fp16"', SM90).below_range
    assert argument(tmp_path, '"*fp16"', GFX942).below_range
    assert not argument(tmp_path, '"*fp16 large"', GFX942).below_range
    # The boundary: 2**31 bytes is not below, one element less is.
    assert not argument(tmp_path, '{ type = "*fp32", shape = [536870912] }', GFX942).below_range
    assert argument(tmp_path, '{ type = "*fp32", shape = [536870911] }', GFX942).below_range


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"*fp17"', "unknown dtype 'fp17'"),
        ('"*fp16 aligned"', "flags of a pointer"),
        ('"*fp16 large large"', "flags of a pointer"),
        ('"fp32 div16"', "only an integer"),
        ('"i32 unaligned"', "flag of a scalar"),
        ("{ value = 2, equal = true }", "equal = true goes with value = 1"),
        ('{ value = 300, type = "i8" }', "300 does not fit i8"),
        ('{ type = "*fp16", value = 1 }', "a pointer has no value"),
        ('{ type = "i32", shape = [1] }', "only a pointer has a shape"),
        ('{ type = "i32", assume = false }', "goes with an example value"),
        ("{ value = 1, equal = true, assume = false }", "goes with an example value"),
        ("[1]", "no example value"),
        ("{}", "neither a type nor a value"),
    ],
)
def test_arguments_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    error = refusal(tmp_path, f"[kernel.arguments]\nx = {text}\n")
    assert error.reason == "kernel-argument"
    assert said in error.what


def test_unknown_key_of_an_argument(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[kernel.arguments]\nx = { align = 16 }\n").reason == "unknown-key"


def test_matrix_multiplies_and_fills_placeholders_with_their_type(tmp_path: Path) -> None:
    body = """
variant = "{w}-{mean}"
[kernel.arguments]
x = "*{w} unaligned"
[kernel.constants]
MEAN = "{mean}"
NAME = "is {w} {{w}}"
[kernel.matrix]
w = ["fp16", "bf16"]
mean = [{ label = "sum", value = false }, { label = "avg", value = true, options = { num_warps = 8 } }]
"""
    variants = expanded(tmp_path, body)
    assert list(variants) == ["fp16-sum", "fp16-avg", "bf16-sum", "bf16-avg"]
    assert variants["bf16-avg"].constants == {"MEAN": True, "NAME": "is bf16 {w}"}
    assert variants["bf16-avg"].arguments["x"].dtype == "bf16"
    assert variants["bf16-avg"].options == {"num_warps": 8}
    assert variants["bf16-sum"].options == {}


def test_skip_leaves_combinations_out(tmp_path: Path) -> None:
    body = """
[[kernel.skip]]
a = "1"
b = "x"
[kernel.matrix]
a = [1, 2]
b = ["x", "y"]
"""
    assert list(expanded(tmp_path, body)) == ["1-y", "2-x", "2-y"]


def test_overrides_apply_in_order_and_only_where_they_say(tmp_path: Path) -> None:
    body = """
[kernel.arguments]
x = "*{w} unaligned large"
[kernel.constants]
ACC = { dtype = "fp8e4nv" }
[kernel.matrix]
w = ["fp8e4nv", "fp16"]
[[kernel.override]]
targets = ["rocm-*"]
dtypes = { fp8e4nv = "fp8e4b8" }
options = { waves_per_eu = 1, num_warps = 2 }
[[kernel.override]]
targets = ["rocm-*"]
where = { w = "fp16" }
options = { waves_per_eu = 2 }
optional = true
[[kernel.override]]
targets = ["cuda-*"]
where = { w = "fp16" }
exclude = true
"""
    rocm, cuda = expanded(tmp_path, body, GFX942), expanded(tmp_path, body, SM90)
    assert list(rocm) == ["fp8e4nv", "fp16"]
    assert rocm["fp8e4nv"].arguments["x"].dtype == "fp8e4b8"
    assert rocm["fp8e4nv"].constants == {"ACC": {"dtype": "fp8e4b8"}}
    assert rocm["fp8e4nv"].options == {"waves_per_eu": 1, "num_warps": 2}
    assert rocm["fp16"].options == {"waves_per_eu": 2, "num_warps": 2}
    assert (rocm["fp8e4nv"].optional, rocm["fp16"].optional) == (False, True)
    assert list(cuda) == ["fp8e4nv"]
    assert cuda["fp8e4nv"].arguments["x"].dtype == "fp8e4nv"


def test_one_generic_variant_for_each_set_of_dtypes_and_constants(tmp_path: Path) -> None:
    body = """
[kernel.arguments]
x = "*{w}"
n = 128
[kernel.constants]
BLOCK = "{b}"
[kernel.matrix]
w = ["fp16", "bf16"]
b = [64, 128]
[[kernel.matrix.warps]]
label = "w4"
options = { num_warps = 4 }
[[kernel.matrix.warps]]
label = "w8"
options = { num_warps = 8 }
"""
    variants = expanded(tmp_path, body, GFX942)
    generic = [name for name in variants if name.endswith("-generic")]
    assert generic == [
        "fp16-64-w4-generic",
        "fp16-128-w4-generic",
        "bf16-64-w4-generic",
        "bf16-128-w4-generic",
    ]
    assert all(variants[name].is_generic for name in generic)
    # The example value stays, for heuristics.
    assert variants[generic[0]].arguments["n"] == Argument(kind="scalar", dtype="i32", value=128)


def test_a_declared_variant_without_assumptions_is_the_generic_one(tmp_path: Path) -> None:
    body = '[kernel.arguments]\nx = "*fp16 {a}"\n[kernel.matrix]\na = [{ label = "any", value = "unaligned large" }, '
    body += '{ label = "fast", value = "large" }]\n'
    assert list(expanded(tmp_path, body, GFX942)) == ["any", "fast"]


def test_generic_false_refuses_what_has_none(tmp_path: Path) -> None:
    error = refusal(tmp_path, 'generic = false\n[kernel.arguments]\nx = "*fp16"\n')
    assert error.reason == "kernel-generic"
    assert "variant default" in error.what


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        ('variant = "same"\n[kernel.matrix]\na = [1, 2]\n', "kernel-name", "called same"),
        ('variant = "{b}"\n[kernel.matrix]\na = [1]\n', "kernel-matrix", "{b} is no axis"),
        ('variant = "a/b"\n', "kernel-name", "a/b"),
        ('[[kernel.skip]]\na = "1"\n[kernel.matrix]\na = [1]\n', "kernel-matrix", "no variant is left"),
        ("[kernel.arguments]\nx = 1\n[kernel.constants]\nx = 1\n", "kernel-argument", "both"),
        ("[kernel.constants]\nx = [1]\n", "kernel-constant", "no constant"),
        ('[kernel.constants]\nx = { dtype = "fp9" }\n', "kernel-argument", "fp9"),
        ('[kernel.constants]\nx = { object = "m.f" }\n', "kernel-constant", "m.f"),
    ],
)
def test_refusals(tmp_path: Path, body: str, reason: str, said: str) -> None:
    error = refusal(tmp_path, body)
    assert error.reason == reason
    assert said in error.what


def test_a_kernel_may_not_be_declared_in_two_files(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(HEAD)
    with pytest.raises(ConfigError) as caught:
        load_all([tmp_path / "a.toml", tmp_path / "b.toml"])
    assert caught.value.reason == "kernel-name"


def test_declared_variants_by_target(tmp_path: Path) -> None:
    path = tmp_path / "kernels.toml"
    path.write_text(HEAD + 'targets = ["cuda-*"]\n[kernel.arguments]\nx = "*fp16"\n')
    assert declared_variants([path], SM90) == {"k": ("default", "default-generic")}
    assert declared_variants([path], GFX942) == {}
    assert declared_variants([path], Target("cpu-x86_64")) == {}


def test_the_reference_page_shows_a_declaration_that_holds(tmp_path: Path) -> None:
    example = REFERENCE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    table: dict[str, Any] = tomllib.loads(example)
    path = tmp_path / "kernels.toml"
    path.write_text(example)
    names = declared_variants([path], SM90)["tbe_forward"]
    assert table["kernel"][0]["name"] == "tbe_forward"
    assert len(names) == 2 * 3 * 2 * 2 * 2
    assert "fp16-i64-mean-weighted-generic" in names
