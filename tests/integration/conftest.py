"""One release of a clone of this repository, for every test that needs a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkouts import REPOSITORY, Checkout, copy_repository


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A built, tested and signed release. Nobody changes it: tests clone it.

    ``WHEELMARK_TEST_CACHE`` names where locked environments and compiled code are kept between sessions (default: the
    repository's own cache). ``WHEELMARK_TEST_RELEASE``, for work on the tests themselves, names a folder in which
    the release of an earlier session is used again as it stands.
    """
    cache = Path(os.environ.get("WHEELMARK_TEST_CACHE") or REPOSITORY / ".wheelmark").resolve()
    kept = os.environ.get("WHEELMARK_TEST_RELEASE")
    folder = Path(kept).resolve() if kept else tmp_path_factory.mktemp("release")
    made = Checkout(root=folder / "first", state=folder / "state", environments=cache, cache=cache)
    if kept and made.dist.is_dir():
        return made
    made.root.mkdir(parents=True)
    copy_repository(made.root)
    made.images()  # they take minutes, and have tests of their own
    made.begin("first")
    made.made("build", "test", "sign")
    return made
