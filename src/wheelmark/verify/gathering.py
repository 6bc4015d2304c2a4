"""Gathering a release: the edge that walks, hashes and reads a release directory, and establishes the facts of its bundles.

Nothing is judged here but files and bundles by themselves; see ``release`` for the order of what is checked.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from wheelmark import digests, manifest
from wheelmark.binaries.wheel import DEFAULT_LIMITS
from wheelmark.errors import InputError, WheelmarkError
from wheelmark.manifest import Entry, Kind, ReleaseManifest
from wheelmark.plainfiles import open_plain, read_bounded
from wheelmark.verify.artifact import WheelFacts, examine_wheel
from wheelmark.verify.artifactcache import ArtifactCache
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.case import Attestation
from wheelmark.verify.facts import Examiner
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.imagefacts import ImageFacts
from wheelmark.verify.policy import Policy, Predicate
from wheelmark.verify.releaseimages import gather_images
from wheelmark.verify.rootcopy import is_known_root
from wheelmark.verify.verdict import Refusal, refusal

MAX_FILES = 100_000
MAX_BUNDLES = 10_000
BUNDLE = ".sigstore.json"
_ROOT_COPY = "trust/trusted_root.json"
_DOCUMENT = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """Everything that is known of a release directory."""

    manifest: ReleaseManifest
    manifest_sha256: str
    refusals: tuple[Refusal, ...]
    """What is wrong with files and bundles."""
    wheels: Mapping[str, WheelFacts]
    """Path -> facts."""
    images: Mapping[str, ImageFacts]
    """Path of an image's manifest -> facts."""
    attestations: tuple[Attestation, ...]
    documents: Mapping[str, bytes]
    """Path of an SBOM -> bytes."""


def gather(path: Path, policy: Policy, *, cache: FactsCache | None = None) -> Release:
    """Read a release directory.

    Raises:
        InputError: ``release.json`` cannot be read (1), or there are too many files.
    """
    data = read_bounded(path / manifest.NAME, _DOCUMENT)  # 1
    release = ReleaseManifest.from_bytes(data)
    names = digests.tree_files(path)
    if len(names) > MAX_FILES:
        raise InputError(
            f"{path} holds {len(names):,} files; the limit is {MAX_FILES:,}", reason="input-limit"
        )
    entries = {entry.path: entry for entry in release.entries}
    present = {name for name in names if _is_plain(path / name)}
    bundles = {name: path / name for name in sorted(present) if _is_bundle(name)}
    if len(bundles) > MAX_BUNDLES:
        raise InputError(
            f"{path} holds {len(bundles):,} bundles; the limit is {MAX_BUNDLES:,}", reason="input-limit"
        )
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        looking = _looking(pool, path, present, release, cache)  # 3
        # Summing files lets this thread run meanwhile.
        examiner = Examiner(policy.roots, policy.keys, cache=cache)
        attestations, payloads, found = _examine_bundles(bundles, examiner)  # 4
        images = gather_images(path, release, attestations)  # 6
        seen = {entry: future.result() for entry, future in looking.items()}
    wheels = {entry.path: item for entry, item in seen.items() if isinstance(item, WheelFacts)}
    refusals = list(_unaccounted(path, names, entries, images.accounted))  # 2
    refusals += [
        refused for entry in release.entries if (refused := _differing(entry, seen[entry])) is not None
    ]
    refusals += found
    refusals += list(_statements(path, present, payloads))
    refusals += list(_copies(path, present, release, policy, attestations))  # 5
    refusals += images.refusals
    documents = dict(_documents(path, present, release.of_kind(Kind.SBOM)))
    return Release(
        manifest=release,
        manifest_sha256=digests.sha256(data),
        refusals=tuple(refusals),
        wheels=wheels,
        images=images.facts,
        attestations=attestations,
        documents=documents,
    )


def _documents(path: Path, present: set[str], entries: Sequence[Entry]) -> Iterator[tuple[str, bytes]]:
    """SBOMs with the digest that the release says: others are refused already, and are not worth a parser's time."""
    for entry in entries:
        if entry.path in present and entry.size <= _DOCUMENT:
            with contextlib.suppress(InputError):
                data = read_bounded(path / entry.path, entry.size)
                if digests.sha256(data) == entry.sha256:
                    yield entry.path, data


def _unaccounted(
    path: Path, names: Sequence[str], entries: Mapping[str, Entry], of_images: frozenset[str]
) -> Iterator[Refusal]:
    wheels = {name for name, entry in entries.items() if entry.kind is Kind.WHEEL}
    for name in names:
        known = (
            name in entries
            or name in of_images
            or name in {manifest.NAME, _ROOT_COPY}
            or _is_statement(name)
            or _is_bundle(name)
            or name.removesuffix(BUNDLE) in wheels
        )
        if not _is_plain(path / name):
            yield refusal(name, "unaccounted-file", "a link, a pipe or a device, and no plain file")
        elif not known:
            yield refusal(name, "unaccounted-file", f"neither {manifest.NAME} nor the layout accounts for it")


_Seen = WheelFacts | Refusal | tuple[str, int]
"""Of one listed file: what a wheel's bytes say, digest and size of another file, or why neither is known."""


