"""Roots that TUF keeps fresh: ``wheelmark trust update`` gets one, policies name it by its first ``root.json``.

``<state>/roots/tuf/<name>/`` holds, private to its owner:

==========================  ===================================================================================
``update.json``             url, digests of bootstrap and root, when TUF vouched; written last, atomically
``root-<sha256>.json``      the trusted root that ``update.json`` names
``bootstrap.json``          the ``root.json`` that everything began with
``metadata/``               what the TUF client keeps between updates, so that nothing is ever rolled back
``lock``                    held while an update runs
==========================  ===================================================================================

Readers take no lock: they follow ``update.json``, which changes only once the new root lies on the disk, was
verified, and can be used. An update that fails, or is killed at any moment, leaves the earlier root in place.
TUF says which bytes are the root now; what they may vouch for a policy says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import fcntl
import importlib.resources
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from wheelmark import digests, strictjson
from wheelmark.errors import BusyError, ConfigError, InputError
from wheelmark.trust import roots, state
from wheelmark.trust.domain import StoredRoot

PUBLIC = "public"
"""The name under which Sigstore's public root is kept unless another is given."""
PUBLIC_URL = "https://tuf-repo-cdn.sigstore.dev"
"""TUF repository of Sigstore's public-good instance (sigstore/root-signing)."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_SCHEMA = 1
_POINTER = "update.json"
_BOOTSTRAP = "bootstrap.json"
_LARGEST = 4 << 20
_PATIENCE = 120.0
"""Seconds that another update of the same root is waited for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdatedRoot:
    """A trusted root that TUF vouched for."""

    name: str
    path: Path
    data: bytes
    sha256: str
    """Of ``data``."""
    vouched: dt.datetime
    """When this machine's clock began the last update that succeeded."""
    url: str
    """The TUF repository that it came from."""
    bootstrap_sha256: str
    """Digest of the ``root.json`` that trust began with: how a policy names this root."""
    version: int
    """Version of the TUF timestamp metadata; an update to a lower one is refused."""


def update_root(name: str, *, url: str, bootstrap: bytes, directory: Path | None = None) -> StoredRoot:
    """Get the newest trusted root of a TUF repository, and keep it.

    Args:
        name: How it is called here: lowercase letters, digits and hyphens.
        url: The repository: where its metadata lies. A mirror will do; TUF's signatures are what counts.
        bootstrap: A ``root.json`` of the repository that is trusted by other means.
        directory: The state directory; ``None`` for this machine's own.

    Raises:
        ConfigError: ``root-unreachable``; ``root-update`` (bad signature, expired, rolled back, other bytes than
            the metadata say); ``root-bootstrap`` (no TUF root, or another one than this root began with); the new
            root cannot be used (``root-shape`` and its like); ``root-name``; ``root-url``. In each case the
            earlier root stays.
        BusyError: Another update of this root runs for too long (``root-busy``).
    """
    _check_name(name)
    if urlsplit(url).scheme not in {"https", "http"} or not urlsplit(url).hostname:
        raise ConfigError(
            f"{url[:200]!r} is no address of a TUF repository", fix="give an https URL", reason="root-url"
        )
    base = state.private_directory(directory) if directory else state.state_directory(create=True)
    folder = base
    for part in ("roots", "tuf", name):
        folder = state.private_directory(folder / part)
    try:
        with _locked(folder):
            return _update(folder, name, url, bootstrap)
    except OSError as error:
        raise ConfigError(
            f"cannot keep trust root {name!r} in {folder}: {error.strerror}",
            cause="the disk is full, or mounted read-only; the earlier root stays",
            reason="state-directory",
        ) from error


def updated_root(name: str, *, bootstrap_sha256: str, directory: Path | None = None) -> UpdatedRoot:
    """The root that the last successful update of ``name`` brought. Asks no network.

    Args:
        name: As given to ``update_root``.
        bootstrap_sha256: The digest that the ``root.json`` has to have with which trust began.
        directory: The state directory; ``None`` for this machine's own.

    Raises:
        ConfigError: There is none (``root-absent``), trust began elsewhere (``root-digest``), or what lies there
            is damaged (``root-shape``).
    """
    found = stored_update(name, directory)
    if found.bootstrap_sha256 != bootstrap_sha256:
        raise ConfigError(
            f"trust root {name!r} began with a root.json of sha256 {found.bootstrap_sha256}, "
            f"the policy names {bootstrap_sha256}",
            cause="it was made from another TUF repository, or from a later root.json of the same one",
            fix="compare both digests with the publisher's; then correct the policy, or update under another name",
            reason="root-digest",
        )
    return found


def stored_update(name: str, directory: Path | None = None) -> UpdatedRoot:
    """The root that is kept under ``name``, whatever it began with; raises as ``updated_root`` does."""
    _check_name(name)
    folder = _folder(directory) / name
    if not (folder / _POINTER).is_file():
        raise ConfigError(
            f"there is no trust root {name!r} from TUF on this machine",
            fix=f"wheelmark trust update {name}",
            reason="root-absent",
        )
    state.check_private(folder)
    for _ in range(10):
        # An update that ends between our two reads removes the root that the first one named.
        with contextlib.suppress(FileNotFoundError):
            return _read(folder, name)
    raise _damaged(name, folder, "the root that update.json names is absent")


def updated_roots(directory: Path | None = None) -> tuple[UpdatedRoot, ...]:
    """Every root that TUF keeps fresh here, by name; raises as ``updated_root`` does."""
    folder = _folder(directory)
    names = sorted(path.parent.name for path in folder.glob(f"*/{_POINTER}"))
    return tuple(stored_update(name, directory) for name in names)


