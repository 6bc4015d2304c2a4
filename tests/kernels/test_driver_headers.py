"""The launcher and the recording driver against the vendors' headers: numbers, structures and signatures, by a compiler.

Triton's wheel carries cuda.h and hip_runtime_api.h. What csrc/driver.cpp and fake_driver.c write as plain numbers is compared with what
these headers say.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "kernels" / "csrc" / "driver.cpp"

CUDA = r"""
#include <cuda.h>
#include <stddef.h>
#define SAME(a, b) _Static_assert((a) == (b), #a)
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97);
SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8);
SAME(CUDA_ERROR_INVALID_VALUE, 1); SAME(CUDA_ERROR_NOT_INITIALIZED, 3); SAME(CUDA_ERROR_NO_DEVICE, 100);
SAME(CUDA_ERROR_INVALID_DEVICE, 101); SAME(CUDA_ERROR_INVALID_IMAGE, 200); SAME(CUDA_ERROR_INVALID_CONTEXT, 201);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU, 209); SAME(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303); SAME(CUDA_ERROR_INVALID_HANDLE, 400);
SAME(CUDA_ERROR_NOT_FOUND, 500); SAME(CUDA_ERROR_ILLEGAL_ADDRESS, 700); SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701);
SAME(CUDA_ERROR_LAUNCH_FAILED, 719); SAME(CUDA_ERROR_NOT_SUPPORTED, 801);
SAME(sizeof(CUresult), sizeof(int)); SAME(sizeof(CUdevice), sizeof(int));
SAME(sizeof(CUfunction_attribute), sizeof(int)); SAME(sizeof(CUdevice_attribute), sizeof(int));
SAME(sizeof(CUcontext), sizeof(void *)); SAME(sizeof(CUmodule), sizeof(void *)); SAME(sizeof(CUstream), sizeof(void *));
CUresult (*a)(unsigned) = cuInit;
CUresult (*b)(int *) = cuDriverGetVersion;
CUresult (*c)(int *) = cuDeviceGetCount;
CUresult (*d)(CUdevice *, int) = cuDeviceGet;
CUresult (*e)(int *, CUdevice_attribute, CUdevice) = cuDeviceGetAttribute;
CUresult (*f)(CUcontext *, CUdevice) = cuDevicePrimaryCtxRetain;
CUresult (*g)(CUcontext *) = cuCtxGetCurrent;
CUresult (*h)(CUcontext) = cuCtxSetCurrent;
CUresult (*i)(CUdevice *) = cuCtxGetDevice;
CUresult (*j)(CUmodule *, const void *) = cuModuleLoadData;
CUresult (*k)(CUfunction *, CUmodule, const char *) = cuModuleGetFunction;
CUresult (*l)(int *, CUfunction_attribute, CUfunction) = cuFuncGetAttribute;
CUresult (*m)(CUfunction, CUfunction_attribute, int) = cuFuncSetAttribute;
CUresult (*n)(CUfunction, size_t, size_t *, size_t *) = cuFuncGetParamInfo;
CUresult (*o)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **) = cuLaunchKernel;
"""

HIP = r"""
#define __HIP_PLATFORM_AMD__
#include <stdbool.h>
#include <stddef.h>
#include <hip/hip_runtime_api.h>
#define SAME(a, b) _Static_assert((a) == (b), #a)
SAME(sizeof(hipDeviceProp_tR0600), 1472); SAME(offsetof(hipDeviceProp_tR0600, gcnArchName), 1160);
SAME(sizeof(((hipDeviceProp_tR0600 *)0)->gcnArchName), 256);
SAME(hipDeviceAttributeMaxSharedMemoryPerBlock, 74); SAME(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1);
SAME(hipErrorInvalidValue, 1); SAME(hipErrorNotInitialized, 3); SAME(hipErrorNoDevice, 100); SAME(hipErrorInvalidDevice, 101);
SAME(hipErrorInvalidImage, 200); SAME(hipErrorNoBinaryForGpu, 209); SAME(hipErrorInvalidHandle, 400); SAME(hipErrorNotFound, 500);
SAME(hipErrorLaunchOutOfResources, 701); SAME(hipErrorLaunchFailure, 719); SAME(hipErrorNotSupported, 801);
SAME(sizeof(hipError_t), sizeof(int)); SAME(sizeof(hipFunction_attribute), sizeof(int)); SAME(sizeof(hipDeviceAttribute_t), sizeof(int));
hipError_t (*a)(unsigned) = hipInit;
hipError_t (*b)(int *) = hipRuntimeGetVersion;
hipError_t (*c)(int *) = hipGetDeviceCount;
hipError_t (*d)(hipDeviceProp_tR0600 *, int) = hipGetDevicePropertiesR0600;
hipError_t (*e)(int *, hipDeviceAttribute_t, int) = hipDeviceGetAttribute;
hipError_t (*f)(int *) = hipGetDevice;
hipError_t (*g)(int) = hipSetDevice;
hipError_t (*h)(hipModule_t *, const void *) = hipModuleLoadData;
hipError_t (*i)(hipFunction_t *, hipModule_t, const char *) = hipModuleGetFunction;
hipError_t (*j)(int *, hipFunction_attribute, hipFunction_t) = hipFuncGetAttribute;
hipError_t (*k)(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t, void **, void **) = hipModuleLaunchKernel;
"""


def check(source: str, vendor: str, folder: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc")
    assert compiler is not None
    triton = importlib.util.find_spec("triton")
    assert triton is not None
    assert triton.origin is not None
    include = Path(triton.origin).parent / "backends" / vendor / "include"
    file = folder / "check.c"
    file.write_text(source, encoding="utf-8")
    return subprocess.run(
        [
            compiler,
            "-fsyntax-only",
            "-Werror=incompatible-pointer-types",
            "-isystem",
            str(include),
            str(file),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("source", "vendor"), [(CUDA, "nvidia"), (HIP, "amd")], ids=["cuda", "hip"])
def test_numbers_and_signatures_are_the_vendors(source: str, vendor: str, tmp_path: Path) -> None:
    done = check(source, vendor, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("source", "vendor", "old", "new", "words"),
    [
        (CUDA, "nvidia", "OPTIN, 97", "OPTIN, 96", "static assertion"),
        (CUDA, "nvidia", "(*d)(CUdevice *, int)", "(*d)(CUdevice *, CUcontext)", "incompatible"),
        (HIP, "amd", "gcnArchName), 1160", "gcnArchName), 1152", "static assertion"),
    ],
)
def test_a_wrong_number_would_be_found(
    source: str, vendor: str, old: str, new: str, words: str, tmp_path: Path
) -> None:
    assert old in source
    done = check(source.replace(old, new), vendor, tmp_path)
    assert done.returncode != 0
    assert words in done.stderr


def test_every_function_that_the_launcher_asks_for_is_checked_here_and_recorded() -> None:
    asked = set(
        re.findall(r'library_\.(?:require|optional)\(\w+, "(\w+)"\)', DRIVER.read_text(encoding="utf-8"))
    )
    fake = (ROOT / "src/wheelmark/gates/fakedriver/fake_driver.c").read_text(encoding="utf-8")
    assert len(asked) > 20
    assert asked == set(re.findall(r"= (\w+);", CUDA + HIP))
    assert asked == set(re.findall(r"^EXPORT int (\w+)\(", fake, re.MULTILINE))
