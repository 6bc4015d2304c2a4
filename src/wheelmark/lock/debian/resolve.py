"""Packages resolved by apt, in a state of its own: no root, and nothing of the machine's apt is touched.

apt is told everything by one file (``APT_CONFIG``, which is read before the machine's ``apt.conf.d``; that folder then stays
unread). Packages that are left out on purpose stand as installed in its status file, so that every other dependency is
still enforced. What apt prints is only a choice of paths: name, version, size and sha256 come from the signed index.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fcntl
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from wheelmark import digests
from wheelmark.config.recipe import Debian
from wheelmark.errors import LockError
from wheelmark.lock.debian.document import NAME, SUITE, DebianLock, DebianPackage, SignedIndex
from wheelmark.lock.debian.index import find_package, read_packages, read_release
from wheelmark.lock.debian.machine import (
    AptSource,
    Machine,
    program_environment,
    require_programs,
    require_source,
    shown,
    this_machine,
)

_FORMAT = 1
_TIMEOUT = 600
_TRIES = 3
_PAUSE = 1.0
_BUSY = re.compile(r" {2}(?:429|5[0-9][0-9]) {2}")
"""An HTTP status in apt's words."""
_PRINTED = re.compile(
    r"^'(?P<url>\S+)' \S+ (?P<size>[0-9]+)(?: SHA256:(?P<sha256>[0-9a-f]{64}))?", re.MULTILINE
)
_UNSIGNED = (
    "is not signed",
    "NO_PUBKEY",
    "BADSIG",
    "were invalid",
    "GPG error",
    "Clearsigned file isn't valid",
)
_EXPIRED = ("is expired", "is not valid yet", "not yet valid")
_DAMAGED = ("Hash Sum mismatch", "unexpected size", "Mirror sync in progress")
_UNSOLVABLE = (
    "Unable to locate package",
    "unmet dependencies",
    "has no installation candidate",
    "held broken packages",
)


def debian_inputs(debian: Debian, architecture: str) -> str:
    """sha256 of what decides a lock besides the archive: a lock that holds another one does not fit its recipe."""
    return digests.sha256(
        digests.canonical_json(
            {
                "format": _FORMAT,
                "architecture": architecture,
                "suites": list(debian.all_suites),
                "components": list(debian.components),
                "packages": sorted(set(debian.packages)),
                "waived": sorted(set(debian.waived)),
            }
        )
    )


def resolve_debian(
    debian: Debian,
    architecture: str,
    *,
    cache: Path,
    machine: Machine | None = None,
    now: dt.datetime | None = None,
    timeout: int = 30,
    progress: Callable[[str], None] = lambda _line: None,
) -> DebianLock:
    """The lock of an architecture, from the archive as it is now.

    Args:
        debian: The recipe's table.
        architecture: Debian's name (``amd64``, ``arm64``); it need not be this machine's.
        cache: Folder that keeps apt's state between runs (an index that did not change is not fetched again).
        machine: Where packages come from; default: as this machine's apt is configured.
        now: Time that ``Valid-Until`` is held against; default: the clock.
        timeout: Seconds without a byte after which a mirror is given up.
        progress: Called with lines for people.

    Raises:
        LockError: No source, program or keyring (``debian-source``), a bad signature (``debian-signature``), an index too old
            (``debian-expired``), other bytes than were signed (``debian-digest``), a mirror that does not answer
            (``debian-fetch``), or no solution (``lock-unsolvable``).
    """
    machine = machine or this_machine()
    _check_words(debian, architecture)
    require_programs(machine)
    sources = [require_source(machine, suite) for suite in debian.all_suites]
    key = digests.sha256(
        digests.canonical_json(
            [architecture, [[item.uri, item.suite] for item in sources], [*debian.components]]
        )
    )
    with _state(cache / "debian" / key[:16]) as folder:
        apt = _Apt(folder=folder, machine=machine, architecture=architecture, timeout=timeout)
        apt.write(debian, sources)
        progress(f"{architecture}: reading the indexes of {', '.join(debian.all_suites)}")
        apt.update()
        signed: list[SignedIndex] = []
        indexes: list[tuple[AptSource, bytes]] = []
        for source, component, path in apt.packages_files(sources, debian.components):
            release = read_release(_inrelease(path, component), suite=source.suite, keyring=machine.keyring)
            _check_valid(release.valid_until, source, machine, now or dt.datetime.now(dt.UTC))
            data = read_packages(path, release, component=component, architecture=architecture)
            signed.append(release.signed(component, digests.sha256(data)))
            indexes.append((source, data))
        progress(f"{architecture}: resolving {len(debian.packages)} packages and what they need")
        packages = _chosen(apt.install(debian.packages), indexes)
    return DebianLock(
        architecture=architecture,
        suite=debian.suite,
        inputs=debian_inputs(debian, architecture),
        signed=tuple(signed),
        packages=tuple(sorted(packages, key=lambda package: package.name)),
    )