def _looking(
    pool: concurrent.futures.Executor,
    path: Path,
    present: set[str],
    release: ReleaseManifest,
    cache: FactsCache | None,
) -> dict[Entry, concurrent.futures.Future[_Seen]]:
    """Begin to read every listed file: a wheel is looked into, anything else is hashed."""
    examine = ArtifactCache(cache.directory).examine if cache is not None else examine_wheel
    # Where each CPU has a wheel of its own, threads within one would only get in each other's way.
    threads = len(release.of_kind(Kind.WHEEL)) < (os.cpu_count() or 1)

    def look(entry: Entry) -> _Seen:
        file = path / entry.path
        if entry.path not in present:
            return refusal(entry.path, "file-missing", f"{manifest.NAME} lists it, and it is not there")
        try:
            if entry.kind is Kind.WHEEL and file.lstat().st_size == entry.size:
                return examine(file, subject=entry.path, threads=threads)
            return _measure(file, entry.size)
        except InputError as error:
            return refusal(entry.path, error.reason, error.what)

    # The largest first, so that no CPU has one left when the others are done.
    entries = sorted(release.entries, key=lambda entry: entry.size, reverse=True)
    return {entry: pool.submit(look, entry) for entry in entries}


def _differing(entry: Entry, seen: _Seen) -> Refusal | None:
    if isinstance(seen, WheelFacts):
        seen = (seen.sha256, seen.size)
    elif not isinstance(seen, tuple):
        return seen
    sha256, size = seen
    if (sha256, size) == (entry.sha256, entry.size):
        return None
    return refusal(
        entry.path,
        "file-digest",
        f"it has {size:,} bytes{f' with sha256 {sha256}' if sha256 else ''}; "
        f"{manifest.NAME} says {entry.size:,} with sha256 {entry.sha256}",
    )


def _is_bundle(name: str) -> bool:
    folder, _, rest = name.rpartition("/")
    return folder == "bundles" and rest.endswith(BUNDLE)


def _is_statement(name: str) -> bool:
    folder, _, rest = name.rpartition("/")
    return folder == "statements" and rest.endswith(".json")


def _examine_bundles(
    bundles: Mapping[str, Path], examiner: Examiner
) -> tuple[tuple[Attestation, ...], dict[str, bytes | None], list[Refusal]]:
    """Facts of every bundle; the payload that each signs (``None`` where it failed); what was refused."""
    attestations: list[Attestation] = []
    payloads: dict[str, bytes | None] = {}
    refusals: list[Refusal] = []
    seen: dict[str, str] = {}
    for name, path in bundles.items():
        payloads[name] = None
        try:
            facts = examiner.examine(read_bounded(path, LIMITS.size))
        except WheelmarkError as error:
            refusals.append(refusal(name, error.reason, error.what))
        else:
            first = seen.setdefault(facts.bundle_sha256, name)
            if first != name:
                # Nothing signs the names of bundles: whoever can write here could fill the folder with copies.
                refusals.append(refusal(name, "unaccounted-file", f"a copy of {first}"))
            attestations.append(Attestation(path=name, facts=facts))
            payloads[name] = facts.payload
    return tuple(attestations), payloads, refusals


def _statements(path: Path, present: set[str], payloads: Mapping[str, bytes | None]) -> Iterator[Refusal]:
    for name, payload in payloads.items():
        statement = f"statements/{PurePosixPath(name).name.removesuffix(BUNDLE)}.json"
        if statement not in present:
            yield refusal(statement, "statement-file", f"{name} has no statement file")
        elif payload is not None:
            try:
                same = read_bounded(path / statement, _DOCUMENT) == payload
            except InputError as error:
                yield refusal(statement, error.reason, error.what)
            else:
                if not same:
                    yield refusal(
                        statement, "statement-bytes", f"it is not, byte for byte, what {name} signs"
                    )
    for name in sorted(present):
        if _is_statement(name):
            bundle = f"bundles/{PurePosixPath(name).name.removesuffix('.json')}{BUNDLE}"
            if bundle not in payloads:
                yield refusal(name, "statement-bytes", "no bundle signs it")


def _copies(
    path: Path,
    present: set[str],
    release: ReleaseManifest,
    policy: Policy,
    attestations: Sequence[Attestation],
) -> Iterator[Refusal]:
    provenance = {
        item.facts.bundle_sha256
        for item in attestations
        if item.facts.statement is not None
        and item.facts.statement.predicate_type == Predicate.PROVENANCE.uri
    }
    beside = 0
    for entry in release.of_kind(Kind.WHEEL):
        name = f"{entry.path}{BUNDLE}"
        if name not in present:
            yield refusal(entry.path, "no-bundle", "no bundle lies beside the wheel")
        elif not provenance:
            beside += 1
        elif _digest(path / name, LIMITS.size) not in provenance:
            yield refusal(name, "sibling-bundle", "it is not the byte copy of the provenance bundle")
    if beside:
        # One fault, which has a line of its own: the copies may well be right.
        text = f"no provenance bundle holds that the {beside} beside wheels could be compared with"
        yield refusal("wheels", "sibling-bundle", text)
    if _ROOT_COPY in present and not is_known_root(path / _ROOT_COPY, policy.roots):
        yield refusal(_ROOT_COPY, "root-copy", "it is none of the policy's roots; it was not used")


def _digest(path: Path, limit: int) -> str:
    try:
        return digests.sha256(read_bounded(path, limit))
    except InputError:
        return ""  # a link, a device or too large: equal to nothing


def _measure(path: Path, expected: int) -> tuple[str, int]:
    """Digest and size of a file; of one with another size than expected only that."""
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        # A file of nothing but holes is made in no time, and would be hashed for hours.
        if size != expected:
            return "", size
        if size > DEFAULT_LIMITS.total:
            raise InputError(f"{path} holds {size:,} bytes", reason="input-limit")
        return digests.sha256_stream(stream), stream.tell()


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
