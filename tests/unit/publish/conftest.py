"""A forge of real bundles for the room's tests, and no registry: what would be sent to one is known by its error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forging import Forge, forging
from wheelmark.errors import RegistryError
from wheelmark.publish import publishing


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


@pytest.fixture(autouse=True)
def _no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """``publish`` ends where it would speak to a registry: nothing was refused until then."""

    def transfer(*_arguments: object, **_more: object) -> None:
        raise RegistryError("nothing was refused", reason="registry-unreachable")

    monkeypatch.setattr(publishing, "transfer", transfer)
