"""Clones in which one fault is planted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkouts import Checkout

Faulty = Callable[..., Checkout]


@pytest.fixture
def faulty(release: Checkout, tmp_path: Path) -> Iterator[Faulty]:
    """Makes a clone for some targets with some gates; environments made for it go when the test ends."""

    def make(*gates: str, targets: tuple[str, ...]) -> Checkout:
        made = release.clone(tmp_path, dist=False, targets=targets).apart(tmp_path)
        made.gates(*gates)
        return made

    yield make
    shutil.rmtree(tmp_path, ignore_errors=True)
