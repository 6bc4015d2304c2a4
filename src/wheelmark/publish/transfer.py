"""Images with everything that refers to them, from one place to another: whole, or not to be seen.

1. Gather: every manifest, index and referrer under what was asked for, by digest, within bounds; nothing is written.
2. Blobs, several at a time; what is there already stays, so that a run that was killed is finished by the next.
3. Manifests and indexes by digest, children first.
4. Referrers, and what lists them.
5. Tags, an index's last.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wheelmark.errors import InputError, WheelmarkError
from wheelmark.oci import types
from wheelmark.oci.layout import MAX_REFERRERS
from wheelmark.oci.types import Descriptor, ImageIndex, ImageManifest
from wheelmark.publish.places import Action, Source, Target

_MAX_DOCUMENTS = 10_000
_MAX_BYTES = 256 << 20
"""Of all documents together: they are held in memory."""
_MAX_CHAIN = 4
"""Referrers of referrers."""
_PREDICATE = "dev.sigstore.bundle.predicateType"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """An image or index that is to be carried."""

    descriptor: Descriptor
    name: str
    """How people call it: a tag, else a digest."""
    tags: tuple[str, ...]
    """Its tags at the destination."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was carried."""

    artifact: str
    digest: str
    size: int
    """Bytes."""
    action: Action
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**dataclasses.asdict(self), "action": self.action.value, "seconds": round(self.seconds, 3)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """What a transfer did."""

    rows: tuple[Row, ...]
    tags: Mapping[str, str]
    """Tag -> digest."""
    notes: tuple[str, ...] = ()

    def sent(self) -> int:
        """Bytes that were sent."""
        return sum(row.size for row in self.rows if row.action is Action.UPLOADED)


@dataclasses.dataclass(kw_only=True)
class _Document:
    descriptor: Descriptor
    data: bytes
    name: str


@dataclasses.dataclass(kw_only=True)
class _Plan:
    blobs: dict[str, tuple[Descriptor, str]] = dataclasses.field(default_factory=dict)
    documents: dict[str, _Document] = dataclasses.field(default_factory=dict)
    """Images and indexes, children first."""
    referrers: dict[str, dict[str, _Document]] = dataclasses.field(default_factory=dict)
    """sha256 of a subject -> what refers to it; subjects before what refers to these in turn."""
    notes: list[str] = dataclasses.field(default_factory=list)
    size: int = 0
    count: int = 0


