"""A declaration captured from a project's own wrappers compiles to what a declaration by hand does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_project import ADD, write_project
from wheelmark.build.kernels import capture_declaration, compile_kernels
from wheelmark.errors import BuildError
from wheelmark.targets import Target

SM90 = Target("cuda-sm90")


def test_captured_declaration_gives_the_same_objects(tmp_path: Path, build_python: Path) -> None:
    root = tmp_path / "source"
    by_hand = write_project(root, ADD.replace("BLOCK = 128", "BLOCK = 2048"))
    captured = root / "captured.toml"
    captured.write_text(capture_declaration("project.ops:run", root, SM90, python=build_python))
    found = {}
    for path in (by_hand, captured):
        result = compile_kernels([path], root, [SM90], python=build_python, cache=tmp_path / "cache")[SM90]
        found[path.stem] = {
            (kernel.name, variant.name): variant
            for kernel in result.manifest.kernels
            for variant in kernel.variants
        }
    objects = {
        path: sorted(variant.object.sha256 for (kernel, _), variant in variants.items() if kernel == "add")
        for path, variants in found.items()
    }
    assert objects["captured"] == objects["kernels"]
    tuned = {name: variant for (kernel, name), variant in found["captured"].items() if kernel == "tuned"}
    assert {
        name: (item.constants["BLOCK"], item.num_warps) for name, item in tuned.items() if "-" not in name
    } == {
        "1": (128, 4),
        "2": (256, 8),
        "3": (512, 8),
    }
    assert tuned["1"].constants == {
        "BLOCK": 128,
        "EVEN": True,
        "ACT": "project.helpers:relu",
        "MODE": "{braces}",
    }
    # out[1:] does not begin at a multiple of 16 bytes
    assert not any(
        item.argument == "x" and item.relation.value == "divisible_by" for item in tuned["1"].assumes
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [("nothing", "launched no kernel"), ("failing", "a object cannot be declared"), ("absent", "absent")],
)
def test_what_cannot_be_captured(tmp_path: Path, build_python: Path, function: str, said: str) -> None:
    write_project(tmp_path, ADD)
    with pytest.raises(BuildError) as caught:
        capture_declaration(f"project.ops:{function}", tmp_path, SM90, python=build_python)
    assert caught.value.reason == "kernel-capture"
    assert said in caught.value.what
