from __future__ import annotations

import pytest

from wheelmark.binaries.drivers import RELEASES, cuda_of_ptx, driver_floor
from wheelmark.errors import InputError


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def test_table_rises() -> None:
    for field in ("cuda", "ptx", "driver"):
        column = [numbers(getattr(release, field)) for release in RELEASES]
        assert column == sorted(column)
        assert len({tuple(item) for item in column}) == len(column)


def test_floor_of_a_toolkit() -> None:
    floor = driver_floor(toolkit="12.8", ptx="8.7")
    assert (floor.driver, floor.inferred, floor.compatible_from) == ("570.26", False, "525.60.13")
    assert "inferred" not in floor.basis
    assert "12.8" in floor.basis


def test_the_newer_of_toolkit_and_ptx_decides() -> None:
    assert driver_floor(toolkit="12.8", ptx="9.1").driver == "590.44.01"
    assert driver_floor(toolkit="13.1", ptx="8.7").driver == "590.44.01"


def test_what_was_inferred_says_so() -> None:
    floor = driver_floor(toolkit="13.2")
    assert floor.inferred
    assert "inferred" in floor.basis
    assert cuda_of_ptx("9.2").inferred


@pytest.mark.parametrize("version", ["", "99.9", "12"])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(InputError) as caught:
        driver_floor(toolkit=version)
    assert caught.value.reason == "driver-unknown"
    with pytest.raises(InputError) as caught:
        cuda_of_ptx(version)
    assert caught.value.reason == "driver-unknown"