def transfer(
    wanted: Sequence[Wanted],
    source: Source,
    target: Target,
    *,
    workers: int = 4,
    cancel: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> Carried:
    """Carry images and indexes with all that refers to them.

    Args:
        wanted: What, resolved already: a tag that moves meanwhile changes nothing.
        source: Where from.
        target: Where to.
        workers: Blobs at a time.
        cancel: Set when one blob fails, so that the others end; shared with the registries' clients.
        progress: Is told each step.

    Raises:
        InputError: Malformed documents, too many, or too many referrers (``input-limit``).
        RegistryError, StateError: As of the places.
    """
    plan = _Plan()
    # Images before the indexes that hold them, so that each is called by its own name.
    wanted = sorted(wanted, key=lambda item: item.descriptor.is_index)
    for item in wanted:
        _gather(plan, source, item)
    blobs = list(plan.blobs.values())
    total = sum(descriptor.size for descriptor, _ in blobs)
    progress(f"{len(blobs)} blobs of {total:,} bytes, {plan.count} manifests")
    rows = list(_carry_blobs(blobs, source, target, workers=workers, cancel=cancel, progress=progress))
    rows += [_carry_document(document, target) for document in plan.documents.values()]
    rows += _carry_referrers(plan, target)
    tags: dict[str, str] = {}
    for item in wanted:
        done = target.tag(item.descriptor, plan.documents[item.descriptor.sha256].data, item.tags)
        for tag, action in done.items():
            progress(
                f"tag {tag}: {item.descriptor.digest} ({'set' if action is Action.UPLOADED else 'as it was'})"
            )
            tags[tag] = item.descriptor.digest
    target.finish()
    return Carried(rows=tuple(rows), tags=tags, notes=tuple(plan.notes))


def _gather(plan: _Plan, source: Source, item: Wanted) -> None:
    before = set(plan.documents)
    _gather_document(plan, source, item.descriptor, item.name, plan.documents, nesting=0)
    names = {key: found.name for key, found in plan.documents.items() if key not in before}
    level = list(names)
    for _ in range(_MAX_CHAIN):
        following: list[str] = []
        for subject in level:
            found: dict[str, _Document] = {}
            for referrer in source.referrers(subject):
                _gather_referrer(plan, source, referrer, subject, name=names[subject], into=found)
            if len(found) > MAX_REFERRERS:
                raise InputError(
                    f"sha256:{subject} has more than {MAX_REFERRERS:,} referrers", reason="input-limit"
                )
            if found:
                plan.referrers.setdefault(subject, {}).update(found)
                following += found
                names |= {key: document.name for key, document in found.items()}
        level = following
        if not level:
            return
    if any(source.referrers(subject) for subject in level):
        raise InputError(
            f"what refers to {item.descriptor.digest} is referred to more than {_MAX_CHAIN} deep",
            reason="input-limit",
        )


def _gather_referrer(
    plan: _Plan, source: Source, referrer: Descriptor, subject: str, *, name: str, into: dict[str, _Document]
) -> None:
    try:
        data = source.document(referrer)
    except WheelmarkError as error:
        if error.reason not in {"registry-missing", "image-missing"}:
            raise
        plan.notes.append(f"{referrer.digest} is listed as a referrer of sha256:{subject}, and is not there")
        return
    read = _read(referrer, data)
    if read.subject is None or read.subject.sha256 != subject:
        plan.notes.append(f"{referrer.digest} is listed as a referrer of sha256:{subject}, and is none")
        return
    kind = read.annotations.get(_PREDICATE) or (
        read.kind if isinstance(read, ImageManifest) else read.artifact_type
    )
    said = dataclasses.replace(
        referrer,
        artifact_type=read.kind if isinstance(read, ImageManifest) else read.artifact_type,
        annotations=dict(read.annotations),
        platform=None,
    )
    _gather_document(plan, source, said, f"{name}: {kind[:100]}", into, nesting=0)


def _gather_document(
    plan: _Plan,
    source: Source,
    descriptor: Descriptor,
    name: str,
    into: dict[str, _Document],
    *,
    nesting: int,
) -> None:
    if descriptor.sha256 in into:
        return
    data = source.document(descriptor)
    plan.count, plan.size = plan.count + 1, plan.size + len(data)
    if plan.count > _MAX_DOCUMENTS or plan.size > _MAX_BYTES or nesting > types.MAX_NESTING:
        raise InputError(f"{name} holds more indexes and manifests than are carried", reason="input-limit")
    read = _read(descriptor, data)
    if isinstance(read, ImageIndex):
        for child in read.manifests:
            label = str(child.platform) if child.platform else child.digest[:19]
            _gather_document(plan, source, child, f"{name}: {label}", into, nesting=nesting + 1)
    else:
        parts = [("config", read.config), *((f"layer {at}", item) for at, item in enumerate(read.layers, 1))]
        for label, item in parts:
            plan.blobs.setdefault(item.sha256, (item, f"{name}: {label}"))
    into[descriptor.sha256] = _Document(descriptor=descriptor, data=data, name=name)


def _read(descriptor: Descriptor, data: bytes) -> ImageIndex | ImageManifest:
    if descriptor.is_index:
        return types.read_index(data, what=f"index {descriptor.digest}")
    if descriptor.is_manifest:
        return types.read_manifest(data, what=f"manifest {descriptor.digest}")
    raise InputError(
        f"{descriptor.digest} is of media type {descriptor.media_type[:100]!r}", reason="image-manifest"
    )


def _carry_blobs(
    blobs: Sequence[tuple[Descriptor, str]],
    source: Source,
    target: Target,
    *,
    workers: int,
    cancel: threading.Event | None,
    progress: Callable[[str], None],
) -> Iterator[Row]:
    def carry(item: tuple[Descriptor, str]) -> Row:
        descriptor, name = item
        began = time.monotonic()
        action = target.take_blob(descriptor, lambda: source.open_blob(descriptor))
        if action is not Action.PRESENT:
            progress(f"{action.value} {name} ({descriptor.size:,} bytes)")
        return Row(
            artifact=name,
            digest=descriptor.digest,
            size=descriptor.size,
            action=action,
            seconds=time.monotonic() - began,
        )

    with concurrent.futures.ThreadPoolExecutor(max_workers=workers) as pool:
        pending = [pool.submit(carry, item) for item in blobs]
        try:
            concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_EXCEPTION)
            failed = next((one for one in pending if one.done() and one.exception() is not None), None)
            if failed is not None:
                failed.result()
        except BaseException:
            if cancel is not None:
                cancel.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        yield from (one.result() for one in pending)


def _carry_referrers(plan: _Plan, target: Target) -> Iterator[Row]:
    # An index among referrers brings manifests of its own; what refers goes last of these.
    for documents in plan.referrers.values():
        for document in documents.values():
            if _read(document.descriptor, document.data).subject is None:
                yield _carry_document(document, target)
    began = time.monotonic()
    found = {
        subject: [
            (document.descriptor, document.data)
            for document in documents.values()
            if _read(document.descriptor, document.data).subject is not None
        ]
        for subject, documents in plan.referrers.items()
    }
    done = target.take_referrers(found)
    took = (time.monotonic() - began) / max(1, len(done))
    for documents in plan.referrers.values():
        for sha256, document in documents.items():
            if sha256 in done:
                yield Row(
                    artifact=document.name,
                    digest=document.descriptor.digest,
                    size=len(document.data),
                    action=done[sha256],
                    seconds=took,
                )


def _carry_document(document: _Document, target: Target) -> Row:
    began = time.monotonic()
    action = target.take_document(document.descriptor, document.data)
    return Row(
        artifact=document.name,
        digest=document.descriptor.digest,
        size=len(document.data),
        action=action,
        seconds=time.monotonic() - began,
    )
