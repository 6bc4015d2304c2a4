"""``wheelmark verify``: exit codes, output for people and for machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import releasing
from forging import Forge
from releasing import draft
from wheelmark.cli import main
from wheelmark.errors import Exit
from wheelmark.trust import state

POLICY = Path(__file__).resolve().parents[3] / "policies" / "embedded-dev.toml"
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def dist(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    return draft().write(tmp_path / "dist", forge.sign, root=forge.root_bytes)


def verify(*arguments: object) -> int:
    return main(["verify", *map(str, arguments), "--policy", str(POLICY)])


def test_accepted_release_and_wheel(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(dist, dist / "wheels" / releasing.file_name()) == Exit.OK
    out = capsys.readouterr().out
    assert "same-machine origin" in out
    assert out.count("ACCEPTED under") == 2


def test_machines_get_one_document(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dist / "evil").write_bytes(b"")
    assert verify(dist, "--json") == Exit.REJECTED
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 1
    (report,) = document["reports"]
    assert not report["accepted"]
    assert {"verdict": "rejected", "subject": "evil", "reason": "unaccounted-file"}.items() <= report[
        "verdicts"
    ][0].items()
    accepted = [item for item in report["verdicts"] if item["verdict"] == "accepted"]
    assert {item["root"] for item in accepted} == {"embedded"}


def test_what_would_not_be_looked_at_is_refused(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = dist / "wheels" / releasing.file_name()
    for path, option in ((dist, "--bundle"), (dist, "--target"), (dist, "--reference"), (wheel, "--target")):
        assert verify(path, option, "cuda-sm90") == Exit.INPUT
        assert "would not be looked at" in capsys.readouterr().out


def test_the_cause_and_the_next_step_of_what_cannot_be_read_are_said(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(dist, "--target", "cuda-sm90", "--json") == Exit.INPUT
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    (found,) = report["verdicts"]
    assert "next step: leave it out" in found["text"]
    assert found["next"]


def test_what_is_not_there_is_said_so(tmp_path: Path, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path / "nothing", dist) == Exit.INPUT
    said = capsys.readouterr().out
    assert f"there is nothing at {tmp_path / 'nothing'}" in said
    assert "registry" not in said


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (f"registry.example/app:1@{DIGEST}", f"wheelmark pull registry.example/app:1@{DIGEST} --engine none"),
        ("localhost:5000/team/app:1.0", "wheelmark copy localhost:5000/team/app:1.0 oci:DIR"),
        ("oci:images:v1", "wheelmark verify images --reference v1"),
        (f"oci:images:v1@{DIGEST}", f"wheelmark verify images --reference v1@{DIGEST}"),
        ("oci:images", "wheelmark verify images"),
    ],
)
def test_the_name_of_an_image_where_a_path_is_asked_for(
    name: str, step: str, dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dist.is_dir()
    assert verify(name) == Exit.INPUT
    said = " ".join(capsys.readouterr().out.split())
    assert f"there is nothing at {name}" in said
    assert step in said


def test_the_worst_of_several_paths_counts(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lone = tmp_path / releasing.file_name()
    shutil.copy(dist / "wheels" / lone.name, lone)
    assert verify(lone) == Exit.MISSING
    assert verify(dist, lone) == Exit.MISSING
    assert verify(tmp_path / "nothing", lone) == Exit.INPUT
    (dist / "evil").write_bytes(b"")
    assert verify(tmp_path / "nothing", lone, dist) == Exit.REJECTED
    assert "NOT ACCEPTED" in capsys.readouterr().out


def test_given_bundle(dist: Path, tmp_path: Path) -> None:
    lone = tmp_path / releasing.file_name()
    shutil.copy(dist / "wheels" / lone.name, lone)
    assert verify(lone, "--bundle", dist / "bundles" / "provenance.sigstore.json") == Exit.OK
    assert verify(lone, "--bundle", tmp_path / "absent") == Exit.MISSING


def test_policy_has_to_be_named_and_usable(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", str(dist)])
    assert caught.value.code == Exit.USAGE
    (tmp_path / "empty.toml").write_text("schema = 1\n", encoding="utf-8")
    assert main(["verify", str(dist), "--policy", str(tmp_path / "empty.toml")]) == Exit.CONFIG
    assert main(["verify", str(dist), "--policy", str(tmp_path / "absent.toml")]) == Exit.CONFIG
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "no-instance"))
    assert verify(dist) == Exit.CONFIG
    err = capsys.readouterr().err
    assert "next step" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("place", ["policy.toml", "report/policy.toml"])
def test_a_release_does_not_bring_its_own_policy(
    dist: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = dist / place
    inside.parent.mkdir(exist_ok=True)
    shutil.copy(POLICY, inside)
    assert main(["verify", str(dist), "--policy", str(inside), "--json"]) == Exit.CONFIG
    assert json.loads(capsys.readouterr().out)["reason"] == "policy-inside"
    beside = dist.with_name(f"{dist.name}-policy.toml")
    shutil.move(inside, beside)
    if place == "policy.toml":
        assert main(["verify", str(dist), "--policy", str(beside)]) == Exit.OK
