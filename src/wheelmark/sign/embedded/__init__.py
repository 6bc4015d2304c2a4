"""An in-process Sigstore: certificate authority, certificate log, transparency log, timestamps, tokens.

It is the trust domain that is used unless another is named. It needs no account, server or network, and it
proves integrity and that the signer could read this machine's keys, nothing more. Its certificates say so:
issuer ``https://embedded.invalid/oidc``, organization "self-issued, no external trust".

``state`` is a state directory (``wheelmark.trust.state``); the domain lies in its folder ``embedded``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from wheelmark.errors import BusyError
from wheelmark.sign.embedded import backup as _backup
from wheelmark.sign.embedded import domain as _domain
from wheelmark.sign.embedded import storage as _storage
from wheelmark.sign.embedded.authority import ORGANIZATION
from wheelmark.sign.embedded.domain import EmbeddedDomain, Generation
from wheelmark.sign.embedded.instance import Instance
from wheelmark.sign.embedded.oidc import ISSUER, RELEASE_IDENTITY, runner_identity

__all__ = [
    "ISSUER",
    "ORGANIZATION",
    "RELEASE_IDENTITY",
    "EmbeddedDomain",
    "Generation",
    "Instance",
    "backup",
    "create",
    "open_instance",
    "restore",
    "rotate",
    "runner_identity",
    "show",
]


def create(state: Path | None = None, *, issuer: str = ISSUER) -> EmbeddedDomain:
    """Make a domain.

    Args:
        state: The state directory; ``None`` for this machine's own.
        issuer: OIDC issuer that its certificates name; another than the default only to try policies out.

    Raises:
        ConfigError: There is one already (reason ``trust-exists``), or others can enter the directory.
        BusyError: Somebody holds the domain.
    """
    with _locked(state, exclusive=True) as folder, _storage.usable(folder):
        return _domain.create(folder, issuer)


@contextlib.contextmanager
def open_instance(state: Path | None = None) -> Iterator[Instance]:
    """The services of the domain, which is made where there is none; nobody rotates it meanwhile.

    Raises:
        StateError: The domain is damaged.
        BusyError: The domain is being changed.
    """
    _ensure(_domain.folder_of(state))
    with _locked(state, exclusive=False) as folder:
        # Not around the rest: what the caller's own files refuse is not the domain's matter.
        with _storage.usable(folder):
            instance = Instance(_domain.load(folder))
        with contextlib.closing(instance) as made:
            yield made


def show(state: Path | None = None) -> EmbeddedDomain:
    """The domain as it is.

    Raises:
        StateError: There is none (reason ``trust-absent``), or it is damaged.
    """
    with _locked(state, exclusive=False) as folder:
        return _domain.load(folder)


def rotate(state: Path | None = None) -> EmbeddedDomain:
    """New keys and new logs; what the old ones signed until now stays verifiable.

    Raises:
        StateError: There is no domain, or it is damaged.
        BusyError: Something is being signed.
    """
    with _locked(state, exclusive=True) as folder, _storage.usable(folder):
        return _domain.rotate(folder)


def backup(target: Path, state: Path | None = None) -> EmbeddedDomain:
    """Write the whole domain, keys and all, to the new file ``target`` with mode 0600.

    Raises:
        StateError: There is no domain, or it is damaged.
        BusyError: Something is being signed.
        ConfigError: ``target`` cannot be written.
    """
    with _locked(state, exclusive=True) as folder:
        found = _domain.load(folder)
        _backup.write(folder, target)
        return found


def restore(source: Path, state: Path | None = None) -> EmbeddedDomain:
    """Put a backup in place where there is no domain.

    Its logs end where the backup was made: rotate afterwards, so that no log ever has two histories.

    Raises:
        ConfigError: There is a domain already.
        InputError: ``source`` is no backup.
    """
    with _locked(state, exclusive=True) as folder, _storage.usable(folder):
        return _backup.restore(source, folder)


def _ensure(folder: Path) -> None:
    """Make a domain unless there is one, or another process makes it and signs with it at once."""
    deadline = time.monotonic() + _storage.PATIENCE
    while not _domain.exists(folder):
        try:
            with _storage.lock(_domain.lock_path(folder), exclusive=True, patience=0.1):
                if not _domain.exists(folder):
                    with _storage.usable(folder):
                        _domain.create(folder, ISSUER)
        except BusyError:
            if time.monotonic() >= deadline:
                raise


@contextlib.contextmanager
def _locked(state: Path | None, *, exclusive: bool) -> Iterator[Path]:
    folder = _domain.folder_of(state)
    with _storage.lock(_domain.lock_path(folder), exclusive=exclusive):
        yield folder
