"""Closing a release: ``release.json`` lists every file by digest, and nothing else may lie beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import StateError
from wheelmark.manifest import NAME, Entry, Kind, NotBuilt, ReleaseManifest
from wheelmark.release.directory import ReleaseDirectory

_LATER = ("statements/", "bundles/", "trust/", "report/")
BUNDLE_SUFFIX = ".sigstore.json"


def entry_for(
    directory: ReleaseDirectory, relative: str, kind: Kind, *, target: str = "", describes: str = ""
) -> Entry:
    """The manifest entry of a file as it lies in the release directory."""
    path = directory / relative
    return Entry(
        path=relative,
        kind=kind,
        sha256=digests.sha256_file(path),
        size=path.stat().st_size,
        target=target,
        describes=describes,
    )


def check_accounted(root: Path, entries: Iterable[Entry], *, derived: Collection[str] = ()) -> None:
    """Refuse a file under ``root`` that neither ``entries`` nor the fixed layout accounts for.

    Args:
        root: The release directory.
        entries: What is listed.
        derived: Further files that follow from what is listed: the list of the images' layout.

    Raises:
        StateError: There is one, or a link (reason ``unaccounted-file``).
    """
    listed = {entry.path for entry in entries}
    wheels = {path for path in listed if path.startswith("wheels/")}
    for name in digests.tree_files(root):
        later = name == NAME or name.startswith(_LATER)
        beside = name.endswith(BUNDLE_SUFFIX) and name.removesuffix(BUNDLE_SUFFIX) in wheels
        if (root / name).is_symlink() or not (name in listed or name in derived or later or beside):
            raise StateError(
                f"{root / name} is not part of this release",
                cause="a file was put there by hand, or comes from another tool",
                fix="move it away; a release holds only what the pipeline accounts for",
                reason="unaccounted-file",
            )


def close_release(
    directory: ReleaseDirectory,
    *,
    project: str,
    version: str,
    targets: Iterable[str],
    not_built: Iterable[NotBuilt],
    snapshot: bool,
    entries: Iterable[Entry],
    levels: Mapping[str, Mapping[str, str]],
    derived: Collection[str] = (),
) -> ReleaseManifest:
    """Write ``release.json`` once everything that it lists is in place.

    Raises:
        StateError: A file lies in the directory that the release does not account for.
    """
    release = ReleaseManifest(
        project=project,
        version=version,
        targets=tuple(sorted(targets)),
        not_built=tuple(sorted(not_built)),
        snapshot=snapshot,
        entries=tuple(sorted(entries)),
        levels=levels,
    )
    check_accounted(directory.root, release.entries, derived=derived)
    directory.write(NAME, release.as_bytes())
    return release
