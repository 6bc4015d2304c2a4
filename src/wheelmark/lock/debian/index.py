"""A suite's signed index: the signature on InRelease, the digest of Packages in it, the stanza of a package in that.

apt has checked the same before; it is done again so that a lock does not hang on how apt is configured. Formats:
https://wiki.debian.org/DebianRepository/Format; gpgv's status lines: GnuPG's ``doc/DETAILS``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import email.utils
import re
import subprocess
import tempfile
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import LockError
from wheelmark.lock.debian.document import (
    ARCHITECTURE,
    LARGEST,
    NAME,
    VERSION,
    DebianPackage,
    SignedIndex,
    is_pool_path,
    rfc3339,
)
from wheelmark.lock.debian.machine import program_environment

_LARGEST_RELEASE = 8 << 20
_STRONG = {"8", "9", "10"}
"""Hash algorithms of a signature that count (RFC 4880, 9.4): SHA-256, SHA-384, SHA-512."""
_FIELD = re.compile(r"^(?P<key>[A-Za-z0-9-]+):[ \t]*(?P<value>.*)$", re.MULTILINE)
_SOURCE = re.compile(r"(?P<name>\S+)(?: \((?P<version>\S+)\))?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """What a good signature covers of an InRelease file."""

    suite: str
    """As it was asked for."""
    sha256: str
    """Of the file."""
    date: dt.datetime
    valid_until: dt.datetime | None
    keys: tuple[str, ...]
    """Fingerprints of primary keys."""
    files: dict[str, tuple[str, int]]
    """Path below the suite -> sha256, bytes."""

    def signed(self, component: str, packages_sha256: str) -> SignedIndex:
        """What a lock keeps of it."""
        return SignedIndex(
            suite=self.suite,
            component=component,
            sha256=self.sha256,
            date=rfc3339(self.date),
            valid_until=rfc3339(self.valid_until) if self.valid_until else "",
            keys=self.keys,
            packages_sha256=packages_sha256,
        )


def read_release(path: Path, *, suite: str, keyring: Path) -> Release:
    """Check the signature of an InRelease file and read what it covers.

    Args:
        path: The file.
        suite: The suite that it has to be of.
        keyring: The keys that count.

    Raises:
        LockError: No good signature by one of these keys, or not this suite's (``debian-signature``).
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST_RELEASE else b""
    except OSError as error:
        raise _unsigned(suite, f"its InRelease file cannot be read: {error.strerror}") from error
    _check_armor(data, suite)
    text, status = _gpgv(data, keyring, suite)
    keys = _good_keys(status, suite)
    head, _, listed = text.partition("\nSHA256:\n")
    fields = {match["key"].lower(): match["value"].strip() for match in _FIELD.finditer(head)}
    if suite not in {fields.get("codename"), fields.get("suite")}:
        raise _unsigned(suite, f"the index is signed, but for {fields.get('codename', 'no suite')[:80]!r}")
    date = _date(fields.get("date", ""))
    if date is None:
        raise _unsigned(suite, "the signed index has no date")
    return Release(
        suite=suite,
        sha256=digests.sha256(data),
        date=date,
        valid_until=_date(fields.get("valid-until", "")),
        keys=keys,
        files=_files(listed),
    )


def read_packages(path: Path, release: Release, *, component: str, architecture: str) -> bytes:
    """The Packages file of a component, if it is the one that the release names.

    Raises:
        LockError: The release names none, or another (``debian-digest``).
    """
    name = f"{component}/binary-{architecture}/Packages"
    named = release.files.get(name)
    if named is None:
        raise LockError(
            f"{release.suite} has no {component} for {architecture}",
            fix="name components that the archive has (debian.components)",
            reason="debian-source",
        )
    data = path.read_bytes()
    if (digests.sha256(data), len(data)) != named:
        raise LockError(
            f"{name} of {release.suite} is not the file that the signed index names",
            cause="the mirror is damaged or in the middle of an update, or somebody changed it on the way",
            fix="run it again; if it stays, name another mirror in /etc/apt",
            reason="debian-digest",
        )
    return data


