"""The table of shim functions against the headers of the torch that is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presence import build_environment
from wheelmark.binaries.stableabi import shim_versions

FUNCTION = re.compile(r"\b((?:aoti_torch|torch)_\w+)\s*\(")
UNDATED = {
    "aoti_torch_cuda_caching_allocator_raw_alloc",
    "aoti_torch_cuda_caching_allocator_raw_delete",
    "aoti_torch_delete_c10_value_object",
    "aoti_torch_dtype",
    "aoti_torch_int64_to_ivalue",
    "aoti_torch_str_to_ivalue",
    "aoti_torch_strlist_to_ivalue",
    "aoti_torch_tensor_to_ivalue",
}
"""In the header, and in no list of which release brought them: a library that uses one is refused."""
GATE = re.compile(r"#if TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)_(\d+)")


@pytest.fixture(scope="module")
def include() -> Path:
    return build_environment().site_packages / "torch" / "include"


def declared(text: str) -> dict[str, str]:
    """Function -> the version whose gate it stands behind; empty where it stands behind none."""
    found: dict[str, str] = {}
    since = ""
    for line in text.splitlines():
        gate = GATE.match(line)
        if gate is not None:
            since = ".".join(gate.groups())
        elif line.startswith("#endif // TORCH_FEATURE_VERSION"):
            since = ""
        elif not line.lstrip().startswith(("//", "*", "#")):
            for name in FUNCTION.findall(line):
                found.setdefault(name, since)
    return found


def test_the_stable_shim_and_its_gates(include: Path) -> None:
    functions = declared((include / "torch/csrc/stable/c/shim.h").read_text(encoding="utf-8"))
    gated = {name: since for name, since in functions.items() if since}
    assert len(gated) > 30
    table = shim_versions()
    assert {name: table.get(name) for name in gated} == gated


def test_the_inductor_shim(include: Path) -> None:
    functions = declared((include / "torch/csrc/inductor/aoti_torch/c/shim.h").read_text(encoding="utf-8"))
    assert len(functions) > 100
    assert set(functions) - set(shim_versions()) == UNDATED
