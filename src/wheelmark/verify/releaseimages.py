"""The images of a release: one OCI layout, of which every byte is listed, derived from what is listed, or a bundle's.

``images/oci-layout`` and ``images/index.json`` are derived: the list names each image of ``release.json`` under its
target, each index over some of them that it lists, and for each of both the index of what refers to it. What refers to
it is an artifact that holds one bundle of the release about it, in the one form that Wheelmark writes. Anything else is
refused: ``image-derived`` where it is reached from the list, ``unaccounted-file`` where nothing reaches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wheelmark.errors import InputError
from wheelmark.manifest import IMAGES, Entry, Kind, ReleaseManifest
from wheelmark.oci import layout as layouts
from wheelmark.oci import types
from wheelmark.oci.layer import LayerFacts
from wheelmark.oci.layout import Found, Layout
from wheelmark.oci.types import Descriptor, ImageIndex
from wheelmark.plainfiles import read_bounded
from wheelmark.targets import named_by
from wheelmark.verify.bundle import LIMITS
from wheelmark.verify.case import Attestation
from wheelmark.verify.imagefacts import ImageFacts, examine_image
from wheelmark.verify.verdict import Refusal, refusal

_LIST = f"{IMAGES}/{layouts.INDEX}"
_MARK = f"{IMAGES}/{layouts.MARK}"
_NOTHING = types.descriptor_of(b"{}", types.EMPTY)
_CONTENT, _PREDICATE = "dev.sigstore.bundle.content", "dev.sigstore.bundle.predicateType"
_CREATED = "org.opencontainers.image.created"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseImages:
    """What is known of the images of a release."""

    facts: Mapping[str, ImageFacts] = dataclasses.field(default_factory=dict)
    """Path of an image's manifest -> what its bytes say."""
    refusals: tuple[Refusal, ...] = ()
    accounted: frozenset[str] = frozenset()
    """Files that the images account for, beside those that are listed."""


def gather_images(path: Path, release: ReleaseManifest, attestations: Sequence[Attestation]) -> ReleaseImages:
    """Read the images of a release, and hold their layout against what the release lists.

    Args:
        path: The release directory.
        release: Its manifest.
        attestations: Its bundles; what is attached to an image has to be among them.
    """
    entries = {entry.sha256: entry for entry in release.of_kind(Kind.IMAGE)}
    parts = {entry.sha256: entry for entry in release.of_kind(Kind.IMAGE_PART)}
    if not entries:
        return ReleaseImages()
    try:
        look = _Look(path / IMAGES, entries, parts, attestations)
        refusals = tuple(look.compare())
    except InputError as error:
        refused = refusal(_LIST, error.reason, error.what)
        return ReleaseImages(refusals=(refused,), accounted=frozenset({_LIST, _MARK}))
    known: dict[str, LayerFacts] = {}
    facts = {
        entry.path: dataclasses.replace(
            examine_image(look.layout, Found(descriptor=look.images[sha256]), known=known),
            path=entry.subject_name,
        )
        for sha256, entry in entries.items()
        if sha256 in look.images
    }
    used = look.indexes | {sha256 for item in facts.values() for sha256 in item.files.values()}
    idle = [
        refusal(entry.path, "image-unaccounted", "no image of the release holds it")
        for entry in release.of_kind(Kind.IMAGE_PART)
        # Where an image cannot be read, what it holds is not known, and that it cannot is refused.
        if entry.sha256 not in used and all(item.files for item in facts.values())
    ]
    accounted = {f"{IMAGES}/{layouts.BLOBS}/{sha256}" for sha256 in look.blobs}
    return ReleaseImages(
        facts=facts, refusals=(*refusals, *idle), accounted=frozenset({_LIST, _MARK, *accounted})
    )


