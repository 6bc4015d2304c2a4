"""Backups of the embedded domain: one tar with mode 0600, which is as secret as the keys in it."""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import tarfile
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import ConfigError, InputError, StateError
from wheelmark.sign.embedded import domain, storage
from wheelmark.trust.state import private_directory

_MEMBER = re.compile(
    r"domain\.json|trusted_root\.json"
    r"|generation-[1-9][0-9]{0,5}/(?:[a-z_]+\.(?:key|crt|pub)\.pem|(?:log|ct)\.records)"
)
_LARGEST = 4 << 30


def write(folder: Path, target: Path) -> None:
    """Write every file of the domain in ``folder`` to the new tar ``target``; the caller holds the lock.

    Raises:
        ConfigError: ``target`` exists or cannot be written (reason ``backup-target``).
    """
    names = [name for name in digests.tree_files(folder) if _MEMBER.fullmatch(name)]
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    if target.exists():
        raise ConfigError(f"{target} is there already", fix="name a new file", reason="backup-target")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name in names:
                    archive.addfile(*_member(folder / name, name))
            stream.flush()
            os.fsync(stream.fileno())
        # A link, unlike a rename, never replaces a file that came into being meanwhile.
        target.hardlink_to(partial)
    except OSError as error:
        raise ConfigError(
            f"cannot write the backup {target}: {error.strerror}", reason="backup-target"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def restore(source: Path, folder: Path) -> domain.EmbeddedDomain:
    """Put a backup's domain into ``folder``, which has none; the caller holds the lock exclusively.

    All of it is unpacked and loaded aside before any of it counts.

    Raises:
        ConfigError: There is a domain already (reason ``trust-exists``).
        InputError: Not a whole backup (reason ``backup``).
    """
    if domain.exists(folder):
        raise ConfigError(
            f"there is an embedded trust domain in {folder} already",
            fix="move it away first; a backup of it is made with wheelmark trust backup",
            reason="trust-exists",
        )
    aside = folder / ".restore"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _unpack(source, private_directory(aside))
        _check(aside, source)
        for name in sorted(path.name for path in aside.iterdir() if path.is_dir()):
            shutil.rmtree(folder / name, ignore_errors=True)
            (aside / name).rename(folder / name)
        storage.sync_directory(folder)
        # Last, since it is what makes the rest count.
        (aside / "domain.json").rename(folder / "domain.json")
        storage.sync_directory(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return domain.load(folder)


def _check(aside: Path, source: Path) -> None:
    try:
        domain.load(aside).current.keys()
    except StateError as error:
        raise InputError(f"{source} holds no whole domain: {error.what}", reason="backup") from error


def _member(path: Path, name: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    data = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o600
    return member, io.BytesIO(data)


def _unpack(source: Path, target: Path) -> None:
    seen: set[str] = set()
    try:
        with tarfile.open(source, mode="r:") as archive:
            for member in archive:
                if not member.isreg() or not _MEMBER.fullmatch(member.name) or member.name in seen:
                    raise InputError(
                        f"{source} holds {member.name[:200]!r}: it is no backup", reason="backup"
                    )
                if member.size > _LARGEST:
                    raise InputError(f"{source}: {member.name} is too large", reason="backup")
                seen.add(member.name)
                stream = archive.extractfile(member)
                place = target / member.name
                private_directory(place.parent)
                storage.write_new(place, stream.read() if stream else b"")
    except (OSError, tarfile.TarError) as error:
        raise InputError(f"cannot read the backup {source}: {error}", reason="backup") from error
