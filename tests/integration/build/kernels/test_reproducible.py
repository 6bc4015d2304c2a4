"""Two builds that share nothing but sources, declaration and compiler give the same bytes for every GPU target."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_project import ADD, HEAVY, write_project
from wheelmark.build.kernels import CompiledKernels, compile_kernels
from wheelmark.targets import Target, known_ids

GPUS = [Target(name) for name in known_ids() if Target(name).is_gpu]


def build(folder: Path, python: Path, targets: list[Target]) -> dict[Target, CompiledKernels]:
    # On sm_100 a matrix product becomes tcgen05 instructions, which ptxas places by address.
    matmul = HEAVY.format(n=64, k=64).replace(
        "[kernel.arguments]", 'targets = ["cuda-*"]\n[kernel.arguments]'
    )
    path = write_project(folder / "source", ADD + matmul)
    return dict(compile_kernels([path], folder / "source", targets, python=python, cache=folder / "cache"))


def test_objects_and_manifests_are_identical(
    tmp_path: Path, build_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(tmp_path / "one", build_python, GPUS)
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("PYTHONHASHSEED", "4711")
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "0")
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "0")
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o077)
    try:
        second = build(tmp_path / "another" / "longer path" / "with a space", build_python, GPUS[::-1])
    finally:
        os.umask(before)
    for target in GPUS:
        assert (
            first[target].compiled == second[target].compiled == (6 if target.code_object == "cubin" else 4)
        )
        assert first[target].manifest.as_bytes() == second[target].manifest.as_bytes()
        assert first[target].objects == second[target].objects
