"""The TUF client: the newest trusted root that a repository vouches for.

Source: The Update Framework specification 1.0, section 5 (detailed client workflow), as python-tuf implements
it; layout of the repository: sigstore/root-signing, whose target is ``trusted_root.json``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path

from tuf.api.exceptions import (
    DownloadError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    RepositoryError,
)
from tuf.ngclient import Updater, UpdaterConfig  # type: ignore[attr-defined] # they say __all__ as a tuple of strings

import wheelmark
from wheelmark.errors import ConfigError
from wheelmark.trust import state

TARGET = "trusted_root.json"
_DELEGATIONS = 8
_LARGEST = 4 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What a refresh brought."""

    data: bytes
    """The target's bytes, as the metadata say."""
    version: int
    """Of the timestamp metadata."""
    vouched: dt.datetime
    """This machine's clock when the refresh began; nothing was expired then."""


def refresh(name: str, *, url: str, bootstrap: bytes, cache: Path) -> Refreshed:
    """Verify the repository's metadata from ``bootstrap`` on, then get the target.

    Args:
        name: For messages.
        url: Where the metadata lie; targets lie in ``targets/`` below it.
        bootstrap: The trusted ``root.json``.
        cache: Folder for metadata, kept from one refresh to the next; one refresh at a time.

    Raises:
        ConfigError: ``root-bootstrap``, ``root-unreachable`` or ``root-update``.
    """
    state.private_directory(cache)
    for leftover in cache.glob("tmp*"):
        leftover.unlink()
    vouched = dt.datetime.now(dt.UTC)
    address = url.rstrip("/")
    settings = UpdaterConfig(
        app_user_agent=f"wheelmark/{wheelmark.__version__}", max_delegations=_DELEGATIONS
    )
    try:
        updater = Updater(
            metadata_dir=str(cache),
            metadata_base_url=address,
            target_base_url=f"{address}/targets/",
            target_dir=str(cache),
            config=settings,
            bootstrap=bootstrap,
        )
    except RepositoryError as error:
        raise ConfigError(
            f"trust root {name!r}: the bootstrap is no TUF root.json: {error}",
            fix="give the repository's own root.json, of any version",
            reason="root-bootstrap",
        ) from error
    try:
        updater.refresh()
        target = updater.get_targetinfo(TARGET)
        if target is None:
            raise _refused(name, url, f"it has no target {TARGET}")
        if target.length > _LARGEST:
            raise _refused(name, url, f"{TARGET} has {target.length:,} bytes; a trusted root has few")
        place = updater.find_cached_target(target) or updater.download_target(target)
        data = Path(place).read_bytes()
        version = json.loads((cache / "timestamp.json").read_bytes())["signed"]["version"]
    except DownloadLengthMismatchError as error:
        raise _refused(name, url, f"a file is longer than its metadata say: {error}") from error
    except DownloadError as error:
        raise ConfigError(
            f"trust root {name!r}: {url} cannot be reached: {error.__cause__ or error}",
            cause="no network, a proxy, or a repository that has moved; the earlier root stays",
            fix="try again, or name a mirror with --url",
            reason="root-unreachable",
        ) from error
    except ExpiredMetadataError as error:
        raise _refused(
            name, url, str(error), cause="the repository is not looked after, or the clock is ahead"
        ) from error
    except (RepositoryError, ValueError, KeyError, TypeError) as error:
        raise _refused(name, url, str(error)) from error
    return Refreshed(data=data, version=version, vouched=vouched)


def _refused(name: str, url: str, why: str, *, cause: str = "") -> ConfigError:
    return ConfigError(
        f"trust root {name!r}: what {url} serves is refused: {why}",
        cause=f"{cause or 'a faulty mirror, or an attack on it'}; the earlier root stays",
        fix="try again later or with another mirror; ask the repository's operator where it stays so",
        reason="root-update",
    )
