"""Code objects that the locked Triton compiles now, for every GPU target, against what its compiler says of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from presence import build_environment
from wheelmark.binaries.codeobject import read_code_object
from wheelmark.targets import Backend, Target, known_ids

TARGETS = [target for target in map(Target.parse, known_ids()) if target.is_gpu]
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def many(y, a, b, c, d, e, f, g):
    total = a.to(tl.float32) + b.to(tl.float32) + c.to(tl.float32) + d.to(tl.float32)
    tl.store(y, total + e.to(tl.float32) + f.to(tl.float32) + g.to(tl.float32))

@triton.jit
def product(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + k + i[None, :])
        right = tl.load(b + (k + i[:, None]) * BLOCK + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)
"""
WORKER = """
import json, os, sys
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import kernels_under_test as k

backend, arch, warp = json.loads(sys.argv[1])
cases = {
    "many": (k.many, ["*fp32", "i1", "i8", "i16", "i32", "i64", "fp16", "fp64"], {}),
    "product": (k.product, ["*fp16", "*fp16", "*fp32", "i64", "constexpr"], {"BLOCK": 64}),
}
for name, (fn, types, constants) in cases.items():
    names = fn.arg_names
    source = ASTSource(fn, dict(zip(names, types)), {(names.index(n),): v for n, v in constants.items()}, {})
    made = triton.compile(source, target=GPUTarget(backend, arch, warp), options={"num_warps": 4})
    kind = "cubin" if "cubin" in made.asm else "hsaco"
    open(f"{name}.bin", "wb").write(made.asm[kind])
    print(json.dumps({"name": name, "kind": kind, "entry": made.metadata.name, "ptx": made.asm.get("ptx", "")}))
"""


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_what_the_compiler_says(tmp_path: Path, target: Target) -> None:
    (tmp_path / "kernels_under_test.py").write_text(KERNELS, encoding="utf-8")
    cuda = target.backend is Backend.CUDA
    wanted = ["cuda", int(target.arch[2:]), 32] if cuda else ["hip", target.arch, 64]
    done = subprocess.run(
        [str(build_environment().python), "-c", WORKER, json.dumps(wanted)],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(tmp_path),
            "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        said = json.loads(line)
        code = read_code_object((tmp_path / f"{said['name']}.bin").read_bytes())
        assert (code.kind.value, code.arch) == (target.code_object, target.arch)
        assert [kernel.name for kernel in code.kernels] == [said["entry"]]
        kernel = code.kernels[0]
        assert 0 < kernel.registers <= (target.limits.registers if target.limits else 0)
        assert kernel.warp_size == wanted[2]
        sizes = [slot.size for slot in kernel.parameters]
        assert sizes == ([8, 1, 1, 2, 4, 8, 2, 8] if said["name"] == "many" else [8, 8, 8, 8]) + [8, 8]
        if cuda:
            assert f".target sm_{target.arch[2:]}{code.suffix}" in said["ptx"]
            assert kernel.required_threads == 128
            assert code.toolkit
