"""Names of images: in a registry, and in an image layout on disk. What is parsed prints as it was.

Source: OCI distribution specification 1.1, "Pulling manifests" (repositories, tags) and "Definitions" (digests); the
host as in RFC 3986. Stricter on purpose: a host has to be named (a client's default would be somebody else's guess),
a digest is sha256, and a name of no tag and no digest means none, never ``latest``.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from pathlib import Path

from wheelmark.errors import InputError
from wheelmark.oci import types

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(
    rf"(?P<name>{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[1-9][0-9]{{0,4}}))?"
)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST = 255
"""Characters of host and repository together: what clients of the specification take."""
_HIGHEST_PORT = 65_535
LAYOUT = "oci:"
"""What the name of a layout on disk begins with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """An image, or a repository of images, in a registry.

    Raises:
        InputError: A part that the specification does not allow (``registry-reference``).
    """

    host: str
    """With its port, where one is named."""
    repository: str
    tag: str = ""
    digest: str = ""
    """``sha256:<hex>``; where there is a tag too, the digest counts."""

    def __post_init__(self) -> None:
        if not is_host(self.host):
            raise _refusal(self.host, "no registry host")
        if not _REPOSITORY.fullmatch(self.repository) or len(self.host) + len(self.repository) >= _LONGEST:
            raise _refusal(self.repository, "no repository name")
        _check(self.tag, self.digest)

    def __str__(self) -> str:
        return f"{self.name}{_suffix(self.tag, self.digest)}"

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"

    @property
    def asked(self) -> str:
        """What is asked of the registry: the digest, else the tag; empty where only the repository is named."""
        return self.digest or self.tag

    def at(self, *, tag: str = "", digest: str = "") -> Reference:
        """Another image of the same repository."""
        return dataclasses.replace(self, tag=tag, digest=digest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutReference:
    """An image, or all of them, in an image layout on disk.

    Raises:
        InputError: A path that would not be read back as it is printed, a tag or a digest that is none
            (``registry-reference``).
    """

    path: Path
    tag: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        if set(str(self.path)) & {":", "@"}:
            raise _refusal(
                str(self.path),
                "a path with a colon or an at sign, which could not be told from a tag or a digest",
            )
        _check(self.tag, self.digest)

    def __str__(self) -> str:
        return f"{LAYOUT}{self.path}{_suffix(self.tag, self.digest)}"

    @property
    def asked(self) -> str:
        """What is asked of the layout: the digest, else the tag; empty: the only image."""
        return self.digest or self.tag


Location = Reference | LayoutReference


def parse_reference(text: str) -> Reference:
    """``host[:port]/repository[:tag][@sha256:…]``.

    Raises:
        InputError: It is no such name (``registry-reference``).
    """
    name, tag, digest = _split(text)
    host, slash, repository = name.partition("/")
    if not slash or not (host == "localhost" or set(host) & set(".:[")):
        raise InputError(
            f"{text[:200]!r} names no registry",
            cause="the part before the first slash is no host name with a dot or a port",
            fix="write HOST/REPOSITORY[:TAG][@sha256:…], for instance registry.example/team/app:1.0",
            reason="registry-reference",
        )
    return Reference(host=host, repository=repository, tag=tag, digest=digest)


def parse_location(text: str) -> Location:
    """A name in a registry, or ``oci:PATH[:tag][@sha256:…]``.

    Raises:
        InputError: It is neither (``registry-reference``).
    """
    if not text.startswith(LAYOUT):
        return parse_reference(text)
    path, tag, digest = _split(text.removeprefix(LAYOUT))
    if not path:
        raise _refusal(text, "a layout without a path")
    return LayoutReference(path=Path(path), tag=tag, digest=digest)


def is_host(text: str) -> bool:
    """Whether this is a host name or address, with or without a port."""
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 1) > _HIGHEST_PORT:
        return False
    if match["name"].startswith("["):
        try:
            ipaddress.IPv6Address(match["name"][1:-1])
        except ValueError:
            return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host (with or without a port) is this machine's own by its name: ``localhost`` or a loopback address."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match["name"].strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def is_tag(text: str) -> bool:
    """Whether this is a tag by the specification."""
    return _TAG.fullmatch(text) is not None


def _split(text: str) -> tuple[str, str, str]:
    name, at, digest = text.partition("@")
    if at and not digest:
        raise _refusal(text, "no name: its digest is empty")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    # A colon before the first slash is a port's; a bare "host:5000" is not a repository with a tag.
    if colon and not tag:
        raise _refusal(text, "no name: its tag is empty")
    return f"{head}{slash}{last}", tag, digest


def _check(tag: str, digest: str) -> None:
    if tag and not is_tag(tag):
        raise _refusal(tag, "no tag")
    if digest:
        try:
            types.read_digest(digest)
        except InputError as error:
            raise _refusal(digest, "no sha256 digest") from error


def _suffix(tag: str, digest: str) -> str:
    return (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def _refusal(text: str, what: str) -> InputError:
    return InputError(f"{text[:200]!r} is {what}", reason="registry-reference")
