"""What refers to an image in a registry: signatures, SBOMs, test results. Found in both ways, listed in the one that works.

Source: OCI distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema". A registry with the API lists
what has a ``subject`` by itself. For one without, clients keep an index under the tag ``sha256-<hex>``. Readers take
both, since an image may have come from either kind.

**Writers of one tag.** Two clients that read the index and write it back can lose one another's entry. ``If-Match`` (RFC 9110)
is sent, and a registry that heeds it refuses the second. Where it is not heeded (Debian's docker-registry does not),
each writer reads the tag again after ``SETTLE`` seconds, longer than anybody should take from reading to writing,
and puts its entries back if they are gone, until they stay.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence

import requests

from wheelmark.errors import InputError, RegistryError
from wheelmark.oci import types
from wheelmark.oci.blobs import scope
from wheelmark.oci.client import ABSENT, Registry
from wheelmark.oci.layout import MAX_REFERRERS
from wheelmark.oci.reference import Reference
from wheelmark.oci.transport import chance
from wheelmark.oci.types import Descriptor, ImageIndex

SETTLE = 2.0
"""Seconds in which a tag that was written has to stay as it is."""
_MAX_PAGES = 100
_MAX_ROUNDS = 30
_NO_API = frozenset({404, 405, 406})
"""How registries answer that have never heard of it."""


def referrers(registry: Registry, repository: str, sha256: str) -> tuple[Descriptor, ...]:
    """Descriptors of what refers to a manifest, by digest; what they are is to be read from each manifest.

    Args:
        registry: The registry.
        repository: Of the manifest.
        sha256: The manifest's.

    Raises:
        InputError: More than 1,000, or pages without end (``registry-limit``).
        RegistryError: As of the registry.
    """
    found = {item.sha256: item for item in _by_tag(registry, repository, sha256)[0]}
    found |= {item.sha256: item for item in _by_api(registry, repository, sha256)}
    if len(found) > MAX_REFERRERS:
        raise _too_many(repository, sha256)
    return tuple(found[key] for key in sorted(found))


def list_by_tag(registry: Registry, repository: str, wanted: Mapping[str, Sequence[Descriptor]]) -> None:
    """See to it that fallback indexes list these manifests, whoever else writes there.

    Args:
        registry: A registry, which has the manifests already.
        repository: Of the manifests.
        wanted: sha256 of a manifest -> descriptors of what refers to it.

    Raises:
        RegistryError: Others write without end (``registry-conflict``); as of the registry.
        InputError: More than 1,000 of one manifest (``registry-limit``).
    """
    missing = {sha256: items for sha256, items in wanted.items() if items}
    for attempt in range(1, _MAX_ROUNDS + 1):
        changed = [sha256 for sha256, items in missing.items() if _write(registry, repository, sha256, items)]
        if not changed:
            return
        missing = {sha256: missing[sha256] for sha256 in changed}
        # Whoever lost its entry comes back at a time of its own, or two would go on overwriting each other.
        registry.transport.pause(SETTLE * (1.0 if attempt == 1 else 1.0 + chance()))
    raise RegistryError(
        f"others change the referrers of images in {registry.host}/{repository} all the time",
        fix="run again: nothing that is there is lost",
        reason="registry-conflict",
    )


def _write(registry: Registry, repository: str, sha256: str, items: Sequence[Descriptor]) -> bool:
    """Add what the tag lacks; whether anything was missing."""
    listed, etag = _by_tag(registry, repository, sha256)
    found = {item.sha256: item for item in listed}
    if all(item.sha256 in found for item in items):
        return False
    found |= {item.sha256: item for item in items if item.sha256 not in found}
    if len(found) > MAX_REFERRERS:
        raise _too_many(repository, sha256)
    index = ImageIndex(manifests=tuple(found[key] for key in sorted(found)))
    try:
        registry.push_manifest(
            _tagged(registry, repository, sha256), index.as_bytes(), types.INDEX, if_match=etag
        )
    except RegistryError as error:
        if error.reason != "registry-conflict":
            raise
    return True


def _by_tag(registry: Registry, repository: str, sha256: str) -> tuple[tuple[Descriptor, ...], str]:
    """Entries of the fallback index, and the state of its tag for ``If-Match``."""
    found = registry.find(_tagged(registry, repository, sha256))
    if found is None:
        return (), ABSENT
    return _entries(found.data, repository, sha256), found.etag


def _by_api(registry: Registry, repository: str, sha256: str) -> list[Descriptor]:
    address = f"/v2/{repository}/referrers/sha256:{sha256}"
    found: list[Descriptor] = []
    for _ in range(_MAX_PAGES):
        answer, data = registry.transport.whole(
            address,
            limit=types.DOCUMENT_LIMIT,
            scopes=(scope(repository),),
            headers={"Accept": types.INDEX},
            expected=frozenset({200, *_NO_API}),
        )
        if answer.status in _NO_API or answer.media_type != types.INDEX:
            return found
        found += _entries(data, repository, sha256)
        if len(found) > MAX_REFERRERS:
            raise _too_many(repository, sha256)
        following = requests.utils.parse_header_links(answer.headers.get("Link", ""))
        target = next((item["url"] for item in following if item.get("rel") == "next"), "")
        if not target:
            return found
        address = urllib.parse.urljoin(answer.url, target)
        if urllib.parse.urlsplit(address)[:2] != urllib.parse.urlsplit(answer.url)[:2]:
            raise RegistryError(f"{registry.host} continues its list of referrers at another host")
    raise InputError(
        f"{registry.host} lists referrers of sha256:{sha256} on more than {_MAX_PAGES} pages",
        reason="registry-limit",
    )


def _entries(data: bytes, repository: str, sha256: str) -> tuple[Descriptor, ...]:
    try:
        return types.read_index(data, what=f"referrers of sha256:{sha256}").manifests
    except InputError as error:
        if error.reason in {"input-limit", "json-too-long"}:
            raise _too_many(repository, sha256) from error
        raise


def _tagged(registry: Registry, repository: str, sha256: str) -> Reference:
    return Reference(host=registry.host, repository=repository, tag=types.fallback_tag(sha256))


def _too_many(repository: str, sha256: str) -> InputError:
    return InputError(
        f"{repository}@sha256:{sha256} has more than {MAX_REFERRERS:,} referrers", reason="registry-limit"
    )
