"""Run again: what is finished is not done again, what changed is, and what was changed by hand is noticed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from checkouts import Checkout, bytes_of
from watching import watch

KERNEL = '''"""A second kernel."""

import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)
'''
DECLARED = """
[[kernel]]
name = "scale"
module = "scale"
attribute = "scale"
variant = "fp32"

[kernel.arguments]
x = "*fp32"
out = "*fp32"
n = "i32"

[kernel.constants]
BLOCK = 256
"""


@pytest.fixture
def clone(small: Checkout, tmp_path: Path) -> Checkout:
    return small.clone(tmp_path)


@pytest.mark.parametrize("touched", [False, True])
def test_nothing_changed(clone: Checkout, tmp_path: Path, touched: bool) -> None:
    clone.made("build", "test", "sign")
    if touched:
        for path in [*clone.root.rglob("*")]:
            os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    before = bytes_of(clone.dist)
    seen = watch(clone, tmp_path / "watch")
    for stage in ("build", "test", "sign"):
        ran = clone.run(stage, variables=seen.variables(clone))
        assert ran.code == 0, ran.err
        assert isinstance(ran.document, dict)
    assert seen.started, "the compiler is asked for its version at least, or nothing was watched"
    assert seen.compilations == []
    assert seen.placed_in_dist == []
    assert bytes_of(clone.dist) == before
    again = clone.run("build").err
    assert "variants from the cache" in again
    assert "no longer the release" not in again
    assert "bundles are signed already and unchanged" in ran.err


def test_the_commit_is_in_the_provenance_alone(small: Checkout, clone: Checkout) -> None:
    """A new commit of the same sources: nothing is built or tested anew, and nothing but the provenance is signed anew."""
    clone.made("build", "test", "sign")
    ours, theirs = bytes_of(clone.dist), bytes_of(small.dist)
    differing = {name.split("/")[0] for name in ours if ours[name] != theirs[name]}
    assert ours.keys() == theirs.keys()
    assert clone.git("rev-parse", "HEAD") != small.git("rev-parse", "HEAD")
    assert "statements/provenance.json" in {name for name in ours if ours[name] != theirs[name]}
    assert differing <= {"statements", "bundles", "wheels"}
    same = {name for name in ours if ours[name] == theirs[name]}
    assert {name for name in ours if name.endswith((".whl", ".cubin", ".cdx.json", "release.json"))} <= same


def test_one_kernel_edited(clone: Checkout, tmp_path: Path) -> None:
    """Of two kernels only the edited one is compiled again; a comment changes nothing."""
    clone = clone.with_cache(tmp_path, "native", "kernels")
    sources = clone.root / "kernels/wheelmark_kernels/triton_kernels"
    first, second = (f"* {time.time_ns() % 1_000_003 + number}.25" for number in range(2))  # in no cache yet
    (sources / "scale.py").write_text(KERNEL.replace("* 2.0", first), encoding="utf-8")
    declared = clone.root / "kernels/kernels.toml"
    declared.write_text(declared.read_text(encoding="utf-8") + DECLARED, encoding="utf-8")
    clone.commit("a second kernel")
    said = clone.made("build")["build"].err
    assert "cuda-sm90: 2 variants compiled, 24 from the cache" in said
    assert "is no longer the release that was signed there" in said
    assert "next: nox -s test sign" in said
    kernels = bytes_of(clone.dist / "kernels/cuda-sm90")
    clone.edit("kernels/wheelmark_kernels/triton_kernels/scale.py", first, second)
    assert "cuda-sm90: 2 variants compiled, 24 from the cache" in clone.made("build")["build"].err
    after = bytes_of(clone.dist / "kernels/cuda-sm90")
    changed = {name for name in after if after[name] != kernels.get(name)}
    assert changed == {"manifest.json", "scale.fp32.cubin", "scale.fp32-generic.cubin"}
    clone.edit(
        "kernels/wheelmark_kernels/triton_kernels/scale.py",
        '"""A second kernel."""\n',
        '"""A second kernel."""\n\n# Thrice.\n',
    )
    assert "cuda-sm90: 0 variants compiled, 26 from the cache" in clone.made("build")["build"].err
    assert bytes_of(clone.dist / "kernels/cuda-sm90") == after


@pytest.mark.parametrize("pattern", ["wheels/*.whl", "sbom/*.json", "locks/*.txt", "kernels/*/*.cubin"])
def test_a_built_file_changed_by_hand(clone: Checkout, pattern: str) -> None:
    (path, *_rest) = sorted(clone.dist.glob(pattern))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    before = bytes_of(clone.dist)
    for stage in ("test", "sign"):
        ran = clone.run(stage)
        assert (ran.code, ran.reason) == (14, "changed-since-build")
        assert ran.document["fix"] == "nox -s build test sign"
    path.unlink()
    assert clone.run("sign").reason == "changed-since-build"
    assert {name for name in before if not (clone.dist / name).is_file()} == {
        path.relative_to(clone.dist).as_posix()
    }
    clone.made("build", "test", "sign")
    assert clone.verify().code == 0


def test_evidence_changed_by_hand(clone: Checkout) -> None:
    (path,) = clone.dist.glob("evidence/*/performance.json")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"summary":"', '"summary":"fast; '), encoding="utf-8")
    ran = clone.run("sign")
    assert (ran.code, ran.reason) == (14, "changed-since-test")
    clone.made("test", "sign")
    assert path.read_text(encoding="utf-8") == text


def test_sources_changed_after_the_build(clone: Checkout) -> None:
    clone.edit("kernels/wheelmark_kernels/tbe.py", "Pooled table-batched", "Pooled, table-batched")
    ran = clone.run("test")
    assert (ran.code, ran.reason) == (14, "changed-since-build")


def test_what_was_not_done_before(clone: Checkout) -> None:
    shutil.rmtree(clone.dist)
    shutil.rmtree(clone.root / ".dist.state")
    assert (clone.run("test").code, clone.run("test").reason) == (14, "not-built")
    assert (clone.run("sign").code, clone.run("sign").reason) == (14, "not-built")
    clone.made("build")
    ran = clone.run("sign")
    assert (ran.code, ran.reason) == (14, "not-tested")
    (clone.root / ".dist.state/build.json").write_text('{"wheels": [', encoding="utf-8")
    assert clone.run("test").reason == "build-record"


def test_a_bundle_changed_by_hand_is_signed_anew(clone: Checkout) -> None:
    clone.made("build", "test", "sign")
    path = clone.dist / "bundles/provenance.sigstore.json"
    path.write_bytes(path.read_bytes()[:-1])
    extra = clone.dist / "bundles/extra.sigstore.json"
    extra.write_bytes(b"{}")
    clone.made("sign")
    assert not extra.exists()
    extra.write_bytes(b"{}")
    assert "unchanged" in clone.made("sign")["sign"].err
    assert not extra.exists()
    assert clone.verify().code == 0
