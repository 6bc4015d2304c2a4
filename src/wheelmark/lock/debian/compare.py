"""What changed between two locks, and which advisories the change answers."""

from __future__ import annotations

import dataclasses

from wheelmark.lock.debian.advisories import DebianAdvisories
from wheelmark.lock.debian.document import DebianLock, DebianPackage
from wheelmark.lock.debian.versions import version_key


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageChange:
    """One package whose locked version, or bytes, are others than before."""

    name: str
    old: str
    """Version before; empty: it is new."""
    new: str
    """Version now; empty: it is gone."""
    fixes: tuple[str, ...] | None = None
    """Advisories that the old version had and the new one has not; ``None``: UNCHECKED, there is no data."""
    remains: tuple[str, ...] | None = None
    """Advisories that the new version has; ``None``: UNCHECKED."""

    def as_line(self) -> str:
        """For people."""
        if not self.old:
            what = f"+ {self.name} {self.new}"
        elif not self.new:
            what = f"- {self.name} {self.old}"
        elif self.old == self.new:
            what = f"! {self.name} {self.new}: other bytes under the same version"
        else:
            arrow = "↑" if version_key(self.old) < version_key(self.new) else "↓ OLDER:"
            what = f"{arrow} {self.name} {self.old} -> {self.new}"
        if self.fixes is None:
            return f"{what}  advisories: UNCHECKED"
        fixes = f"  fixes {', '.join(self.fixes)}" if self.fixes else ""
        remains = f"  still {', '.join(self.remains)}" if self.remains else ""
        return f"{what}{fixes}{remains}"


def compare_locks(
    old: DebianLock, new: DebianLock, *, advisories: DebianAdvisories | None = None
) -> tuple[PackageChange, ...]:
    """The packages that differ, by name.

    Args:
        old: The lock before.
        new: The lock now.
        advisories: Debian's security data, where there is some.

    Raises:
        InputError: An advisory has a version that cannot be ordered (``audit-data``).
    """
    before, after = _by_name(old), _by_name(new)
    had, has = _findings(old, advisories), _findings(new, advisories)
    outside = {*advisories.outside(old), *advisories.outside(new)} if advisories is not None else set()
    changes = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was and now and (was.version, was.sha256) == (now.version, now.sha256):
            continue
        unchecked = advisories is None or bool({item.source for item in (was, now) if item} & outside)
        mine, theirs = has.get(name, set()), had.get(name, set())
        changes.append(
            PackageChange(
                name=name,
                old=was.version if was else "",
                new=now.version if now else "",
                fixes=None if unchecked else tuple(sorted(theirs - mine)),
                remains=None if unchecked else tuple(sorted(mine)),
            )
        )
    return tuple(changes)


def _by_name(lock: DebianLock) -> dict[str, DebianPackage]:
    return {package.name: package for package in lock.packages}


def _findings(lock: DebianLock, advisories: DebianAdvisories | None) -> dict[str, set[str]]:
    """Package -> names of the advisories that it is affected by."""
    found: dict[str, set[str]] = {}
    for finding in advisories.affecting(lock) if advisories is not None else ():
        for name in finding.packages:
            found.setdefault(name, set()).add(finding.advisory)
    return found
