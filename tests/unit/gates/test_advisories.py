import json
from pathlib import Path
from typing import Any

import pytest

from auditing import advisory, write_advisories
from wheelmark import digests
from wheelmark.errors import InputError
from wheelmark.gates.advisories import read_advisories


@pytest.mark.parametrize(
    ("events", "affected", "free"),
    [
        ([{"introduced": "0"}, {"fixed": "2.0"}], ["0.0.dev1", "1.9", "2.0rc1"], ["2.0", "2.0.post1", "3"]),
        ([{"introduced": "1.0"}, {"last_affected": "1.5"}], ["1.0", "1.5"], ["0.9", "1.5.1", "1.6"]),
        ([{"introduced": "0"}], ["0.1", "99"], []),
        (
            [{"fixed": "3.1"}, {"introduced": "3.0"}, {"fixed": "2.1"}, {"introduced": "2.0"}],
            ["2.0", "3.0", "3.0.9"],
            ["1.9", "2.1", "2.9", "3.1"],
        ),
        ([{"introduced": "0"}, {"limit": "2.0"}], ["1.0"], ["2.0", "3.0"]),
    ],
)
def test_ranges_are_evaluated_as_the_osv_schema_says(
    tmp_path: Path, events: list[dict[str, str]], affected: list[str], free: list[str]
) -> None:
    data = read_advisories(write_advisories(tmp_path, advisory("T-1", "Some_Package", events)))
    assert [version for version in affected if not data.affecting("some-package", version)] == []
    assert [version for version in free if data.affecting("some-package", version)] == []
    assert data.affecting("another", affected[0]) == ()


def test_listed_versions_count_in_any_spelling(tmp_path: Path) -> None:
    data = read_advisories(
        write_advisories(tmp_path, advisory("T-1", "x", [], versions=["1.0", "weird!", "2.0.0"]))
    )
    assert data.affecting("x", "1.0.0")
    assert data.affecting("x", "2.0")
    assert not data.affecting("x", "1.1")


def test_git_ranges_and_other_ecosystems_say_nothing_of_a_version(tmp_path: Path) -> None:
    item = advisory("T-1", "x", [{"introduced": "0"}])
    item["affected"][0]["ranges"][0]["type"] = "GIT"
    other = advisory("T-2", "x", [{"introduced": "0"}])
    other["affected"][0]["package"]["ecosystem"] = "npm"
    data = read_advisories(write_advisories(tmp_path, item, other))
    assert data.count == 2
    assert data.affecting("x", "1") == ()


def test_the_control_is_a_version_that_the_data_lists(tmp_path: Path) -> None:
    withdrawn = advisory("T-1", "a", [], versions=["1.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}
    data = read_advisories(
        write_advisories(tmp_path, withdrawn, advisory("T-2", "b", [], versions=["odd!", "2.0"]))
    )
    assert data.control() == ("b", "2.0")
    assert read_advisories(write_advisories(tmp_path / "none", withdrawn)).control() is None


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    (write_advisories(tmp_path) / "manifest.json").unlink()
    with pytest.raises(InputError) as refusal:
        read_advisories(tmp_path)
    assert refusal.value.reason == "audit-manifest"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "https://wheelmark.dev/advisories/v2"},
        {"source": ""},
        {"date": "yesterday"},
        {"date": 20261101},
        {"coverage": "all"},
        {"coverage": {"ecosystem": "npm", "packages": "all"}},
        {"coverage": {"ecosystem": "PyPI", "packages": "some"}},
        {"coverage": {"ecosystem": "PyPI", "packages": "all", "more": 1}},
        {"unknown": 1},
    ],
)
def test_a_manifest_that_does_not_say_what_it_must_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_advisories(tmp_path, **change)
    with pytest.raises(InputError) as refusal:
        read_advisories(tmp_path)
    assert refusal.value.reason == "audit-manifest"


@pytest.mark.parametrize(
    "change",
    [
        {"id": 3},
        {"schema_version": "2.0.0"},
        {"affected": "x"},
        {"affected": [3]},
        {"affected": [{"package": "x"}]},
        {"affected": [{"versions": "1.0"}]},
        {"affected": [{"ranges": [{"type": "ECOSYSTEM"}]}]},
        {"affected": [{"ranges": [{"type": "ECOSYSTEM", "events": ["1.0"]}]}]},
    ],
)
def test_an_advisory_that_would_be_left_out_in_silence_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_advisories(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(advisory("T-1", "x", []) | change))
    with pytest.raises(InputError) as refusal:
        read_advisories(tmp_path)
    assert refusal.value.reason == "audit-data"


def test_a_version_that_cannot_be_ordered_is_an_error_not_an_answer(tmp_path: Path) -> None:
    data = read_advisories(
        write_advisories(tmp_path, advisory("T-1", "x", [{"introduced": "0"}, {"fixed": "r123"}]))
    )
    with pytest.raises(InputError) as refusal:
        data.affecting("x", "1.0")
    assert refusal.value.reason == "audit-data"


def test_a_tree_that_the_manifest_names_by_digest_is_held_to_it(tmp_path: Path) -> None:
    item = advisory("T-1", "x", [{"introduced": "0"}])
    digest = digests.sha256(f"{digests.sha256(json.dumps(item).encode())}  T-1.json\n".encode())
    assert read_advisories(write_advisories(tmp_path, item, sha256=digest)).count == 1
    (tmp_path / "T-1.json").unlink()
    with pytest.raises(InputError) as refusal:
        read_advisories(tmp_path)
    assert refusal.value.reason == "audit-data"
