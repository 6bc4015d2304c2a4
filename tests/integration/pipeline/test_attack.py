"""A signed release under attack: a change anywhere, a file too few or too many, files of another release.

Each attack is one change to a release that is accepted without it; each has to be refused, for a reason that says what is
wrong, and none may escape as an error of another kind than a refusal.
"""

from __future__ import annotations

import collections
import datetime as dt
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from attacking import elf_regions, flipped, json_edits, zip_regions
from checkouts import Checkout
from wheelmark import digests
from wheelmark.errors import Exit, WheelmarkError
from wheelmark.verify import Policy, Report, load_policy, reasons, verify_release, verify_wheel
from wheelmark.verify.facts import Examiner

WHEEL, KERNELS, SBOM, EVIDENCE, LOCK = "wheels/*.whl", "kernels/*", "sbom/*", "evidence/*/*", "locks/*"
BESIDE, STATEMENT, BUNDLE = "wheels/*.whl.sigstore.json", "statements/*.json", "bundles/*.sigstore.json"
CANONICAL = {"manifest", "manifest-version", "manifest-path"}
BUNDLE_CODES = {
    *("json-syntax", "json-duplicate-key", "json-number", "json-type", "bundle-version", "bundle-shape"),
    *(
        "certificate-malformed",
        "timestamp-malformed",
        "untrusted-root",
        "certificate-missing",
        "chain",
        "sct",
    ),
    *(
        "certificate-usage",
        "certificate-key",
        "certificate-identity",
        "certificate-expired",
        "root-in-bundle",
    ),
    *(
        "signature",
        "log-missing",
        "log-kind",
        "log-entry",
        "log-unknown",
        "proof-missing",
        "proof",
        "checkpoint",
    ),
    *("promise", "unauthenticated", "not-canonical", "time-missing", "time-unsigned", "timestamp-other"),
    *("timestamp-untrusted", "payload-type", "statement-expected"),
}
CONSEQUENCES = {"predicate-missing", "gate-missing", "sibling-bundle", "statement-bytes"}
"""What a refused bundle leaves undone; never the only reason there is."""
OTHER_GATES = {"abi", "audit", "coverage", "performance", "repeat", "size"}
Verdicts = dict[str, tuple[str, ...]]


class Target:
    """A copy of a release that is attacked, one file at a time."""

    def __init__(self, dist: Path, policy: Policy) -> None:
        self.dist = dist
        self.policy = policy
        self.now = dt.datetime.now(dt.UTC)

    def release(self) -> Report:
        return verify_release(self.dist, self.policy, now=self.now)

    def wheel(self) -> Report:
        return verify_wheel(self.one(WHEEL), self.policy, now=self.now)

    def one(self, pattern: str) -> Path:
        return min(self.dist.glob(pattern))

    def judged(self, path: Path, versions: Iterator[tuple[str, bytes]], *, alone: bool = False) -> Verdicts:
        """Name of each version of a file -> reasons of the refusal; the file is as it was afterwards."""
        original = path.read_bytes()
        found = {}
        for name, data in versions:
            assert data != original, f"{name} changes nothing"
            path.write_bytes(data)
            found[name] = answer(self.wheel() if alone else self.release(), name)
        path.write_bytes(original)
        assert found
        return found


def answer(report: Report, what: str) -> tuple[str, ...]:
    """Reasons of a refusal; anything accepted is the end."""
    assert not report.accepted, f"accepted in spite of: {what}"
    assert report.exit_code in {Exit.REJECTED, Exit.MISSING, Exit.INPUT, Exit.UNCHECKED}
    codes = tuple(sorted(set(report.reasons())))
    assert set(codes) <= set(reasons.TABLE), f"{what}: unknown reason in {codes}"
    assert "library" not in codes, f"{what}: a library failed in a way that is not foreseen"
    return codes


