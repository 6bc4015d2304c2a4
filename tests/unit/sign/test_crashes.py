"""A crash at any moment of a domain's change leaves the old domain or the new one, and either signs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wheelmark.sign import embedded
from wheelmark.sign.embedded import keys


class Crash(BaseException):
    """No handler in the code under test may catch it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("domain") / "state"
    embedded.create(path)
    embedded.backup(path.parent / "backup.tar", path)
    return path


def crash_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stops at the ``count``-th write that was to reach the disk."""
    left = [count]

    def stop(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        synchronize(descriptor)

    synchronize = os.fsync
    monkeypatch.setattr(os, "fsync", stop)


def signs(state: Path) -> int:
    """How many generations the domain has, once it was seen to work."""
    with embedded.open_instance(state) as instance:
        assert instance.mint(embedded.RELEASE_IDENTITY)
        assert (state / "embedded" / "trusted_root.json").read_bytes() == instance.domain.trusted_root()
        return len(instance.domain.generations)


def every_crash(
    action: Callable[[Path], object],
    begin: Callable[[Path], object],
    template: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[int]:
    """Generations after a crash at each durable step, in order, and after the whole action."""
    made = embedded.show(template).current.keys()
    # New keys are not what is tried here, and are slow to make.
    monkeypatch.setattr(keys, "generate", lambda: made)
    found = []
    for count in range(100):
        state = folder / str(count)
        begin(state)
        with monkeypatch.context() as patch:
            crash_after(count, patch)
            try:
                action(state)
            except Crash:
                whole = False
            else:
                whole = True
        found.append(signs(state))
        if whole:
            return found
    pytest.fail("the action never ends")


def test_rotation(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = every_crash(
        embedded.rotate, lambda state: shutil.copytree(template, state), template, tmp_path, monkeypatch
    )
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 2)
    assert found.count(1) > 5


def test_creation(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = every_crash(embedded.create, lambda _state: None, template, tmp_path, monkeypatch)
    assert len(found) > 5


def test_restoring(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = template.parent / "backup.tar"
    found = every_crash(
        lambda state: embedded.restore(backup, state), lambda _state: None, template, tmp_path, monkeypatch
    )
    assert len(found) > 5
