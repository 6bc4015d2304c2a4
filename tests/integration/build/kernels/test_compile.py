"""The real compiler, on a project that knows nothing of the pipeline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_project import ADD, HEAVY, write_project
from wheelmark.binaries.codeobject import read_code_object
from wheelmark.binaries.kernelmanifest import Relation, Variant, read_kernel_manifest
from wheelmark.binaries.kernelobjects import check_objects
from wheelmark.build.kernels import CompiledKernels, compile_kernels, declared_variants, source_digests
from wheelmark.errors import BuildError
from wheelmark.targets import Target

SM90, SM100, GFX90A, GFX942 = (
    Target(name) for name in ("cuda-sm90", "cuda-sm100", "rocm-gfx90a", "rocm-gfx942")
)
WRAPPED = """
[[kernel]]
name = "wrapped"
module = "project.wrapped"
attribute = "{attribute}"
generic = false
[kernel.arguments]
x = "*fp32 unaligned large"
n = {{ value = {n}, assume = false }}
scale = 1.5
[kernel.constants]
ACT = {{ object = "project.helpers:relu" }}
"""


def build(
    folder: Path, declaration: str, targets: list[Target], python: Path, cache: Path | None = None
) -> Mapping[Target, CompiledKernels]:
    root = folder / "project-root"
    path = write_project(root, declaration)
    return compile_kernels([path], root, targets, python=python, cache=cache or folder / "cache")


def refused(folder: Path, declaration: str, target: Target, python: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        build(folder, declaration, [target], python)
    return caught.value


def only(result: CompiledKernels) -> Mapping[str, Variant]:
    (kernel,) = result.manifest.kernels
    return {variant.name: variant for variant in kernel.variants}


def facts(variant: Variant) -> set[tuple[str, str, object]]:
    return {(item.argument, item.relation.value, item.value) for item in variant.assumes}


def test_manifest_says_what_a_launcher_needs(tmp_path: Path, build_python: Path) -> None:
    result = build(tmp_path, ADD, [SM90, GFX942], build_python)
    cuda, rocm = only(result[SM90]), only(result[GFX942])
    names = declared_variants([tmp_path / "project-root" / "kernels.toml"], SM90)
    assert tuple(cuda) == names["add"] == ("fp16-two", "fp16-one", "fp16-two-generic", "fp16-one-generic")
    assert facts(cuda["fp16-two"]) == {
        ("x", "dtype", "fp16"),
        ("x", "divisible_by", 16),
        ("y", "dtype", "fp16"),
        ("y", "divisible_by", 16),
        ("out", "dtype", "fp32"),
        ("out", "divisible_by", 16),
        ("n", "fits", "i32"),
        ("n", "divisible_by", 16),
        ("BLOCK", "equal", 128),
    }
    assert facts(rocm["fp16-two"]) - facts(cuda["fp16-two"]) == {
        (name, "bytes_below", 1 << 31) for name in ("x", "y", "out")
    }
    assert facts(rocm["fp16-two-generic"]) == {
        item for item in facts(cuda["fp16-two"]) if item[1] != "divisible_by"
    }
    one = cuda["fp16-one"]
    assert ("y", "none", None) in facts(one)
    assert [(item.name, item.kind.value, item.dtype) for item in one.parameters] == [
        ("x", "pointer", "fp16"),
        ("out", "pointer", "fp32"),
        ("n", "scalar", "i32"),
    ]
    assert (one.arch, one.arch_suffix, one.ptx_version, one.toolkit, one.min_driver) == (
        "sm90",
        "a",
        "8.7",
        "12.8",
        "570.26",
    )
    assert (rocm["fp16-one"].arch, rocm["fp16-one"].warp_size, rocm["fp16-one"].toolkit) == ("gfx942", 64, "")
    assert one.options["enable_fp_fusion"] is True
    assert result[SM90].manifest.toolchain.assembler.startswith("ptxas 12.8.")
    assert result[GFX942].manifest.toolchain.assembler.startswith("llvm ")
    for target, compiled in result.items():
        assert check_objects(compiled.manifest, compiled.objects) == ()
        assert read_kernel_manifest(compiled.manifest.as_bytes()) == compiled.manifest
        assert all(read_code_object(data).arch == target.arch for data in compiled.objects.values())
        assert str(tmp_path).encode() not in b"".join(compiled.objects.values())


def test_alignment_and_pointer_range_reach_the_code(tmp_path: Path, build_python: Path) -> None:
    declaration = ADD.replace(
        't = ["fp16"]',
        't = ["fp16"]\nsize = [{ label = "small" }, { label = "large", '
        'arguments = { x = "*fp16 large", y = "*fp16 large", out = "*fp32 large" } }]',
    )
    declaration = declaration.replace('"{t}-{y}"', '"{size}-{y}"').replace("BLOCK = 128", "BLOCK = 2048")
    rocm = only(build(tmp_path, declaration, [GFX942], build_python)[GFX942])
    codes = {rocm[name].object.sha256 for name in ("small-two", "large-two", "small-two-generic")}
    assert len(codes) == 3


def test_nothing_changed_starts_no_worker_and_an_edit_recompiles_only_what_it_reaches(
    tmp_path: Path, build_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration = ADD + WRAPPED.format(attribute="evens", n=128)
    first = build(tmp_path, declaration, [SM90], build_python)[SM90]
    assert (first.compiled, first.cached) == (5, 0)
    with monkeypatch.context() as patch:
        patch.setattr("wheelmark.build.kernels.compile.Scheduler", None)  # it would be called
        again = build(tmp_path, declaration, [SM90], build_python)[SM90]
    assert (again.compiled, again.cached) == (0, 5)
    assert again.manifest == first.manifest
    assert again.objects == first.objects

    root = tmp_path / "project-root"
    path = root / "kernels.toml"

    def edited(name: str, old: str, new: str) -> CompiledKernels:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))
        return compile_kernels([path], root, [SM90], python=build_python, cache=tmp_path / "cache")[SM90]

    # A comment above the function moves its lines, and is no part of it.
    moved = edited("project/add.py", "import triton\n", "# moved\n\nimport triton\n")
    assert (moved.compiled, moved.cached) == (0, 5)
    assert moved.manifest == first.manifest
    # Through the helper module, a constant of a third module, and the kernel's own text.
    reached = [
        edited("project/helpers.py", "tl.constexpr(2)", "tl.constexpr(4)"),
        edited("project/consts.py", "tl.constexpr(3)", "tl.constexpr(9)"),
        edited("project/helpers.py", "return x * FACTOR", "return x + FACTOR"),
    ]
    assert [(item.compiled, item.cached) for item in reached] == [(4, 1)] * 3
    # A helper of the other kernel.
    other = edited("project/helpers.py", "maximum(x, 0.0)", "maximum(x, 1.0)")
    assert (other.compiled, other.cached) == (1, 4)
    # A constant that nothing reads.
    unread = edited("project/consts.py", "SHIFT = 5", "SHIFT = 6")
    assert (unread.compiled, unread.cached) == (0, 5)


def test_a_changed_object_in_the_cache_is_made_again(tmp_path: Path, build_python: Path) -> None:
    first = build(tmp_path, ADD, [SM90], build_python)[SM90]
    digest = only(first)["fp16-one"].object.sha256
    same = [variant.object.sha256 for variant in only(first).values()].count(digest)
    blob = tmp_path / "cache" / "kernels" / "blobs" / digest
    data = blob.read_bytes()
    blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    again = build(tmp_path, ADD, [SM90], build_python)[SM90]
    assert (again.compiled, again.cached) == (same, 4 - same)
    assert again.objects == first.objects


def test_heuristics_defaults_and_object_constants(tmp_path: Path, build_python: Path) -> None:
    variant = only(build(tmp_path, WRAPPED.format(attribute="evens", n=100), [SM90], build_python)[SM90])[
        "default"
    ]
    assert variant.constants == {"BLOCK": 128, "EVEN": False, "ACT": "project.helpers:relu", "MODE": "sum"}
    assert ("scale", "dtype", "fp32") in facts(variant)


def test_a_config_is_named_by_value(tmp_path: Path, build_python: Path) -> None:
    declaration = (
        WRAPPED.format(attribute="tuned", n=512) + '[kernel.matrix]\nc = [{ label = "b128", constants = '
    )
    declaration += (
        '{ BLOCK = 128 } }, { label = "b512", constants = { BLOCK = 512 }, options = { num_warps = 8 } }]\n'
    )
    variants = only(build(tmp_path, declaration, [SM90], build_python)[SM90])
    assert {
        name: (v.constants["BLOCK"], v.num_warps, v.constants["EVEN"]) for name, v in variants.items()
    } == {
        "b128": (128, 4, True),
        "b512": (512, 8, True),
    }
    assert variants["b128"].options["num_stages"] == 3


def test_equal_to_one_leaves_the_parameter_list(tmp_path: Path, build_python: Path) -> None:
    declaration = ADD.replace("n = 4096", "n = { value = 1, equal = true }")
    variants = only(build(tmp_path, declaration, [SM90], build_python)[SM90])
    assert ("n", "equal", 1) in facts(variants["fp16-one"])
    assert [item.name for item in variants["fp16-one"].parameters] == ["x", "out"]
    assert ("n", "fits", "i32") in facts(variants["fp16-one-generic"])
    assert [item.name for item in variants["fp16-one-generic"].parameters] == ["x", "out", "n"]


def test_one_is_not_specialised_unless_asked(tmp_path: Path, build_python: Path) -> None:
    variants = only(build(tmp_path, ADD.replace("n = 4096", "n = 1"), [SM90], build_python)[SM90])
    assert ("n", "fits", "i32") in facts(variants["fp16-one"])
    assert not any(
        item.relation is Relation.EQUAL and item.argument == "n" for item in variants["fp16-one"].assumes
    )


EXPLICIT = """
[[kernel]]
name = "copy"
module = "project.explicit"
attribute = "copy"
targets = ["cuda-*"]
[kernel.arguments]
x = "*fp32"
out = "*fp32"
n = "i32"
[kernel.constants]
BLOCK = 128
layout = { object = "project.explicit:LAYOUT" }
"""


def test_gluon_kernels(tmp_path: Path, build_python: Path) -> None:
    variant = only(build(tmp_path, EXPLICIT, [SM90], build_python)[SM90])["default"]
    assert variant.entry == "copy"
    assert "BlockedLayout" in str(variant.constants["layout"])


LAUNCHER = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
backend, arch, warp = sys.argv[2:]
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Driver:
    def get_current_target(self): return GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp))
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(Driver())
from project.add import add
x, out = torch.zeros(4096, dtype=torch.float16), torch.zeros(4096)
def digest(*arguments):
    made = add.warmup(*arguments, grid=(1,), BLOCK=2048, num_warps=4)
    return hashlib.sha256(made.asm["cubin" if backend == "cuda" else "hsaco"]).hexdigest()
print(json.dumps({"fp16-two": digest(x, x, out, 4096), "fp16-one": digest(x, None, out, 4096)}))
"""


