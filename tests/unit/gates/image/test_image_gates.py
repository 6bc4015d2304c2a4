"""Image gates that only look, on small images: budget, repeatability, committed digests, what differs, advisories."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import imaging
import sample_project
from imaging import Entry, folder, tar
from wheelmark import digests
from wheelmark.config import TargetRow
from wheelmark.config.recipe import Debian, Dependencies, ImageRecipe, ImageSettings, PythonPlace
from wheelmark.errors import ConfigError, LockError, ToolError, WheelmarkError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.image import audit, contents, repeat, size
from wheelmark.gates.image import run as running
from wheelmark.gates.image.context import ImageContext, SecondImage
from wheelmark.gates.image.differences import differences
from wheelmark.gates.image.podman import Ended
from wheelmark.lock.debian import DebianLock, DebianPackage, SignedIndex
from wheelmark.lock.debian.advisories import VARIABLE
from wheelmark.oci import types
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.pipeline.imagegating import judge_image_gate
from wheelmark.targets import Target

INPUTS = "a" * 64
NOW = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)


def layout(path: Path, *layers: bytes, labels: dict[str, str] | None = None) -> str:
    writer = LayoutWriter(path)
    made = imaging.Draft(layers=list(layers), labels=labels or {}).write(writer, tag="cpu-x86_64")
    writer.finish([made])
    return made.sha256


SYSTEM = tar(folder("usr/"), Entry(name="usr/python", data=b"p" * 3000, mode=0o755))
WHEELS = tar(Entry(name="torch", data=b"t" * 5000))
PAYLOAD = tar(Entry(name="ours", data=b"payload"))


@pytest.fixture
def context(tmp_path: Path) -> ImageContext:
    declaration = sample_project.make_project(tmp_path / "project")
    sha256 = layout(tmp_path / "images", SYSTEM, WHEELS, PAYLOAD)
    recipe = ImageRecipe(
        path=Path("containers/cpu.toml"),
        python=PythonPlace(version="3.11", executable="/usr/bin/python3.11", site="/usr/lib/site"),
        dependencies=Dependencies(lock="runtime-cpu.txt"),
        debian=Debian(suite="bookworm", packages=("libc6",)),
        image=ImageSettings(budget=10_000),
    )
    row: TargetRow = declaration.row(Target.parse("cpu-x86_64"))
    made = ImageContext(
        declaration=declaration,
        row=row,
        recipe=recipe,
        layout=tmp_path / "images",
        sha256=sha256,
        layers={},
        stand_in="",
        inputs=INPUTS,
        sbom=tmp_path / "sbom.json",
        debian_lock=tmp_path / "debian-amd64.json",
        cache=tmp_path / "cache",
        second=lambda: SecondImage(layout=tmp_path / "images", sha256=sha256, inputs=INPUTS),
    )
    names = ("system", "dependencies", "payload")
    layers = {name: item.sha256 for name, item in zip(names, made.manifest().layers, strict=True)}
    return dataclasses.replace(made, layers=layers)


def budgeted(context: ImageContext, budget: int) -> ImageContext:
    image = dataclasses.replace(context.recipe.image, budget=budget)
    return dataclasses.replace(context, recipe=dataclasses.replace(context.recipe, image=image))


def test_size_counts_everything_but_the_dependencies(context: ImageContext) -> None:
    found = size.run(context)
    assert (found.verdict, found.level, found.subject) == (Verdict.PASSED, Level.STATIC, context.sha256)
    layers = found.details["layers"]
    assert found.details["counted"] == layers["system"] + layers["payload"]
    over = size.run(budgeted(context, found.details["counted"] - 1))
    assert (over.verdict, over.reason) == (Verdict.FAILED, "over-budget")
    assert size.run(budgeted(context, found.details["counted"])).verdict is Verdict.PASSED
    assert size.run(budgeted(context, 0)).verdict is Verdict.PASSED


def test_size_of_an_image_that_cannot_be_read(context: ImageContext) -> None:
    (context.layout / "blobs/sha256" / context.sha256).unlink()
    assert size.run(context).verdict is Verdict.FAILED


def second(tmp_path: Path, context: ImageContext, *layers: bytes, inputs: str = INPUTS) -> ImageContext:
    sha256 = layout(tmp_path / "second", *layers)
    made = SecondImage(layout=tmp_path / "second", sha256=sha256, inputs=inputs)
    return dataclasses.replace(context, second=lambda: made)


def test_repeat_says_what_differs(context: ImageContext, tmp_path: Path) -> None:
    assert repeat.run(context).verdict is Verdict.PASSED
    other = tar(Entry(name="ours", data=b"pAyload", mode=0o755))
    found = repeat.run(second(tmp_path, context, SYSTEM, WHEELS, other))
    assert (found.verdict, found.reason) == (Verdict.FAILED, "not-reproducible")
    said = found.details["differences"]
    assert any(text.startswith("layer 2: ours: mode") for text in said), said
    assert any(text.startswith("layer 2: ours: sha256") for text in said), said
    assert not any(text.startswith("layer 1") for text in said)


def test_repeat_of_other_inputs_is_unchecked(context: ImageContext, tmp_path: Path) -> None:
    found = repeat.run(second(tmp_path, context, SYSTEM, WHEELS, PAYLOAD, inputs="b" * 64))
    assert (found.verdict, found.reason) == (Verdict.UNCHECKED, "other-toolchain")


def committed(context: ImageContext, **entry: str) -> None:
    path = context.declaration.root / repeat.EXPECTED
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(repeat.expected_bytes({"cpu-x86_64": entry}))


def test_a_committed_digest_is_compared_where_the_inputs_are_alike(context: ImageContext) -> None:
    assert "UNCHECKED" in repeat.run(context).details["expected"]
    committed(context, inputs=INPUTS, digest=f"sha256:{context.sha256}")
    found = repeat.run(context)
    assert found.verdict is Verdict.PASSED
    assert found.details["expected"] == f"sha256:{context.sha256}"
    committed(context, inputs=INPUTS, digest=f"sha256:{'0' * 64}")
    found = repeat.run(context)
    assert (found.verdict, found.reason) == (Verdict.FAILED, "other-digest")
    committed(context, inputs="b" * 64, digest=f"sha256:{'0' * 64}")
    found = repeat.run(context)
    assert found.verdict is Verdict.PASSED
    assert "not compared" in found.summary
    assert "next: wheelmark baseline" in found.summary


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "schema = 2",
        "schema = true",
        "schema = 1\n[a]\ninputs = 'x'",
        "schema = 1\na = 1",
        f"schema = 1\n[cpu-x86_64]\ninputs = 'x'\ndigest = 'sha256:{'0' * 64}'",
        f"schema = 1\n[cpu-x86_64]\ninputs = '{INPUTS}'\ndigest = 'sha256:x'",
        f"schema = 1\n[cpu-x86_64]\ninputs = '{INPUTS}'\ndigest = 1",
        f"schema = 1\n[cpu-other]\ninputs = '{INPUTS}'\ndigest = 'sha256:{'0' * 64}'",
        f"schema = 1\n# {'x' * (1 << 18)}",
    ],
)
def test_committed_digests_that_cannot_be_read(context: ImageContext, text: str) -> None:
    path = context.declaration.root / repeat.EXPECTED
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        repeat.run(context)
    assert caught.value.reason == "expected-digests"


def test_differences_of_documents_and_of_the_archive(tmp_path: Path) -> None:
    one = layout(tmp_path / "one", SYSTEM, PAYLOAD, labels={"a": "1"})
    for name, layers, labels, said in (
        ("labels", (SYSTEM, PAYLOAD), {"a": "2"}, "configuration: config.Labels.a: '1' and '2'"),
        ("fewer", (SYSTEM,), {"a": "1"}, "layer 1: only in the first build"),
        ("order", (tar(Entry(name="usr/python", data=b"p" * 3000, mode=0o755), folder("usr/")), PAYLOAD), {"a": "1"}, "layer 0: the order of its entries"),
        ("form", (SYSTEM + bytes(1024), PAYLOAD), {"a": "1"}, "layer 0: the archive's form or its compression"),
        ("extra", (SYSTEM, tar(Entry(name="more"), Entry(name="ours", data=b"payload"))), {"a": "1"}, "layer 1: more: only in the second build"),
    ):  # fmt: skip
        other = layout(tmp_path / name, *layers, labels=labels)
        assert said in differences(tmp_path / "one", one, tmp_path / name, other), name
    assert differences(tmp_path / "one", one, tmp_path / "one", one) == ()


def test_what_the_contract_says_in_a_container() -> None:
    report = {
        "schema": 1,
        "dispatch": "avx2",
        "cases": [{"name": "a", "passed": True}],
        "versions": {"torch": "2"},
    }

    def judged(code: int, changes: dict[str, Any] | None = None, out: bytes | None = None) -> str:
        data = json.dumps({**report, **(changes or {})}).encode() if out is None else out
        return running._judge_contract(Ended(code=code, out=data, err="words"), {})

    assert judged(0) == ""
    assert "gave no report (exit 1)" in judged(1, out=b"Traceback")
    assert "no cases" in judged(0, {"cases": []})
    assert "1 of 1 cases failed" in judged(1, {"cases": [{"name": "a", "passed": False}]})
    assert "no case failed" in judged(139)


def test_a_gpu_image_has_to_say_that_there_is_no_card() -> None:
    details: dict[str, Any] = {}
    assert running._judge_hardware(Ended(code=3, out=b"", err="finds no card"), details) == ""
    assert details["hardware"] == "finds no card"
    for code, words in ((0, "fine"), (1, "crash"), (3, "")):
        assert "without a card" in running._judge_hardware(Ended(code=code, out=b"", err=words), {})


def test_an_image_of_another_cpu_or_that_cannot_start_is_not_run(context: ImageContext) -> None:
    other = dataclasses.replace(context, row=context.declaration.row(Target.parse("cpu-aarch64")))
    dependencies = Dependencies(lock="l.txt", stand_in="l.txt", stand_in_without=("torch",))
    without = dataclasses.replace(
        context, stand_in="no torch", recipe=dataclasses.replace(context.recipe, dependencies=dependencies)
    )
    assert running.run(other).reason == "other-machine"
    assert "next: nox -s build test on a machine of aarch64" in running.run(other).summary
    assert running.run(without).reason == "stand-in"
    assert "next: a lock that has torch for x86_64" in running.run(without).summary


@pytest.mark.parametrize(
    ("error", "verdict", "level"),
    [
        (
            ToolError("no podman", fix="apt-get install podman", reason="no-podman"),
            Verdict.UNCHECKED,
            Level.NONE,
        ),
        (LockError("bad lock", fix="nox -s lock", reason="debian-lock"), Verdict.FAILED, Level.STATIC),
        (ConfigError("no remedy known", reason="config"), Verdict.FAILED, Level.STATIC),
    ],
)
def test_a_gate_that_stops_says_what_comes_next(
    context: ImageContext, error: WheelmarkError, verdict: Verdict, level: Level
) -> None:
    class Stops:
        NAME = "image-stops"

        @staticmethod
        def run(context: ImageContext) -> Evidence:
            assert context.sha256
            raise error

    found = judge_image_gate(Stops, context)
    assert (found.verdict, found.level, found.reason) == (verdict, level, error.reason)
    assert found.summary == (f"{error.what}; next: {error.fix}" if error.fix else error.what)


def lock() -> DebianLock:
    package = DebianPackage(
        name="libc6", version="2.36-9", architecture="amd64", sha256="c" * 64, size=1,
        path="pool/main/g/glibc/libc6_2.36-9_amd64.deb", source="glibc", source_version="2.36-9", suite="bookworm",
    )  # fmt: skip
    index = SignedIndex(
        suite="bookworm", component="main", sha256="d" * 64, date="2026-11-28T00:00:00Z", valid_until="",
        keys=("0" * 40,), packages_sha256="e" * 64,
    )  # fmt: skip
    return DebianLock(
        architecture="amd64", suite="bookworm", inputs="f" * 64, signed=(index,), packages=(package,)
    )


@pytest.fixture
def audited(context: ImageContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ImageContext:
    manifest = context.manifest()

    def part(kind: str, name: str, role: str, sha256: str = "", **more: Any) -> dict[str, Any]:
        hashes = [{"alg": "SHA-256", "content": sha256}] if sha256 else []
        properties = [{"name": "wheelmark:role", "value": role}]
        return {"type": kind, "bom-ref": f"{role}:{name}", "name": name, "hashes": hashes, "properties": properties, **more}  # fmt: skip

    blobs = [part("file", item.digest, "file", item.sha256) for item in (manifest.config, *manifest.layers)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "urn:uuid:00000000-0000-4000-8000-000000000002",
        "metadata": {"component": part("container", "demo", "image", context.sha256)},
        "components": [part("data", "blobs", "image-blobs", components=blobs)],
    }
    context.sbom.write_bytes(digests.canonical_json(document))
    assert context.debian_lock is not None
    context.debian_lock.write_bytes(lock().as_bytes())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "osv"))
    return context


def advisories(folder: Path, *, fixed: str, urgency: str = "high", date: str = "2026-11-29") -> None:
    folder.mkdir(exist_ok=True)
    manifest = {
        "schema": "https://wheelmark.dev/advisories/v1", "source": "security-tracker.debian.org", "date": date,
        "coverage": {"ecosystem": "Debian:12", "packages": "all"},
    }  # fmt: skip
    advisory = {
        "id": "DSA-1-1", "modified": "2026-11-01T00:00:00Z", "aliases": ["CVE-2026-1"],
        "affected": [{
            "package": {"ecosystem": "Debian:12", "name": "glibc"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": fixed}]}],
            "ecosystem_specific": {"urgency": urgency},
        }],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "DSA-1-1.json").write_text(json.dumps(advisory), encoding="utf-8")


def test_debian_findings_fail_the_audit_whatever_python_says(audited: ImageContext, tmp_path: Path) -> None:
    advisories(tmp_path / "osv", fixed="2.36-10")
    found = audit.audit_image(audited, now=NOW)
    assert (found.verdict, found.reason) == (Verdict.FAILED, "audit-vulnerable"), found.summary
    (one,) = found.details["vulnerabilities"]
    assert (one["id"], one["package"]) == ("DSA-1-1", "glibc")
    assert one["purl"].startswith("pkg:deb/debian/glibc@2.36-9")
    assert found.details["service"]["date"] == "2026-11-29"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fixed": "2.36-9"}, "1 packages, none with a known vulnerability"),
        ({"fixed": "2.36-10", "urgency": "unimportant"}, "1 packages, none with a known vulnerability"),
        ({"fixed": "2.36-9", "date": "2026-01-01"}, "days old; the limit is"),
        ({"fixed": "2.36-9", "date": "2026-12-24"}, "days old; the limit is"),
    ],
)
def test_without_a_service_for_python_it_stays_unchecked(
    audited: ImageContext, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    advisories(tmp_path / "osv", **changes)
    found = audit.audit_image(audited, now=NOW)
    assert found.verdict is Verdict.UNCHECKED
    assert said in found.summary
    assert "vulnerabilities" not in found.details


def test_an_audit_without_data_or_of_another_image(
    audited: ImageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    found = audit.audit_image(audited, now=NOW)
    assert (found.verdict, found.reason) == (Verdict.UNCHECKED, "audit-no-service")
    value = json.loads(audited.sbom.read_bytes())
    value["metadata"]["component"]["hashes"][0]["content"] = "0" * 64
    audited.sbom.write_bytes(digests.canonical_json(value))
    assert audit.audit_image(audited, now=NOW).reason == "audit-unexplained"


GOOD = tar(
    folder("usr/"),
    folder("usr/bin/"),
    Entry(name="usr/bin/python3.11", data=b"a program", mode=0o755),
    folder("usr/share/"),
    folder("usr/share/demo.dist-info/"),
    folder("usr/share/demo.dist-info/sboms/"),
    Entry(name="usr/share/demo.dist-info/sboms/demo.cdx.json", data=b"{}"),
)


def looked_into(
    context: ImageContext, folder: Path, *more: bytes, user: str = "65532:65532", **labels: str
) -> Evidence:
    """What the gate says of an image of ``GOOD`` with further layers; its SBOM names no distribution."""

    def change(config: dict[str, Any]) -> None:
        config["config"] |= {"User": user, "Entrypoint": ["/usr/bin/python3.11"]}

    draft = imaging.Draft(
        layers=[GOOD, *more], labels={types.RELEASABLE_LABEL: "true", **labels}, change_config=change
    )
    writer = LayoutWriter(folder)
    made = draft.write(writer, tag="cpu-x86_64")
    writer.finish([made])
    asked = dataclasses.replace(context, layout=folder, sha256=made.sha256, debian_lock=None)
    return contents.run(asked)


def test_contents_are_held_against_labels_and_recipe(audited: ImageContext, tmp_path: Path) -> None:
    good = looked_into(audited, tmp_path / "good")
    assert good.verdict is Verdict.PASSED, good.summary
    assert good.details["user"] == "65532:65532"
    shell = tar(Entry(name="usr/bin/bash", data=b"a shell", mode=0o755))
    assert looked_into(audited, tmp_path / "shell", shell).reason == "contents-shell"
    labels = {types.RELEASABLE_LABEL: "false"}
    assert looked_into(audited, tmp_path / "label", **labels).reason == "contents-labels"
    other = {types.TARGET_LABEL: "cpu-aarch64"}
    assert looked_into(audited, tmp_path / "target", **other).reason == "contents-labels"
    assert looked_into(audited, tmp_path / "root", user="0:0").reason == "contents-user"
    assert looked_into(audited, tmp_path / "user", user="1000:1000").reason == "contents-user"


def test_contents_are_held_against_what_was_locked(audited: ImageContext, tmp_path: Path) -> None:
    installed = tar(
        folder("usr/lib/"),
        folder("usr/lib/site/"),
        folder("usr/lib/site/extra-1.0.dist-info/"),
        Entry(name="usr/lib/site/extra-1.0.dist-info/METADATA", data=b"Name: extra"),
    )
    found = looked_into(audited, tmp_path / "extra", installed)
    assert (found.verdict, found.reason) == (Verdict.FAILED, "contents-distributions")
    assert "extra 1.0 is not in the SBOM" in found.summary
    looked_into(audited, tmp_path / "good")
    sha256 = Layout(tmp_path / "good").index.manifests[0].sha256
    locked = dataclasses.replace(audited, layout=tmp_path / "good", sha256=sha256)
    assert contents.run(locked).reason == "contents-packages"


def test_a_library_that_a_stand_in_lacks_is_told_and_not_held_against_it(
    audited: ImageContext, tmp_path: Path
) -> None:
    # A real shared object, which needs libc and more than this image has.
    needing = tar(folder("usr/lib/"), Entry(name="usr/lib/native.so", data=sample_project.ELF))
    assert looked_into(audited, tmp_path / "whole", needing).reason == "contents-needed"
    dependencies = Dependencies(lock="l.txt", stand_in="l.txt", stand_in_without=("torch",))
    without = dataclasses.replace(
        audited, stand_in="no torch", recipe=dataclasses.replace(audited.recipe, dependencies=dependencies)
    )
    labels = {types.RELEASABLE_LABEL: "false", types.REASON_LABEL: "no torch"}
    found = looked_into(without, tmp_path / "without", needing, **labels)
    assert found.verdict is Verdict.PASSED, found.summary
    assert any("native.so" in text for text in found.details["lacking"])
