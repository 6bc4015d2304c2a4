"""Small documents and odd folders that would take all memory, or be overlooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelmark import digests, strictjson
from wheelmark.errors import InputError


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b'{"a":[1e400]}'])
def test_numbers_that_would_become_infinite(text: bytes) -> None:
    with pytest.raises(InputError) as caught:
        strictjson.loads(text)
    assert caught.value.reason == "json-number"


@pytest.mark.parametrize("inner", [b"[]", b'{"":0}'])
def test_containers_without_end(inner: bytes) -> None:
    # Each list is short, each object small; together they would take a gigabyte.
    row = b"[" + b",".join([inner] * 60_000) + b"]"
    with pytest.raises(InputError) as caught:
        strictjson.loads(b"[" + b",".join([row] * 9) + b"]")
    assert caught.value.reason == "json-too-long"
    assert len(strictjson.loads(b"[" + b",".join([row] * 8) + b"]")) == 8


def test_a_tree_that_ends_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"")
    (tmp_path / "a" / "around").symlink_to(tmp_path)
    (tmp_path / "empty").mkdir()
    assert digests.tree_files(tmp_path) == ["a/around", "a/file"]


def test_a_root_that_is_not_there_or_no_folder(tmp_path: Path) -> None:
    assert digests.tree_files(tmp_path / "absent") == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        digests.tree_files(tmp_path / "file")
    assert caught.value.reason == "unreadable"
