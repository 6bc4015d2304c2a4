"""Files are read neither for ever nor from what is no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheelmark.errors import ConfigError, InputError
from wheelmark.plainfiles import open_plain, read_bounded, read_named


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_named_file_may_be_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_named(tmp_path / "link", 9, reason="root-absent") == b"12345"
    assert read_named(tmp_path / "file", 3, reason="root-absent") == b"123"
    with pytest.raises(InputError) as caught:
        read_bounded(tmp_path / "link", 9)
    assert caught.value.reason == "unreadable"


@pytest.mark.parametrize("name", ["pipe", "link", "folder", "/dev/zero", "/proc/self/mem", "absent", "a\0b"])
def test_what_cannot_be_read_is_said_with_the_callers_reason(tmp_path: Path, pipe: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(pipe)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as caught:
        read_named(tmp_path / name, 9, what="the key: ", fix="another", reason="key-absent")
    assert (caught.value.reason, caught.value.fix) == ("key-absent", "another")
    assert caught.value.what.startswith("the key: ")


@pytest.mark.parametrize("follow", [True, False])
def test_a_pipe_is_not_waited_for(pipe: Path, *, follow: bool) -> None:
    with pytest.raises(InputError) as caught:
        open_plain(pipe, follow=follow)
    assert caught.value.reason == "unreadable"