class _Look:
    """One look over a layout; gathers where each image stands and which blobs are accounted for."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        parts: Mapping[str, Entry],
        attestations: Sequence[Attestation],
    ) -> None:
        self.layout = Layout(path)
        self.images: dict[str, Descriptor] = {}
        self.indexes: set[str] = set()
        """sha256 of indexes over images."""
        self.blobs: set[str] = set()
        self._entries = entries
        self._parts = parts
        tops = [
            (types.MANIFEST, entries[item.sha256])
            if item.sha256 in entries
            else (types.INDEX, parts[item.sha256])
            for item in self.layout.index.manifests
            if item.sha256 in entries or (item.is_index and item.sha256 in parts)
        ]
        self._about = {types.fallback_tag(entry.sha256): (kind, entry) for kind, entry in tops}
        """Tag of the index of what refers to an image or index -> media type and entry of that."""
        self._bundles = {item.facts.bundle_sha256: item for item in attestations}

    def compare(self) -> Iterator[Refusal]:
        """Everything about the list that does not follow from the release."""
        if read_bounded(self.layout.path / layouts.MARK, types.DOCUMENT_LIMIT) != layouts.VERSION:
            yield refusal(_MARK, "image-derived", "it is not in the one form that Wheelmark writes")
        data = read_bounded(self.layout.path / layouts.INDEX, types.DOCUMENT_LIMIT)
        if data != self.layout.index.as_bytes():
            yield refusal(_LIST, "image-derived", "it is not in the one form that Wheelmark writes")
        for item in self.layout.index.manifests:
            if problem := self._top(item):
                yield refusal(_LIST, "image-derived", f"{item.digest}: {problem}")
        for sha256, entry in self._entries.items():
            if sha256 not in self.images:
                yield refusal(entry.path, "image-derived", f"{_LIST} does not list it")

    def _top(self, item: Descriptor) -> str:
        """What is wrong with one item of the list."""
        tag = item.annotations.get(types.REFERENCE, "")
        entry = self._entries.get(item.sha256)
        if entry is None:
            return self._index(item, tag) if item.is_index else "no image of the release"
        if item.sha256 in self.images:
            return "listed twice"
        self.images[item.sha256] = item
        if not item.is_manifest or dict(item.annotations) != {types.REFERENCE: entry.target}:
            return f"listed otherwise than as the image for {entry.target}"
        return ""

    def _index(self, item: Descriptor, tag: str) -> str:
        """What is wrong with an index: over images, or of what refers to one."""
        if not self.layout.holds(item):
            return "listed, and not there"
        index = self.layout.read_index(item)
        if index.as_bytes() != self.layout.document(item) or index.subject or index.artifact_type:
            return "not in the one form that Wheelmark writes"
        if tag not in self._about:
            return self._over_images(item, index, tag)
        self.blobs.add(item.sha256)
        if index.annotations:
            return "not in the one form that Wheelmark writes"
        problems = (self._referrer(below, *self._about[tag]) for below in index.manifests)
        return next((text for text in problems if text), "")

    def _over_images(self, item: Descriptor, index: ImageIndex, tag: str) -> str:
        """What is wrong with an index over several images; what it says of them, their manifests say."""
        if item.sha256 not in self._parts:
            return "an index that the release does not list"
        if dict(item.annotations) != {types.REFERENCE: tag} or named_by(tag):
            return f"an index, listed as {tag[:100]!r}"
        self.indexes.add(item.sha256)
        below = [item for item in index.manifests if item.sha256 in self._entries and self.layout.holds(item)]
        if strangers := [item.digest for item in index.manifests if item not in below]:
            return f"it lists {strangers[0]}, which is no image of the release"
        noted = [self.layout.read_manifest(item).annotations for item in below]
        for name, text in index.annotations.items():
            said = {found.get(name, "") for found in noted}
            if said != {text} and not (name == types.RELEASABLE_LABEL and text == "false" and text in said):
                return f"it says {name[:80]} = {text[:80]!r}, which its images do not"
        return ""

    def _referrer(self, item: Descriptor, kind: str, about: Entry) -> str:
        """What is wrong with an artifact that is said to refer to an image or an index."""
        if not item.is_manifest or not self.layout.holds(item):
            return f"{item.digest} is no manifest that is there"
        manifest = self.layout.read_manifest(item)
        (config, layers) = (manifest.config, manifest.layers)
        if (
            self.layout.document(item) != manifest.as_bytes()
            or manifest.artifact_type != types.BUNDLE
            or (config.media_type, config.sha256, config.size)
            != (_NOTHING.media_type, _NOTHING.sha256, _NOTHING.size)
            or [layer.media_type for layer in layers] != [types.BUNDLE]
            or not set(manifest.annotations) <= {_CONTENT, _PREDICATE, _CREATED}
            or (item.annotations, item.artifact_type) != (manifest.annotations, types.BUNDLE)
        ):
            return f"{item.digest} is not in the one form that Wheelmark writes"
        found = self._bundles.get(layers[0].sha256)
        if found is None:
            return f"{item.digest} holds no bundle of the release"
        subject = manifest.subject
        if subject is None or (subject.media_type, subject.sha256, subject.size) != (
            kind,
            about.sha256,
            about.size,
        ):
            return f"{item.digest} does not refer to {about.subject_name}"
        if about.sha256 not in found.digests() or manifest.annotations.get(_PREDICATE, "") != found.kind:
            return f"{item.digest}: {found.path} is not a statement of that kind about {about.subject_name}"
        for blob in (config, layers[0]):
            self.layout.document(blob, limit=LIMITS.size)  # its digest and size are compared
        self.blobs |= {item.sha256, config.sha256, layers[0].sha256}
        return ""
