"""Lock files: requirement files in which every line is one exact version with its sha256 hashes.

The format is pip's requirements file in hash-checking mode (pip documentation, "Secure installs"), narrowed to
what a closed lock needs: ``name==version [; marker]`` and ``--hash=sha256:…``. URLs, paths, extras, ranges, options
and other hash algorithms are refused, so that a lock names bytes and nothing of the machine that wrote it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelmark import digests
from wheelmark.errors import LockError

_HASH = re.compile(r"--hash=(?P<algorithm>[a-z0-9]+):(?P<digest>[^\s]+)")
_COMMENT = re.compile(r"(^|\s)#.*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pin:
    """One locked package."""

    name: str
    """Normalized name (PEP 503)."""
    version: str
    """Exact version (PEP 440)."""
    hashes: tuple[str, ...]
    """sha256 (64 lowercase hexadecimal digits) of each file that may be installed, sorted."""
    marker: str = ""
    """Environment marker (PEP 508), or empty: the line applies everywhere."""

    def applies(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether the line holds in a marker environment (default: this interpreter's)."""
        if not self.marker:
            return True
        return Marker(self.marker).evaluate(dict(environment) if environment is not None else None)

    def matches(self, version: str) -> bool:
        """Whether an installed version is the locked one; a lock without a local label takes any label.

        The label of torch's CPU wheel (``2.13.0+cpu``) is not in the lock; its hash is.
        """
        return self.version in {version, str(Version(version)), Version(version).public}

    def lines(self) -> str:
        """The pin as it stands in a lock file, with a final newline."""
        marker = f" ; {self.marker}" if self.marker else ""
        return (
            " \\\n".join(
                [
                    f"{self.name}=={self.version}{marker}",
                    *(f"    --hash=sha256:{digest}" for digest in self.hashes),
                ]
            )
            + "\n"
        )


def read_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of a lock file, in its order.

    Raises:
        LockError: The file is absent (``lock-absent``), a line is not an exact version (``lock-syntax``), has no
            sha256 (``lock-unhashed``), names a URL or a path (``lock-url``), or stands twice (``lock-twice``).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LockError(
            f"cannot read the lock {path.name}: {error.strerror}",
            cause=f"{path} was not written yet",
            fix="wheelmark lock",
            reason="lock-absent",
        ) from error
    except UnicodeDecodeError as error:
        raise LockError(f"{path.name} is not UTF-8", reason="lock-syntax") from error
    return parse_pins(text, name=path.name)


def parse_pins(text: str, *, name: str) -> tuple[Pin, ...]:
    """``read_pins`` of text; ``name`` is what messages call the file.

    Raises:
        LockError: As ``read_pins``.
    """
    pins: list[Pin] = []
    for number, line in _logical_lines(text):
        pins.append(_pin(line, where=f"{name}, line {number}"))
    seen: dict[str, Pin] = {}
    for pin in pins:
        earlier = seen.setdefault(pin.name, pin)
        if earlier is not pin and (not earlier.marker or not pin.marker or earlier.marker == pin.marker):
            raise LockError(f"{name} locks {pin.name} twice", fix="wheelmark lock", reason="lock-twice")
    return tuple(pins)


def render_pins(pins: Iterable[Pin], *, header: Sequence[str] = ()) -> bytes:
    """A lock file's bytes: comment lines, then the pins sorted by name and marker."""
    comments = "".join(f"# {line}\n" for line in header)
    body = "".join(pin.lines() for pin in sorted(pins, key=lambda pin: (pin.name, pin.marker)))
    return (comments + body).encode()


def header_field(path: Path, field: str) -> str:
    """The value of ``# field: value`` in a lock's leading comments, or empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    for line in text.splitlines():
        if not line.startswith("#"):
            return ""
        key, _, value = line.removeprefix("# ").partition(": ")
        if key == field:
            return value
    return ""


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Number of the first physical line, and the line with its continuations joined and comments removed."""
    start, parts = 0, list[str]()
    for number, physical in enumerate(text.splitlines(), start=1):
        start = start if parts else number
        line = _COMMENT.sub("", physical)
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        joined = " ".join([*parts, line]).strip()
        parts = []
        if joined:
            yield start, joined
    if parts and " ".join(parts).strip():
        yield start, " ".join(parts).strip()


def _pin(line: str, *, where: str) -> Pin:
    requirement_text = line.split(" --", 1)[0].strip()
    options = line[len(requirement_text) :].split()
    if line.startswith(("-", ".", "/")) or "://" in requirement_text or " @ " in requirement_text:
        raise LockError(
            f"{where}: {requirement_text or line!r} is an option, a URL or a path",
            cause="a lock names packages by version and hash only, so that it holds on every machine",
            fix="wheelmark lock",
            reason="lock-url",
        )
    try:
        requirement = Requirement(requirement_text)
        (specifier,) = requirement.specifier
        version = str(Version(specifier.version))
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        raise LockError(
            f"{where}: {requirement_text!r} is not name==version", fix="wheelmark lock", reason="lock-syntax"
        ) from error
    if specifier.operator != "==" or requirement.extras:
        raise LockError(
            f"{where}: {requirement_text!r} is not name==version", fix="wheelmark lock", reason="lock-syntax"
        )
    hashes = [_sha256(option, requirement.name, where) for option in options]
    if not hashes:
        raise LockError(
            f"{where}: {requirement.name} has no --hash=sha256:…",
            cause="the file was edited by hand, or made by a tool that writes no hashes",
            fix="wheelmark lock",
            reason="lock-unhashed",
        )
    return Pin(
        name=canonicalize_name(requirement.name),
        version=specifier.version if specifier.version == version else version,
        hashes=tuple(sorted(set(hashes))),
        marker=str(requirement.marker) if requirement.marker else "",
    )


def _sha256(option: str, name: str, where: str) -> str:
    match = _HASH.fullmatch(option)
    if match is None:
        raise LockError(f"{where}: {name} has the unknown option {option!r}", reason="lock-syntax")
    if match["algorithm"] != "sha256" or not digests.is_sha256(match["digest"]):
        raise LockError(f"{where}: {name}: {option!r} is not a sha256", reason="lock-unhashed")
    return match["digest"]
