"""Which wheel fits which machine; each wheel that does not says why, with the numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from wheelmark.deploy.choose import Choice, Offer, choose, unfit
from wheelmark.deploy.machine import Card, Machine
from wheelmark.errors import ConfigError, Exit, InputError, MachineError
from wheelmark.targets import Backend, Target

TARGETS = ("cpu-x86_64", "cpu-aarch64", "cuda-sm80", "cuda-sm90", "rocm-gfx942")
TORCH = "torch<2.15,>=2.10"


def offer(target: str, **changes: Any) -> Offer:
    arch = "aarch64" if target.endswith("aarch64") else "x86_64"
    cuda = target.startswith("cuda")
    made = Offer(
        target=Target.parse(target),
        path=f"wheels/{target}.whl",
        sha256="0" * 64,
        platforms=(f"manylinux_2_28_{arch}",),
        requires=(TORCH,),
        requires_python=">=3.10",
        min_driver="570.26" if cuda else "",
        toolkit="12.8" if cuda else "",
    )
    return dataclasses.replace(made, **changes)


def machine(*cards: Card, **changes: Any) -> Machine:
    made = Machine(arch="x86_64", glibc="2.36", python="3.11.7", cards=cards, features=("avx2",))
    return dataclasses.replace(made, **changes)


def nvidia(arch: str = "sm90", driver: str = "570.86.15", cuda: str = "12.8") -> Card:
    return Card(backend=Backend.CUDA, arch=arch, name="H200", driver=driver, cuda=cuda)


def amd(arch: str = "gfx942") -> Card:
    return Card(backend=Backend.ROCM, arch=arch)


ALL = tuple(offer(target) for target in TARGETS)


def reasons(choice: Choice) -> dict[str, str]:
    return {item.target: item.reason for item in choice.rejected}


@pytest.mark.parametrize(
    ("there", "target"),
    [
        (machine(), "cpu-x86_64"),
        (machine(arch="aarch64"), "cpu-aarch64"),
        (machine(nvidia()), "cuda-sm90"),
        (machine(nvidia(), nvidia()), "cuda-sm90"),
        (machine(nvidia("sm80")), "cuda-sm80"),
        (machine(amd()), "rocm-gfx942"),
        (machine(nvidia("sm86")), "cpu-x86_64"),
        (machine(nvidia("sm90"), nvidia("sm86")), "cuda-sm90"),
        (machine(nvidia(driver="570.26")), "cuda-sm90"),
        (machine(nvidia(driver="570.25.99")), "cpu-x86_64"),
        (machine(nvidia(driver="", cuda="12.8")), "cuda-sm90"),
        (machine(nvidia(driver="", cuda="12.7")), "cpu-x86_64"),
        (machine(nvidia(driver="", cuda="")), "cpu-x86_64"),
        (machine(nvidia(driver="junk")), "cpu-x86_64"),
        (machine(nvidia(), torch="2.13.0"), "cuda-sm90"),
        (machine(nvidia(), torch="2.13.0+cu128"), "cuda-sm90"),
        (machine(nvidia(), torch="2.13.0+cpu"), "cpu-x86_64"),
        (machine(amd(), torch="2.13.0+rocm6.4"), "rocm-gfx942"),
        (machine(amd(), torch="2.13.0"), "cpu-x86_64"),
    ],
)
def test_what_fits(there: Machine, target: str) -> None:
    choice = choose(ALL, there)
    assert choice.target == target
    assert choice.why[0].startswith(f"{target}: ")
    assert target not in reasons(choice)
    assert not choice.card_unchecked


def test_each_that_does_not_fit_says_why() -> None:
    choice = choose(ALL, machine(nvidia("sm80", driver="550.54.14", cuda="12.4")))
    assert reasons(choice) == {
        "cpu-aarch64": "cpu",
        "cuda-sm80": "driver",
        "cuda-sm90": "card",
        "rocm-gfx942": "card",
    }
    text = "\n".join(choice.why)
    assert "not cuda-sm80: driver 550.54.14 is older than 570.26, which its code needs" in text
    assert "not cuda-sm90: it is for sm90 and runs on no other; the cards here are sm80" in text
    assert "no rocm card answers" in text


@pytest.mark.parametrize(
    ("there", "reason", "words"),
    [
        (machine(glibc="2.27"), "glibc", "it needs glibc 2.28; this machine has 2.27"),
        (machine(glibc=""), "glibc", "the C library here is another"),
        (machine(python="3.9.2"), "python", "it needs Python >=3.10; this is 3.9.2"),
        (machine(torch="2.9.1"), "torch", "it needs torch<2.15,>=2.10; 2.9.1 is installed"),
        (machine(torch="2.15.0+cpu"), "torch", "2.15.0+cpu is installed"),
        (machine(arch="riscv64"), "cpu", "this CPU is riscv64"),
    ],
)
def test_where_nothing_fits_it_is_an_error_with_every_reason(there: Machine, reason: str, words: str) -> None:
    with pytest.raises(MachineError) as caught:
        choose([offer("cpu-x86_64")], there)
    assert caught.value.reason == "nothing-fits"
    assert caught.value.exit_code is Exit.MACHINE
    assert words in caught.value.what
    assert [item.reason for item in unfit(offer("cpu-x86_64"), there)] == [reason]


def test_glibc_of_exactly_the_tag_is_enough_and_any_platform_asks_for_none() -> None:
    assert choose([offer("cpu-x86_64")], machine(glibc="2.28")).target == "cpu-x86_64"
    assert choose([offer("cpu-x86_64", platforms=("any",))], machine(glibc="")).target == "cpu-x86_64"


def test_a_tag_that_promises_nothing_fits_nowhere() -> None:
    with pytest.raises(MachineError, match="promises nothing that is known"):
        choose([offer("cpu-x86_64", platforms=("linux_x86_64",))], machine())


def test_two_cards_with_wheels_of_their_own_are_ambiguous() -> None:
    with pytest.raises(MachineError) as caught:
        choose(ALL, machine(nvidia(), nvidia("sm80")))
    assert caught.value.reason == "target-ambiguous"
    assert choose(ALL, machine(nvidia(), nvidia("sm80")), target="cuda-sm80").target == "cuda-sm80"


def test_a_named_target_that_does_not_fit_is_an_error_and_not_another_wheel() -> None:
    with pytest.raises(MachineError) as caught:
        choose(ALL, machine(), target="cuda-sm90")
    assert caught.value.reason == "target-unfit"
    assert "no cuda card answers" in caught.value.what
    assert "--without-card" in caught.value.fix
    with pytest.raises(MachineError) as caught:
        choose(ALL, machine(), target="cpu-aarch64")
    assert (caught.value.reason, caught.value.fix) == ("target-unfit", "")
    with pytest.raises(MachineError) as caught:
        choose(ALL[:1], machine(), target="cuda-sm90")
    assert caught.value.reason == "target-absent"
    with pytest.raises(ConfigError) as unknown:
        choose(ALL, machine(), target="cuda-sm9000")
    assert unknown.value.reason == "unknown-target"


def test_without_card_looks_at_everything_else() -> None:
    choice = choose(ALL, machine(), target="cuda-sm90", without_card=True)
    assert choice.card_unchecked
    assert "were not looked at" in choice.why[0]
    for there in (
        machine(glibc="2.17"),
        machine(arch="aarch64"),
        machine(torch="2.9"),
        machine(torch="2.13.0+cpu"),
    ):
        with pytest.raises(MachineError) as caught:
            choose(ALL, there, target="cuda-sm90", without_card=True)
        assert caught.value.reason == "target-unfit"
    assert not choose(ALL, machine(), target="cpu-x86_64", without_card=True).card_unchecked


@pytest.mark.parametrize("changes", [{"requires": ("torch >>= 2",)}, {"requires_python": "3.x!"}])
def test_malformed_metadata_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        choose([offer("cpu-x86_64", **changes)], machine(torch="2.13.0"))
    assert caught.value.reason == "wheel-metadata"
