"""What may be published: what is for release, of this release, signed, and for the target that its tag names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelmark import manifest
from wheelmark.errors import StateError
from wheelmark.oci import types
from wheelmark.oci.layout import Found, Layout
from wheelmark.publish.transfer import Wanted
from wheelmark.targets import named_by


def check_releasable(
    source: Path, layout: Layout, wanted: Sequence[Wanted], *, snapshot: bool, unsigned: bool
) -> None:
    """Refuse what should not be published.

    Args:
        source: The release directory, or the layout.
        layout: The layout.
        wanted: Images and indexes, with their tags at the destination.
        snapshot: Allow what is marked as not for release.
        unsigned: Allow what nobody signed.

    Raises:
        StateError: ``publish-unlisted``, ``publish-not-releasable``, ``publish-unsigned``, ``publish-name``.
    """
    images = {item.descriptor.sha256: item for each in wanted for item in _images(layout, each)}
    labels = {sha256: _labels(layout, item) for sha256, item in images.items()}
    marked = {
        sha256: f"the image of {said.get(types.TARGET_LABEL, sha256[:12])} ({said.get(types.REASON_LABEL, 'its label says so')})"[
            :400
        ]
        for sha256, said in labels.items()
        if said.get(types.RELEASABLE_LABEL, "true") != "true"
    }
    more = list(_of_release(source, wanted, images))
    if (marked or more) and not snapshot:
        good = [each.name for each in wanted if each.descriptor.sha256 in images.keys() - marked.keys()]
        alone = (
            f"publish the others alone ({' '.join(f'--image {name}' for name in good)}); or "
            if good and not more
            else ""
        )
        raise StateError(
            f"not for release: {'; '.join([*marked.values(), *more])}",
            fix=f"{alone}build with --release and the recipe's own dependencies; or say --snapshot and publish it as one",
            reason="publish-not-releasable",
        )
    for each in wanted:
        _check_names(each, labels.get(each.descriptor.sha256, {}))
    bare = [each.name for each in wanted if not unsigned and not _is_signed(layout, each)]
    if bare:
        raise StateError(
            f"nobody signed {', '.join(bare[:10])}",
            cause="no bundle is attached to it in the layout",
            fix="nox -s build -s test -s sign; or say --unsigned, and whoever verifies it will refuse it",
            reason="publish-unsigned",
        )


def _images(layout: Layout, each: Wanted) -> list[Found]:
    """The image, or those under the index."""
    if each.descriptor.is_manifest:
        return [Found(descriptor=each.descriptor)]
    return [
        found
        for found in layout.walk()
        if found.descriptor.is_manifest and each.descriptor.sha256 in found.indexes
    ]


def _labels(layout: Layout, image: Found) -> dict[str, str]:
    read = layout.read_manifest(image.descriptor)
    if read.config.media_type != types.CONFIG:
        return {}
    return dict(types.read_config(layout.document(read.config, limit=types.CONFIG_LIMIT)).labels)


def _of_release(source: Path, wanted: Sequence[Wanted], images: dict[str, Found]) -> Iterator[str]:
    """What ``release.json`` beside them says against them, where there is one: its images, under its names."""
    listed = source / manifest.NAME
    if not listed.is_file():
        return
    release = manifest.ReleaseManifest.from_bytes(listed.read_bytes())
    known = {entry.sha256: entry.target for entry in release.of_kind(manifest.Kind.IMAGE)}
    parts = {entry.sha256 for entry in release.of_kind(manifest.Kind.IMAGE_PART)}
    strange = [
        *(f"image {item.descriptor.digest}" for sha256, item in images.items() if sha256 not in known),
        *(
            f"index {each.descriptor.digest}"
            for each in wanted
            if each.descriptor.is_index and each.descriptor.sha256 not in parts
        ),
    ]
    if strange:
        raise StateError(
            f"release.json does not list the {strange[0]}",
            cause="images were built after the release was closed",
            fix="nox -s build -s test -s sign",
            reason="publish-unlisted",
        )
    for each in wanted:
        if (target := known.get(each.descriptor.sha256, each.name)) != each.name:
            raise StateError(
                f"the layout names the image {each.descriptor.digest} {each.name}, and release.json {target}",
                cause="the layout was changed after the release was closed",
                fix="nox -s build -s test -s sign",
                reason="publish-unlisted",
            )
    if release.snapshot:
        yield "the release (a snapshot of uncommitted changes)"


def _check_names(each: Wanted, labels: dict[str, str]) -> None:
    target = labels.get(types.TARGET_LABEL, "")
    for tag in each.tags:
        if (named := named_by(tag)) and named != target:
            what = f"an image for {target}" if target else "no image of a target"
            raise StateError(
                f"the tag {tag} names the target {named}, and {each.name} is {what}",
                fix="name another tag, or the image of that target",
                reason="publish-name",
            )


def _is_signed(layout: Layout, each: Wanted) -> bool:
    """Whether a bundle is attached to it, or to an index that holds it."""
    above = [
        sha256
        for found in layout.walk()
        if found.descriptor.sha256 == each.descriptor.sha256
        for sha256 in found.indexes
    ]
    return any(
        found.kind == types.BUNDLE for _item, found in layout.referrers([each.descriptor.sha256, *above])
    )
