"""Make the sample objects of this folder: ``python make.py`` with Triton 3.7.1 installed and g++ on the path.

The cubins and hsacos are one kernel that Triton compiled for four archs; ``native.so`` is a library that calls two
functions of LibTorch's C shim and ``memcpy``. Another compiler gives other bytes: the tests that read exact
figures name them, and are to be changed with the samples.
"""

import os
import subprocess
import tempfile
from pathlib import Path

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).resolve().parent
TARGETS = {
    "sm80": ("cuda", 80, 32),
    "sm90": ("cuda", 90, 32),
    "sm100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
SIGNATURE = {"x": "*fp16", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
NATIVE = r"""
#include <cstdint>
#include <cstring>
extern "C" int torch_call_dispatcher(const char*, const char*, void*, uint64_t);
extern "C" int aoti_torch_get_dim(void*, int64_t*);
extern "C" int sample(void* stack, char* to, const char* from, unsigned long bytes, int64_t* dim) {
  std::memcpy(to, from, bytes);
  return aoti_torch_get_dim(stack, dim) + torch_call_dispatcher("aten::sum", "", stack, 0x020d000000000000ULL);
}
"""


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):  # noqa: N803 - constants are upper case by custom
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    total = tl.sum(value.to(tl.float32), axis=0)
    tl.store(y + at, value * factor + total, mask=at < n)


def compile_kernel(target: GPUTarget) -> tuple[str, bytes]:
    """The suffix and bytes of the kernel's code object."""
    source = ASTSource(scale, SIGNATURE, {(4,): 256}, {})
    compiled = triton.compile(source, target=target, options={"num_warps": 4, "enable_fp_fusion": True})
    suffix = "cubin" if "cubin" in compiled.asm else "hsaco"
    return suffix, compiled.asm[suffix]


def compile_native(folder: Path) -> bytes:
    """A shared object that needs a library called libtorch_cpu.so, of which only the name is there."""
    (folder / "native.cpp").write_text(NATIVE, encoding="utf-8")
    (folder / "empty.cpp").write_text("", encoding="utf-8")
    common = ["g++", "-shared", "-fPIC", "-O1", "-fno-builtin", "-s", "-nostartfiles"]
    common += [
        "-Wl,-z,noseparate-code",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=sha1",
        "-ffile-prefix-map=.=src",
    ]
    stub = [*common, "-Wl,-soname,libtorch_cpu.so", "empty.cpp", "-o", "libtorch_cpu.so"]
    subprocess.run(stub, cwd=folder, check=True)
    link = ["-Wl,--no-as-needed", "-L.", "-ltorch_cpu"]
    subprocess.run([*common, "native.cpp", *link, "-o", "native.so"], cwd=folder, check=True)
    return (folder / "native.so").read_bytes()


def main() -> None:
    """Write every sample."""
    for arch, target in TARGETS.items():
        suffix, data = compile_kernel(GPUTarget(*target))
        (HERE / f"scale-{arch}.{suffix}").write_bytes(data)
    with tempfile.TemporaryDirectory() as folder:
        (HERE / "native.so").write_bytes(compile_native(Path(folder)))


if __name__ == "__main__":
    main()
