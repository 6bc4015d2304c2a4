"""Parts that a test needs and a machine may lack: "not run", with the reason; in CI (``CI`` set) a failure.

A test that did not run never looks like one that passed, and CI has no excuse: it installs what tests need.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from wheelmark.errors import LockError
from wheelmark.lock.environment import Environment, locked_environment

ROOT = Path(__file__).parents[1]


def not_run(why: str) -> NoReturn:
    """End the test: skipped with the reason, or failed in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"not run, and CI has to run it: {why}", pytrace=False)
    pytest.skip(f"not run: {why}")


def need_program(name: str) -> str:
    """The path of a program that the test runs."""
    return shutil.which(name) or not_run(f"no {name} on this machine")


def environments() -> Path:
    """Where tests keep locked environments: shared with the project's own, since they are found by digest."""
    return Path(os.environ.get("WHEELMARK_TEST_CACHE") or ROOT / ".wheelmark")


@functools.cache
def build_environment() -> Environment:
    """The build environment (triton and torch), as the pipeline makes it."""
    try:
        return locked_environment([ROOT / "lockfiles" / "build.txt"], cache=environments())
    except LockError as error:
        if error.reason != "lock-unavailable":
            raise
        not_run(error.what.splitlines()[0])


def cases() -> Path | None:
    """The folder of shared test data, where ``WHEELMARK_CASES`` names one."""
    value = os.environ.get("WHEELMARK_CASES", "")
    return Path(value) if value and Path(value).is_dir() else None
