from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelmark.errors import ConfigError
from wheelmark.targets import GPU_LIMITS, Backend, Target, known_ids


@pytest.mark.parametrize("text", known_ids())
def test_ids_parse_and_print_symmetrically(text: str) -> None:
    target = Target.parse(text)
    assert str(target) == text
    assert Target.parse(str(target)) == target
    assert f"{target.backend.value}-{target.arch}" == text
    assert target.is_gpu == (target.backend is not Backend.CPU) == (target.limits is not None)


def test_every_backend_times_every_arch_is_a_target_or_refused() -> None:
    archs = {text.partition("-")[2] for text in known_ids()}
    for backend in Backend:
        for arch in archs:
            text = f"{backend.value}-{arch}"
            if text in known_ids():
                assert str(Target.parse(text)) == text
            else:
                with pytest.raises(ConfigError):
                    Target.parse(text)


@given(st.text(max_size=20))
def test_anything_else_is_refused_by_name(text: str) -> None:
    if text in known_ids():
        return
    with pytest.raises(ConfigError) as caught:
        Target.parse(text)
    assert caught.value.reason == "unknown-target"


@pytest.mark.parametrize(
    "text",
    ["cpu-x86.64", "CPU-x86_64", "cuda-sm_90", "cuda-sm90 ", " cuda-sm90", "cuda-sm90a", "sm90", "-", ""],
)
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Target.parse(text)


def test_limits_are_the_published_ones() -> None:
    assert GPU_LIMITS["sm90"].shared_memory == 232_448
    assert GPU_LIMITS["gfx942"].shared_memory == 65_536
    assert {limits.warp for name, limits in GPU_LIMITS.items() if name.startswith("gfx")} == {64}
