"""A kernel project as others write them: written to a folder by the tests, never imported by them."""

from __future__ import annotations

from pathlib import Path

MODULES = {
    "project/__init__.py": "",
    "project/consts.py": "import triton.language as tl\nSCALE = tl.constexpr(3)\nSHIFT = 5\n",
    "project/helpers.py": """
import triton
import triton.language as tl
from . import consts

FACTOR: tl.constexpr = tl.constexpr(2)

@triton.jit
def scaled(x):
    # a helper that reads a global of its own module, and one through another module
    return x * FACTOR * consts.SCALE

@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)

@triton.jit
def identity(x):
    return x
""",
    "project/add.py": """
import triton
import triton.language as tl
from .helpers import scaled

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + i, mask=m)
    if y is not None:
        a += tl.load(y + i, mask=m)
    tl.store(out + i, scaled(a).to(out.dtype.element_ty), mask=m)
""",
    "project/wrapped.py": """
import triton
import triton.language as tl

def _body(x, n, scale, BLOCK: tl.constexpr, EVEN: tl.constexpr, ACT: tl.constexpr, MODE: tl.constexpr = "sum"):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n)
    a = ACT(a) * scale
    if MODE == "sum":
        a += 1
    tl.store(x + i, a, mask=i < n)

jitted = triton.jit(_body)
evens = triton.heuristics({
    "BLOCK": lambda args: triton.next_power_of_2(args["n"]),
    "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
})(jitted)
tuned = triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((128, 4), (256, 8), (512, 8))], key=["n"]
)(triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(jitted))
hooked = triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, pre_hook=lambda args: None)], key=["n"]
)(jitted)
""",
    "project/probing.py": """
import torch
import triton
import triton.language as tl

assert torch.cuda.is_available(), "no device"
WIDE = torch.cuda.get_device_properties(0).multi_processor_count > 100 or torch.version.hip is not None
BLOCK_SIZE = tl.constexpr(256 if WIDE else 128)

@triton.jit
def fill(x, n):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(x + i, 0.0, mask=i < n)
""",
    "project/heavy.py": """
import triton
import triton.language as tl

@triton.jit
def matmul(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # num_stages tiles of a and b are in shared memory at once
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(0, n, K):
        x = tl.load(a + i[:, None] * n + (step + k)[None, :])
        y = tl.load(b + (step + k)[:, None] * N + j[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)
""",
    "project/aborting.py": """
import os
import triton
import triton.language as tl

from triton.compiler import ASTSource

_make_ir = ASTSource.make_ir

def _aborting(self, *arguments):
    # stands for an assertion in the compiler: the process is gone while the variant is compiled
    if 64 in self.constants.values():
        os.write(2, b"LLVM ERROR: cannot select 64\\n")
        os.abort()
    return _make_ir(self, *arguments)

ASTSource.make_ir = _aborting

@triton.jit
def fragile(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 0.0)
""",
    "project/explicit.py": """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def copy(x, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + i, gl.load(x + i, mask=i < n), mask=i < n)

LAYOUT = gl.BlockedLayout([1], [32], [4], [0])
""",
    "project/ops.py": """
import torch
import triton
from .add import add
from .wrapped import tuned
from .helpers import relu

def run():
    assert torch.cuda.is_available()
    x, out = torch.zeros(4096, dtype=torch.float16), torch.zeros(4096)
    with torch.cuda.device(0):
        for _ in range(2):  # launched twice, declared once
            add[(2,)](x, x, out, 4096, BLOCK=2048, num_warps=4)
        add[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, None, out, 4096, BLOCK=2048, num_warps=4)
        tuned[(8,)](out[1:], 1024, 1.5, ACT=relu, MODE="{braces}")

def nothing():
    pass

def failing():
    add[(1,)](object(), None, None, 1, BLOCK=16)
""",
    "project/broken.py": "raise ImportError('needs a card')\n",
    "project/opaque.py": """
import triton
import triton.language as tl

class Box:
    pass

BOX = Box()

@triton.jit
def reads(x):
    tl.store(x, BOX.value)
""",
}

HEAD = "schema = 1\n"
ADD = """
[[kernel]]
name = "add"
module = "project.add"
attribute = "add"
variant = "{t}-{y}"
[kernel.arguments]
x = "*{t}"
y = "*{t}"
out = "*fp32"
n = 4096
[kernel.constants]
BLOCK = 128
[kernel.matrix]
t = ["fp16"]
y = [{ label = "two" }, { label = "one", arguments = { y = "none" } }]
"""


HEAVY = """
[[kernel]]
name = "matmul"
module = "project.heavy"
attribute = "matmul"
[kernel.arguments]
a = "*fp16 large"
b = "*fp16 large"
c = "*fp32 large"
n = "i32 div16"
[kernel.constants]
M = 128
N = {n}
K = {k}
[kernel.options]
num_stages = 2
num_warps = 8
"""


def write_project(root: Path, declaration: str) -> Path:
    """Write the project under `root` with a declaration; the declaration's path comes back."""
    for name, text in MODULES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    path = root / "kernels.toml"
    path.write_text(HEAD + declaration)
    return path
