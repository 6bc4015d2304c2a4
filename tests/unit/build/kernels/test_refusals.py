"""What a build says of variants that were refused."""

from __future__ import annotations

from wheelmark.build.kernels.compile import _refused
from wheelmark.build.kernels.objects import Refusal
from wheelmark.targets import Target


def refusal(target: str, variant: str, text: str) -> Refusal:
    return Refusal(
        target=Target.parse(target),
        kernel="add",
        variant=variant,
        reason="kernel-compile",
        text=text,
        optional=False,
    )


def test_the_same_words_stand_once_and_every_variant_is_named() -> None:
    error = _refused(
        [
            refusal("cuda-sm90", "a", "no such\nname"),
            refusal("cuda-sm90", "b", "no such\nname"),
            refusal("rocm-gfx942", "a", "no such\nname"),
            refusal("cuda-sm90", "c", "too large"),
        ]
    )
    assert error.reason == "kernel-compile"
    assert error.what.splitlines() == [
        "4 kernel variants were refused:",
        "  - add, variant a, for cuda-sm90: no such",
        "    name [kernel-compile]",
        "    and with the same words 2 more: for cuda-sm90 b; for rocm-gfx942 a",
        "  - add, variant c, for cuda-sm90: too large [kernel-compile]",
    ]
