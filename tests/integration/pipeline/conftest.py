"""Releases for the tests of the pipeline, made from the session's one release."""

from __future__ import annotations

import pytest

from checkouts import Checkout


@pytest.fixture(scope="session")
def small(release: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A signed release of one GPU wheel, in the same trust domain; nobody changes it."""
    made = release.clone(tmp_path_factory.mktemp("small"), targets=("cuda-sm90",))
    made.made("build", "test", "sign")
    return made


@pytest.fixture(scope="session")
def later(small: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The next version of ``small``, signed by the same signer; gates that take long are left out of it."""
    made = small.clone(tmp_path_factory.mktemp("later"))
    made.gates("abi", "coverage", "size", "audit")
    made.edit("wheelmark.toml", 'version = "0.1.0"', 'version = "0.2.0"')
    made.made("build", "test", "sign")
    return made
