"""A forge of real bundles for the room's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forging import Forge, forging


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made