def first_root(name: str, directory: Path | None = None) -> bytes | None:
    """The ``root.json`` that ``name`` began with, if it is kept here."""
    _check_name(name)
    path = _folder(directory) / name / _BOOTSTRAP
    if not path.is_file():
        return None
    state.check_private(path.parent)
    return path.read_bytes()


def stored_url(name: str, directory: Path | None = None) -> str:
    """Where ``name`` came from the last time; the public repository for ``public``, else empty."""
    _check_name(name)
    if (_folder(directory) / name / _POINTER).is_file():
        return stored_update(name, directory).url
    return PUBLIC_URL if name == PUBLIC else ""


def public_root() -> bytes:
    """The ``root.json`` of Sigstore's public repository that the ``sigstore`` package ships.

    Raises:
        ConfigError: It ships none (``root-bootstrap``).
    """
    # The package has no public call for it; its data files are named after the repository's address.
    place = importlib.resources.files("sigstore") / "_store" / quote(PUBLIC_URL, safe="") / "root.json"
    if not place.is_file():
        raise ConfigError(
            "the installed sigstore package ships no root.json of the public repository",
            fix="give one: wheelmark trust update --bootstrap root.json",
            reason="root-bootstrap",
        )
    return place.read_bytes()


def _folder(directory: Path | None) -> Path:
    return (directory or state.state_directory()) / "roots" / "tuf"


def _update(folder: Path, name: str, url: str, bootstrap: bytes) -> StoredRoot:
    kept = first_root(name, folder.parents[2])
    if kept is not None and kept != bootstrap:
        raise ConfigError(
            f"trust root {name!r} began with a root.json of sha256 {digests.sha256(kept)}, "
            f"not {digests.sha256(bootstrap)}",
            cause="another TUF repository, or a later root.json of the same one",
            fix="leave --bootstrap out, or update under another name",
            reason="root-bootstrap",
        )
    from wheelmark.trust import repository  # noqa: PLC0415 - TUF's client and its HTTP: only where it is used

    refreshed = repository.refresh(name, url=url, bootstrap=bootstrap, cache=folder / "metadata")
    found = roots.read_root(refreshed.data, name=name, issuers=(), level="", canonical=False)
    if (folder / _POINTER).is_file():
        before = _pointer(folder, name)["timestampVersion"]
        if refreshed.version < before:
            raise ConfigError(
                f"trust root {name!r}: {url} gave timestamp metadata {refreshed.version} after {before}",
                cause="a mirror that is behind, or an attacker who plays back old metadata; the earlier root stays",
                reason="root-update",
            )
    if kept is None:
        state.write_private(folder / _BOOTSTRAP, bootstrap)
    path = folder / f"root-{found.sha256}.json"
    state.write_private(path, refreshed.data)
    record = {
        "schemaVersion": _SCHEMA,
        "url": url,
        "bootstrapSha256": digests.sha256(bootstrap),
        "rootSha256": found.sha256,
        "timestampVersion": refreshed.version,
        "vouched": refreshed.vouched.isoformat(),
    }
    state.write_private(folder / _POINTER, digests.canonical_json(record))
    for other in folder.glob("root-*.json"):
        if other != path:
            other.unlink()
    for leftover in folder.glob(".*.partial"):
        leftover.unlink()
    windows = tuple(item.window for item in found.material.authorities)
    return StoredRoot(name=name, path=path, sha256=found.sha256, windows=windows)


def _read(folder: Path, name: str) -> UpdatedRoot:
    record = _pointer(folder, name)
    path = folder / f"root-{record['rootSha256']}.json"
    with path.open("rb") as stream:
        data = stream.read(_LARGEST + 1)
    if digests.sha256(data) != record["rootSha256"]:
        raise _damaged(name, folder, f"{path.name} has other bytes than its name says")
    return UpdatedRoot(
        name=name,
        path=path,
        data=data,
        sha256=record["rootSha256"],
        vouched=record["vouched"],
        url=record["url"],
        bootstrap_sha256=record["bootstrapSha256"],
        version=record["timestampVersion"],
    )


def _pointer(folder: Path, name: str) -> dict[str, Any]:
    """``update.json`` with each member of its type."""
    try:
        value = strictjson.load_object((folder / _POINTER).read_bytes(), what=_POINTER)
        if value["schemaVersion"] != _SCHEMA:
            raise _damaged(name, folder, "update.json has a schema version that is not known")
        vouched = dt.datetime.fromisoformat(value["vouched"])
        for key in ("bootstrapSha256", "rootSha256"):
            if not digests.is_sha256(value[key]):
                raise _damaged(name, folder, f"update.json: {key} is no digest")
        version = value["timestampVersion"]
        if vouched.tzinfo is None or not isinstance(version, int) or not isinstance(value["url"], str):
            raise _damaged(name, folder, "update.json has a malformed member")
    except FileNotFoundError:
        raise
    except (OSError, InputError, KeyError, TypeError, ValueError) as error:
        raise _damaged(name, folder, f"update.json: {error}") from error
    return {**value, "vouched": vouched}


def _damaged(name: str, folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"trust root {name!r} in {folder} cannot be used: {why}",
        cause="the disk lost bytes, or something other than wheelmark wrote to it",
        fix=f"remove {folder}, then: wheelmark trust update {name}",
        reason="root-shape",
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is no name for a root",
            fix="use lowercase letters, digits and -",
            reason="root-name",
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other updates of this root out; the kernel lets go when the process dies."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise BusyError(
                        f"another update of the root in {folder} is running", reason="root-busy"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)
