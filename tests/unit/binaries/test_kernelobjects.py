from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import wheelmaking as make
from wheelmark.binaries.kernelmanifest import Parameter, ParameterKind
from wheelmark.binaries.kernelobjects import check_limits, check_objects

ARCHS = ["sm80", "sm90", "sm100", "gfx942"]


def reasons(sample: str, objects: dict[str, bytes], /, **changes: Any) -> list[str]:
    """Reasons for the sample of an arch, with fields of its manifest entry changed."""
    variant = dataclasses.replace(make.variant(sample), **changes)
    return [problem.reason for problem in check_objects(make.manifest(sample, [variant]), objects)]


def objects(arch: str, data: bytes | None = None) -> dict[str, bytes]:
    return {make.variant(arch).object.file: make.code_object(arch) if data is None else data}


@pytest.mark.parametrize("arch", ARCHS)
def test_a_true_manifest_has_no_problem(arch: str) -> None:
    assert check_objects(make.manifest(arch), objects(arch)) == ()


def test_both_ways() -> None:
    assert reasons("sm80", {}) == ["object-missing"]
    assert reasons("sm80", {**objects("sm80"), "x.cubin": b""}) == ["object-unlisted"]


def test_zero_length() -> None:
    assert reasons("sm80", objects("sm80", b"")) == ["object-empty"]


def test_a_changed_byte_in_code_is_seen_by_the_digest() -> None:
    data = make.code_object("sm80")
    at = data.index(b".text.scale") + 2000
    assert reasons("sm80", objects("sm80", make.patched(data, at, b"\xaa"))) == ["object-digest"]


def test_cut_and_malformed() -> None:
    cut = make.code_object("sm80")[:100]
    assert reasons("sm80", objects("sm80", cut)) == ["object-size", "object-digest", "object-malformed"]


@pytest.mark.parametrize(("arch", "other"), [("sm80", "sm90"), ("sm90", "sm80"), ("sm100", "sm90")])
def test_another_arch_under_a_right_digest(arch: str, other: str) -> None:
    data = make.code_object(other)
    said = make.variant(arch, data=data).object
    assert reasons(arch, objects(arch, data), object=said) == ["object-arch"]


def test_another_vendor_under_a_right_digest() -> None:
    data = make.code_object("gfx942")
    said = make.variant("sm80", data=data).object
    assert reasons("sm80", objects("sm80", data), object=said) == ["object-arch"]


def test_a_manifest_that_says_another_arch_or_suffix() -> None:
    assert reasons("sm90", objects("sm90"), arch_suffix="") == ["object-arch"]
    assert reasons("sm90", objects("sm90"), arch="sm100") == ["object-arch"]


def test_entry() -> None:
    assert reasons("gfx942", objects("gfx942"), entry="scales") == ["object-entry"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "field", ["registers", "spill_stores", "spill_loads", "static_shared", "code_size", "warp_size"]
)
def test_facts(arch: str, field: str) -> None:
    changed = reasons(arch, objects(arch), **{field: getattr(make.variant(arch), field) + 1})
    assert set(changed) == {"object-facts"}


def test_threads() -> None:
    assert reasons("sm80", objects("sm80"), num_warps=8) == ["object-facts", "object-facts"]
    assert reasons("sm80", objects("sm80"), num_warps=2) == ["object-facts"]
    assert reasons("gfx942", objects("gfx942"), num_warps=8) == ["object-facts"]
    assert reasons("gfx942", objects("gfx942"), num_warps=2) == []


def test_parameters() -> None:
    parameters = make.variant("sm80").parameters
    wide = Parameter(name="n", kind=ParameterKind.SCALAR, dtype="i64")
    strange = Parameter(name="n", kind=ParameterKind.SCALAR, dtype="complex")
    for changed in (parameters[:-1], (*parameters[:2], wide, parameters[3]), (*parameters[:3], strange)):
        assert reasons("sm80", objects("sm80"), parameters=changed) == ["object-facts"]
    assert reasons("gfx942", objects("gfx942"), scratch_pointers=1) == ["object-facts"]


def test_toolkit_and_driver() -> None:
    assert reasons("sm80", objects("sm80"), toolkit="12.9") == ["object-toolkit"]
    assert reasons("sm80", objects("sm80"), min_driver="525.60.13") == ["object-toolkit"]
    assert reasons("sm80", objects("sm80"), ptx_version="9.1") == ["object-toolkit"]
    assert reasons("sm80", objects("sm80"), ptx_version="77.7") == ["object-toolkit"]
    assert reasons("gfx942", objects("gfx942"), toolkit="12.8") == ["object-toolkit"]
    assert reasons("gfx942", objects("gfx942"), min_driver="570.26") == ["object-toolkit"]


def test_limits() -> None:
    def found(arch: str, **changes: Any) -> list[str]:
        variant = dataclasses.replace(make.variant(arch), **changes)
        return [problem.reason for problem in check_limits(make.manifest(arch, [variant]))]

    assert found("sm80") == []
    assert found("sm80", shared=166_912) == []
    assert found("sm80", shared=166_913) == ["over-limit"]
    assert found("sm80", shared=166_912, static_shared=1) == ["over-limit"]
    assert found("gfx942", shared=81_920) == ["over-limit"]
    assert found("sm80", registers=256) == ["over-limit"]
    assert found("gfx942", num_warps=17) == ["over-limit"]
    assert found("gfx942", num_warps=32) == ["over-limit"]