def _check_words(debian: Debian, architecture: str) -> None:
    """What goes into apt's files and arguments is nothing but names."""
    words = [(NAME, text) for text in (architecture, *debian.packages, *debian.waived)]
    words += [(SUITE, text) for text in (*debian.all_suites, *debian.components)]
    for form, text in words:
        if not form.fullmatch(text):
            raise LockError(f"[debian] names {text!r}, which is no name in Debian", reason="debian-source")


@contextmanager
def _state(folder: Path) -> Iterator[Path]:
    """Apt's folder, for one process at a time; after an error it is emptied, so that the next run begins anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder / "state", ignore_errors=True)
            raise


def _inrelease(packages: Path, component: str) -> Path:
    """Apt's name of the InRelease file beside a Packages file: ``…_dists_<suite>_InRelease``."""
    head, _, _ = packages.name.rpartition(f"_{component}_binary-")
    return packages.with_name(f"{head}_InRelease")


def _check_valid(until: dt.datetime | None, source: AptSource, machine: Machine, now: dt.datetime) -> None:
    if until is None or now <= until or source.dated or not machine.checks_validity:
        return
    raise LockError(
        f"the index of {source.suite} was valid until {until:%Y-%m-%d}",
        cause="the mirror is no longer updated, or somebody keeps its newer index from this machine",
        fix="name another mirror in /etc/apt; check this machine's clock",
        reason="debian-expired",
    )


