"""``wheelmark hook images`` and ``forget``: what the evidence store holds is listed, and taken away by digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulling import evidence
from wheelmark.cli import main
from wheelmark.deploy.store import EvidenceStore, ImageEvidence
from wheelmark.errors import Exit

TARGETS = ("cpu-x86_64", "cuda-sm90")


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore(tmp_path / "store", write=True)


@pytest.fixture
def kept(store: EvidenceStore, tmp_path: Path) -> list[ImageEvidence]:
    made = [evidence(tmp_path / target, target) for target in TARGETS]
    for item in made:
        store.keep(item)
    return made


def test_images_are_listed(
    store: EvidenceStore, kept: list[ImageEvidence], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["hook", "images", "--store", str(store.directory)]
    assert main(line) == Exit.OK
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["digest", "target", "kept", "reference"]
    expected = {
        (f"sha256:{item.sha256}", target, "2026-01-01T00:00:00+00:00", "oci:somewhere:v1")
        for item, target in zip(kept, TARGETS, strict=True)
    }
    assert {tuple(row.split()) for row in rows} == expected
    assert main([*line, "--json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["store"] == str(store.directory)
    names = ("digest", "target", "kept", "reference")
    assert {tuple(row[name] for name in names) for row in document["images"]} == expected
    assert all(row["problem"] == "" for row in document["images"])


def test_one_that_was_changed_is_listed_as_that(
    store: EvidenceStore, kept: list[ImageEvidence], capsys: pytest.CaptureFixture[str]
) -> None:
    (store.directory / "images" / kept[0].sha256).write_bytes(b"torn")
    line = ["hook", "images", "--store", str(store.directory)]
    assert main(line) == Exit.REJECTED
    said = capsys.readouterr().out
    assert f"sha256:{kept[1].sha256}  cuda-sm90" in said
    assert f"sha256:{kept[0].sha256}  the evidence store" in said
    assert main([*line, "--json"]) == Exit.REJECTED
    rows = {row["digest"]: row["problem"] for row in json.loads(capsys.readouterr().out)["images"]}
    assert "its record is torn" in rows[f"sha256:{kept[0].sha256}"]
    assert main(["hook", "forget", kept[0].sha256, *line[2:]]) == Exit.OK
    assert main(line) == Exit.OK


def test_a_store_without_images_and_one_that_is_absent(
    store: EvidenceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.make()
    assert main(["hook", "images", "--store", str(store.directory)]) == Exit.OK
    assert capsys.readouterr().out == f"no image is kept in {store.directory}\n"
    for action in (["images"], ["forget", "0" * 64]):
        assert main(["hook", *action, "--store", str(tmp_path / "absent"), "--json"]) == Exit.CONFIG
        assert json.loads(capsys.readouterr().out)["reason"] == "store"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("form", ["sha256:{}", "{}", "sha256:{:.12}", "{:.12}", "{:.63}"])
def test_forgotten_by_digest_or_its_beginning(
    store: EvidenceStore, kept: list[ImageEvidence], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["hook", "forget", form.format(kept[0].sha256), "--store", str(store.directory), "--json"]
    assert main(line) == Exit.OK
    said = json.loads(capsys.readouterr().out)
    assert said == {"digest": f"sha256:{kept[0].sha256}", "forgotten": True}
    assert store.images() == (kept[1].sha256,)
    assert main(line) == Exit.MISSING
    assert json.loads(capsys.readouterr().out)["forgotten"] is False


def test_a_beginning_that_several_have_forgets_none(
    store: EvidenceStore, kept: list[ImageEvidence], capsys: pytest.CaptureFixture[str]
) -> None:
    twin = kept[0].sha256[:20] + "0" * 44
    (store.directory / "images" / twin).write_bytes(b"")
    line = ["hook", "forget", kept[0].sha256[:20], "--store", str(store.directory), "--json"]
    assert main(line) == Exit.INPUT
    document = json.loads(capsys.readouterr().out)
    assert document["reason"] == "image-reference"
    assert twin in document["what"]
    assert len(store.images()) == 3


@pytest.mark.parametrize(
    "text", ["", "sha256:", "0" * 11, "0" * 65, "A" * 12, "sha512:" + "0" * 64, "../images"]
)
def test_what_is_no_digest_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["hook", "forget", text])
    assert caught.value.code == Exit.USAGE
    assert "12 digits or more" in capsys.readouterr().err
