"""Debian packages locked by digest: resolved from the signed archive, fetched by sha256, compared, audited."""

from __future__ import annotations

from wheelmark.lock.debian.document import (
    DebianLock,
    DebianPackage,
    SignedIndex,
    parse_debian_lock,
    read_debian_lock,
)
from wheelmark.lock.debian.fetch import Patience, fetch_packages
from wheelmark.lock.debian.machine import AptSource, Machine, this_machine
from wheelmark.lock.debian.resolve import debian_inputs, resolve_debian

__all__ = [
    "AptSource",
    "DebianLock",
    "DebianPackage",
    "Machine",
    "Patience",
    "SignedIndex",
    "debian_inputs",
    "fetch_packages",
    "parse_debian_lock",
    "read_debian_lock",
    "resolve_debian",
    "this_machine",
]
