"""Debian packages locked by digest: resolved from the signed archive, fetched by sha256, compared, audited."""

from __future__ import annotations

from wheelmark.lock.debian.advisories import DebianAdvisories, Finding, read_debian_advisories
from wheelmark.lock.debian.compare import PackageChange, compare_locks
from wheelmark.lock.debian.document import (
    DebianLock,
    DebianPackage,
    SignedIndex,
    parse_debian_lock,
    read_debian_lock,
)
from wheelmark.lock.debian.fetch import Patience, fetch_packages
from wheelmark.lock.debian.files import (
    ARCHITECTURES,
    DebianPlan,
    DebianResult,
    debian_lock_path,
    debian_plans,
    fetch_debian,
    fitting_lock,
    lock_debian,
)
from wheelmark.lock.debian.machine import AptSource, Machine, this_machine
from wheelmark.lock.debian.resolve import debian_inputs, resolve_debian
from wheelmark.lock.debian.versions import version_key

__all__ = [
    "ARCHITECTURES",
    "AptSource",
    "DebianAdvisories",
    "DebianLock",
    "DebianPackage",
    "DebianPlan",
    "DebianResult",
    "Finding",
    "Machine",
    "PackageChange",
    "Patience",
    "SignedIndex",
    "compare_locks",
    "debian_inputs",
    "debian_lock_path",
    "debian_plans",
    "fetch_debian",
    "fetch_packages",
    "fitting_lock",
    "lock_debian",
    "parse_debian_lock",
    "read_debian_advisories",
    "read_debian_lock",
    "resolve_debian",
    "this_machine",
    "version_key",
]
