"""What a wheel's platform tag promises: the newest symbol versions that it may ask of a host, and its libraries.

Figures: auditwheel 6.8.2, ``policy/manylinux-policy.json`` (MIT licence), columns x86_64 and aarch64. PEP 600: a
``manylinux_X_Y`` wheel works wherever glibc is X.Y or later; the other libraries' versions are those of the
distributions that had it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TypeAlias

from wheelmark.errors import InputError

Version: TypeAlias = tuple[int, ...]

_PLATFORM = re.compile(r"(?P<policy>manylinux(?:_[0-9]+_[0-9]+|1|2010|2014))_(?P<machine>x86_64|aarch64)")
_ALIASES = {
    "manylinux1": "manylinux_2_5",
    "manylinux2010": "manylinux_2_12",
    "manylinux2014": "manylinux_2_17",
}
_NUMBER = re.compile(r"(?P<family>[A-Z]+)_(?P<version>[0-9]+(?:\.[0-9]+)*)")
_UNNUMBERED = {"CXXABI_TM_1": ("x86_64", "aarch64"), "CXXABI_FLOAT128": ("x86_64",)}
"""Versions without a number that every policy grants, and the machines that have them."""

LIBRARIES = frozenset(
    {
        "libatomic.so.1",
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "libm.so.6",
        "libmvec.so.1",
        "libanl.so.1",
        "libdl.so.2",
        "librt.so.1",
        "libc.so.6",
        "libnsl.so.1",
        "libutil.so.1",
        "libpthread.so.0",
        "libresolv.so.2",
        "libz.so.1",
    }
)
"""Of auditwheel's whitelist, what has no display or desktop behind it."""
LOADERS: Mapping[str, str] = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floor:
    """The newest version of each family of symbols that a platform grants."""

    policy: str
    """``manylinux_2_28``."""
    machine: str
    """``x86_64``, ``aarch64``."""
    newest: Mapping[str, Version]
    """``GLIBC`` -> (2, 28)."""

    def grants(self, version: str) -> bool:
        """Whether a symbol version such as ``GLIBC_2.14`` is granted."""
        if version in _UNNUMBERED:
            return self.machine in _UNNUMBERED[version]
        match = _NUMBER.fullmatch(version)
        return (
            match is not None
            and match["family"] in self.newest
            and parse_version(match["version"]) <= self.newest[match["family"]]
        )


_FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "ZLIB", "LIBATOMIC")


def _row(*versions: str) -> dict[str, Version]:
    """The newest version of each family, in the order of ``_FAMILIES``; empty where there is none."""
    return {name: parse_version(text) for name, text in zip(_FAMILIES, versions, strict=True) if text}


def parse_version(text: str) -> Version:
    """``3.4.24`` as numbers that compare."""
    return tuple(int(part) for part in text.split("."))


_X86_64: Mapping[str, Mapping[str, Version]] = {
    "manylinux_2_5": _row("2.5", "3.4.8", "1.3.1", "4.2.0", "", ""),
    "manylinux_2_12": _row("2.12", "3.4.13", "1.3.3", "4.3.0", "1.2.2.4", ""),
    "manylinux_2_17": _row("2.17", "3.4.19", "1.3.7", "4.8.0", "1.2.5.2", ""),
    "manylinux_2_24": _row("2.24", "3.4.22", "1.3.10", "4.8.0", "1.2.5.2", "1.2"),
    "manylinux_2_26": _row("2.26", "3.4.22", "1.3.10", "4.8.0", "1.2.5.2", "1.2"),
    "manylinux_2_27": _row("2.27", "3.4.24", "1.3.11", "7.0.0", "1.2.9", "1.2"),
    "manylinux_2_28": _row("2.28", "3.4.24", "1.3.11", "7.0.0", "1.2.9", "1.2"),
    "manylinux_2_31": _row("2.31", "3.4.28", "1.3.12", "7.0.0", "1.2.9", "1.2"),
    "manylinux_2_34": _row("2.34", "3.4.29", "1.3.13", "7.0.0", "1.2.9", "1.2"),
    "manylinux_2_35": _row("2.35", "3.4.30", "1.3.13", "12.0.0", "1.2.9", "1.2"),
    "manylinux_2_39": _row("2.39", "3.4.33", "1.3.15", "14.0.0", "1.2.12", "1.2"),
}
_AARCH64: Mapping[str, Mapping[str, Version]] = {
    **_X86_64,
    "manylinux_2_17": _row("2.18", "3.4.19", "1.3.7", "4.7.0", "1.2.5.2", "1.0"),
    "manylinux_2_24": _row("2.24", "3.4.22", "1.3.10", "4.7.0", "1.2.5.2", "1.2"),
    "manylinux_2_26": _row("2.26", "3.4.24", "1.3.11", "7.0.0", "1.2.9", "1.2"),
    "manylinux_2_34": _row("2.34", "3.4.29", "1.3.13", "11.0", "1.2.9", "1.2"),
    "manylinux_2_35": _row("2.35", "3.4.30", "1.3.13", "11.0", "1.2.9", "1.2"),
}
_BEFORE_AARCH64 = {"manylinux_2_5", "manylinux_2_12"}


def floor_of(platform: str) -> Floor:
    """What a platform tag grants.

    Args:
        platform: ``manylinux_2_28_x86_64``, also in its old spelling (``manylinux2014_x86_64``).

    Raises:
        InputError: Not a manylinux tag that is known (reason ``platform-unknown``).
    """
    match = _PLATFORM.fullmatch(platform)
    if match is not None:
        policy, machine = _ALIASES.get(match["policy"], match["policy"]), match["machine"]
        table = _X86_64 if machine == "x86_64" else _AARCH64
        if policy in table and not (machine == "aarch64" and policy in _BEFORE_AARCH64):
            return Floor(policy=policy, machine=machine, newest=table[policy])
    raise InputError(
        f"platform tag {platform[:80]!r} promises nothing that is known",
        fix=f"use one of: {', '.join(_X86_64)}, followed by _x86_64 or _aarch64",
        reason="platform-unknown",
    )


def needed(versions: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The newest version of each family that an object asks for: ``{"GLIBC": "2.14"}``.

    Args:
        versions: Library -> versions, as ``Dynamic.required`` has them.
    """
    newest: dict[str, Version] = {}
    for names in versions.values():
        for name in names:
            match = _NUMBER.fullmatch(name)
            if match is not None:
                version = parse_version(match["version"])
                newest[match["family"]] = max(version, newest.get(match["family"], ()))
    return {family: ".".join(map(str, version)) for family, version in sorted(newest.items())}
