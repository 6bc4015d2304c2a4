from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import wheelmaking as make
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates import coverage

OBJECT = {
    arch: f"{make.FOLDER}/{make.variant(arch).object.file}" for arch in ("sm80", "sm90", "sm100", "gfx942")
}
MANIFEST = f"{make.FOLDER}/manifest.json"


def run(folder: Path, files: dict[str, bytes], target: str = "cuda-sm80", **fields: object) -> Evidence:
    return coverage.run(make.context(folder, files, target=target, **fields))  # type: ignore[arg-type]


def found(evidence: Evidence) -> list[str]:
    return [problem["reason"] for problem in evidence.details["problems"]]


@pytest.mark.parametrize(
    ("arch", "target"),
    [("sm80", "cuda-sm80"), ("sm90", "cuda-sm90"), ("sm100", "cuda-sm100"), ("gfx942", "rocm-gfx942")],
)
def test_everything_is_there(tmp_path: Path, arch: str, target: str) -> None:
    evidence = run(tmp_path, make.gpu_files(arch), target)
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)
    assert evidence.details["kernels"] == {"scale": ["fp16"]}
    assert evidence.details["most"]["threads"] == (256 if arch == "gfx942" else 128)


def test_a_dropped_code_object(tmp_path: Path) -> None:
    files = make.gpu_files("sm80")
    del files[OBJECT["sm80"]]
    evidence = run(tmp_path, files)
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "object-missing")


def test_a_zero_length_object(tmp_path: Path) -> None:
    assert run(tmp_path, {**make.gpu_files("sm80"), OBJECT["sm80"]: b""}).reason == "object-empty"


def test_an_object_of_another_arch(tmp_path: Path) -> None:
    data = make.code_object("sm90")
    lying = make.manifest("sm80", [make.variant("sm80", data=data)]).as_bytes()
    files = {**make.gpu_files("sm80"), MANIFEST: lying, OBJECT["sm80"]: data}
    assert run(tmp_path, files).reason == "object-arch"


def test_a_changed_byte_of_machine_code(tmp_path: Path) -> None:
    data = make.code_object("sm80")
    files = {**make.gpu_files("sm80"), OBJECT["sm80"]: make.patched(data, 2000, bytes([data[2000] ^ 1]))}
    assert run(tmp_path, files).reason == "object-digest"


@pytest.mark.parametrize(
    "path", [f"{make.FOLDER}/more.cubin", f"{make.FOLDER}/deep/more.cubin", "demo_kernels/x.bin"]
)
def test_an_object_that_nothing_lists(tmp_path: Path, path: str) -> None:
    assert (
        run(tmp_path, {**make.gpu_files("sm80"), path: make.code_object("sm80")}).reason == "object-unlisted"
    )


def test_another_file_among_the_objects(tmp_path: Path) -> None:
    files = {**make.gpu_files("sm80"), f"{make.FOLDER}/notes.txt": b"x"}
    assert run(tmp_path, files).reason == "object-unlisted"


def test_no_manifest(tmp_path: Path) -> None:
    files = make.gpu_files("sm80")
    del files[MANIFEST]
    assert run(tmp_path, files).reason == "kernel-manifest-missing"


def test_a_malformed_manifest(tmp_path: Path) -> None:
    assert run(tmp_path, {**make.gpu_files("sm80"), MANIFEST: b"{}"}).reason == "kernel-manifest"


def test_the_manifest_of_another_target(tmp_path: Path) -> None:
    evidence = run(tmp_path, make.gpu_files("sm90"), "cuda-sm80")
    assert evidence.reason == "other-target"


def test_no_native_library(tmp_path: Path) -> None:
    files = make.gpu_files("sm80")
    del files[make.LIBRARY]
    assert run(tmp_path, files).reason == "native-missing"
    assert run(tmp_path, {**files, make.LIBRARY: b"text"}).reason == "native-missing"


@pytest.mark.parametrize(
    ("declared", "reasons"),
    [
        ({"scale": ("fp16", "fp32")}, ["variant-missing"]),
        ({"scale": ("fp32",)}, ["variant-missing", "variant-undeclared"]),
        ({"scale": ("fp16",), "other": ("fp16",)}, ["kernel-missing"]),
        ({"other": ("fp16",)}, ["kernel-missing", "kernel-undeclared"]),
        ({}, ["nothing-declared", "kernel-undeclared"]),
        ({"scale": ()}, ["nothing-declared", "variant-undeclared"]),
    ],
)
def test_declaration_and_manifest_both_ways(
    tmp_path: Path, declared: dict[str, tuple[str, ...]], reasons: list[str]
) -> None:
    evidence = run(tmp_path, make.gpu_files("sm80"), declared=declared)
    assert evidence.verdict is Verdict.FAILED
    assert found(evidence) == reasons


def test_shared_memory_that_the_arch_has_not(tmp_path: Path) -> None:
    big = dataclasses.replace(make.variant("gfx942"), shared=81_920)
    files = {**make.gpu_files("gfx942"), MANIFEST: make.manifest("gfx942", [big]).as_bytes()}
    evidence = run(tmp_path, files, "rocm-gfx942")
    assert evidence.reason == "over-limit"
    assert "65,536" in evidence.summary


def test_a_wheel_for_a_cpu(tmp_path: Path) -> None:
    files = {make.LIBRARY: make.golden("native.so")}
    assert run(tmp_path, files, "cpu-x86_64").verdict is Verdict.PASSED
    assert run(tmp_path, {}, "cpu-x86_64").reason == "native-missing"
    for path in ("demo_kernels/x.cubin", "demo_kernels/data.bin"):
        evidence = run(tmp_path, {**files, path: make.code_object("sm80")}, "cpu-x86_64")
        assert evidence.reason == "object-unlisted"


def test_another_wheel_than_the_evidence_is_about(tmp_path: Path) -> None:
    context = dataclasses.replace(make.context(tmp_path, make.gpu_files("sm80")), sha256="0" * 64)
    assert coverage.run(context).reason == "other-bytes"
