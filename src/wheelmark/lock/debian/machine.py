"""What this machine's apt knows: its Debian sources, how it reaches them, its programs and Debian's keys.

Only read: nothing of the machine is changed. What is found here is never written into a lock.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from wheelmark.errors import LockError

SNAPSHOT_VARIABLE = "WHEELMARK_DEBIAN_SNAPSHOT"
"""Base URL of a dated snapshot; ``{archive}`` in it stands for ``debian`` or ``debian-security``."""
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
_ONE_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)"
)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PROGRAMS = {"apt-get": "apt", "apt-config": "apt", "gpgv": "gpgv"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AptSource:
    """One suite on one mirror."""

    uri: str
    """Base of the archive, without a ``/`` at its end."""
    suite: str
    components: tuple[str, ...]
    dated: bool = False
    """A snapshot, whose signed index may say that it is no longer valid."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where Debian packages come from here."""

    sources: tuple[AptSource, ...]
    """Those of this machine's apt that are Debian's, in apt's order, then the snapshot's."""
    keyring: Path
    """Keys that an index has to be signed with: never those that a source names."""
    settings: tuple[tuple[str, str], ...] = ()
    """apt's settings of how a mirror is reached (``Acquire::…``)."""
    snapshot: str = ""

    def sources_of(self, suite: str) -> tuple[AptSource, ...]:
        """Where a suite may be had, the snapshot last."""
        found = [source for source in self.sources if source.suite == suite]
        if self.snapshot:
            archive = "debian-security" if suite.endswith("-security") else "debian"
            uri = self.snapshot.replace("{archive}", archive).rstrip("/")
            found.append(AptSource(uri=uri, suite=suite, components=(), dated=True))
        return tuple(found)

    def proxies(self) -> Mapping[str, str]:
        """Proxies that apt is configured with, by scheme; those of the environment are the client's own business."""
        named = {key.lower(): value for key, value in self.settings}
        found = {
            scheme: named.get(f"acquire::{scheme}::proxy", "") or named.get("acquire::http::proxy", "")
            for scheme in ("http", "https")
        }
        return {scheme: url for scheme, url in found.items() if url and url != "DIRECT"}

    @property
    def checks_validity(self) -> bool:
        """Whether apt here refuses an index after its ``Valid-Until`` (its default)."""
        named = {key.lower(): value.lower() for key, value in self.settings}
        return named.get("acquire::check-valid-until", "true") not in {"false", "no", "0", "off"}


def this_machine() -> Machine:
    """What is configured here; missing programs and keys are told when they are needed."""
    return Machine(
        sources=read_sources(Path("/etc/apt")),
        keyring=next((path for path in KEYRINGS if path.is_file()), KEYRINGS[0]),
        settings=_settings(),
        snapshot=os.environ.get(SNAPSHOT_VARIABLE, ""),
    )


def require_programs(machine: Machine) -> None:
    """Make sure that what resolving needs is here.

    Raises:
        LockError: A program, or Debian's keyring, is absent (``debian-source``).
    """
    absent = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    if not machine.keyring.is_file():
        absent.append("debian-archive-keyring")
    if absent:
        raise LockError(
            f"Debian packages cannot be resolved here: {', '.join(absent)} missing",
            cause="apt resolves them, gpgv checks the archive's signature against Debian's keys",
            fix=f"apt-get install {' '.join(absent)}, or run it where Debian or Ubuntu is installed",
            reason="debian-source",
        )


def require_source(machine: Machine, suite: str) -> AptSource:
    """The first source of a suite.

    Raises:
        LockError: There is none (``debian-source``).
    """
    found = machine.sources_of(suite)
    if not found:
        raise LockError(
            f"no apt source of this machine has Debian's suite {suite}",
            cause="/etc/apt/sources.list and /etc/apt/sources.list.d name no mirror with it",
            fix=f"add it there, or set {SNAPSHOT_VARIABLE} to the base URL of an archive or dated snapshot",
            reason="debian-source",
        )
    return found[0]


def program_environment() -> dict[str, str]:
    """Environment for apt and gpgv: English, the usual paths, and the proxies of this process."""
    kept = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC", **kept}


def shown(url: str) -> str:
    """A URL for messages: without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def read_sources(folder: Path) -> tuple[AptSource, ...]:
    """The sources of an apt folder (sources.list(5)): both formats, without what is disabled or not signed by Debian.

    Args:
        folder: ``/etc/apt``.
    """
    parts = folder / "sources.list.d"
    files = [folder / "sources.list", *(sorted(parts.iterdir()) if parts.is_dir() else [])]
    found: list[AptSource] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # one that only root reads: the others may do, and its absence is told by suite
        if path.suffix == ".list":
            found += _one_line(text)
        elif path.suffix == ".sources":
            found += _stanzas(text)
    return tuple(dict.fromkeys(found))


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if match:
            options = dict(item.partition("=")[::2] for item in shlex.split(match["options"] or ""))
            signed = options.get("signed-by", "")
            yield from _sources([match["uri"]], [match["suite"]], match["components"].split(), signed)


def _stanzas(text: str) -> Iterator[AptSource]:
    for block in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        unfolded = re.sub(r"\n[ \t]+", " ", "\n".join(lines))
        fields = {
            key.strip().lower(): value.strip()
            for key, colon, value in (line.partition(":") for line in unfolded.splitlines())
            if colon
        }
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() not in {
            *("no", "false", "without", "off", "disable", "0")
        }:
            yield from _sources(
                fields.get("uris", "").split(),
                fields.get("suites", "").split(),
                fields.get("components", "").split(),
                fields.get("signed-by", ""),
            )


def _sources(uris: list[str], suites: list[str], components: list[str], signed: str) -> Iterator[AptSource]:
    """Debian's among them: an archive that other keys sign is another's, whatever its suite is called."""
    if signed and "debian-archive" not in signed:
        return
    for uri in uris:
        for suite in suites:
            if not suite.endswith("/"):
                yield AptSource(uri=uri.rstrip("/"), suite=suite, components=tuple(components))


def _settings() -> tuple[tuple[str, str], ...]:
    """``Acquire::`` settings that decide how a mirror is reached, by ``apt-config``."""
    if shutil.which("apt-config") is None:
        return ()
    done = subprocess.run(
        ["apt-config", "dump", "--no-empty", "--format", "%f %v%n", "Acquire"],
        env=program_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    pairs = (line.partition(" ")[::2] for line in done.stdout.splitlines())
    wanted = ("acquire::http::", "acquire::https::", "acquire::check-valid-until", "acquire::check-date")
    return tuple((key, value) for key, value in pairs if key.lower().startswith(wanted) and '"' not in value)