def check(found: Verdicts, needed: set[str], also: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Every attack has one of the reasons needed, and none but these and those that may stand beside them."""
    for name, codes in found.items():
        assert needed & set(codes), f"{name}: {codes}"
        assert set(codes) <= needed | also, f"{name}: {codes}"


@pytest.fixture(scope="module")
def policy(small: Checkout) -> Iterator[Policy]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHEELMARK_STATE", str(small.state))
        yield load_policy(small.policy)


@pytest.fixture
def target(small: Checkout, policy: Policy, tmp_path: Path) -> Target:
    shutil.copytree(small.dist, tmp_path / "dist")
    made = Target(tmp_path / "dist", policy)
    assert made.release().accepted
    assert made.wheel().accepted
    return made


def flips(data: bytes, regions: Iterator[tuple[str, int]]) -> Iterator[tuple[str, bytes]]:
    return ((name, flipped(data, at)) for name, at in regions)


def samples(data: bytes, count: int = 12) -> Iterator[tuple[str, bytes]]:
    """Flips spread evenly, a byte cut off, and one added."""
    for number in range(count):
        at = number * (len(data) - 1) // (count - 1)
        yield f"byte {at}", flipped(data, at)
    yield "cut off", data[:-1]
    yield "longer", data + b"\n"
    yield "empty", b""


def test_every_byte_of_a_bundle(target: Target) -> None:
    """A release is accepted only if each of its bundles is; so the bundle alone is examined, many times."""
    path = min(target.dist.glob(BUNDLE), key=lambda item: item.stat().st_size)
    data = path.read_bytes()
    examiner = Examiner(target.policy.roots)
    envelope = data.index(b'"payload":"') + 11
    payload = range(envelope, data.index(b'"', envelope))
    found: collections.Counter[str] = collections.Counter()
    for at in range(len(data)):
        # Signed text is one region; elsewhere a second bit too: it turns letters' case, which base64 and hex may forgive.
        for mask in (1,) if at in payload else (1, 0x20):
            try:
                examiner.examine(flipped(data, at, mask))
            except WheelmarkError as error:
                found[error.reason] += 1
            else:
                pytest.fail(f"byte {at} with mask {mask:#x} is accepted")
    assert set(found) <= BUNDLE_CODES, found
    assert {"signature", "untrusted-root", "log-entry", "checkpoint", "timestamp-untrusted"} <= set(found)
    assert sum(found.values()) == 2 * len(data) - len(payload)


def test_every_region_of_a_wheel_alone(target: Target) -> None:
    path = target.one(WHEEL)
    data = path.read_bytes()
    check(
        target.judged(path, flips(data, zip_regions(data)), alone=True),
        {"subject-digest"},
        {"wheel-zip", "wheel-record", "predicate-missing"},
    )


def test_regions_of_a_wheel_in_a_release(target: Target) -> None:
    path = target.one(WHEEL)
    data = path.read_bytes()
    regions = [*zip_regions(data)][::6]
    check(
        target.judged(path, iter([*flips(data, iter(regions)), *samples(data, 3)])),
        {"file-digest"},
        {
            "wheel-zip",
            "wheel-record",
            "kernel-copy",
            "sbom-subject",
            "evidence-file",
            "subject-digest",
            *CONSEQUENCES,
        },
    )


def test_every_section_of_code_objects(target: Target) -> None:
    objects = sorted(target.dist.glob("kernels/*/*.cubin"))
    for path in (objects[0], objects[-1]):
        data = path.read_bytes()
        check(target.judged(path, flips(data, elf_regions(data))), {"file-digest"})


@pytest.mark.parametrize("pattern", ["kernels/*/manifest.json", SBOM, EVIDENCE])
def test_every_field_of_described_documents(target: Target, pattern: str) -> None:
    also = {
        *("sbom-document", "sbom-subject", "sbom-format", "sbom-field", "sbom-twice", "sbom-unexplained"),
        *("json-syntax", "json-type"),
    }
    for path in sorted(target.dist.glob(pattern)):
        data = path.read_bytes()
        # Evidence of all gates has the same fields around its details.
        edits = json_edits(data, thorough=False) if path.stem not in OTHER_GATES else iter(())
        check(target.judged(path, iter([*edits, *samples(data, 4)])), {"file-digest"}, also)


def test_locks(target: Target) -> None:
    path = target.one(LOCK)
    check(target.judged(path, samples(path.read_bytes())), {"file-digest"})


def test_every_field_of_the_release_manifest(target: Target) -> None:
    path = target.dist / "release.json"
    data = path.read_bytes()
    # Whatever it then lists, no provenance is about it: "subject-digest" says that its own bytes changed.
    needed = {"subject-digest", "json-syntax", "json-duplicate-key", "json-number", *CANONICAL}
    also = {
        *(
            "unaccounted-file",
            "file-missing",
            "file-digest",
            "wheel-absent",
            "release-target",
            "wheel-name",
            "levels",
            "provenance-release",
        ),
        *(
            "kernel-copy",
            "kernel-manifest-target",
            "kernel-manifest-missing",
            "sbom-document",
            "evidence-file",
        ),
        *(
            "subject-name",
            "subject-lacking",
            "subject-extra",
            "target",
            "partial",
            "snapshot",
            "no-bundle",
            *CONSEQUENCES,
        ),
    }
    check(target.judged(path, iter([*json_edits(data, thorough=True), *samples(data, 60)])), needed, also)


def test_every_field_of_statements(target: Target) -> None:
    for path in sorted(target.dist.glob(STATEMENT)):
        data = path.read_bytes()
        # The others hold an SBOM and evidence, whose fields have been tried where they stand.
        edits = json_edits(data, thorough=True) if path.name == "provenance.json" else iter(())
        check(target.judged(path, iter([*edits, *samples(data, 20)])), {"statement-bytes"})


def test_every_field_of_bundles(target: Target) -> None:
    for path in sorted(target.dist.glob(BUNDLE)):
        data = path.read_bytes()
        thorough = path.name.startswith("provenance")
        found = target.judged(path, iter([*json_edits(data, thorough=thorough), *samples(data, 4)]))
        check(found, BUNDLE_CODES, CONSEQUENCES | {"no-bundle"})


def test_every_field_of_the_bundle_beside_a_wheel(target: Target) -> None:
    path = target.one(BESIDE)
    data = path.read_bytes()
    edits = [*json_edits(data, thorough=False), *samples(data, 4)]
    check(target.judged(path, iter(edits)), {"sibling-bundle"})
    check(target.judged(path, iter(edits), alone=True), BUNDLE_CODES, CONSEQUENCES)


def test_the_copy_of_the_root(target: Target) -> None:
    path = target.dist / "trust" / "trusted_root.json"
    data = path.read_bytes()
    check(target.judged(path, iter([*json_edits(data, thorough=False), *samples(data, 4)])), {"root-copy"})


def test_any_file_taken_away(target: Target) -> None:
    """But the copy of the root, which nobody believes."""
    needed = {
        WHEEL: {"file-missing"},
        f"{KERNELS}/*": {"file-missing"},
        SBOM: {"file-missing"},
        EVIDENCE: {"file-missing"},
        LOCK: {"file-missing"},
        STATEMENT: {"statement-file"},
        BUNDLE: {"statement-bytes"},
        BESIDE: {"no-bundle"},
    }
    names = set()
    for pattern, codes in needed.items():
        for path in sorted(target.dist.glob(pattern)):
            names.add(path.relative_to(target.dist).as_posix())
            kept = path.read_bytes()
            path.unlink()
            found = answer(target.release(), f"without {path}")
            assert codes <= set(found), (path, found)
            path.write_bytes(kept)
    assert names == set(digests.tree_files(target.dist)) - {"release.json", "trust/trusted_root.json"}
    (target.dist / "trust" / "trusted_root.json").unlink()
    assert target.release().accepted
    (target.dist / "release.json").unlink()
    with pytest.raises(WheelmarkError) as caught:
        target.release()
    assert caught.value.reason == "not-a-release"


def test_a_statement_taken_away_with_its_bundle(target: Target) -> None:
    for bundle in sorted(target.dist.glob(BUNDLE)):
        statement = target.dist / "statements" / (bundle.name.removesuffix(".sigstore.json") + ".json")
        kept = {path: path.read_bytes() for path in (bundle, statement)}
        for path in kept:
            path.unlink()
        assert "predicate-missing" in answer(target.release(), f"without {bundle.name}")
        for path, data in kept.items():
            path.write_bytes(data)


def test_a_file_added(target: Target) -> None:
    codes: Mapping[str, str] = {
        "extra.txt": "unaccounted-file",
        "wheels/other-1.0-py3-none-any.whl": "unaccounted-file",
        "wheels/other-1.0-py3-none-any.whl.sigstore.json": "unaccounted-file",
        "kernels/cuda-sm90/other.cubin": "unaccounted-file",
        "kernels/cuda-sm80/manifest.json": "unaccounted-file",
        "sbom/other.cdx.json": "unaccounted-file",
        "evidence/other/abi.json": "unaccounted-file",
        "locks/other.txt": "unaccounted-file",
        "report/index.html": "unaccounted-file",
        "trust/other.json": "unaccounted-file",
        "statements/other.json": "statement-bytes",
        "statements/other.txt": "unaccounted-file",
        "bundles/other.sigstore.json": "json-syntax",
        ".hidden": "unaccounted-file",
        "deep/er/file": "unaccounted-file",
    }
    for name, code in codes.items():
        path = target.dist / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        assert code in answer(target.release(), f"with {name}")
        path.unlink()
    link = target.dist / "link"
    link.symlink_to("release.json")
    assert "unaccounted-file" in answer(target.release(), "with a link")
    link.unlink()
    copied = target.dist / "bundles" / "again.sigstore.json"
    shutil.copyfile(target.dist / "bundles" / "provenance.sigstore.json", copied)
    assert "statement-file" in answer(target.release(), "with a good bundle under another name")


def test_a_listed_file_turned_into_a_link(target: Target, tmp_path: Path) -> None:
    for pattern in (WHEEL, SBOM, LOCK, STATEMENT, BUNDLE, BESIDE, "kernels/*/*.cubin", EVIDENCE):
        path = target.one(pattern)
        moved = tmp_path / "elsewhere"
        path.rename(moved)
        path.symlink_to(moved)
        assert "unaccounted-file" in answer(target.release(), f"{path} as a link")
        path.unlink()
        os.mkfifo(path)
        answer(target.release(), f"{path} as a pipe")
        path.unlink()
        moved.rename(path)
    assert target.release().accepted


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("kernels/*/*.cubin", "file-digest"),
        (EVIDENCE, "file-digest"),
        (STATEMENT, "statement-bytes"),
        (BUNDLE, "statement-bytes"),
    ],
)
def test_two_files_of_one_kind_swapped(target: Target, pattern: str, code: str) -> None:
    files = sorted(target.dist.glob(pattern))
    assert len(files) > 1
    for one, other in itertools.pairwise(files):
        first, second = one.read_bytes(), other.read_bytes()
        if first == second:
            continue
        one.write_bytes(second)
        other.write_bytes(first)
        assert code in answer(target.release(), f"{one.name} and {other.name} swapped")
        one.write_bytes(first)
        other.write_bytes(second)


def test_files_of_two_wheels_swapped(release: Checkout, policy: Policy, tmp_path: Path) -> None:
    shutil.copytree(release.dist, tmp_path / "dist")
    target = Target(tmp_path / "dist", policy)
    for pattern, code in ((WHEEL, "file-digest"), (SBOM, "file-digest"), (LOCK, "file-digest")):
        one, other, *_rest = sorted(target.dist.glob(pattern))
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        assert code in answer(target.release(), f"{one.name} and {other.name} swapped")
        one.write_bytes(first)
        other.write_bytes(second)
    assert target.release().accepted


def test_files_of_another_release(target: Target, later: Checkout) -> None:
    """The other release is as good, and signed by the same signer."""
    assert Target(later.dist, target.policy).wheel().accepted
    found = {}
    for path in sorted(item for item in later.dist.rglob("*") if item.is_file()):
        name = path.relative_to(later.dist).as_posix()
        ours = target.dist / name.replace("0.2.0", "0.1.0")
        if not ours.is_file() or ours.read_bytes() == path.read_bytes():
            continue
        kept = ours.read_bytes()
        shutil.copyfile(path, ours)
        found[name] = answer(target.release(), name)
        ours.write_bytes(kept)
    kinds = {name.split("/")[0] for name in found}
    assert {"release.json", "wheels", "sbom", "evidence", "statements", "bundles"} <= kinds
    for name, codes in found.items():
        expected = {
            "release.json": "subject-digest",
            "statements": "statement-bytes",
            "bundles": "statement-bytes",
        }
        needed = (
            "sibling-bundle"
            if name.endswith(".whl.sigstore.json")
            else expected.get(name.split("/")[0], "file-digest")
        )
        assert needed in codes, (name, codes)


@pytest.mark.parametrize(
    ("folders", "code"),
    [
        (("bundles", "statements"), "subject-digest"),
        (("bundles", "statements", "release.json"), "file-missing"),
        (("wheels", "release.json"), "subject-digest"),
        (("wheels", "sbom", "evidence"), "file-missing"),
        (("wheels", "sbom", "evidence", "release.json"), "subject-digest"),
    ],
)
def test_parts_of_another_release(target: Target, later: Checkout, folders: Sequence[str], code: str) -> None:
    for name in folders:
        ours, theirs = target.dist / name, later.dist / name
        if theirs.is_file():
            shutil.copyfile(theirs, ours)
        else:
            shutil.rmtree(ours)
            shutil.copytree(theirs, ours)
    assert code in answer(target.release(), " and ".join(folders))


def test_another_wheel_with_our_bundle(target: Target, later: Checkout) -> None:
    """A wheel alone: another version under our name, and another version's bundle beside ours."""
    wheel, beside = target.one(WHEEL), target.one(BESIDE)
    (other,) = later.dist.glob(WHEEL)
    kept = wheel.read_bytes()
    wheel.write_bytes(other.read_bytes())
    assert {"subject-digest", "wheel-name"} & set(answer(target.wheel(), "another version under this name"))
    wheel.write_bytes(kept)
    beside.write_bytes(other.with_name(other.name + ".sigstore.json").read_bytes())
    assert "subject-digest" in answer(target.wheel(), "another version's bundle")
