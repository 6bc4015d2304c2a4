"""Other people's Sigstore clients, got as Debian packages them: ``python tests/clients.py`` prints what there is.

The programs come from Debian sid through an apt state of their own, so that this machine's packages and sources are
not touched: the mirror is the machine's own, signatures are checked with the archive's keyring. The packages are
unpacked, not installed; the programs need the C library alone. sid moves: at least the versions below are asked
for, and what was got is named by version and sha256 wherever a result is told.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from presence import environments, not_run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = Path("/etc/apt")
_RECORD = "clients.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A Debian package that holds programs."""

    name: str
    least: str
    """Lowest upstream version whose behaviour the tests speak of."""
    programs: tuple[str, ...]


PACKAGES = (
    Package(name="cosign", least="3.1.1", programs=("cosign",)),
    Package(name="sigstore-go", least="1.3.0", programs=("sigstore-go-signing", "sigstore-go-verification")),
    Package(name="oras", least="1.3.3", programs=("oras",)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """One program."""

    path: Path
    package: str
    version: str
    """Of the Debian package."""
    sha256: str
    """Of the Debian package."""


class UnavailableError(Exception):
    """The clients cannot be had on this machine; the message says why."""


def clients() -> Mapping[str, Client]:
    """The programs by name: those that were got before, else got now. "Not run" where they cannot be had."""
    try:
        return _clients()
    except UnavailableError as error:
        not_run(str(error))


@functools.cache
def _clients() -> Mapping[str, Client]:
    place = environments().resolve() / "clients"
    wanted = [dataclasses.asdict(package) for package in PACKAGES]
    record = place / _RECORD
    if record.is_file():
        value = json.loads(record.read_bytes())
        if value["wanted"] == json.loads(json.dumps(wanted)):
            return _programs(place, value["got"])
    partial = place.with_name(f"clients.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        got = _get(partial)
        (partial / _RECORD).write_text(json.dumps({"wanted": wanted, "got": got}))
        shutil.rmtree(place, ignore_errors=True)
        partial.replace(place)
    except OSError:
        if not record.is_file():  # somebody else got them at the same time
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return _programs(place, got)


def _programs(place: Path, got: Mapping[str, Mapping[str, str]]) -> Mapping[str, Client]:
    return {
        program: Client(
            path=place / "root" / "usr" / "bin" / program, package=package.name, **got[package.name]
        )
        for package in PACKAGES
        for program in package.programs
    }


def _get(place: Path) -> dict[str, dict[str, str]]:
    """Fetch and unpack the packages; version and sha256 of each."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise UnavailableError(f"no {program} on this machine: the clients come as Debian packages")
    apt = apt_state(place / "apt")
    found: dict[str, dict[str, str]] = {}
    for package in PACKAGES:
        version = apt.candidate(package.name)
        if not _at_least(version, package.least):
            raise UnavailableError(f"Debian has {package.name} {version}; {package.least} is needed")
        data = apt.download(package.name, version, place)
        apt.run(["dpkg-deb", "-x", str(data), str(place / "root")])
        found[package.name] = {
            "version": version,
            "sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
        }
        data.unlink()
    shutil.rmtree(place / "apt")
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apt:
    """An apt state of its own."""

    config: Path

    def run(self, command: Sequence[str], *, cwd: Path | None = None) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self.config), "LC_ALL": "C"}
        try:
            done = subprocess.run(
                command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=600
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError("Debian's mirror does not answer") from error
        if done.returncode:
            # The mirror's name is this machine's own matter.
            said = re.sub(r"//[^/\s]+/", "//…/", done.stderr.strip()[-400:])
            raise UnavailableError(f"{' '.join(command[:2])} failed: {said}")
        return done.stdout

    def candidate(self, name: str) -> str:
        """The newest version of a package."""
        shown = self.run(["apt-cache", "policy", name])
        match = re.search(r"Candidate: (\S+)", shown)
        if match is None or match[1] == "(none)":
            raise UnavailableError(f"Debian's mirror has no package {name} for {platform.machine()}")
        return match[1]

    def download(self, name: str, version: str, place: Path) -> Path:
        """The package's file; apt checks it against the signed index."""
        # Tilde and epoch are spelled otherwise in file names.
        before = set(place.glob("*.deb"))
        self.run(["apt-get", "download", "-q", f"{name}={version}"], cwd=place)
        (made,) = set(place.glob("*.deb")) - before
        return made


def apt_state(place: Path, suite: str = "sid") -> Apt:
    """An apt state in ``place`` that reads a suite of the machine's own Debian mirror, updated."""
    if not KEYRING.is_file():
        raise UnavailableError("no keyring of the Debian archive on this machine")
    for folder in ("lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True)
    (place / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n")
    config = place / "apt.conf"
    config.write_text(
        f'Dir::Etc::SourceList "{place}/sources.list";\n'
        'Dir::Etc::SourceParts "/dev/null";\n'
        'Dir::State::status "/dev/null";\n'
        f'Dir::State::Lists "{place}/lists";\n'
        f'Dir::Cache "{place}/cache";\n'
        # A mirror may be a snapshot of another day. What it says is signed still.
        'Acquire::Check-Valid-Until "false";\n'
        'Acquire::Retries "3";\n'
        'APT::Sandbox::User "root";\n'
    )
    apt = Apt(config=config)
    apt.run(["apt-get", "update", "-q"])
    return apt


def _mirror() -> str:
    """The address that this machine has its own Debian packages from."""
    files = [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*.sources"))]
    files += sorted((SOURCES / "sources.list.d").glob("*.list"))
    pattern = re.compile(r"^(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(\S+/debian)/?(?=\s|$)", re.MULTILINE)
    for path in files:
        if path.is_file() and (match := pattern.search(path.read_text(encoding="utf-8"))):
            return match[1]
    raise UnavailableError("no Debian mirror among this machine's sources")


def _at_least(version: str, least: str) -> bool:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text.split("-", maxsplit=1)[0])]

    return numbers(version) >= numbers(least)


if __name__ == "__main__":
    try:
        for found_name, found in _clients().items():
            sys.stdout.write(f"{found_name}  {found.package} {found.version}  sha256 {found.sha256}\n")
    except UnavailableError as problem:
        sys.exit(f"clients: {problem}")
