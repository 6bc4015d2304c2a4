"""Wheels that a second build does not give again, byte for byte, and second builds that say nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmaking
from checkouts import Checkout, evidence_of
from rewheeling import context_of, rewheeled
from wheelmark.errors import CommandError
from wheelmark.evidence import Level, Verdict
from wheelmark.gates import repeat
from wheelmark.gates.context import Context, SecondWheel
from wheelmark.gates.repeat import SecondBuild, differences
from wheelmark.pipeline.gating import judge_gate

Faulty = Callable[..., Checkout]
LIBRARY = "wheelmark_kernels/_native.so"

PLANTED = """
#if __has_include("../../pyproject.toml")
#define WHEELMARK_MADE_IN "a checkout"
#else
#define WHEELMARK_MADE_IN "another place"
#endif
extern "C" __attribute__((visibility("default"))) const char* wheelmark_kernels_made() { return WHEELMARK_MADE_IN; }
"""


def test_a_library_that_depends_on_what_lies_around_its_sources(faulty: Faulty) -> None:
    checkout = faulty("abi", "coverage", "size", "repeat", targets=("cpu-x86_64",))
    source = checkout.root / "kernels/csrc/sha256.cpp"
    source.write_text(source.read_text(encoding="utf-8") + PLANTED, encoding="utf-8")
    checkout.commit("planted")
    checkout.made("build")
    ran = checkout.run("test")
    assert ran.code == 10
    evidence = evidence_of(ran, "cpu-x86_64")
    assert {gate: item["verdict"] for gate, item in evidence.items()} == {
        "abi": "PASSED",
        "coverage": "PASSED",
        "size": "PASSED",
        "repeat": "FAILED",
    }
    found = evidence["repeat"]
    assert (found["reason"], found["level"]) == ("not-reproducible", "static")
    assert any(line.startswith(f"{LIBRARY}: section .") for line in found["details"]["differences"])
    assert f"{LIBRARY}: section ." in found["summary"]


@pytest.fixture
def context(release: Checkout) -> Context:
    return context_of(release, "cuda-sm90")


def second(context: Context, path: Path, toolchain: str = "") -> Context:
    made = SecondWheel(path=path, toolchain=toolchain or context.toolchain)
    return dataclasses.replace(context, second=lambda: made)


def test_the_same_bytes_pass(context: Context) -> None:
    evidence = repeat.run(second(context, context.wheel))
    assert (evidence.verdict, evidence.level) == (Verdict.PASSED, Level.STATIC)


def test_another_toolchain_says_nothing(context: Context) -> None:
    """Not even where the bytes are the same."""
    evidence = repeat.run(second(context, context.wheel, "0" * 64))
    assert (evidence.verdict, evidence.level, evidence.reason) == (
        Verdict.UNCHECKED,
        Level.NONE,
        "other-toolchain",
    )


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("member", "change", "words"),
    [
        (LIBRARY, flip(4), f"{LIBRARY}: ELF headers, byte 4 of"),
        (LIBRARY, flip(-200_000), f"{LIBRARY}: section ."),
        ("code_objects/manifest.json", lambda data: data + b"\n", "code_objects/manifest.json: "),
        ("wheelmark_kernels/tbe.py", lambda data: data[:-1], "bytes, from byte"),
    ],
)
def test_where_two_wheels_differ_is_named(
    context: Context, tmp_path: Path, member: str, change: Callable[[bytes], bytes], words: str
) -> None:
    plain = rewheeled(context.wheel, tmp_path / "plain", {"dist-info/WHEEL": lambda data: data + b"\n"})
    changed = rewheeled(plain, tmp_path / "changed", {member: change})
    found = differences(plain.read_bytes(), changed.read_bytes())
    assert any(words in line for line in found), found
    assert any(line.startswith("wheelmark_kernels-0.1.0+sm90.dist-info/RECORD: ") for line in found)


def test_members_on_one_side_and_the_container(tmp_path: Path) -> None:
    one = wheelmaking.zip_bytes(
        [wheelmaking.Entry(name="a", data=b"1"), wheelmaking.Entry(name="b", data=b"2")]
    )
    two = wheelmaking.zip_bytes(
        [wheelmaking.Entry(name="a", data=b"1"), wheelmaking.Entry(name="c", data=b"2")]
    )
    assert differences(one, two) == ("b: only in the first build", "c: only in the second build")
    turned = wheelmaking.zip_bytes(
        [wheelmaking.Entry(name="b", data=b"2"), wheelmaking.Entry(name="a", data=b"1")]
    )
    assert differences(one, turned) == ("the zip container itself (order, times, modes or compression)",)
    assert differences(one, one) == ()


def test_a_second_build_that_fails_is_a_failure(release: Checkout, context: Context, tmp_path: Path) -> None:
    build = SecondBuild(
        declaration=context.declaration,
        targets=["cpu-x86_64", "cuda-sm999"],
        work=tmp_path / "second",
        environments=release.environments,
    )
    with pytest.raises(CommandError):
        build.wheel("cpu-x86_64")
    evidence = judge_gate(repeat, dataclasses.replace(context, second=lambda: build.wheel("cpu-x86_64")))
    assert (evidence.verdict, evidence.reason) == (Verdict.FAILED, "command")
    assert "cuda-sm999" in evidence.details["error"]
