"""A release's images into a registry: refused or whole, and what was left undone is finished by the next run.

1. The layout's images and indexes are resolved, once; from here on digests count.
2. Refused is what should not be published (``releasable``).
3. Under a policy: each image is verified, with what is attached to it, before the registry is spoken to.
4. ``transfer``: blobs, manifests, referrers, and last the tags.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from wheelmark.errors import Exit, InputError, StateError
from wheelmark.oci import types
from wheelmark.oci.client import Registry
from wheelmark.oci.layout import INDEX, Layout
from wheelmark.oci.reference import Reference, is_tag
from wheelmark.oci.types import Descriptor
from wheelmark.publish.places import LayoutSource, RegistryPlace
from wheelmark.publish.releasable import check_releasable
from wheelmark.publish.transfer import Carried, Row, Wanted, transfer
from wheelmark.targets import named_by
from wheelmark.verify import verify_image
from wheelmark.verify.artifact import Asked
from wheelmark.verify.policy import Policy
from wheelmark.verify.verdict import Report, worst

IMAGES = "images"
"""Folder of a release directory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """How registries are spoken to."""

    plain_http: bool = False
    """Without TLS, also to another machine; credentials are not sent to it then."""
    workers: int = 4
    """Blobs at a time."""
    progress: Callable[[str], None] = lambda _line: None
    cancel: threading.Event = dataclasses.field(default_factory=threading.Event)

    def registry(self, host: str) -> Registry:
        """A client."""
        return Registry(host, plain_http=self.plain_http, cancel=self.cancel)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """What ``publish`` did: nothing, where a report says no."""

    destination: str
    reports: tuple[Report, ...]
    """Of the verifier, where a policy was given: one an image or index."""
    carried: Carried | None

    @property
    def exit_code(self) -> Exit:
        """The worst of the reports."""
        return worst(report.exit_code for report in self.reports) if self.reports else Exit.OK


def publish(
    source: Path,
    destination: Reference,
    *,
    tags: Sequence[str] = (),
    names: Sequence[str] = (),
    policy: Policy | None = None,
    snapshot: bool = False,
    unsigned: bool = False,
    mount_from: str = "",
    connection: Connection | None = None,
) -> Published:
    """Push the images of a release, or of a layout, with everything that is attached to them.

    Args:
        source: A release directory (``dist``) or an image layout.
        destination: Host and repository; a tag there is one more of ``tags``.
        tags: ``1.2`` names the layout's one index ``1.2`` and image N ``1.2-N``; where one image alone is pushed, it is
            ``1.2`` itself. None: the layout's own names.
        names: The images and indexes of the layout to push, with what an index holds (default: all).
        policy: Verify under it first.
        snapshot: Allow what is marked as not for release.
        unsigned: Allow what nobody signed.
        mount_from: Another repository of the registry that may have the layers already.
        connection: How the registry is spoken to.

    Raises:
        StateError: No images (``state``); not for release (``publish-not-releasable``); not of this release
            (``publish-unlisted``); not signed (``publish-unsigned``); for another target than its tag says (``publish-name``).
        InputError: No such image or tag, a malformed layout.
        RegistryError: See ``wheelmark.oci``; run again and it is finished.
    """
    connection = connection or Connection()
    path = _layout(source)
    place = LayoutSource(path)
    chosen = _chosen(place.layout, names)
    wanted = _named(chosen, [*tags, *([destination.tag] if destination.tag else [])])
    if destination.digest and {destination.digest} != {item.digest for item in chosen}:
        raise InputError(f"{destination} is another image than the layout's", reason="registry-reference")
    check_releasable(source, place.layout, wanted, snapshot=snapshot, unsigned=unsigned)
    reports: tuple[Report, ...] = ()
    if policy is not None:
        now = dt.datetime.now(dt.UTC)
        reports = tuple(
            verify_image(path, policy, now=now, reference=item.digest, asked=_asked(item)) for item in chosen
        )
        if not all(report.accepted for report in reports):
            return Published(destination=destination.name, reports=reports, carried=None)
    target = RegistryPlace(
        connection.registry(destination.host), destination.repository, mount_from=mount_from
    )
    carried = transfer(
        wanted,
        place,
        target,
        workers=connection.workers,
        cancel=connection.cancel,
        progress=connection.progress,
    )
    return Published(destination=destination.name, reports=reports, carried=carried)


def _asked(item: Descriptor) -> Asked:
    """What an image or index is asked for by: what the layout calls it, and what its tags will go on."""
    return Asked(
        index=item.sha256 if item.is_index else "", target=named_by(item.annotations.get(types.REFERENCE, ""))
    )


def _layout(source: Path) -> Path:
    for path in (source / IMAGES, source):
        if (path / INDEX).is_file():
            return path
    raise StateError(f"{source} holds no images", fix="nox -s build -s sign, or name an image layout")


def _chosen(layout: Layout, names: Sequence[str]) -> list[Descriptor]:
    known = {
        item.annotations.get(types.REFERENCE, item.digest): item
        for item in layout.index.manifests
        if not types.is_fallback_tag(item.annotations.get(types.REFERENCE, ""))
        and not _is_attached(layout, item)
    }
    unknown = [name for name in names if name not in known]
    if unknown or not known:
        raise InputError(
            f"{layout.path} has no image {unknown[0]!r}" if unknown else f"{layout.path} has no image",
            fix=f"it has {', '.join(sorted(known))}" if known else "",
            reason="image-reference",
        )
    return [known[name] for name in names or sorted(known)]


def _is_attached(layout: Layout, item: Descriptor) -> bool:
    return item.is_manifest and layout.holds(item) and layout.read_manifest(item).subject is not None


def _named(chosen: Sequence[Descriptor], tags: Sequence[str]) -> list[Wanted]:
    """What each is called at the destination."""
    indexes = [item for item in chosen if item.is_index]
    first = chosen[0] if len(chosen) == 1 else indexes[0] if len(indexes) == 1 else None
    found: list[Wanted] = []
    for item in chosen:
        name = item.annotations.get(types.REFERENCE, "")
        own = tuple(tag if item is first else f"{tag}-{name}" for tag in tags if item is first or name)
        if not tags and name:
            own = (name,)
        for tag in own:
            if not is_tag(tag) or types.is_fallback_tag(tag):
                raise InputError(f"{tag[:200]!r} is no tag for an image", reason="registry-reference")
        found.append(Wanted(descriptor=item, name=name or item.digest[:19], tags=own))
    return found


__all__ = ["Carried", "Connection", "Published", "Row", "publish"]
