"""The cache gives back what was stored, or nothing."""

from pathlib import Path

import pytest

from wheelmark.build.kernels.cache import ObjectCache, tree_digest

KEY = "a" * 64


def test_an_object_comes_back_with_its_metadata(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, {"entry": "f"}, b"code")
    assert ObjectCache(tmp_path).get(KEY) == ({"entry": "f"}, b"code")


@pytest.mark.parametrize("kind", ["blobs", "keys"])
def test_a_changed_byte_makes_an_entry_absent(tmp_path: Path, kind: str) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, {"entry": "f"}, b"code")
    (file,) = (tmp_path / kind).iterdir()
    data = bytearray(file.read_bytes())
    for index in range(len(data)):
        data[index] ^= 1
        file.write_bytes(data)
        assert cache.get(KEY) is None, index
        data[index] ^= 1
    file.write_bytes(data)
    assert cache.get(KEY) is not None


def test_a_truncated_result_is_absent(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put_result(KEY, {"manifest": "m"})
    assert cache.result(KEY) == {"manifest": "m"}
    file = tmp_path / "results" / f"{KEY}.json"
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.result(KEY) is None


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / f"{KEY}.json").mkdir()  # the place is taken: the rename fails
    with pytest.raises(OSError):
        cache.put(KEY, {}, b"code")
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [f"{KEY}.json"]


def test_tree_digest_sees_names_and_bytes_and_leaves_out_byte_code(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text("1")
    first = tree_digest(tmp_path)
    (tmp_path / "p" / "__pycache__").mkdir()
    (tmp_path / "p" / "__pycache__" / "a.pyc").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("x")
    assert tree_digest(tmp_path) == first
    (tmp_path / "p" / "a.py").write_text("2")
    second = tree_digest(tmp_path)
    (tmp_path / "p" / "a.py").rename(tmp_path / "p" / "b.py")
    assert len({first, second, tree_digest(tmp_path)}) == 3


def test_tree_digest_follows_linked_folders_once(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "m.py").write_text("1")
    (tmp_path / "project" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "project" / "loop").symlink_to(tmp_path / "project")
    first = tree_digest(tmp_path / "project")
    (tmp_path / "real" / "m.py").write_text("2")
    assert tree_digest(tmp_path / "project") != first
