"""Verification: bounded parsing, then cryptographic facts, then a pure policy, then a verdict.

``verify_release`` and ``verify_wheel`` are what the command line and deploy hooks call; ``load_policy`` reads
the operator's word. Nothing here reads ``wheelmark.toml``, the network, or a trust root that the policy does
not name. The heavy modules are imported when something is verified.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from wheelmark.verify.policy import Policy, load_policy
from wheelmark.verify.release import verify_release_directory
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Report, Unchecked, Verdict
from wheelmark.verify.wheel import verify_one_wheel

__all__ = [
    "Accepted",
    "Missing",
    "Policy",
    "Rejected",
    "Report",
    "Unchecked",
    "Verdict",
    "load_policy",
    "verify_release",
    "verify_wheel",
]


def verify_release(dist: Path, policy: Policy, *, now: dt.datetime) -> Report:
    """Verify a release directory; see ``wheelmark.verify.release`` for the order of what is checked.

    Raises:
        InputError: ``dist`` is no release directory.
        ConfigError: The policy has no requirement for a target of the release.
    """
    return verify_release_directory(dist, policy, now=now)


def verify_wheel(path: Path, policy: Policy, *, now: dt.datetime, bundles: Sequence[Path] = ()) -> Report:
    """Verify one wheel with the bundles that lie beside it, are given, or are in its release.

    Raises:
        InputError: The wheel cannot be read.
        ConfigError: The policy has no requirement for such a wheel.
    """
    return verify_one_wheel(path, policy, now=now, bundles=bundles)