def _chosen(printed: str, indexes: Sequence[tuple[AptSource, bytes]]) -> list[DebianPackage]:
    """The index's word on each path that apt chose."""
    packages: list[DebianPackage] = []
    for match in _PRINTED.finditer(printed):
        url = unquote(match["url"])
        package = None
        for source, data in indexes:
            base = f"{unquote(source.uri)}/"
            if package is None and url.startswith(base):
                package = find_package(data, url.removeprefix(base), suite=source.suite)
        if (
            package is None
            or package.size != int(match["size"])
            or match["sha256"] not in {None, package.sha256}
        ):
            raise LockError(
                f"apt chose {shown(url)}, which no signed index lists so",
                cause="the indexes changed while they were read",
                fix="run it again",
                reason="debian-digest",
            )
        packages.append(package)
    if not packages:
        raise LockError(
            f"apt names no package to fetch:\n{printed.strip()[-1000:]}", reason="lock-unsolvable"
        )
    return packages


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Apt:
    """apt in a folder of its own."""

    folder: Path
    machine: Machine
    architecture: str
    timeout: int

    def write(self, debian: Debian, sources: Sequence[AptSource]) -> None:
        """Its configuration, sources and status."""
        for name in ("state/lists/partial", "cache/archives/partial", "parts"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        lines = [
            f"deb [arch={self.architecture} signed-by={self.machine.keyring.resolve()}"
            f"{' check-valid-until=no' if source.dated else ''}]"
            f" {source.uri} {source.suite} {' '.join(debian.components)}\n"
            for source in sources
        ]
        (self.folder / "sources.list").write_text("".join(lines), encoding="utf-8")
        (self.folder / "status").write_text(
            "".join(
                f"Package: {name}\nStatus: install ok installed\nMaintainer: nobody <nobody@localhost>\n"
                f"Architecture: {self.architecture}\nVersion: 99:0\nDescription: left out on purpose\n\n"
                for name in sorted(set(debian.waived))
            ),
            encoding="utf-8",
        )
        settings = {**self._places(), **dict(self.machine.settings)}
        (self.folder / "apt.conf").write_text(
            "".join(f'{key} "{value}";\n' for key, value in settings.items()), encoding="utf-8"
        )

    def _places(self) -> Mapping[str, str]:
        folder = self.folder.resolve()
        parts = str(folder / "parts")
        return {
            "Dir::State": str(folder / "state"),
            "Dir::State::status": str(folder / "status"),
            "Dir::Cache": str(folder / "cache"),
            "Dir::Etc": str(folder),
            "Dir::Etc::sourcelist": str(folder / "sources.list"),
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::sourceparts": parts,
            "Dir::Etc::preferencesparts": parts,
            "Dir::Etc::parts": parts,
            "Dir::Etc::trusted": "/dev/null",
            "Dir::Etc::trustedparts": parts,
            # Passwords of mirrors stay where they are.
            "Dir::Etc::netrc": "/etc/apt/auth.conf",
            "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Install-Recommends": "false",
            "APT::Install-Suggests": "false",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::GzipIndexes": "false",
            "Acquire::PDiffs": "false",
            "Acquire::Retries": "1",
            "Acquire::http::Timeout": str(self.timeout),
            "Acquire::https::Timeout": str(self.timeout),
            "Debug::NoLocking": "true",
        }

    def update(self) -> None:
        """Fetch the signed indexes, or find that they are the newest."""
        command = ("apt-get", "-qq", "update", "--error-on=any")
        for left in reversed(range(_TRIES)):
            try:
                self._run(*command)
            except LockError as error:
                # Debian 12's apt asks again after a broken connection, and not after a server's error.
                if not left or not _BUSY.search(error.what):
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def packages_files(
        self, sources: Sequence[AptSource], components: Sequence[str]
    ) -> Iterator[tuple[AptSource, str, Path]]:
        """Where apt keeps the Packages file of each component, in the order of the sources."""
        form = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(FILENAME)"
        printed = self._run("apt-get", "indextargets", "--format", form, "Created-By: Packages")
        rows = [line.split("\t") for line in printed.splitlines()]
        files = {(row[0].rstrip("/"), row[1], row[2]): Path(row[3]) for row in rows if len(row) == 4}  # noqa: PLR2004
        for source in sources:
            for component in components:
                path = next(
                    (
                        path
                        for (_, suite, part), path in files.items()
                        if (suite, part) == (source.suite, component)
                    ),
                    None,
                )
                if path is None:
                    raise LockError(
                        f"{source.suite} has no {component} for {self.architecture}",
                        fix="name components and architectures that the archive has",
                        reason="debian-source",
                    )
                yield source, component, path

    def install(self, packages: Sequence[str]) -> str:
        """What apt would fetch to install packages: lines of quoted URL, file name, size, digest."""
        return self._run("apt-get", "-qq", "install", "--print-uris", *sorted(set(packages)))

    def _run(self, *command: str) -> str:
        environment = {**program_environment(), "APT_CONFIG": str(self.folder / "apt.conf")}
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LockError(
                f"{' '.join(command[:2])} did not end within {_TIMEOUT} s",
                cause="a mirror answers too slowly",
                fix="run it again; what was fetched is kept",
                reason="debian-fetch",
            ) from error
        if done.returncode:
            raise _explain(command, done.stdout + done.stderr)
        return done.stdout


def _explain(command: Sequence[str], output: str) -> LockError:
    """What apt's words mean."""
    text = "\n".join(f"    {line}" for line in output.strip().splitlines()[-12:])
    what = f"{' '.join(word for word in command[:3] if word != '-qq')} failed\n{text}"
    for words, reason, cause, fix in (
        (
            _UNSIGNED,
            "debian-signature",
            "the archive's index is not signed by one of Debian's keys",
            "name another mirror in /etc/apt; for a new Debian release: apt-get install debian-archive-keyring",
        ),
        (
            _EXPIRED,
            "debian-expired",
            "the mirror is no longer updated, or this machine's clock is wrong",
            "name another mirror in /etc/apt; check the clock",
        ),
        (
            _DAMAGED,
            "debian-digest",
            "the mirror is damaged or in the middle of an update, or somebody changed files on the way",
            "run it again; if it stays, name another mirror in /etc/apt",
        ),
        (
            _UNSOLVABLE,
            "lock-unsolvable",
            "the suite has no such package, or a waived one is needed in a certain version",
            "change [debian] in containers/",
        ),
    ):
        if any(word in output for word in words):
            return LockError(what, cause=cause, fix=fix, reason=reason)
    return LockError(
        what,
        cause="the mirror does not answer, or not as a Debian archive does",
        fix="check the network and /etc/apt, and run it again",
        reason="debian-fetch",
    )
