"""Coverage: every declared kernel and variant is in the wheel, for exactly this arch, and nothing else is.

A wheel that has code for a card can still lack one kernel for it, so kernels, variants and arch are compared one by
one, and both ways, by the real bytes: what was declared with the kernel manifest, the kernel manifest with the
code objects, the code objects with the target's arch and limits. A wheel for a CPU must hold no code object.

Reasons, besides those of ``binaries.kernelobjects``: ``native-missing``, ``kernel-manifest-missing``,
``other-target``, ``nothing-declared``, ``kernel-missing``, ``kernel-undeclared``, ``variant-missing``,
``variant-undeclared``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from wheelmark.binaries.elf import EM_AMDGPU, EM_CUDA, is_elf, read_elf
from wheelmark.binaries.kernelmanifest import NAME as MANIFEST
from wheelmark.binaries.kernelmanifest import KernelManifest, read_kernel_manifest
from wheelmark.binaries.kernelobjects import Problem, check_limits, check_objects
from wheelmark.binaries.wheel import Wheel
from wheelmark.errors import InputError
from wheelmark.evidence import Evidence
from wheelmark.gates.context import Context
from wheelmark.gates.inspection import code_folder, judged, open_wheel, refused

NAME = "coverage"
_SUFFIXES = (".cubin", ".hsaco", ".fatbin", ".ptx")


def run(context: Context) -> Evidence:
    """Compare what was declared with what the wheel's bytes hold."""
    try:
        wheel = open_wheel(context)
        problems = list(_native(context, wheel))
        if context.row.target.is_gpu:
            found, summary, details = _gpu(context, wheel)
        else:
            found, summary, details = _cpu(wheel)
    except InputError as error:
        return refused(context, NAME, error)
    return judged(context, NAME, [*problems, *found], summary=summary, details=details)


def _native(context: Context, wheel: Wheel) -> Iterator[Problem]:
    library = context.declaration.native.library.as_posix()
    if library not in wheel.files:
        yield Problem(reason="native-missing", text=f"the native library {library} is not in the wheel")
    elif not is_elf(wheel.read(library)):
        yield Problem(reason="native-missing", text=f"{library} is not a shared object")


def _cpu(wheel: Wheel) -> tuple[list[Problem], str, dict[str, Any]]:
    problems = [
        Problem(reason="object-unlisted", text=f"{path}: a code object in a wheel for a CPU")
        for path in _code_objects(wheel)
    ]
    return problems, "native library is there; no code objects, as for any CPU", {"kernels": {}}


def _gpu(context: Context, wheel: Wheel) -> tuple[list[Problem], str, dict[str, Any]]:
    folder = code_folder(context)
    path = str(folder / MANIFEST)
    inside = {PurePosixPath(name).name: name for name in wheel.files if PurePosixPath(name).parent == folder}
    problems = [
        Problem(reason="object-unlisted", text=f"{name}: a code object outside {folder}")
        for name in _code_objects(wheel)
        if PurePosixPath(name).parent != folder
    ]
    if path not in wheel.files:
        problems.append(Problem(reason="kernel-manifest-missing", text=f"{path} is not in the wheel"))
        return problems, "", {}
    manifest = read_kernel_manifest(wheel.read(path))
    if manifest.target != context.row.target:
        text = f"the kernel manifest is of {manifest.target}, the wheel for {context.row.target}"
        problems.append(Problem(reason="other-target", text=text))
    problems += compare_declared(context.declared_variants, manifest)
    problems += check_objects(
        manifest, {name: wheel.read(full) for name, full in inside.items() if name != MANIFEST}
    )
    problems += check_limits(manifest)
    count = sum(len(kernel.variants) for kernel in manifest.kernels)
    summary = (
        f"{len(manifest.kernels)} kernels, {count} variants for {manifest.target.arch}: declared, there,"
        " and within limits"
    )
    return problems, summary, _details(manifest)


def compare_declared(declared: Mapping[str, tuple[str, ...]], manifest: KernelManifest) -> Iterator[Problem]:
    """Compare the declaration with the kernel manifest, both ways.

    Args:
        declared: Kernel -> names of its variants for this target.
        manifest: What the wheel says it holds.
    """
    if not any(declared.values()):
        yield Problem(reason="nothing-declared", text="no kernel variant is declared for this target")
    held = {kernel.name: {variant.name for variant in kernel.variants} for kernel in manifest.kernels}
    for kernel in sorted(declared.keys() - held.keys()):
        yield Problem(reason="kernel-missing", text=f"kernel {kernel} is declared, and not in the wheel")
    for kernel in sorted(held.keys() - declared.keys()):
        yield Problem(reason="kernel-undeclared", text=f"kernel {kernel} is in the wheel, and not declared")
    for kernel in sorted(held.keys() & declared.keys()):
        wanted = set(declared[kernel])
        for variant in sorted(wanted - held[kernel]):
            text = f"{kernel}, variant {variant}: declared, and not in the wheel"
            yield Problem(reason="variant-missing", text=text)
        for variant in sorted(held[kernel] - wanted):
            text = f"{kernel}, variant {variant}: in the wheel, and not declared"
            yield Problem(reason="variant-undeclared", text=text)


def _code_objects(wheel: Wheel) -> Iterator[str]:
    """Files that a GPU driver would load, whatever they are called."""
    for path in wheel.files:
        data = wheel.read(path)
        if path.endswith(_SUFFIXES) or (is_elf(data) and read_elf(data).machine in {EM_CUDA, EM_AMDGPU}):
            yield path


def _details(manifest: KernelManifest) -> dict[str, Any]:
    limits = manifest.target.limits
    variants = [variant for _, variant in manifest.variants()]
    return {
        "kernels": {
            kernel.name: [variant.name for variant in kernel.variants] for kernel in manifest.kernels
        },
        "arch": sorted({variant.arch + variant.arch_suffix for variant in variants}),
        "toolkits": sorted({variant.toolkit for variant in variants if variant.toolkit}),
        "min_driver": sorted(
            {
                f"{variant.min_driver}: {variant.min_driver_basis}"
                for variant in variants
                if variant.min_driver
            }
        ),
        "most": {
            "registers": max(variant.registers for variant in variants),
            "shared_memory": max(variant.shared + variant.static_shared for variant in variants),
            "threads": max(variant.num_warps * variant.warp_size for variant in variants),
            "spills": max(variant.spill_stores + variant.spill_loads for variant in variants),
        },
        "limits": {
            "registers": limits.registers,
            "shared_memory": limits.shared_memory,
            "threads": limits.threads,
        }
        if limits
        else {},
    }
