"""The embedded trust domain on disk: generations of keys, made, loaded, rotated, backed up, restored.

Layout of ``<state>/embedded``, all of it private to its owner:

====================================  =================================================================
``domain.json``                       the list of generations and their windows; written last, atomically
``generation-<n>/*.key.pem``          private keys (``keys``), of the last generation only
``generation-<n>/*.pub.pem``          public keys of the two logs
``generation-<n>/*.crt.pem``          certificates of the authority and of the timestamp authority
``generation-<n>/{log,ct}.records``   transparency log and certificate log (``storage.Records``)
``trusted_root.json``                 derived from all that; healed when it differs
``lock``                              shared while signing, exclusive while the domain changes
====================================  =================================================================

A crash at any moment leaves either the old domain or the new one: a generation that ``domain.json`` does not
name is a leftover and is removed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError, InputError, StateError
from wheelmark.sign.embedded import authority as certificates
from wheelmark.sign.embedded import keys, storage, trustconfig
from wheelmark.trust import state as trust_state

_SCHEMA = 1
_RECORD = "domain.json"
_LOCK = "lock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """One set of keys and the time that it was in use. Only the last one's private keys are kept."""

    folder: Path
    public: trustconfig.PublicMaterial

    def keys(self) -> keys.Keys:
        """The private keys.

        Raises:
            StateError: They are absent or unreadable (reason ``trust-keys``).
        """
        return keys.load(self.folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddedDomain:
    """A loaded domain. It stays good while the lock is held that it was loaded under."""

    folder: Path
    issuer: str
    """OIDC issuer that its certificates name."""
    generations: tuple[Generation, ...]
    """Oldest first; the last one signs."""

    @property
    def current(self) -> Generation:
        """The generation that signs."""
        return self.generations[-1]

    def public(self) -> tuple[trustconfig.PublicMaterial, ...]:
        """What verifiers need, oldest first."""
        return tuple(generation.public for generation in self.generations)

    def trusted_root(self) -> bytes:
        """Canonical bytes of the trusted root."""
        return trustconfig.trusted_root(self.public())

    @property
    def root_sha256(self) -> str:
        """The digest by which a policy names the root."""
        return digests.sha256(self.trusted_root())


def folder_of(state: Path | None) -> Path:
    """The domain's folder, made private where absent.

    Args:
        state: The state directory; ``None`` for this machine's own.
    """
    base = trust_state.private_directory(state) if state else trust_state.state_directory(create=True)
    return trust_state.private_directory(trust_state.embedded_directory(base))


def lock_path(folder: Path) -> Path:
    """The file that ``storage.lock`` is taken on."""
    return folder / _LOCK


def exists(folder: Path) -> bool:
    """Whether a domain was made in ``folder``."""
    return (folder / _RECORD).is_file()


def load(folder: Path) -> EmbeddedDomain:
    """Read the domain; the caller holds the lock.

    Raises:
        StateError: There is none (reason ``trust-absent``), or it is damaged (``trust-domain``, ``trust-keys``).
    """
    if not exists(folder):
        raise StateError(
            f"there is no embedded trust domain in {folder}",
            fix="wheelmark trust create",
            reason="trust-absent",
        )
    issuer, windows = _read_record(folder / _RECORD)
    domain = EmbeddedDomain(
        folder=folder,
        issuer=issuer,
        generations=tuple(
            _load_generation(folder, number, window) for number, window in enumerate(windows, start=1)
        ),
    )
    root = folder / "trusted_root.json"
    if not root.is_file() or root.read_bytes() != domain.trusted_root():
        storage.write_atomically(root, domain.trusted_root())
    return domain


def create(folder: Path, issuer: str) -> EmbeddedDomain:
    """Make the first generation; the caller holds the lock exclusively.

    Raises:
        ConfigError: There is a domain already (reason ``trust-exists``).
    """
    if exists(folder):
        raise ConfigError(
            f"there is an embedded trust domain in {folder} already",
            fix="use it, or give it new keys: wheelmark trust rotate",
            reason="trust-exists",
        )
    window = trustconfig.Window(start=_second())
    _make_generation(folder, 1, window)
    _write_record(folder, issuer, [window])
    return load(folder)


def rotate(folder: Path) -> EmbeddedDomain:
    """Close the current generation's window and begin another; the caller holds the lock exclusively.

    The window ends with the next full second, so that what was signed in this one stays inside it. The old
    private keys are deleted: nothing needs them any more.
    """
    domain = load(folder)
    now = _second()
    ended = dataclasses.replace(domain.current.public.window, end=now + dt.timedelta(seconds=1))
    began = trustconfig.Window(start=now)
    _make_generation(folder, domain.current.public.number + 1, began)
    windows = [item.public.window for item in domain.generations[:-1]] + [ended, began]
    _write_record(folder, domain.issuer, windows)
    for generation in domain.generations:
        keys.delete(generation.folder)
    return load(folder)


def _make_generation(folder: Path, number: int, window: trustconfig.Window) -> None:
    place = folder / f"generation-{number}"
    if place.exists():
        shutil.rmtree(place)
    trust_state.private_directory(place)
    made = keys.generate()
    keys.save(made, place)
    root = certificates.service_authority(
        "embedded timestamp authority", made.timestamp_authority, window.start
    )
    issued = {
        "authority": certificates.service_authority("embedded authority", made.authority, window.start),
        "timestamp_authority": root,
        "timestamping": certificates.timestamping_certificate(
            made.timestamping.public_key(),
            issuer=root,
            issuer_key=made.timestamp_authority,
            start=window.start,
        ),
    }
    for name, certificate in issued.items():
        storage.write_new(place / f"{name}.crt.pem", certificate.public_bytes(Encoding.PEM))
    storage.sync_directory(place)
    storage.sync_directory(folder)


def _load_generation(folder: Path, number: int, window: trustconfig.Window) -> Generation:
    place = folder / f"generation-{number}"
    try:
        authority, issuer, timestamping = (
            x509.load_pem_x509_certificate((place / f"{name}.crt.pem").read_bytes())
            for name in ("authority", "timestamp_authority", "timestamping")
        )
    except (OSError, ValueError) as error:
        raise _damaged(folder, str(error)) from error
    ct_log, log = keys.load_public(place)
    public = trustconfig.PublicMaterial(
        number=number,
        window=window,
        authority=authority,
        ct_log=ct_log,
        log=log,
        timestamping=(timestamping, issuer),
    )
    return Generation(folder=place, public=public)


def _write_record(folder: Path, issuer: str, windows: list[trustconfig.Window]) -> None:
    record = {
        "schemaVersion": _SCHEMA,
        "issuer": issuer,
        "generations": [window.as_json() for window in windows],
    }
    storage.write_atomically(folder / _RECORD, digests.canonical_json(record))


def _read_record(path: Path) -> tuple[str, list[trustconfig.Window]]:
    try:
        value = strictjson.load_object(path.read_bytes(), what=str(path))
        if value["schemaVersion"] != _SCHEMA or not value["generations"]:
            raise _damaged(path.parent, "it is of another version")
        windows = [
            trustconfig.Window(**{name: dt.datetime.fromisoformat(text) for name, text in item.items()})
            for item in value["generations"]
        ]
        return str(value["issuer"]), windows
    except (OSError, InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path.parent, str(error)) from error


def _damaged(folder: Path, why: str) -> StateError:
    return StateError(
        f"the embedded trust domain in {folder} cannot be read: {why}",
        fix="restore a backup (wheelmark trust restore), or move the folder away and create a new domain",
        reason="trust-domain",
    )


def _second() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)
