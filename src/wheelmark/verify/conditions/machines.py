"""The machines that it is for: the oldest driver there, and the versions of torch."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark.verify.case import Question
from wheelmark.verify.trail import Trail

_TORCH = "torch"


def check_machines(question: Question, trail: Trail) -> None:
    """The driver and torch versions of the requirement against what the artifact's own bytes ask for.

    In a release they are asked of the wheels: an image brings its torch, and holds the kernels of the wheel beside it.
    """
    if question.artifact.is_image:
        return
    if question.rule.driver:
        _check_driver(question, trail)
    if question.rule.torch:
        _check_torch(question, trail)


def _check_driver(question: Question, trail: Trail) -> None:
    """No kernel needs a newer driver; of code for ROCm no floor is known, and that is said."""
    there = question.rule.driver
    kernels = question.artifact.kernels
    floors = {
        variant.min_driver: f"{kernel.name}/{variant.name}"
        for kernel in (kernels.kernels if kernels is not None else ())
        for variant in kernel.variants
    }
    for floor, name in sorted(floors.items()):
        if floor and _numbers(there) < _numbers(floor):
            text = f"{name} needs driver {floor}; the oldest there is {there}"
            trail.refuse("driver", text, reason="driver-too-new")
    if "" in floors:
        trail.note("nothing is known of the oldest driver that its kernels need")
    trail.settle("driver", f"driver {there}; needed: {', '.join(sorted(filter(None, floors))) or 'none'}")


def _numbers(driver: str) -> tuple[int, ...]:
    """``570.86.10`` in the order of drivers; anything else is older than all."""
    parts = driver.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _check_torch(question: Question, trail: Trail) -> None:
    try:
        ranges = _torch_ranges(question.artifact.requires)
        versions = [Version(text) for text in question.rule.torch]
    except (InvalidRequirement, InvalidVersion) as error:
        trail.refuse("torch", f"cannot be compared: {error}", reason="torch-range")
        return
    if not ranges:
        trail.refuse("torch", "the artifact declares no range of torch versions", reason="torch-range")
        return
    declared = ", ".join(str(item) or "any" for item in ranges)
    for version in versions:
        # Nightly builds and release candidates are what is on the machine: the range has to say of them too.
        if not all(item.contains(version, prereleases=True) for item in ranges):
            text = f"torch {version} is on the machines; the artifact declares {declared}"
            trail.refuse("torch", text, reason="torch-range")
    trail.settle("torch", f"torch {', '.join(question.rule.torch)} lies in {declared}")


def _torch_ranges(requires: tuple[str, ...]) -> list[SpecifierSet]:
    """Every range that is declared without an extra; whether another marker holds there is not known here."""
    found = [Requirement(text) for text in requires]
    return [
        item.specifier
        for item in found
        if canonicalize_name(item.name) == _TORCH and "extra" not in str(item.marker or "")
    ]
