"""Which variant is chosen, and why none is: `wheelmark_kernels.variants`, without a driver or a device."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def variants(payload: ModuleType) -> ModuleType:
    return importlib.import_module(f"{payload.__name__}.variants")


def variant(name: str, *assumes: dict[str, Any], arch: str = "sm90", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "object": {"file": f"k.{name}.cubin", "sha256": "0" * 64, "size": 1},
        "entry": "k",
        "arch": arch,
        "num_warps": 4,
        "warp_size": 32,
        "shared": 0,
        "global_scratch": 0,
        "profile_scratch": 0,
        "scratch_pointers": 2,
        "min_driver": "570.26",
        "parameters": [
            {"name": "x", "kind": "pointer", "dtype": "fp16"},
            {"name": "n", "kind": "scalar", "dtype": "i32"},
        ],
        "constants": {"BLOCK": 128},
        "assumes": list(assumes),
        "options": {},
        **changes,
    }


def assume(argument: str, relation: str, value: Any = None) -> dict[str, Any]:
    base = {"argument": argument, "is": relation}
    return base if value is None else {**base, "value": value}


def objects(variants: ModuleType, folder: Path, *members: dict[str, Any], target: str = "cuda-sm90") -> Any:
    manifest = {
        "schema": variants.SCHEMA,
        "target": target,
        "kernels": [{"name": "k", "variants": list(members)}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return variants.read_code_objects(folder)


FP16 = assume("x", "dtype", "fp16")
ALIGNED = assume("x", "divisible_by", 16)


@pytest.mark.parametrize(
    ("relation", "value", "right", "wrong"),
    [
        ("dtype", "fp16", [("p", 0, "fp16", 8)], [("p", 0, "bf16", 8), 1, None]),
        ("dtype", "fp32", [("p", 0, "fp32", 8), 1.5], [1, True]),
        ("divisible_by", 16, [("p", 32, "fp16", 8), 48, 0, -16], [("p", 34, "fp16", 8), 8, None, True, 16.0]),
        ("none", None, [None], [0, False, ("p", 0, "fp16", 0)]),
        ("equal", 1, [1], [True, 1.0, 2, None, ("p", 1, "fp16", 8)]),
        ("equal", True, [True], [1, False]),
        (
            "fits",
            "i32",
            [0, -(1 << 31), (1 << 31) - 1, True],
            [1 << 31, -(1 << 31) - 1, None, 1.5, ("p", 1, "fp16", 8)],
        ),
        ("fits", "u8", [0, 255], [-1, 256]),
        ("fits", "i7", [], [0]),
        ("bytes_below", 1 << 31, [("p", 0, "fp16", (1 << 31) - 1)], [("p", 0, "fp16", 1 << 31), 5, None]),
        ("likes", 3, [], [3, None]),
    ],
)
def test_what_an_assumption_means(
    variants: ModuleType, relation: str, value: Any, right: list[Any], wrong: list[Any]
) -> None:
    def real(item: Any) -> Any:
        if isinstance(item, tuple):
            return variants.Pointer(address=item[1], dtype=item[2], size=item[3])
        return item

    item = variants.Assumption(argument="x", relation=relation, value=value)
    for given in right:
        assert item.holds({"x": real(given)}), given
    for given in wrong:
        assert not item.holds({"x": real(given)}), given
        assert item.failure({"x": real(given)}).startswith("x")
    assert not item.holds({})


def test_most_assumptions_win_and_the_first_of_equals(variants: ModuleType, tmp_path: Path) -> None:
    found = objects(
        variants,
        tmp_path,
        variant("generic", FP16),
        variant("aligned", FP16, ALIGNED),
        variant("even", FP16, assume("n", "divisible_by", 2)),
        variant("both", FP16, ALIGNED, assume("n", "divisible_by", 2)),
    )

    def chosen(address: int, n: int) -> str:
        arguments = {"x": variants.Pointer(address=address, dtype="fp16", size=64), "n": n}
        return str(found.choose("k", arguments, arch="sm90").name)

    assert chosen(32, 4) == "both"
    assert chosen(32, 3) == "aligned"
    assert chosen(33, 4) == "even"
    assert chosen(33, 3) == "generic"


def test_one_and_true_are_not_one_assumption(variants: ModuleType, tmp_path: Path) -> None:
    found = objects(
        variants,
        tmp_path,
        variant("one", assume("n", "equal", 1)),
        variant("true", assume("n", "equal", value=True)),
    )
    assert found.choose("k", {"n": True}, arch="sm90").name == "true"
    assert found.choose("k", {"n": 1}, arch="sm90").name == "one"


def test_a_constant_is_free_unless_the_call_names_it(variants: ModuleType, tmp_path: Path) -> None:
    found = objects(variants, tmp_path, variant("b128", assume("BLOCK", "equal", 128)))
    assert found.choose("k", {}, arch="sm90").name == "b128"
    assert found.choose("k", {"BLOCK": 128}, arch="sm90").name == "b128"
    with pytest.raises(RuntimeError, match=r"\[no-variant\]"):
        found.choose("k", {"BLOCK": 64}, arch="sm90")


def test_none_fitting_names_the_failed_assumptions_of_the_nearest(
    variants: ModuleType, tmp_path: Path
) -> None:
    found = objects(
        variants,
        tmp_path,
        variant("far", assume("x", "dtype", "fp32"), ALIGNED, assume("n", "equal", 7)),
        variant("near", FP16, ALIGNED),
        variant("middle", FP16, ALIGNED, assume("n", "equal", 7)),
        variant(
            "farthest", assume("x", "dtype", "fp32"), ALIGNED, assume("n", "equal", 7), assume("y", "none")
        ),
    )
    with pytest.raises(RuntimeError) as caught:
        found.choose("k", {"x": variants.Pointer(address=33, dtype="fp16", size=64), "n": 3}, arch="sm90")
    text = str(caught.value)
    assert caught.value.reason == "no-variant"  # type: ignore[attr-defined]
    assert (
        text.index(
            "near: x is a fp16 tensor of 64 bytes at address 0x21, it would have to be divisible by 16"
        )
        < text.index("middle: ")
        < text.index("far: ")
    )
    assert "farthest" not in text
    assert "it would have to be 7" in text
    assert "device: sm90; this wheel holds code for: sm90" in text
    assert "WHEELMARK_KERNELS_FALLBACK=1" in text


@pytest.mark.parametrize("arch", ["sm90a", "sm9", "sm100", "gfx90a", "", "SM90"])
def test_another_arch_never_runs(variants: ModuleType, tmp_path: Path, arch: str) -> None:
    found = objects(variants, tmp_path, variant("generic"))
    with pytest.raises(RuntimeError) as caught:
        found.choose("k", {}, arch=arch)
    assert caught.value.reason == "arch"  # type: ignore[attr-defined]
    assert caught.value.available == ("sm90",)  # type: ignore[attr-defined]


def test_an_unknown_kernel(variants: ModuleType, tmp_path: Path) -> None:
    found = objects(variants, tmp_path, variant("generic"))
    with pytest.raises(RuntimeError, match=r"\[manifest\].*lists no kernel other"):
        found.choose("other", {}, arch="sm90")


def test_no_manifest_is_a_wheel_for_the_cpu(variants: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a wheel for the CPU") as caught:
        variants.read_code_objects(tmp_path)
    assert caught.value.reason == "arch"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "member",
    [
        variant("x", object={"file": "../escape.cubin", "sha256": "0" * 64, "size": 1}),
        variant("x", object={"file": "/abs.cubin", "sha256": "0" * 64, "size": 1}),
        variant("x", object={"file": "a.cubin", "sha256": None, "size": 1}),
        variant("x", num_warps="4"),
        variant("x", num_warps=True),
        variant("x", shared=-1),
        variant("x", shared=1 << 40),
        variant("x", entry=5),
        variant("x", parameters=[{"name": "x"}]),
        variant("x", options={"num_ctas": 2}),
        variant("x", options={"launch_cooperative_grid": True}),
        variant("x", options={"launch_pdl": True}),
    ],
)
def test_a_manifest_that_cannot_be_trusted(
    variants: ModuleType, tmp_path: Path, member: dict[str, Any]
) -> None:
    with pytest.raises(RuntimeError, match=r"\[manifest\]") as caught:
        objects(variants, tmp_path, member)
    assert not caught.value.may_fall_back  # type: ignore[attr-defined]
    assert "FALLBACK" not in str(caught.value)


@pytest.mark.parametrize("target", ["cpu-x86_64", "xpu-bmg", "cuda", "cuda-", 7])
def test_a_manifest_for_no_card(variants: ModuleType, tmp_path: Path, target: Any) -> None:
    with pytest.raises(RuntimeError, match=r"\[manifest\]"):
        objects(variants, tmp_path, variant("x"), target=target)


def test_the_layout_that_the_launcher_gets(variants: ModuleType, tmp_path: Path) -> None:
    found = objects(variants, tmp_path, variant("x")).kernels["k"][0]
    assert (found.layout, found.threads) == ("pointer,i32", 128)
