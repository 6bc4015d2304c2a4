"""A file that can be opened and not read: a broken disk, or memory that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelmark.errors import InputError
from wheelmark.verify.artifact import read_bounded


def test_a_file_that_fails_while_it_is_read_is_unreadable() -> None:
    with pytest.raises(InputError) as caught:
        read_bounded(Path("/proc/self/mem"), 100)
    assert caught.value.reason == "unreadable"
