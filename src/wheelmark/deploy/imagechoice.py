"""Which image of an index is pulled: the one for this machine, or the one for the target that was named."""

from __future__ import annotations

import dataclasses
import functools
import platform
import re
from collections.abc import Callable, Sequence

from wheelmark.errors import InputError, MachineError
from wheelmark.oci import types
from wheelmark.oci.types import Descriptor, Platform
from wheelmark.verify.verdict import printable

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As the kernel names them -> as images do (Go's)."""
_SHOWN = 20
"""Images that a message lists."""
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""What a target id may look like where nothing was verified yet: somebody will copy it into a command line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """An image that an index holds."""

    way: tuple[Descriptor, ...]
    """The indexes that lead to it, outermost first, and its manifest."""
    read_target: Callable[[Descriptor], str]
    """Asked where the target decides, or is listed."""

    @functools.cached_property
    def target(self) -> str:
        """Of its label; empty where it has none, or is not there to be read."""
        return self.read_target(self.image)

    @property
    def image(self) -> Descriptor:
        """Its manifest."""
        return self.way[-1]

    @property
    def fits(self) -> bool:
        """Whether the index says nothing else than that it is for this machine."""
        return self.image.platform is None or _runs_here(self.image.platform)

    def __str__(self) -> str:
        label = f"--target {self.target}" if self.target else "(of no target)"
        return f"{label}  {self.image.digest}" + (
            f"  {printable(str(self.image.platform))}" if self.image.platform else ""
        )


def choose(candidates: Sequence[Candidate], *, asked: str, target: str, any_platform: bool) -> Candidate:
    """The one that is to be pulled.

    Args:
        candidates: All that the index holds; one may be reached in several ways.
        asked: The index, for messages.
        target: The target that it has to be for; empty: any, where one image is for this machine.
        any_platform: Whether a target that is named may be another platform's.

    Raises:
        MachineError: None, or several (``image-choice``); the message lists what to name.
    """
    images = {item.image.sha256: item for item in candidates}
    fitting = [item for item in images.values() if item.fits or (any_platform and target)]
    found = [item for item in fitting if not target or item.target == target]
    if len(found) == 1:
        return found[0]
    few = "several images" if found else "no image"
    what = f"{asked} holds {few} for this machine ({this_platform()})" + (f" and {target}" if target else "")
    listed = found or fitting or list(images.values())
    lines = [f"    {item}" for item in listed[:_SHOWN]]
    if len(listed) > _SHOWN:
        lines.append(f"    and {len(listed) - _SHOWN} more")
    if not lines:
        fix = "name another image: this index holds none"
    elif not fitting:
        fix = "pull it on a machine of its platform, or fill the store alone: its --target with --engine none"
    else:
        fix = "name one of them with --target, or by its own digest"
    raise MachineError(
        "\n".join([f"{what}; it has" if lines else what, *lines]), fix=fix, reason="image-choice"
    )


def check_platform(image: Descriptor, config: bytes) -> None:
    """Refuse an image that would not start here, by what its own configuration says; a malformed one is the verifier's.

    Raises:
        MachineError: It is another platform's (``image-choice``).
    """
    try:
        said = types.read_config(config).platform
    except InputError:
        return
    if not _runs_here(said):
        raise MachineError(
            f"{image.digest} is for {printable(str(said))}, and this machine is {this_platform()}",
            fix="name an image for this machine, or fill the store alone with --engine none",
            reason="image-choice",
        )


def target_of(config: bytes) -> str:
    """The target that the label of a configuration names; empty where none could have that name (the verifier says so)."""
    try:
        said = types.read_config(config).labels.get(types.TARGET_LABEL, "")
    except InputError:
        return ""
    return said if _TARGET.fullmatch(said) else ""


def this_platform() -> Platform:
    """What images have to be for, to run here."""
    machine = platform.machine()
    return Platform(os="linux", architecture=_ARCHITECTURES.get(machine, machine))


def _runs_here(said: Platform) -> bool:
    here = this_platform()
    return (said.os, said.architecture) == (here.os, here.architecture)
