from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

import wheelmaking as make
from wheelmark import digests
from wheelmark.binaries.kernelmanifest import Kernel, KernelManifest, read_kernel_manifest
from wheelmark.errors import InputError
from wheelmark.targets import Target

Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]


def reason(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_kernel_manifest(data)
    return caught.value.reason


@pytest.mark.parametrize("arch", ["sm80", "sm90", "sm100", "gfx942"])
def test_what_is_written_is_read_back(arch: str) -> None:
    manifest = make.manifest(arch)
    assert read_kernel_manifest(manifest.as_bytes()) == manifest
    assert read_kernel_manifest(manifest.as_bytes()).as_bytes() == manifest.as_bytes()


def test_every_variant_with_its_kernel() -> None:
    manifest = make.manifest("sm80")
    assert [(kernel.name, variant.name) for kernel, variant in manifest.variants()] == [("scale", "fp16")]


CHANGES: list[Change] = [
    lambda m, _k, _v: m.update(schema="https://wheelmark.dev/kernel-manifest/v2"),
    lambda m, _k, _v: m.update(more=1),
    lambda m, _k, _v: m.pop("toolchain"),
    lambda m, _k, _v: m.update(target="cuda-sm70"),
    lambda m, _k, _v: m.update(target="cpu-x86_64"),
    lambda m, _k, _v: m.update(target="rocm-gfx942"),
    lambda m, _k, _v: m.update(kernels={}),
    lambda m, _k, _v: m["toolchain"].update(digest="0" * 63),
    lambda m, _k, _v: m["toolchain"].update(triton=""),
    lambda m, k, _v: m["kernels"].append(k),
    lambda _m, k, _v: k.update(variants=[]),
    lambda _m, k, _v: k.update(name="../x"),
    lambda _m, k, _v: k.update(source_digest="G" * 64),
    lambda _m, k, v: k["variants"].append(v),
    lambda _m, k, v: k["variants"].append({**v, "name": "other"}),
    lambda _m, _k, v: v.pop("entry"),
    lambda _m, _k, v: v.update(unknown=1),
    lambda _m, _k, v: v.update(entry="a b"),
    lambda _m, _k, v: v.update(registers=-1),
    lambda _m, _k, v: v.update(registers=True),
    lambda _m, _k, v: v.update(registers=1.5),
    lambda _m, _k, v: v.update(num_warps=0),
    lambda _m, _k, v: v.update(arch_suffix="x"),
    lambda _m, _k, v: v.update(arch_suffix=[]),
    lambda _m, _k, v: v.update(ptx_version="8"),
    lambda _m, _k, v: v.update(min_driver="new"),
    lambda _m, _k, v: v.update(constants=[]),
    lambda _m, _k, v: v.update(constants={"A": [1]}),
    lambda _m, _k, v: v.update(options=[]),
    lambda _m, _k, v: v["object"].update(file="../x.cubin"),
    lambda _m, _k, v: v["object"].update(file="a/b.cubin"),
    lambda _m, _k, v: v["object"].update(file="x.hsaco"),
    lambda _m, _k, v: v["object"].update(size=0),
    lambda _m, _k, v: v["object"].update(sha256=""),
    lambda _m, _k, v: v["parameters"].append({"name": "a", "kind": "array", "dtype": "i32"}),
    lambda _m, _k, v: v["parameters"].append({"name": "a", "kind": [], "dtype": "i32"}),
    lambda _m, _k, v: v["parameters"].append({"name": "", "kind": "scalar", "dtype": "i32"}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "large"}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": {}}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "none", "value": 1}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "dtype"}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "dtype", "value": 1}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "divisible_by", "value": 0}),
    lambda _m, _k, v: v["assumes"].append({"argument": "a", "is": "equal", "value": []}),
    lambda _m, _k, v: v["assumes"].append("x"),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_is_malformed_is_refused(number: int) -> None:
    value = json.loads(make.manifest("sm80").as_bytes())
    kernel = value["kernels"][0]
    CHANGES[number](value, kernel, kernel["variants"][0])
    assert reason(digests.canonical_json(value)) == "kernel-manifest"


def test_other_spellings_of_the_same_manifest_are_refused() -> None:
    data = make.manifest("sm80").as_bytes()
    assert reason(json.dumps(json.loads(data)).encode()) == "kernel-manifest"
    assert reason(data + b"\n") == "kernel-manifest"
    assert reason(data.replace(b'{"assembler"', b'{"assembler":"","assembler"')) == "json-duplicate-key"


def test_numbers_that_json_cannot_carry_are_refused() -> None:
    value = json.loads(make.manifest("sm80").as_bytes())
    value["kernels"][0]["variants"][0]["registers"] = 1 << 53
    assert reason(json.dumps(value).encode()) == "kernel-manifest"
    value["kernels"][0]["variants"][0]["registers"] = 1
    value["kernels"][0]["variants"][0]["options"] = {"a": 1 << 60}
    assert reason(json.dumps(value).encode()) == "json-value"


def test_names_that_utf_8_cannot_carry_are_refused() -> None:
    data = make.manifest("sm80").as_bytes()
    assert reason(data.replace(b'{"BLOCK":256}', b'{"\\ud800":256}')) == "json-syntax"


def test_a_manifest_is_checked_when_it_is_made() -> None:
    manifest = make.manifest("sm80")
    twice = Kernel(name="other", source_digest="1" * 64, variants=manifest.kernels[0].variants)
    with pytest.raises(InputError, match="object file"):
        dataclasses.replace(manifest, kernels=(*manifest.kernels, twice))
    with pytest.raises(InputError, match="no code objects"):
        KernelManifest(target=Target.parse("cpu-x86_64"), toolchain=manifest.toolchain, kernels=())