@pytest.mark.parametrize(
    ("target", "words"), [(SM90, ["cuda", "90", "32"]), (GFX942, ["hip", "gfx942", "64"])]
)
def test_the_bytes_are_those_that_tritons_own_launcher_compiles(
    tmp_path: Path, build_python: Path, target: Target, words: list[str]
) -> None:
    declared = only(
        build(tmp_path, ADD.replace("BLOCK = 128", "BLOCK = 2048"), [target], build_python)[target]
    )
    launched = subprocess.run(
        [str(build_python), "-c", LAUNCHER, str(tmp_path / "project-root"), *words],
        env={
            "PATH": "/usr/bin:/bin",
            "TRITON_DISABLE_LINE_INFO": "1",
            "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        },
        capture_output=True,
        check=True,
    )
    expected = json.loads(launched.stdout)
    assert {name: declared[name].object.sha256 for name in expected} == expected


PROBING = """
[[device]]
targets = ["cuda-sm90"]
name = "NVIDIA H100"
properties = { multi_processor_count = 132 }
[[device]]
targets = ["cuda-sm100"]
properties = { multi_processor_count = 80 }
[project]
preload = ["torch"]
[[kernel]]
name = "fill"
module = "project.probing"
attribute = "fill"
import = "shimmed"
[kernel.arguments]
x = "*fp32"
n = "i32"
"""


def test_import_time_probes_are_answered_for_each_target_and_written_down(
    tmp_path: Path, build_python: Path
) -> None:
    result = build(tmp_path, PROBING, [SM90, SM100], build_python)
    sources = {target: compiled.manifest.kernels[0].source_digest for target, compiled in result.items()}
    assert sources[SM90] != sources[SM100]
    assert result[SM90].device_queries == ("torch.cuda.get_device_properties", "torch.cuda.is_available")
    again = build(tmp_path, PROBING, [SM90], build_python)[SM90]
    assert again.device_queries == result[SM90].device_queries
    plain = refused(tmp_path / "plain", PROBING.replace('import = "shimmed"', ""), SM90, build_python)
    assert plain.reason == "kernel-import"
    assert "no device" in plain.what


def test_source_digests_are_the_manifests(tmp_path: Path, build_python: Path) -> None:
    declaration = ADD + WRAPPED.format(attribute="evens", n=128)
    compiled = build(tmp_path, declaration, [GFX942], build_python)[GFX942]
    root = tmp_path / "project-root"
    cache = tmp_path / "sources"
    for _ in range(2):
        found = source_digests([root / "kernels.toml"], root, python=build_python, cache=cache)
        assert found == {kernel.name: kernel.source_digest for kernel in compiled.manifest.kernels}
    assert len(list((cache / "kernels" / "results").iterdir())) == 1


def test_sources_of_an_installed_package_are_described_where_they_are(
    tmp_path: Path, build_python: Path
) -> None:
    path = write_project(tmp_path / "repository", ADD)
    write_project(tmp_path / "site-packages", ADD).unlink()
    expected = source_digests([path], path.parent, python=build_python)
    assert source_digests([path], tmp_path / "site-packages", python=build_python) == expected
    (tmp_path / "site-packages" / "project" / "consts.py").write_text("SCALE = 4\n")
    changed = source_digests([path], tmp_path / "site-packages", python=build_python)
    assert changed.keys() == expected.keys()
    assert changed != expected


FRAGILE = """
[[kernel]]
name = "fragile"
module = "project.aborting"
attribute = "fragile"
generic = false
[kernel.arguments]
x = "*fp32 unaligned large"
[kernel.constants]
BLOCK = "{b}"
[kernel.matrix]
b = [32, 64, 128]
"""


def test_a_compiler_that_aborts_refuses_one_variant(tmp_path: Path, build_python: Path) -> None:
    error = refused(tmp_path, FRAGILE + ADD, SM90, build_python)
    assert error.reason == "kernel-abort"
    assert error.what.count("\n  - ") == 1
    assert "fragile, variant 64, for cuda-sm90" in error.what
    assert "SIGABRT" in error.what
    assert "LLVM ERROR: cannot select 64" in error.what


def test_an_optional_variant_may_be_absent_and_is_named(tmp_path: Path, build_python: Path) -> None:
    declaration = FRAGILE + '[[kernel.override]]\nwhere = { b = "64" }\noptional = true\n'
    for run in ("compiled", "stored"):
        result = build(tmp_path, declaration, [SM90], build_python)[SM90]
        assert tuple(only(result)) == ("32", "128"), run
        ((absent,),) = (result.refused,)
        assert (absent.kernel, absent.variant, absent.reason, absent.optional) == (
            "fragile",
            "64",
            "kernel-abort",
            True,
        )


@pytest.mark.parametrize(
    ("declaration", "target", "reason", "said"),
    [
        (
            ADD.replace("BLOCK = 128", "BLOK = 128"),
            SM90,
            "kernel-argument",
            "BLOK is no parameter of add(x, y, out, n, BLOCK)",
        ),
        (ADD.replace("n = 4096\n", ""), SM90, "kernel-argument", "argument n is not declared"),
        (ADD.replace("BLOCK = 128", ""), SM90, "kernel-argument", "constant BLOCK has no value"),
        (
            ADD.replace("n = 4096", "n = 4096\nBLOCK = 128").replace("[kernel.constants]\nBLOCK = 128", ""),
            SM90,
            "kernel-argument",
            "declare it under constants",
        ),
        (ADD + "[kernel.options]\nwaves_per_eu = 2\n", SM90, "kernel-option", "waves_per_eu"),
        (ADD + "[kernel.options]\nnum_warps = 3\n", SM90, "kernel-option", "power of 2"),
        (ADD.replace("BLOCK = 128", "BLOCK = 100"), SM90, "kernel-compile", "power of 2"),
        (
            ADD + "[kernel.options]\nnum_warps = 32\n",
            GFX942,
            "kernel-threads",
            "2,048 threads a block; gfx942 has 1,024",
        ),
        (ADD.replace("project.add", "project.broken"), SM90, "kernel-import", "needs a card"),
        (ADD.replace('"add"\nvariant', '"added"\nvariant'), SM90, "kernel-import", "added"),
        (ADD.replace('"add"\nvariant', '"triton"\nvariant'), SM90, "kernel-import", "no Triton kernel"),
        (
            WRAPPED.format(attribute="evens", n=100) + "EVEN = true\n",
            SM90,
            "kernel-heuristic",
            "its heuristic gives False",
        ),
        (
            WRAPPED.format(attribute="evens", n=100).replace("{ value = 100, assume = false }", '"i32"'),
            SM90,
            "kernel-heuristic",
            "no example value for n",
        ),
        (
            WRAPPED.format(attribute="tuned", n=100) + "BLOCK = 64\n",
            SM90,
            "kernel-config",
            "BLOCK: 128, num_warps: 4",
        ),
        (WRAPPED.format(attribute="tuned", n=100), SM90, "kernel-config", "3 configs agree"),
        (WRAPPED.format(attribute="hooked", n=100) + "EVEN = false\n", SM90, "kernel-pre-hook", "pre_hook"),
        (
            '[[kernel]]\nname = "reads"\nmodule = "project.opaque"\nattribute = "reads"\n[kernel.arguments]\nx = "*fp32"\n',
            SM90,
            "kernel-global",
            "project.opaque.Box",
        ),
        (
            HEAVY.format(n=256, k=128),
            GFX90A,
            "kernel-shared",
            "it needs 98,304 bytes of LDS a block; gfx90a has 65,536",
        ),
    ],
)
def test_refusals(
    tmp_path: Path, build_python: Path, *, declaration: str, target: Target, reason: str, said: str
) -> None:
    error = refused(tmp_path, declaration, target, build_python)
    assert error.reason == reason, error.what
    assert said in error.what
    assert str(target) in error.what
