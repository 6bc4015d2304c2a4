"""A kernel manifest held against the code objects that it lists, both ways, by their real bytes.

The digest sees every changed byte unless the manifest was rewritten with it; the facts catch a wrong object
under a right digest. So both are compared. A problem is a value, not an exception: a reader wants all of them.

==================  ============================================================================
reason              what was found
==================  ============================================================================
object-missing      the manifest lists a file that is not there
object-unlisted     a file that the manifest does not list
object-empty        zero bytes
object-size         another size than the manifest says
object-digest       another digest than the manifest says
object-malformed    not a code object that can be read; the text holds the reader's reason
object-arch         another arch, suffix or format than the manifest or its target says
object-entry        no kernel of that name, or a further kernel that no variant names
object-facts        registers, spills, static shared memory, code size, warps or parameters differ
object-toolkit      another toolkit, or a driver floor that does not follow from it
==================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from wheelmark import digests
from wheelmark.binaries.codeobject import CodeObject, KernelFacts, ObjectKind, read_code_object
from wheelmark.binaries.drivers import NO_FLOOR, driver_floor
from wheelmark.binaries.kernelmanifest import KernelManifest, Parameter, ParameterKind, Variant
from wheelmark.errors import InputError
from wheelmark.targets import Target

_POINTER = 8
_SCALARS: Mapping[str, int] = {
    **dict.fromkeys(("i1", "u1", "i8", "u8"), 1),
    **dict.fromkeys(("i16", "u16", "fp16", "bf16"), 2),
    **dict.fromkeys(("i32", "u32", "fp32"), 4),
    **dict.fromkeys(("i64", "u64", "fp64"), 8),
}
"""Bytes of a scalar argument, as Triton passes it: measured in cubins and hsacos of 3.7.1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong."""

    reason: str
    """Stable code, from the module's table."""
    text: str


def check_objects(manifest: KernelManifest, objects: Mapping[str, bytes]) -> tuple[Problem, ...]:
    """Compare a manifest with the objects that stand beside it.

    Args:
        manifest: What was said.
        objects: File name -> bytes, without the manifest itself.

    Returns:
        Everything that is wrong, in manifest order; empty where all agrees.
    """
    found: list[Problem] = []
    listed: set[str] = set()
    for kernel, variant in manifest.variants():
        file = variant.object.file
        listed.add(file)
        where = f"{kernel.name}, variant {variant.name} ({file})"
        if file not in objects:
            found.append(Problem(reason="object-missing", text=f"{where}: the object is not there"))
            continue
        found += [
            Problem(reason=reason, text=f"{where}: {text}")
            for reason, text in _check(manifest.target, variant, objects[file])
        ]
    found += [
        Problem(reason="object-unlisted", text=f"{file}: the kernel manifest does not list it")
        for file in sorted(set(objects) - listed)
    ]
    return tuple(found)


def check_limits(manifest: KernelManifest) -> tuple[Problem, ...]:
    """Hold every variant against what a block of the target may use (reason ``over-limit``)."""
    limits = manifest.target.limits
    found: list[Problem] = []
    if limits is None:
        return ()
    for kernel, variant in manifest.variants():
        needs = (
            ("bytes of shared memory", variant.shared + variant.static_shared, limits.shared_memory),
            ("registers a thread", variant.registers, limits.registers),
            ("threads a block", variant.num_warps * variant.warp_size, limits.threads),
        )
        found += [
            Problem(
                reason="over-limit",
                text=f"{kernel.name}, variant {variant.name}: {need:,} {what}; {manifest.target.arch} has {limit:,}",
            )
            for what, need, limit in needs
            if need > limit
        ]
    return tuple(found)


def _check(target: Target, variant: Variant, data: bytes) -> Iterator[tuple[str, str]]:
    if not data:
        yield "object-empty", "the object has zero bytes"
        return
    if len(data) != variant.object.size:
        yield "object-size", f"{len(data):,} bytes; the manifest says {variant.object.size:,}"
    if digests.sha256(data) != variant.object.sha256:
        yield "object-digest", "its sha256 is not the manifest's"
    try:
        code = read_code_object(data)
    except InputError as error:
        yield "object-malformed", f"{error.what} [{error.reason}]"
        return
    expected = ObjectKind(target.code_object), target.arch
    said = variant.arch + variant.arch_suffix
    if (code.kind, code.arch) != expected or (variant.arch, variant.arch_suffix) != (code.arch, code.suffix):
        yield (
            "object-arch",
            f"a {code.kind.value} for {code.arch}{code.suffix}; target {target}, manifest {said}",
        )
        return
    facts = code.kernel(variant.entry)
    if facts is None or len(code.kernels) != 1:
        names = ", ".join(kernel.name for kernel in code.kernels)[:200]
        yield "object-entry", f"its kernels are {names}; the manifest says {variant.entry}"
        return
    yield from _check_facts(variant, facts)
    yield from _check_toolkit(variant, code)


def _check_facts(variant: Variant, facts: KernelFacts) -> Iterator[tuple[str, str]]:
    pairs = (
        ("registers", facts.registers, variant.registers),
        ("spill stores", facts.spill_stores, variant.spill_stores),
        ("spill loads", facts.spill_loads, variant.spill_loads),
        ("bytes of static shared memory", facts.static_shared, variant.static_shared),
        ("bytes of code", facts.code_size, variant.code_size),
        ("threads a warp", facts.warp_size, variant.warp_size),
    )
    for what, real, said in pairs:
        if real != said:
            yield "object-facts", f"{real} {what}; the manifest says {said}"
    threads = variant.num_warps * variant.warp_size
    if facts.required_threads and facts.required_threads != threads:
        yield (
            "object-facts",
            f"compiled for {facts.required_threads} threads; the manifest launches {threads}",
        )
    if facts.max_threads and facts.max_threads < threads:
        yield "object-facts", f"at most {facts.max_threads} threads; the manifest launches {threads}"
    said_sizes = [_size(parameter) for parameter in variant.parameters] + [
        _POINTER
    ] * variant.scratch_pointers
    real_sizes = [slot.size for slot in facts.parameters]
    if said_sizes != real_sizes:
        yield "object-facts", f"parameters of {real_sizes} bytes; the manifest says {said_sizes}"


def _size(parameter: Parameter) -> int:
    """Bytes of one argument; -1, which no object has, for a scalar dtype that is not known."""
    return _POINTER if parameter.kind is ParameterKind.POINTER else _SCALARS.get(parameter.dtype, -1)


def _check_toolkit(variant: Variant, code: CodeObject) -> Iterator[tuple[str, str]]:
    if code.toolkit != variant.toolkit:
        yield (
            "object-toolkit",
            f"toolkit {code.toolkit or 'none'}; the manifest says {variant.toolkit or 'none'}",
        )
        return
    try:
        floor = (
            driver_floor(toolkit=code.toolkit, ptx=variant.ptx_version)
            if code.kind is ObjectKind.CUBIN
            else NO_FLOOR
        )
    except InputError as error:
        yield "object-toolkit", error.what
        return
    if floor.driver != variant.min_driver:
        yield (
            "object-toolkit",
            f"driver {floor.driver or 'none'} follows; the manifest says {variant.min_driver!r}",
        )