def find_package(index: bytes, path: str, *, suite: str) -> DebianPackage | None:
    """The package that an index lists under a path of the pool.

    Raises:
        LockError: Its stanza is not one that a lock may hold (``debian-digest``).
    """
    line = f"\nFilename: {path}\n".encode()
    at = index.find(line)
    if at < 0:
        return None
    start = index.rfind(b"\n\n", 0, at + 1) + 1
    end = index.find(b"\n\n", at)
    stanza = index[start : end if end >= 0 else len(index)].decode("utf-8", errors="replace")
    fields = {match["key"].lower(): match["value"].strip() for match in _FIELD.finditer(stanza)}
    name, version = fields.get("package", ""), fields.get("version", "")
    source = _SOURCE.fullmatch(fields.get("source", "") or name)
    package = DebianPackage(
        name=name,
        version=version,
        architecture=fields.get("architecture", ""),
        sha256=fields.get("sha256", "").lower(),
        size=int(fields["size"]) if re.fullmatch(r"[0-9]{1,12}", fields.get("size", "")) else 0,
        path=path,
        source=source["name"] if source else "",
        source_version=(source["version"] or version) if source else "",
        suite=suite,
    )
    if not (
        NAME.fullmatch(package.name)
        and VERSION.fullmatch(package.version)
        and ARCHITECTURE.fullmatch(package.architecture)
        and digests.is_sha256(package.sha256)
        and 0 < package.size <= LARGEST
        and is_pool_path(package.path)
        and NAME.fullmatch(package.source)
        and VERSION.fullmatch(package.source_version)
    ):
        raise LockError(
            f"{suite} lists {path[:200]} without a usable name, version, size or sha256",
            reason="debian-digest",
        )
    return package


def _unsigned(suite: str, why: str) -> LockError:
    return LockError(
        f"the index of {suite} is not signed as it should be: {why}",
        cause="the mirror gives another archive's index, or somebody changed it on the way",
        fix="name another mirror in /etc/apt; for a new Debian release: apt-get install debian-archive-keyring",
        reason="debian-signature",
    )


def _check_armor(data: bytes, suite: str) -> None:
    """One signed message and nothing around it: gpgv would pass over text that is not covered."""
    lines = [line.rstrip(b"\r") for line in data.split(b"\n")]
    marks = [line for line in lines if line.startswith(b"-----")]
    wanted = [
        b"-----BEGIN PGP SIGNED MESSAGE-----",
        b"-----BEGIN PGP SIGNATURE-----",
        b"-----END PGP SIGNATURE-----",
    ]
    if marks != wanted or lines[0] != wanted[0] or data.rstrip().split(b"\n")[-1].rstrip(b"\r") != wanted[2]:
        raise _unsigned(suite, "InRelease is not one signed message")


def _gpgv(data: bytes, keyring: Path, suite: str) -> tuple[str, list[list[str]]]:
    """The covered text and gpgv's status lines, split into words."""
    with tempfile.TemporaryDirectory(prefix="wheelmark-gpgv-") as name:
        folder = Path(name)
        (folder / "InRelease").write_bytes(data)
        done = subprocess.run(
            [
                *("gpgv", "--homedir", name, "--keyring", str(keyring.resolve()), "--status-fd", "1"),
                *("--output", str(folder / "text"), str(folder / "InRelease")),
            ],
            env=program_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        # It ends with a failure where one of several keys is unknown; what counts stands in the status lines.
        status = [
            line.removeprefix("[GNUPG:] ").split()
            for line in done.stdout.splitlines()
            if line.startswith("[GNUPG:] ")
        ]
        try:
            text = (folder / "text").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unsigned(suite, "gpgv finds no signed text in it") from error
    return text.replace("\r\n", "\n"), status


def _good_keys(status: list[list[str]], suite: str) -> tuple[str, ...]:
    """Primary keys with a good signature; a bad one beside it spoils all."""
    keys: set[str] = set()
    good = False
    seen: list[str] = []
    for words in status:
        match words:
            case ["NEWSIG", *_]:
                good = False
            case ["BADSIG", *_]:
                raise _unsigned(suite, "a signature does not fit the text")
            case ["GOODSIG", *_]:
                good = True
            case ["EXPSIG" | "EXPKEYSIG" | "REVKEYSIG" as kind, key, *_]:
                seen.append(f"{kind} {key}")
            case ["NO_PUBKEY", key, *_]:
                seen.append(f"unknown key {key}")
            case ["VALIDSIG", _, _, _, _, _, _, _, algorithm, _, primary, *_] if good:
                if algorithm in _STRONG:
                    keys.add(primary)
                else:
                    seen.append(f"weak hash algorithm {algorithm} by {primary}")
            case _:
                pass
    if not keys:
        raise _unsigned(suite, f"no good signature by one of Debian's keys ({'; '.join(seen) or 'none'})")
    return tuple(sorted(keys))


def _date(text: str) -> dt.datetime | None:
    try:
        time = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def _files(listed: str) -> dict[str, tuple[str, int]]:
    """The lines below ``SHA256:``, up to the next field."""
    files: dict[str, tuple[str, int]] = {}
    for line in listed.splitlines():
        if not line.startswith(" "):
            break
        words = line.split()
        if len(words) != 3 or not digests.is_sha256(words[0]) or not words[1].isdecimal():  # noqa: PLR2004
            raise LockError(
                f"a line of the signed index is malformed: {line[:120]!r}", reason="debian-digest"
            )
        files[words[2]] = (words[0], int(words[1]))
    return files
