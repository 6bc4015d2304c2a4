"""What lies at the reference, copied into a private place before it is verified.

First everything that will be used is copied while it is hashed; then the original is verified; then the digests are
compared. A file that is put in the original's place between is not what is installed (row 25 of the verifier's
cases): the copy is, and it has the digest that was verified, or nothing is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from wheelmark import digests, manifest, strictjson
from wheelmark.binaries.kernelmanifest import FOLDER, NAME, read_kernel_manifest
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.deploy.choose import AUTO, Choice, Offer, choose
from wheelmark.deploy.machine import Machine
from wheelmark.errors import InputError, RejectedError, StateError
from wheelmark.manifest import Kind, ReleaseManifest
from wheelmark.plainfiles import read_bounded
from wheelmark.targets import Target
from wheelmark.verify.handle import Taken, take
from wheelmark.verify.verdict import Accepted, Report

_MANIFEST_LIMIT = 64 << 20
_TORCH_BUILD = "wheelmark:torch-build"
_CPUS = ("x86_64", "aarch64")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Private copies of what is to be installed, and what they are compared with after verification."""

    choice: Choice
    taken: Taken
    wheel: Wheel
    """Read from the copy."""
    lock: Taken | None
    """The runtime lock of the target; ``None`` where no dependencies are installed."""
    subject: str
    """How the report names what vouches for the digests: ``release.json``, or the wheel."""
    sha256: str
    """Of that."""

    def check(self, report: Report) -> Accepted:
        """The verdict that vouches for these copies.

        Raises:
            RejectedError: The report accepted other bytes (``file-digest``): something was exchanged between.
        """
        verdicts = [item for item in report.verdicts if isinstance(item, Accepted)]
        for item in verdicts:
            if item.subject == self.subject and item.sha256 == self.sha256:
                # The signer of the wheel's own evidence says more than the signer of the whole.
                own = [other for other in verdicts if other.sha256 == self.taken.sha256]
                return own[0] if own else item
        raise RejectedError(
            f"{self.subject} was exchanged while it was verified: what was copied is not what was accepted",
            cause="somebody writes to the release while it is being installed",
            fix="copy the release to a place where nobody else can write, and install from there",
            reason="file-digest",
        )


def copy_release(
    dist: Path,
    machine: Machine,
    held: contextlib.ExitStack,
    *,
    target: str = AUTO,
    without_card: bool = False,
    lock: bool = True,
) -> Source:
    """Choose a wheel of a release directory, and copy it and its runtime lock.

    Args:
        dist: The release directory, not verified yet.
        machine: What the wheel has to fit.
        held: Keeps the copies as long as it is open.
        target: A target id, or ``auto``.
        without_card: See ``choose``.
        lock: Copy the lock too.

    Raises:
        InputError: The release cannot be read.
        RejectedError: A file is not the one that ``release.json`` lists (``file-digest``).
        MachineError: See ``choose``.
        StateError: The release does not say which lock the wheel was tested with (``lock-unknown``).
    """
    data = read_bounded(dist / manifest.NAME, _MANIFEST_LIMIT)
    release = ReleaseManifest.from_bytes(data)
    offers = [
        _offer(read_wheel(dist / entry.path), entry.path, entry.target)
        for entry in release.of_kind(Kind.WHEEL)
    ]
    for entry, offer in zip(release.of_kind(Kind.WHEEL), offers, strict=True):
        _expect(entry.path, offer.sha256, entry.sha256)
    choice = choose(offers, machine, target=target, without_card=without_card)
    taken = held.enter_context(take(dist / choice.wheel.path, sha256=choice.wheel.sha256))
    return Source(
        choice=choice,
        taken=taken,
        wheel=read_wheel(taken.path),
        lock=_copy_lock(dist, release, choice, held) if lock else None,
        subject=manifest.NAME,
        sha256=digests.sha256(data),
    )


def copy_wheel(
    path: Path,
    machine: Machine,
    held: contextlib.ExitStack,
    *,
    target: str = AUTO,
    without_card: bool = False,
) -> Source:
    """Copy one wheel, and see that it fits; it brings no lock.

    Raises:
        InputError: The wheel cannot be read, or its bytes do not say its target (``wheel-target``).
        MachineError: See ``choose``.
    """
    taken = held.enter_context(take(path))
    wheel = read_wheel(taken.path)
    offer = _offer(wheel, path.name, "")
    named = str(offer.target) if target == AUTO and without_card else target
    choice = choose([offer], machine, target=named, without_card=without_card)
    return Source(choice=choice, taken=taken, wheel=wheel, lock=None, subject=path.name, sha256=taken.sha256)


def _expect(path: str, have: str, wanted: str) -> None:
    if have != wanted:
        raise RejectedError(
            f"{path} has sha256 {have}; {manifest.NAME} says {wanted}",
            cause="another file was put in its place, or it was damaged on the way",
            reason="file-digest",
        )


def _offer(wheel: Wheel, path: str, target: str) -> Offer:
    manifests = [name for name in wheel.files if name.split("/")[-2:] == [FOLDER, NAME]]
    kernels = read_kernel_manifest(wheel.read(manifests[0])) if manifests else None
    variants = [variant for _, variant in kernels.variants()] if kernels else []
    if not target:
        target = str(kernels.target) if kernels else _cpu_target(wheel)
    python = wheel.metadata.get("requires-python", ())
    return Offer(
        target=Target.parse(target),
        path=path,
        sha256=wheel.sha256,
        platforms=wheel.platforms,
        requires=wheel.metadata.get("requires-dist", ()),
        requires_python=python[0] if python else "",
        min_driver=_newest([variant.min_driver for variant in variants]),
        toolkit=_newest([variant.toolkit for variant in variants]),
    )


def _cpu_target(wheel: Wheel) -> str:
    for arch in _CPUS:
        if all(platform.endswith(f"_{arch}") for platform in wheel.platforms):
            return f"cpu-{arch}"
    raise InputError(
        f"{wheel.file_name} does not say for which target it is",
        fix="install from its release directory",
        reason="wheel-target",
    )


def _newest(versions: Sequence[str]) -> str:
    return max((text for text in versions if text), key=Version, default="")


def _copy_lock(dist: Path, release: ReleaseManifest, choice: Choice, held: contextlib.ExitStack) -> Taken:
    """The runtime lock: the wheel's SBOM says for which build of torch it is, and the lock is named after that."""
    for entry in release.of_kind(Kind.SBOM):
        if entry.describes != choice.wheel.sha256:
            continue
        document = read_bounded(dist / entry.path, min(entry.size, _MANIFEST_LIMIT))
        _expect(entry.path, digests.sha256(document), entry.sha256)
        name = f"locks/runtime-{_torch_build(document)}.txt"
        for lock in release.of_kind(Kind.LOCK):
            if lock.path == name:
                return held.enter_context(take(dist / lock.path, sha256=lock.sha256))
    raise StateError(
        f"the release does not say which lock {choice.wheel.path} was tested with",
        fix="wheelmark install --no-deps, and install what it needs yourself",
        reason="lock-unknown",
    )


def _torch_build(document: bytes) -> str:
    value = strictjson.load_object(document, what="SBOM", limits=strictjson.Limits(size=_MANIFEST_LIMIT))
    try:
        properties: list[Any] = value["metadata"]["component"]["properties"]
        found = [str(item["value"]) for item in properties if item["name"] == _TORCH_BUILD]
    except (KeyError, TypeError):
        found = []
    return found[0] if found else ""
